"""Which calls of a session have been recorded, and which are open."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

from handrail.session.call_ref import CallRef

FEW_ENTRIES = 1_000
"""If a session had at most so many entries, the identities of all recorded calls are read with the first lookup."""

MANY_ENTRIES = 50_000
"""If it had more, they are never read at once: finding the newest of very many takes longer than opening a session."""

MOST_LOADED = 10_000
"""Of how many recorded calls the identities are read at once."""

MOST_LOOKUPS = 20
"""After how many questions for single replies or calls the identities of all are read, unless the session is large."""

MOST_OF_REPLY = 100
"""Of a reply with more recorded calls, each call is looked up by itself."""


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
    """The records of calls that were in a store when the session was opened."""

    @property
    def at_most(self) -> int:
        """A number that they do not exceed."""
        ...

    def newest(self, limit: int) -> Sequence[tuple[CallRef, int]]:
        """The calls of the newest records with the number of the entry, the newest first; at most `limit`."""
        ...

    def of_reply(self, reply: str, limit: int) -> Sequence[tuple[CallRef, int]] | None:
        """The same for the calls of one reply; `None` if there are as many as `limit`."""
        ...

    def number_of(self, ref: CallRef) -> int | None:
        """The number of the entry that records a call; `None` if there is none."""
        ...

    def read(self, number: int) -> CallRecord:
        """The record in an entry."""
        ...


class CallRecords:
    """The records of a session's calls, by identity; guarded by the lock of the session.

    Those of this process are in memory. A program that resumes a session asks for the calls of its last reply and then
    for those of new replies, so the store is asked once for each reply, whose calls are mostly few or none. The
    identities of all records are read at once if the session is small, or if it is not large and the store was asked
    often: then a call costs no query.

    Args:
        stored: the records in the store, for a session that had some when it was opened.
    """

    __slots__ = ("_is_complete", "_is_loaded", "_known", "_looked_up", "_stored")

    def __init__(self, stored: StoredRecords | None = None) -> None:
        self._stored = stored
        self._is_loaded = False
        self._is_complete = stored is None
        self._known: dict[CallRef, CallRecord | int] = {}
        # The replies and calls that the store was asked for; a reply with whether all of its calls are known.
        self._looked_up: dict[str | CallRef, bool] = {}

    def add(self, ref: CallRef, record: CallRecord) -> None:
        """Take note of a record that has been committed."""
        self._known[ref] = record

    def is_at_hand(self, ref: CallRef) -> bool:
        """Whether `find` reads nothing from the store. Without the lock of the session: what is at hand stays so."""
        found = self._known.get(ref)
        if found is not None:
            return not isinstance(found, int)
        return self._is_complete or ref in self._looked_up or self._looked_up.get(ref.reply or "", False)

    def find(self, ref: CallRef) -> CallRecord | None:
        """The newest record of a call; `None` if there is none.

        Raises:
            StoreError: the store cannot be read.
        """
        found = self._known.get(ref)
        if found is None and not self._is_complete and self._stored is not None:
            self._look_up(ref, self._stored)
            found = self._known.get(ref)
        # Records are read when they are first asked for; a lookup has only their numbers.
        if isinstance(found, int) and self._stored is not None:
            record = self._known[ref] = self._stored.read(found)
            return record
        return None if isinstance(found, int) else found

    def _look_up(self, ref: CallRef, stored: StoredRecords) -> None:
        """Take note of the record of a call in the store; mostly with those of other calls. Idempotent."""
        most = MANY_ENTRIES if len(self._looked_up) >= MOST_LOOKUPS else FEW_ENTRIES
        if not self._is_loaded and stored.at_most <= most:
            loaded = stored.newest(MOST_LOADED)
            self._note(loaded)
            # Fewer than were asked for are all that there are: an unknown call needs no query.
            self._is_complete = len(loaded) < MOST_LOADED
            # Set last: if the store fails, the next call tries again.
            self._is_loaded = True
        if self._is_complete or ref in self._known or ref in self._looked_up:
            return
        reply = ref.reply
        if reply is not None and reply not in self._looked_up:
            of_reply = stored.of_reply(reply, MOST_OF_REPLY)
            self._note(of_reply or ())
            self._looked_up[reply] = of_reply is not None
        if reply is None or not self._looked_up[reply]:
            number = stored.number_of(ref)
            self._note(() if number is None else ((ref, number),))
            self._looked_up[ref] = True

    def _note(self, found: Iterable[tuple[CallRef, int]]) -> None:
        for call, number in found:
            # The newest record of a call comes first and stays; one that was added since the opening is newer still.
            self._known.setdefault(call, number)


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


class OpenCall(NamedTuple):
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
        awaits_apply: whether its result is kept until the `apply` of its tool has run. Then the call is open even if it
            has a final record, or is nested in a call that has one.
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
        """The call and why it is open, for people."""
        what = f"call {self.call} of {self.tool}"
        if self.state == "running":
            owner = f" by {self.owner}" if self.owner else ""
            if self.lease_until is None:
                return f"{what} was claimed{owner}, which has ended"
            until = self.lease_until.isoformat(timespec="seconds")
            return f"{what} is claimed{owner}; its lease is waited for until {until}"
        return f"{what} {_STATES_IN_WORDS[self.state]}"


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
        standing = found.get(each.call)
        if standing is None or _weight(each) > _weight(standing):
            found[each.call] = each

    def is_open(each: OpenCall) -> bool:
        if each.state in {"running", "unknown"} or each.awaits_apply:
            return True
        # It is made with the outermost call, which alone has a record that answers it.
        if any(is_settled(call) for call in each.call.ancestors):
            return False
        return not is_settled(each.call)

    return tuple(each for each in found.values() if is_open(each))


def _weight(call: OpenCall) -> tuple[int, float]:
    return _LEAST_FIRST.index(call.state), 0.0 if call.lease_until is None else call.lease_until.timestamp()
