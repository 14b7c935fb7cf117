"""Tool calls: how the model asks for them, what identifies them in a session, and which are recorded, open or masked.

The identity of a call is (session, reply, call id). The id alone does not name a call: some servers count from 0 in
each reply. The reply is a permanent name of one answer of the model, such as the id that the provider gave it. A nested
call has for its reply the identity of its parent, behind a mark that no reply of a model begins with.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final, Literal, NamedTuple, Protocol, cast
from urllib.parse import quote, unquote

from pydantic_core import from_json

from handrail.redaction import MASK
from handrail.serde import Masking
from handrail.serde.canonical import bytes_digest
from handrail.serde.formatting import shorten
from handrail.serde.json_values import escape_surrogates, repeated_keys, walk_value

MAX_IDENTITY_CHARACTERS = 500
"""The most characters that the reply or the id of a call may have to be looked up by."""

NESTED_SEPARATOR = "@"
"""What the reply of a nested call begins with, and no reply of a model."""

_SAFE = "".join(chr(code) for code in range(33, 127) if chr(code) not in "%/")
_NEEDS_NO_QUOTES = re.compile(r"[\w.:-]+", re.ASCII).fullmatch
_COMMON_ID = re.compile(rf"[ -~]{{1,{MAX_IDENTITY_CHARACTERS}}}").fullmatch
_LONGEST_KEY = 600
_LONGEST_SHOWN = 200
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A request of the model.

    Attributes:
        id: names the call within its reply; the message that answers it carries the same id. Without a reply it names
            the call within its session, unless it is empty.
        name: the tool's name, as the model wrote it.
        arguments: the JSON text of an object, or the decoded object.
        written: the arguments as the model wrote them, if a person or a hook has changed them.
    """

    id: str
    name: str
    arguments: str | bytes | Mapping[str, Any] = "{}"
    written: str | bytes | Mapping[str, Any] | None = None

    @property
    def words(self) -> str | bytes | Mapping[str, Any]:
        """The arguments as the model wrote them; equal for the same call."""
        return self.arguments if self.written is None else self.written


class CallRef(NamedTuple):
    """The identity of a call within its session.

    Attributes:
        reply: the reply of the model; `None` if the program did not say; of a nested call, by default, `@` and its
            parent.
        call_id: the id of the call, as the model gave it.
    """

    reply: str | None
    call_id: str

    @staticmethod
    def nested(parent: CallRef, call_id: str) -> CallRef:
        """The identity of a call that a handler makes without stating a reply."""
        return CallRef(f"{NESTED_SEPARATOR}{parent}", call_id)

    @property
    def parent(self) -> CallRef | None:
        """The call in whose handler this one is made; `None` if its reply names no call."""
        reply = self.reply
        return CallRef.parse(reply[1:]) if reply is not None and reply.startswith(NESTED_SEPARATOR) else None

    def __str__(self) -> str:
        reply, call_id = self
        return _quote(call_id) if reply is None else f"{_quote(reply)}/{_quote(call_id)}"

    @property
    def storable(self) -> CallRef:
        """The identity in a store: a part that no store can look up becomes its digest."""
        reply, call_id = self
        if is_storable_id(call_id) and (reply is None or is_storable_id(reply)):
            return self
        # The mark stays in front of the digest, so that no reply of a model can have the name of a nested call.
        mark = NESTED_SEPARATOR if type(reply) is str and reply.startswith(NESTED_SEPARATOR) else ""
        return CallRef(None if reply is None else storable_id(reply, mark), storable_id(call_id))

    @property
    def key(self) -> str:
        """The identity for keys in a database: `str` of it, or its digest if it is longer than 600 characters."""
        text = str(self)
        return text if len(text) <= _LONGEST_KEY else _digest(text)

    @property
    def is_named(self) -> bool:
        """Returns whether it is unique: without a reply, an empty id names nothing."""
        return self.reply is not None or bool(self.call_id)

    @property
    def ancestors(self) -> Iterator[CallRef]:
        """The calls that it is nested in, the nearest first; only the outermost one can have a final record."""
        call = self.parent
        while call is not None:
            yield call
            call = call.parent

    @property
    def outermost(self) -> CallRef:
        """The call of the model that it is nested in; itself if it is one."""
        return list(self.ancestors)[-1] if self.parent is not None else self

    @staticmethod
    def parse(text: str) -> CallRef:
        """Parses what `str` wrote; text that cannot be decoded is the id of a call without a reply."""
        # `str` percent-encodes `/` in both parts, so the text of a call has at most one.
        reply, slash, call_id = text.rpartition("/")
        try:
            decoded = unquote(call_id, errors="surrogatepass")
            return CallRef(unquote(reply, errors="surrogatepass") if slash else None, decoded)
        except UnicodeDecodeError:
            return CallRef(None, text)


def _quote(text: str) -> str:
    return text if _NEEDS_NO_QUOTES(text) else quote(text, safe=_SAFE, errors="surrogatepass")


def is_storable_id(text: object) -> bool:
    """Returns whether text can be stored and looked up: 1 to 500 characters of valid Unicode without a zero."""
    if not isinstance(text, str):
        return False
    # The fast path: printable ASCII of permitted length needs none of the other checks.
    if _COMMON_ID(text):
        return True
    return 0 < len(text) <= MAX_IDENTITY_CHARACTERS and "\0" not in text and escape_surrogates(text) is text


def is_reply(text: object) -> bool:
    """Returns whether text can name a reply of the model: it is storable, and not marked as that of a nested call."""
    return is_storable_id(text) and not str(text).startswith(NESTED_SEPARATOR)


def distinct_id(call_id: str, names: set[str]) -> str:
    """Names a call uniquely within its reply: its id, or `call` for an empty one; with a number if that is taken.

    Some models give several calls of a reply one id, or none. The result is added to `names`, those of the calls before
    it.
    """
    first, number = call_id or "call", 1
    name = first
    while name in names:
        number += 1
        name = f"{first}_{number}"
    names.add(name)
    return name


def shown_id(text: object) -> str:
    """The reply or the id of a call for messages: quoted and shortened."""
    return shorten(repr(text), _LONGEST_SHOWN)


def storable_id(text: object, mark: str = "") -> str:
    """The reply or the id of a call as a store names it: itself or, if it cannot be looked up, `mark` and a digest."""
    return str(text) if is_storable_id(text) else f"{mark}{_digest(str(text))}"


def _digest(text: str) -> str:
    return f"sha256-{bytes_digest(text.encode(errors='surrogatepass'))}"


def checked_reply(reply: object) -> str:
    """Returns the storable name of a reply of the model; raises `ValueError`."""
    if not isinstance(reply, str) or not reply or reply.startswith(NESTED_SEPARATOR):
        raise ValueError(
            f"reply is {reply!r:.80}; it names a reply of the model, as text that is not empty and does not begin with "
            "'@', as the replies of nested calls do. Give the id that the provider gave the response, or a name that "
            "no other reply of the session has: reply=f'reply-{len(conversation)}'"
        )
    return storable_id(reply)


def distinct_call(call: ToolCall, reply: str | None, ids: set[str]) -> ToolCall:
    """Returns the call under an id that no call before it in its reply has; without a reply, the call itself.

    The id is added to `ids`, those of the calls before it.
    """
    # What is not a call, or has no text for an id, is refused where it is executed.
    if reply is None or type(call) is not ToolCall or type(call.id) is not str:
        return call
    name = distinct_id(call.id, ids)
    return call if name == call.id else replace(call, id=name)


class CallRecord(Protocol):
    """An event that records a call: `ToolInvoked` of the layer above."""

    @property
    def final(self) -> bool:
        """Returns whether the same call, asked again, is answered from this record."""
        ...

    @property
    def summary(self) -> tuple[str, bool, datetime]:
        """The tool, whether the call succeeded, and when it ended, aware; stores keep them beside the record."""
        ...


class CallRecords:
    """The records of a session's calls, by identity; `lock` is the session's."""

    __slots__ = ("_lock", "_records")

    def __init__(self, lock: threading.RLock) -> None:
        self._lock = lock
        self._records: dict[CallRef, CallRecord] = {}

    def add(self, ref: CallRef, record: CallRecord) -> None:
        """Adds a committed record."""
        with self._lock:
            self._records[ref.storable] = record

    def is_at_hand(self, _ref: CallRef, /) -> bool:
        """Returns whether `find` reads nothing from the store. Without the lock: what is at hand stays so."""
        return True

    def find(self, ref: CallRef) -> CallRecord | None:
        """The newest record of a call; `None` if there is none.

        A session in memory finds only calls that have a reply. A stored fork has the records of its origin.

        Raises:
            StoreError: the store cannot be read.
        """
        with self._lock:
            return self._records.get(ref.storable)

    def is_final(self, ref: CallRef) -> bool:
        """Returns whether a call is answered from its record when it is asked again; raises as `find`."""
        record = self.find(ref)
        return record is not None and record.final


OpenState = Literal["running", "unknown", "unapplied", "postponed", "unrecorded"]
"""Why a call is open; see `OpenCall`."""


_STATES_IN_WORDS: Final[dict[OpenState, str]] = {
    "unrecorded": "was not carried out",
    "postponed": "waits for an approval",
    "unapplied": "has an effect that happened, and its result is not applied",
    "unknown": "has an effect of which it is unknown whether it happened",
    "running": "is claimed",
}
"""In the order in which they count: of two claims of a call, the later state."""


class OpenCall(NamedTuple):
    """A call of a session that has not ended.

    Attributes:
        call: the identity of the call.
        tool: name of the tool.
        state: `"running"`: its effect is claimed; `"unknown"`: its effect may have happened; `"unapplied"`: its effect
            has happened, and the session has not applied the result; `"postponed"`: it waits for an approval;
            `"unrecorded"`: the model asked for it, and it was not carried out.
        key: the key of its effect, if any.
        lease_until: when the lease of the claim ends, aware; `None` unless `"running"`, or if the owner is proved dead.
        owner: the process that holds the claim, in words; empty unless `"running"`.
        claimed_at: when its effect was first claimed, aware; `None` if never.
        awaits_apply: whether its result waits for the `apply` of its tool. Then it is open in spite of a final record.
    """

    call: CallRef
    tool: str
    state: OpenState
    key: str | None = None
    lease_until: datetime | None = None
    owner: str = ""
    claimed_at: datetime | None = None
    awaits_apply: bool = False

    def __str__(self) -> str:
        what = f"call {self.call} of {self.tool}"
        if self.state != "running":
            return f"{what} {_STATES_IN_WORDS[self.state]}"
        owner = f" by {self.owner}" if self.owner else ""
        if self.lease_until is None:
            return f"{what} was claimed{owner}, which has ended"
        return (
            f"{what} is claimed{owner}; its lease is waited for until {self.lease_until.isoformat(timespec='seconds')}"
        )


def still_open(
    claims: Iterable[OpenCall], requests: Iterable[OpenCall], is_settled: Callable[[CallRef], bool]
) -> tuple[OpenCall, ...]:
    """The calls that are open, each once: of several claims of a call the one that is waited for longest counts.

    Args:
        claims: calls whose effects the ledger does not know to be settled; they count more than requests.
        requests: calls that the model asked for, or that were postponed.
        is_settled: whether a call has a record that answers it.
    """
    calls: dict[CallRef, OpenCall] = {}
    for call in (*claims, *sorted(requests, key=lambda one: one.state == "unrecorded")):
        other = calls.get(call.call)
        if other is None or _weight(call) > _weight(other):
            calls[call.call] = call

    def is_open(call: OpenCall) -> bool:
        if call.state in {"running", "unknown"} or call.awaits_apply:
            return True
        # A nested call is made with the outermost one, which alone has a record that answers it.
        return not any(map(is_settled, (call.call, *call.call.ancestors)))

    return tuple(call for call in calls.values() if is_open(call))


def _weight(call: OpenCall) -> tuple[int, float]:
    return list(_STATES_IN_WORDS).index(call.state), 0.0 if call.lease_until is None else call.lease_until.timestamp()


@dataclass(slots=True, eq=False)
class CallMasking:
    """The secret arguments of the calls of a session. Executors add their tools; threads may share it."""

    # The tools that have secrets; several of one name, in the prompts of one session, all count.
    tools: dict[str, tuple[Masking, ...]] = field(default_factory=dict[str, tuple[Masking, ...]])
    # Called when a tool with secrets was added: items that wait to be stored are masked again.
    on_added: Callable[[], object] = bool  # does nothing

    def add(self, tool: str, masking: Masking) -> None:
        """Adds a tool, if `masking` finds secrets in its parameters."""
        maskings = self.of(tool)
        if masking.hides and masking not in maskings:
            self.tools[tool] = (*maskings, masking)
            self.on_added()

    def of(self, tool: str) -> tuple[Masking, ...]:
        """The maskings of a tool; empty if it has no secrets."""
        return self.tools.get(tool, ())

    def arguments(self, tool: str, words: Any, secrets: set[str]) -> Any:  # noqa: ANN401 - decoded JSON
        """The arguments of a call without its secrets, which are added to `secrets`; the same object if it has none."""
        masked = words
        for masking in self.of(tool):
            masked = masked_words(masked, masking)
        if masked is not words:
            plain = _decoded(words)
            for masking in self.of(tool):
                secrets.update((words,) if plain is _NOT_JSON else masking.texts_in(plain))
            secrets.update(_replaced_values(words))
        return masked


def masked_call(call: ToolCall, masking: Masking) -> ToolCall:
    """The call without its secret arguments, as it is recorded."""
    words = None if call.written is None else masked_words(call.written, masking)
    return replace(call, arguments=masked_words(call.arguments, masking), written=words)


def masked_words(words: Any, masking: Masking) -> Any:  # noqa: ANN401 - an adapter may hand over anything
    """The arguments without secrets, in their own form; the same object if they have none.

    Text that is not JSON is masked whole.
    """
    decoded = _decoded(words)
    if decoded is _NOT_JSON:
        return MASK
    masked, is_text = masking.mask(decoded), isinstance(words, str | bytes | bytearray)
    # A text has every value of a key that it gives twice, and what was decoded the last one.
    if masked == decoded and not (is_text and masking.hides and repeated_keys(words or "{}")):
        return words
    return _encode(masked) if is_text else masked


_NOT_JSON: Final = object()


def _decoded(words: Any) -> Any:  # noqa: ANN401 - as above
    if not isinstance(words, str | bytes | bytearray):
        return dict(cast("Mapping[object, object]", words)) if isinstance(words, Mapping) else words
    try:
        return from_json(words or "{}")
    except (ValueError, TypeError):  # the latter for a lone surrogate
        return _NOT_JSON


def _replaced_values(words: Any) -> set[str]:  # noqa: ANN401 - as above
    texts: set[str] = set()

    def take(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        last = dict(pairs)
        texts.update(p for name, item in pairs if item != last[name] for _, p in walk_value(item) if isinstance(p, str))
        return last

    with suppress(ValueError, TypeError, RecursionError):  # not JSON, or decoded already
        json.loads(words, object_pairs_hook=take)
    return texts
