"""What names a call within its session, which calls of a session have been recorded, and which are open.

The identity of a call is (session, reply, call id). The id alone does not name a call: some servers count from 0 in
each reply. The reply is a permanent name of one answer of the model, such as the id that the provider gave it.

A call that the handler of another one makes has for its reply the identity of that one, behind a mark that no reply of
a model begins with.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable
from urllib.parse import quote, unquote

from handrail.serde.formatting import shorten

MAX_IDENTITY_CHARACTERS = 500
"""The most characters that the reply or the id of a call may have to be looked up by."""

NESTED_SEPARATOR = "@"
"""What the reply of a nested call begins with, and no reply of a model."""

_SAFE = "".join(chr(code) for code in range(33, 127) if chr(code) not in "%/")
_NEEDS_NO_QUOTES = re.compile(r"[\w.:-]+", re.ASCII).fullmatch
_COMMON_ID = re.compile(rf"[ -~]{{1,{MAX_IDENTITY_CHARACTERS}}}").fullmatch
_MOST_LOADED = 10_000
_LONGEST_KEY = 600
_LONGEST_SHOWN = 200


class CallRef(NamedTuple):
    """Names a call within its session.

    Attributes:
        reply: the reply of the model that asked for the call; `None` if the program did not say. For a nested call,
            unless a reply was stated: `@` and the call in whose handler it is made.
        call_id: the id of the call, as the model gave it.
    """

    reply: str | None
    call_id: str

    @staticmethod
    def nested(parent: CallRef, call_id: str) -> CallRef:
        """A call that the handler of another one makes, without stating a reply."""
        return CallRef(f"{NESTED_SEPARATOR}{parent}", call_id)

    @property
    def parent(self) -> CallRef | None:
        """The call in whose handler this one is made; `None` if its reply names no call."""
        reply = self.reply
        return CallRef.parse(reply[1:]) if reply is not None and reply.startswith(NESTED_SEPARATOR) else None

    def __str__(self) -> str:
        """The call in one word: `reply/id`, or `id`; `/`, `%` and what is not printable ASCII are percent-encoded."""
        reply, call_id = self
        return _quoted(call_id) if reply is None else f"{_quoted(reply)}/{_quoted(call_id)}"

    @property
    def stored(self) -> CallRef:
        """The call as a store names it: a part that no store can look up is replaced by its digest.

        A model may send any id: an empty one, one of a megabyte, one that is not valid Unicode.
        """
        reply, call_id = self
        if is_storable_id(call_id) and (reply is None or is_storable_id(reply)):
            return self
        mark = NESTED_SEPARATOR if type(reply) is str and reply.startswith(NESTED_SEPARATOR) else ""
        return CallRef(None if reply is None else storable_id(reply, mark), storable_id(call_id))

    @property
    def key(self) -> str:
        """The call in one word of at most 600 ASCII characters, for keys in a database: `str` of it, or its digest.

        A database refuses to index longer ones, and the names of nested calls hold those of their parents.
        """
        text = str(self)
        return text if len(text) <= _LONGEST_KEY else _digest(text)

    @property
    def is_named(self) -> bool:
        """Whether another call cannot have the same name: without a reply, an empty id names nothing."""
        return self.reply is not None or bool(self.call_id)

    @property
    def ancestors(self) -> Iterator[CallRef]:
        """The calls that it is nested in, the nearest first; only the outermost one can have a final record."""
        call = self.parent
        while call is not None:
            yield call
            call = call.parent

    @staticmethod
    def parse(text: str) -> CallRef:
        """The call that `str` wrote; text that cannot be decoded is the id of a call without a reply."""
        reply, slash, call_id = text.rpartition("/")
        try:
            decoded = unquote(call_id, errors="surrogatepass")
            return CallRef(unquote(reply, errors="surrogatepass") if slash else None, decoded)
        except UnicodeDecodeError:
            return CallRef(None, text)


def _quoted(text: str) -> str:
    return text if _NEEDS_NO_QUOTES(text) else quote(text, safe=_SAFE, errors="surrogatepass")


def is_storable_id(text: object) -> bool:
    """Whether text can be stored and looked up: 1 to 500 characters of valid Unicode without a zero."""
    if not isinstance(text, str):
        return False
    if _COMMON_ID(text):
        return True
    if not text or len(text) > MAX_IDENTITY_CHARACTERS or "\0" in text:
        return False
    return text.encode(errors="ignore").decode() == text


def is_reply(text: object) -> bool:
    """Whether text can name a reply of the model: it can be stored, and is not marked as that of a nested call."""
    return is_storable_id(text) and not str(text).startswith(NESTED_SEPARATOR)


def shown_id(text: object) -> str:
    """The reply or the id of a call as messages show it: quoted, and cut if it is long."""
    return shorten(repr(text), _LONGEST_SHOWN)


def storable_id(text: object, mark: str = "") -> str:
    """The reply or the id of a call as a store names it: itself, or its digest where no store could look it up.

    Args:
        text: the reply or the id.
        mark: what the digest begins with.
    """
    if is_storable_id(text):
        return str(text)
    return f"{mark}{_digest(str(text))}"


def _digest(text: str) -> str:
    return f"sha256-{hashlib.sha256(text.encode(errors='surrogatepass')).hexdigest()}"


class CallRecord(Protocol):
    """What a session has to know of an event that records a call."""

    @property
    def session_id(self) -> str:
        """The session of the call."""
        ...

    @property
    def final(self) -> bool:
        """Whether the same call, asked again, is answered from this record."""
        ...


class StoredRecords(Protocol):
    """The records of calls that are in a store."""

    def newest(self, limit: int) -> Sequence[tuple[CallRef, int]]:
        """The calls of the newest records with the number of the entry, the newest first; at most `limit`."""
        ...

    def number_of(self, call: CallRef) -> int | None:
        """The number of the entry that records a call; `None` if there is none."""
        ...

    def read(self, number: int) -> CallRecord:
        """The record in an entry."""
        ...


class CallRecords:
    """The records of a session's calls, by identity; guarded by the lock of the session.

    Those in the store are looked up when the first call is. The newest 10,000 identities are then read at once, so
    that a call costs no query; older ones are asked for one by one.

    Args:
        stored: the records in the store, for a session that had some when it was opened.
    """

    __slots__ = ("_is_loaded", "_known", "_reaches_back", "_stored")

    def __init__(self, stored: StoredRecords | None = None) -> None:
        self._stored = stored
        self._is_loaded = stored is None
        self._reaches_back = True
        self._known: dict[CallRef, CallRecord | int] = {}

    def add(self, call: CallRef, record: CallRecord) -> None:
        """Take note of a record that has been committed."""
        self._known[call] = record

    def find(self, call: CallRef) -> CallRecord | None:
        """The newest record of a call; `None` if there is none.

        Raises:
            StoreError: the store cannot be read.
        """
        if not self._is_loaded:
            self._load()
        found = self._known.get(call)
        if found is None and not self._reaches_back and self._stored is not None:
            found = self._stored.number_of(call)
        if isinstance(found, int) and self._stored is not None:
            record = self._known[call] = self._stored.read(found)
            return record
        return None if isinstance(found, int) else found

    def _load(self) -> None:
        if self._stored is not None:
            loaded = self._stored.newest(_MOST_LOADED)
            self._reaches_back = len(loaded) < _MOST_LOADED
            for call, number in loaded:
                self._known.setdefault(call, number)
        self._is_loaded = True


OpenState = Literal["running", "unknown", "unapplied", "postponed", "unrecorded"]
"""Why a call is open; see `OpenCall`."""


_STATES_IN_WORDS: Mapping[OpenState, str] = MappingProxyType(
    {
        "unknown": "has an effect of which it is unknown whether it happened",
        "unapplied": "has an effect that happened, and its result is not applied",
        "postponed": "waits for an approval",
        "unrecorded": "was not carried out",
    }
)


_LEAST_FIRST: tuple[OpenState, ...] = ("unrecorded", "postponed", "unapplied", "unknown", "running")


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenCall:
    """A call of a session that has not come to its end.

    Attributes:
        call: the identity of the call.
        tool: name of the tool.
        state: `"running"`: its effect is claimed, and the lease of the claim has not been settled; `"unknown"`: its
            effect may have happened; `"unapplied"`: its effect has happened, and the session has not applied the
            result; `"postponed"`: it waits for an approval; `"unrecorded"`: the model asked for it, and it was not
            carried out.
        key: the key of its effect; `None` if it has none.
        lease_until: when the lease of the claim ends, aware; `None` unless `"running"`, or if the process that holds
            the claim is proved dead: then nothing is waited for.
        owner: the process that holds the claim, in words; empty unless `"running"`.
        claimed_at: when its effect was first claimed, aware; `None` if that was not done.
    """

    call: CallRef
    tool: str
    state: OpenState
    key: str | None = None
    lease_until: datetime | None = None
    owner: str = ""
    claimed_at: datetime | None = None

    def __str__(self) -> str:
        """The call and why it is open, for people."""
        what = f"call {self.call} of {self.tool}"
        if self.state == "running":
            owner = f" by {self.owner}" if self.owner else ""
            if self.lease_until is None:
                return f"{what} was claimed{owner}, which has ended"
            return f"{what} is claimed{owner}; its lease is waited for until {_to_seconds(self.lease_until)}"
        return f"{what} {_STATES_IN_WORDS[self.state]}"


def _to_seconds(time: datetime) -> str:
    return time.isoformat(timespec="seconds")


@runtime_checkable
class CallLister(Protocol):
    """A class of LOG items that say which calls the model has asked for, as those of a conversation do.

    Items that have a `session_id` are listed for that session alone, and not for its forks.
    """

    @staticmethod
    def listed_calls(items: Sequence[Any]) -> Iterable[OpenCall]:
        """The calls that the items list, recorded or not; those of the last reply are enough."""
        ...


def still_open(
    claimed: Iterable[OpenCall], listed: Iterable[OpenCall], is_settled: Callable[[CallRef], bool]
) -> tuple[OpenCall, ...]:
    """The calls that are open, each once: of several claims of a call the one that is waited for longest counts.

    What the ledger knows of a call counts more than what a conversation lists.

    Args:
        claimed: calls whose effects the ledger does not know to be settled.
        listed: calls that the model asked for, or that were postponed.
        is_settled: whether a call has a record that answers it.
    """
    found: dict[CallRef, OpenCall] = {}
    for each in (*claimed, *sorted(listed, key=lambda one: one.state == "unrecorded")):
        before = _without_reply(each)
        older = None if before is None else found.get(before)
        if before is not None and older is not None and older.tool == each.tool:
            del found[before]
            found[each.call] = replace(older, call=each.call)
        standing = found.get(each.call)
        if standing is None or _weight(each) > _weight(standing):
            found[each.call] = each

    def is_open(each: OpenCall) -> bool:
        # Its effect is applied with the outermost call, which alone has a record that answers it.
        if each.state == "unapplied" and any(is_settled(call) for call in each.call.ancestors):
            return False
        before = _without_reply(each)
        if each.state in {"running", "unknown"}:
            return True
        return not is_settled(each.call) and (before is None or not is_settled(before))

    return tuple(each for each in found.values() if is_open(each))


def _without_reply(each: OpenCall) -> CallRef | None:
    """How a version that did not know replies has named a call that a conversation lists; else `None`."""
    return CallRef(None, each.call.call_id) if each.state == "unrecorded" and each.call.reply is not None else None


def _weight(call: OpenCall) -> tuple[int, float]:
    return _LEAST_FIRST.index(call.state), 0.0 if call.lease_until is None else call.lease_until.timestamp()
