"""The conversation of an agent or prompt with a model, stored in the session, so that another process can resume it.

Each reply of the model is stored before any of its calls runs. A run that dies in between therefore leaves a reply
whose calls have no answers; when it is resumed, calls with a final record are answered from the record, and only the
others run.

A session has one conversation of an agent, and one of each prompt. `one_at_a_time` excludes a second run.
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, cast
from weakref import WeakKeyDictionary

from pydantic import ValidationError
from pydantic_ai import ModelMessage, ModelRequest, ModelResponse, ToolCallPart, ToolReturnPart
from pydantic_ai.messages import ModelMessagesTypeAdapter, repair_messages
from pydantic_core import PydanticSerializationError, from_json, to_json

from handrail.adapters.pydantic_ai.replies import decoded_words, name_in_history
from handrail.errors import AgentError, HandrailError, PromptEvaluationError
from handrail.runtime import ToolCall, ToolInvoked
from handrail.runtime.calls import is_same_call, written_arguments
from handrail.serde import stored_codec
from handrail.serde.json_values import escaped_within, json_of
from handrail.session import Session, SlicePolicy, stored_as
from handrail.session.call_records import OpenCall
from handrail.session.call_ref import CallRef

Speaker = Literal["agent", "prompt"]
"""The owner of a conversation: an agent, which has one in its session, or a prompt, which starts one each time."""

_RUNNING: WeakKeyDictionary[Session, dict[tuple[Speaker, str], str]] = WeakKeyDictionary()
_LOCK = threading.Lock()
"""Guards `_RUNNING`: the conversations of each session that have a run, by kind, and for prompts by name."""


class _Form:
    """How `SavedMessages` are stored: the messages as JSON, and not as text that holds JSON.

    So the texts in them are those of other entries, and are stored once
    (`handrail.session.persistence.shared_texts`). Versions before wrote text.
    """

    @staticmethod
    def dump(item: Any, /) -> bytes:  # noqa: ANN401 - a `SavedMessages`, which is declared with this class
        said: dict[str, object] = {"agent": item.agent, "ended": item.ended, "of": item.of, "whole": item.whole}
        messages: bytes = json_of(item.messages)
        with suppress(ValueError, TypeError):  # not JSON: it is stored as text; the latter for a lone surrogate
            decoded: object = from_json(item.messages)
            # Only what is read again as the same text.
            if isinstance(decoded, list) and to_json(decoded) == (text := item.messages.encode()):
                messages = text
        return b'%s,"messages":%s}' % (json_of(said)[:-1], messages)

    @staticmethod
    def load(data: dict[str, Any], /) -> Any:  # noqa: ANN401 - as above
        messages: object = data.get("messages")
        text = to_json(messages).decode() if isinstance(messages, list) else messages
        return stored_codec(SavedMessages).parse({**data, "messages": text})


@stored_as("handrail.said", form=_Form())
@dataclass(frozen=True, slots=True)
class SavedMessages:
    """Messages of a conversation, in order. Its slice is a LOG.

    Attributes:
        agent: the agent or prompt of the conversation.
        messages: the messages as PydanticAI's JSON.
        ended: whether a run ended with these messages, with an answer.
        of: whether `agent` is an agent or a prompt.
        whole: whether these are all messages of the conversation, so that earlier ones do not belong to it.
    """

    slice_policy: ClassVar[SlicePolicy] = SlicePolicy.LOG

    agent: str
    messages: str
    ended: bool = False
    of: Speaker = "agent"
    whole: bool = False

    @staticmethod
    def listed_calls(items: Sequence[Any]) -> Iterable[OpenCall]:
        """The unanswered calls of the last reply of each conversation; none of one that has ended."""
        said = cast("Sequence[SavedMessages]", items)  # the items of the slice of this class
        speakers: dict[tuple[Speaker, str], None] = dict.fromkeys((each.of, each.agent) for each in said)
        for of, name in speakers:
            history, ended = _read(said, name, of, "the session")
            for call in () if ended else _unanswered(history):
                yield OpenCall(call=_ref(history, call), tool=call.tool_name, state="unrecorded")


class StoredHistory:
    """The conversation of one agent or prompt in one session; tracks how much of it has been stored.

    Attributes:
        history: the messages before this run.
        call_ids: the ids of all calls of the conversation.
    """

    __slots__ = ("_ended", "_kept", "_name", "_noted", "_of", "_session", "_whole", "call_ids", "history")

    def __init__(self, session: Session, name: str, *, of: Speaker = "agent") -> None:
        """Load the stored messages.

        Raises:
            AgentError: they cannot be read, or belong to another agent.
        """
        self._session = session
        self._name = name
        self._of: Speaker = of
        self._whole = False
        said = session[SavedMessages].all()
        other = next((each.agent for each in said if each.of == of == "agent" and each.agent != name), None)
        if other is not None:
            raise AgentError(
                f"session {session.session_id!r} holds a conversation of agent {other}, so {name} cannot continue "
                "it; use a separate session for each agent"
            )
        self.history, self._ended = _read(said, name, of, f"session {session.session_id!r}")
        self._kept: Sequence[ModelMessage] = tuple(self.history)
        self._noted: Sequence[ModelMessage] = self.history
        # Ids of the whole conversation, because some models restart their ids in each reply.
        self.call_ids = {
            call.tool_call_id
            for message in self.history
            if isinstance(message, ModelResponse)
            for call in message.tool_calls
        }

    @property
    def unanswered(self) -> tuple[ToolCallPart, ...]:
        """The unanswered calls of the model's last reply."""
        return _unanswered(self.history)

    @property
    def unfinished(self) -> bool:
        """Whether a run ended before the model had given its answer.

        A prompt's conversation is finished only when its answer has been accepted; an agent's as soon as the model has
        replied without a call.
        """
        if not self.history or self._ended:
            return False
        return self._of == "prompt" or isinstance(self.history[-1], ModelRequest) or bool(self.unanswered)

    @property
    def postpone(self) -> bool:
        """Whether some calls of the last reply were answered and others left open, as for an approval."""
        return bool(self.unanswered) and isinstance(self.history[-1], ModelRequest)

    @property
    def answer(self) -> str:
        """The text of the model's last reply."""
        last = self.history[-1] if self.history else None
        return (last.text or "") if isinstance(last, ModelResponse) else ""

    @property
    def resumable(self) -> list[ModelMessage]:
        """The history without a final reply that has no calls: the model is asked for that one again."""
        last = self.history[-1] if self.history else None
        asks_nothing = isinstance(last, ModelResponse) and not last.tool_calls
        return self.history[:-1] if asks_nothing else self.history

    def adopt_records(self) -> None:
        """Let records without a reply, from older versions, answer the unanswered calls.

        Only these calls are answered: other calls with the same ids are new. In a fork this includes records of the
        original session, because the fork started with the changes of those calls.
        """
        unanswered = {call.tool_call_id: call for call in self.unanswered}
        if not unanswered:
            return
        session = self._session
        # The latest record wins: an id may have been used before.
        for event in reversed(session[ToolInvoked].all()):
            call = unanswered.get(event.call_id)
            if call is None or not event.final or not _records(event, call):
                continue
            ref = _ref(self.history, call)
            # A record of another reply, or a call that is already adopted, must not answer this one.
            if event.reply not in {None, ref.reply} or session.recorded_call(ref) is not None:
                continue
            asked_for = replace(event.call, written=event.call.written or call.args)
            adopted = replace(event, call=asked_for, reply=ref.reply, session_id=session.session_id)
            session.adopt_record(ref, adopted)

    def begin_anew(self) -> None:
        """Start another conversation: earlier messages do not belong to it."""
        self.history, self._kept, self._noted = [], (), ()
        # The next stored part is marked as whole, so a reader skips everything before it. Nothing is deleted from the
        # LOG.
        self._ended, self._whole = False, True
        self.call_ids.clear()

    def note(self, messages: Sequence[ModelMessage]) -> None:
        """Store the messages; in a session in memory only at `save_pending`.

        No other process can resume a session in memory, and writing each reply as JSON takes time.

        Args:
            messages: the whole conversation; it must not be changed afterwards.

        Raises:
            SessionError: as for `save`.
        """
        self._noted = messages
        if self._session.store is not None:
            self.save(messages)

    def save_pending(self) -> None:
        """Store the pending messages, at the end of a run, however it ended."""
        self.save(self._noted)

    def save(self, messages: Sequence[ModelMessage], *, ended: bool = False) -> None:
        """Store the new messages since the last call; all of them, if messages have been dropped since.

        Args:
            messages: the whole conversation.
            ended: whether the run has ended with an answer.

        Raises:
            AgentError: a message has a value that cannot be written as JSON. Lone surrogates are written as their
                escapes.
            SessionError: the session is closed, or has passed to another process.
            StoreUnavailableError: its store is unavailable.
        """
        # A history processor may have replaced or dropped messages; then a suffix would not fit the stored part.
        whole = self._whole or not _follows(self._kept, messages)
        new = list(messages if whole else messages[len(self._kept) :])
        # An agent's final messages are stored already; a prompt's conversation is finished by its mark.
        if new or (ended and self._of == "prompt"):
            part = SavedMessages(self._name, self._as_json(new), ended, self._of, whole)
            # A reply with calls is stored before the first of them starts, with its claim if it has one.
            asks = isinstance(new[-1], ModelResponse) and bool(new[-1].tool_calls) if new else False
            self._session.log_item(SavedMessages, part, written="deferred" if asks and not ended else "now")
            # Only after the append: if the store refuses it, the next call stores the same messages again.
            self._kept, self._whole = tuple(messages), False

    def _as_json(self, messages: list[ModelMessage]) -> str:
        try:
            return ModelMessagesTypeAdapter.dump_json(messages).decode()
        except PydanticSerializationError:
            pass  # models and tools may return lone surrogates, which have no UTF-8
        # The second attempt takes longer, so it is only made for a conversation that needs it.
        try:
            return to_json(escaped_within(ModelMessagesTypeAdapter.dump_python(messages, mode="json"))).decode()
        except PydanticSerializationError as error:
            raise AgentError(
                f"the conversation of {self._name} in session {self._session.session_id!r} cannot be stored: {error}"
            ) from error


@contextmanager
def one_at_a_time(session: Session, name: str, *, of: Speaker) -> Generator[None]:
    """Exclude other runs from a conversation until the end of the block.

    Concurrent runs would not see each other's messages, which could not be separated afterwards.

    Args:
        session: the session of the conversation.
        name: the agent or prompt to run.
        of: whether `name` is an agent or a prompt.

    Raises:
        AgentError: an agent is running on this session.
        PromptEvaluationError: the prompt is being evaluated on this session.
    """
    conversation = (of, "" if of == "agent" else name)
    # Checked and set under one lock: two threads could otherwise both find the conversation free.
    with _LOCK:
        # The key is weak, so an entry does not keep its session alive. The lock also protects the dictionary against
        # concurrent insertions.
        running = _RUNNING.setdefault(session, {})
        if conversation in running:
            raise _in_use(session.session_id, running[conversation], name, of)
        running[conversation] = name
    try:
        yield
    finally:
        with _LOCK:
            del running[conversation]


def _in_use(session_id: str, running: str, name: str, of: Speaker) -> HandrailError:
    if of == "prompt":
        return PromptEvaluationError(
            f"{name} is being evaluated on session {session_id!r}. A stored session holds one conversation of each "
            "prompt at a time; evaluate the other one on a separate session, such as session.child()",
            phase="request",
        )
    return AgentError(
        f"agent {running} is running on session {session_id!r}, so {name} cannot start there. A session holds one "
        f"conversation of one agent, with one run at a time; start it when that run has ended, or run {name} on a "
        "session "
        "of its own"
    )


def _read(said: Sequence[SavedMessages], name: str, of: Speaker, where: str) -> tuple[list[ModelMessage], bool]:
    """The messages of the last conversation of that name, and whether it has ended.

    Raises:
        AgentError: they cannot be read.
    """
    mine = [(number, each) for number, each in enumerate(said, start=1) if (each.of, each.agent) == (of, name)]
    start = max((place for place, (_, each) in enumerate(mine) if each.whole), default=0)
    history: list[ModelMessage] = []
    ended = False
    for number, each in mine[start:]:
        try:
            history += ModelMessagesTypeAdapter.validate_json(each.messages)
        except ValidationError as error:
            raise AgentError(
                f"part {number} of the conversation in {where} cannot be read by this version of PydanticAI: {error}"
            ) from error
        ended = each.ended
    # PydanticAI does the same at the start of a run, and the stored conversation is counted in messages.
    return repair_messages(history, repair_last_response=False), ended


def _unanswered(history: Sequence[ModelMessage]) -> tuple[ToolCallPart, ...]:
    answered: set[str] = set()
    for message in reversed(history):
        if isinstance(message, ModelResponse):
            # Only the last reply may have unanswered calls: PydanticAI answers all calls before it requests the next
            # one.
            return tuple(call for call in message.tool_calls if call.tool_call_id not in answered)
        answered |= {part.tool_call_id for part in message.parts if isinstance(part, ToolReturnPart)}
    return ()


def _ref(history: Sequence[ModelMessage], call: ToolCallPart) -> CallRef:
    """The identity of a call of the last reply."""
    place = max(place for place, message in enumerate(history) if isinstance(message, ModelResponse))
    return CallRef(name_in_history(history, place), call.tool_call_id)


def _records(event: ToolInvoked, call: ToolCallPart) -> bool:
    """Whether an event records that call: the same tool with the same arguments as written.

    The record of one of Handrail's tools has its name without any prefix. That of another tool has the arguments as
    PydanticAI validated them, so more of them and in other forms, but with the same names.
    """
    if event.name != call.tool_name and not call.tool_name.endswith(f"_{event.name}"):
        return False
    if is_same_call(ToolCall(call.tool_call_id, event.name, call.args or "{}"), event.call):
        return True
    validated, words = written_arguments(event.call), decoded_words(call.args)
    if event.call.written is not None or not (isinstance(validated, dict) and isinstance(words, dict)):
        return False
    return event.params == validated and words.keys() <= cast("dict[str, Any]", validated).keys()


def _follows(stored: Sequence[ModelMessage], messages: Sequence[ModelMessage]) -> bool:
    """Whether messages start with the stored ones."""
    if not stored:
        return True
    if len(messages) < len(stored):
        return False
    # Parts are compared, because a resumed run has equal messages as other objects.
    before, now = stored[-1], messages[len(stored) - 1]
    return before is now or (type(before) is type(now) and before.parts == now.parts)
