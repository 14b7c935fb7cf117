"""The calls of a session as its entries have them, and in what those of two runs differ.

Records are compared as JSON, so no class of the recorded run is needed. Times, and names that a run gives itself, are
not compared.

| kind of a difference | what is compared |
|---|---|
| `request` | digests of what a model was asked, but for the answers to calls; see `digest_request` |
| `arguments` | the parsed arguments, and whether they parse |
| `outcome` | whether it succeeded, the step that refused it, what policies asked, and the answers |
| `result` | the value and the parts of its result |
| `message` | the message of its result, and what the model read |
| `state` | its changes of STATE slices |
| `files` | its changes of files, as diffs |
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from pydantic_core import from_json

from handrail.runtime.calls import ToolInvoked
from handrail.serde.json_schema import is_array, is_object
from handrail.session.calls import CallRef
from handrail.session.conversation import CALL_IDS, REPLY_KEY, without_answers
from handrail.session.persistence.loading import decode_items
from handrail.session.persistence.protocol import SessionEntry, SessionStore
from handrail.session.persistence.stored_types import stored_type
from handrail.undo.plan_file import changed_names, json_diff, texts_in
from handrail.undo.records import UNDO

DifferenceKind: TypeAlias = Literal[
    "request", "arguments", "outcome", "state", "files", "result", "message", "missing call", "further call"
]
"""What a difference is of; see `handrail.replay.journal`."""

_RECORD, _PART = "handrail.tool_invoked", "handrail.said"
_APPROVAL: Final = "handrail.approval"
_RANDOM: Final = frozenset({"handrail.effect_applied", "handrail.undo_registration"})  # they have ids of their own
_ARGUMENTS: Final = ("args", "arguments", "input")
_OF_A_RUN: Final = frozenset({"timestamp", "run_id", "conversation_id", "metadata", "instructions"})


class Difference(NamedTuple):
    """In what a replay differs from the recorded run.

    Attributes:
        kind: what differs.
        call: the call, as `sessions show` writes it; for a request the first call of the reply to it.
        tool: its tool; empty for a request that no call follows.
        session_id: the recorded session that has it.
        original: what the recorded run has there, as JSON.
        replayed: what the replay has there.
    """

    kind: DifferenceKind
    call: str
    tool: str
    session_id: str
    original: Any
    replayed: Any

    @property
    def diff(self) -> str:
        """The difference as lines."""
        return json_diff(self.original, self.replayed, ("recorded", "replayed"))

    def __str__(self) -> str:
        where = f"{self.call} {self.tool}".strip() or "the end"
        before = "the request before " if self.kind == "request" else ""
        return f"{before}{where}: {self.kind}\n{self.diff}"


@dataclass(slots=True, eq=False)
class JournalCall:
    """A call of a journal.

    Attributes:
        ref: its identity, as a store names it.
        entry: the entry of its record.
        record: its record, as JSON.
        slices: its changes of STATE slices: the type, how many items were removed, and those that came.
        answer: what the conversation says of it to the model; `None` if it does not.
        asked: whether an approver was asked about it.
        acts: whether its tool acts outside; of a recorded call that has not run its handler, whether that is so today.
    """

    ref: CallRef
    entry: SessionEntry
    record: dict[str, Any]
    slices: list[Any] = field(default_factory=list[Any])
    answer: str | None = None
    asked: bool = False
    acts: bool = field(init=False)

    def __post_init__(self) -> None:
        self.acts = bool(self.record.get("may_act"))

    @property
    def tool(self) -> str:
        """Its tool."""
        return self.entry.tool

    def side(self, kind: DifferenceKind) -> Any:  # noqa: ANN401 - JSON
        """What is compared of a kind."""
        record = self.record
        changes: list[Any] = record.get("changes") or []
        match kind:
            case "arguments":
                return "refused" if record.get("refused_at") == "parse" else _value(record, "params")
            case "outcome":
                # What stands in for the ledger, and for what comes after it, is a handler.
                step = record.get("refused_at")
                step = "handler" if step in {"claim", "apply", "commit"} else step
                fields = {"success": record["success"], "refused_at": step, "decisions": record.get("decisions")}
                return {**fields, "asked": self.asked, "acts outside": self.acts}
            case "state":
                return [*self.slices, *(change for change in changes if change[0] == "slice")]
            case "files":
                return [change for change in changes if change[0] == "file"]
            case "result":
                value, parts = _value(record, "value"), record.get("parts")
                return {"value": value, "parts": parts} if parts else value
            case _:
                return record.get("message") if self.answer is None else [record.get("message"), self.answer]


class JournalReply(NamedTuple):
    """A reply of a model, and the request that it answers.

    Attributes:
        name: its name; `None` for one of a program's own loop that asks for no calls.
        message: the reply, as JSON.
        request: digests of the parts of the request, by their names.
        messages: what was sent since the reply before, without what differs from run to run.
        is_own_loop: whether a program's own loop has sent the request, and not PydanticAI.
    """

    name: str | None
    message: Any
    request: Mapping[str, str]
    messages: Sequence[Any]
    is_own_loop: bool

    def changes(self, replayed: JournalReply) -> dict[str, tuple[Any, Any]]:
        """What another request has otherwise: by the names of parts, the digests, or the messages."""
        request, other = self.request, replayed.request
        changes = {name: (request.get(name), other.get(name)) for name in changed_names(request, other)}
        same = self.messages == replayed.messages
        return changes if same else {**changes, "messages": (self.messages, replayed.messages)}


COMPARED: Final[tuple[DifferenceKind, ...]] = ("arguments", "outcome", "result", "message", "state", "files")
"""The kinds of differences of two calls, in the order in which they are looked for."""


class Journal:
    """The entries of a session after one of them, as calls and parts of conversations; read as they come.

    Attributes:
        calls: the newest record of each call, or the one before if that says more.
        replies: the replies of its conversations.
        inputs: what users have said to begin a turn.
        approvals: the decisions of the gate of an agent, as JSON, by the session of a call and its identity.
        head: the number of the newest entry that was read.
        has_undo: whether calls have been undone.
        clean: replaces names of the run in the text of entries.
    """

    def __init__(
        self, store: SessionStore, session_id: str, after: int, clean: Callable[[str], str] | None = None
    ) -> None:
        self.calls: dict[CallRef, JournalCall] = {}
        self.replies: list[JournalReply] = []
        self.inputs: list[Any] = []
        self.approvals: dict[tuple[str, CallRef], dict[str, Any]] = {}
        self.head: int = after
        self.session_id: str = session_id
        self.has_undo: bool = False
        self.clean = clean
        self._store = store
        self._slices: dict[CallRef, list[Any]] = {}
        self._talks: dict[tuple[str, str], _Talk] = {}

    def read(self, until: int | None = None) -> list[JournalCall]:
        """Reads what has come since, and returns the calls that have ended, in their order; raises `StoreError`."""
        ended: dict[CallRef, JournalCall] = {}
        for entry in self._store.entries(self.session_id, after=self.head, until=until):
            self.head = entry.number
            ref = CallRef(entry.reply or None, entry.call_id)
            if entry.role == "state" and entry.call_id and entry.type_name not in _RANDOM:
                change = [entry.type_name, entry.removed, self._items(entry)]
                self._slices.setdefault(ref, []).append(change)
            elif entry.type_name == _PART:
                for part in self._items(entry):
                    self._add_part(part)
            elif entry.type_name == _APPROVAL:
                for item in self._items(entry):
                    gated = item["call"]
                    self.approvals[gated["session_id"], CallRef(gated["reply"], gated["call_id"])] = item["decision"]
            elif entry.call_id.startswith(UNDO):
                self.has_undo = True
            elif entry.type_name == _RECORD and entry.call_id:
                call = JournalCall(ref, entry, self._items(entry)[0], self._slices.pop(ref, []))
                before = self.calls.get(ref)
                # A record that a late interrupt has appended says less than the one before.
                if before is None or call.record["success"] or not before.record["success"]:
                    ended.pop(ref, None)
                    self.calls[ref] = ended[ref] = call
        return list(ended.values())

    def event(self, call: JournalCall) -> ToolInvoked:
        """The record of a call; raises `StoreError`."""
        event: ToolInvoked = decode_items(stored_type(ToolInvoked), call.entry, self.session_id, self._store)[0]
        return event

    def _items(self, entry: SessionEntry) -> list[Any]:
        data = entry.items if self.clean is None else self.clean(entry.items.decode(errors="replace")).encode()
        items: list[Any] = from_json(data)
        return items

    def _add_part(self, part: dict[str, Any]) -> None:
        talk = self._talks.setdefault((part["speaker"], part["name"]), _Talk())
        changed: dict[str, str] = part.get("request") or {}
        talk.request = {name: digest for name, digest in {**talk.request, **changed}.items() if digest}
        for call_id, text in _answers(part["messages"]):
            if (call := self.calls.get(CallRef(talk.reply, call_id))) is not None:
                call.answer = text
        talk.reply = part["reply"] or talk.reply
        is_whole = part["speaker"] == "loop" and bool(part["calls"])
        for message in [part["messages"]] if is_whole and len(part["messages"]) > 1 else part["messages"]:
            self._add_message(talk, part, message, is_reply=is_whole or _is_reply(message))

    def _add_message(self, talk: _Talk, part: dict[str, Any], message: Any, *, is_reply: bool) -> None:  # noqa: ANN401 - decoded JSON
        if not is_reply:
            if talk.takes_input and (text := _input(message)) is not None:
                self.inputs.append(text)
                talk.takes_input = False
            talk.messages.append(without_answers(message, _OF_A_RUN))
            return
        metadata: dict[str, Any] = {} if part["speaker"] == "loop" else message.get("metadata") or {}
        name: str | None = part["reply"] if part["speaker"] == "loop" else metadata.get(REPLY_KEY)
        if name is None or name not in talk.names:  # parts that restart a conversation have earlier replies again
            own_loop = part["speaker"] == "loop"
            self.replies.append(JournalReply(name, message, talk.request, talk.messages, own_loop))
        talk.names.add(name)
        talk.messages, talk.takes_input = [], not (part["calls"] or part["unchecked"])


@dataclass(slots=True, eq=False)
class _Talk:
    # A conversation as far as it was read.
    request: dict[str, str] = field(default_factory=dict[str, str])
    messages: list[Any] = field(default_factory=list[Any])
    names: set[str | None] = field(default_factory=set[str | None])
    reply: str | None = None
    takes_input: bool = True


def first_difference(original: JournalCall, replayed: JournalCall) -> DifferenceKind | None:
    """The kind of the first difference of two calls; `None` if they are equal."""
    if original.answer is None or replayed.answer is None:
        original.answer = replayed.answer = None
    return next((kind for kind in COMPARED if original.side(kind) != replayed.side(kind)), None)


def _is_reply(message: Any) -> bool:  # noqa: ANN401 - decoded JSON
    if not is_object(message):
        return False
    is_unmarked = not any(name in message for name in ("kind", "role", "type"))
    return message.get("kind") == "response" or message.get("role") == "assistant" or is_unmarked


def _input(message: Any) -> Any:  # noqa: ANN401 - as above
    if not is_object(message):
        return None
    prompts = [part["content"] for part in message.get("parts") or () if part.get("part_kind") == "user-prompt"]
    return prompts[-1] if prompts else message.get("content") if message.get("role") == "user" else None


def _value(record: dict[str, Any], name: str) -> Any:  # noqa: ANN401 - decoded JSON
    tagged: dict[str, Any] = record.get(name) or {}
    return from_json(record["arguments"]) if "from" in tagged else tagged.get("value")


def _answers(node: Any) -> Iterator[tuple[str, str]]:  # noqa: ANN401 - decoded JSON
    if is_array(node):
        for item in node:
            yield from _answers(item)
    elif is_object(node):
        call_id = next((node[name] for name in CALL_IDS if name in node), None)
        if isinstance(call_id, str) and not any(name in node for name in _ARGUMENTS):
            yield call_id, "\n".join(_texts(node.get("content"), node.get("output")))
        else:
            yield from _answers(list(node.values()))


def _texts(*contents: Any) -> Iterable[str]:  # noqa: ANN401 - decoded JSON
    return (text for content in contents for text in texts_in(content if not isinstance(content, str) else [content]))
