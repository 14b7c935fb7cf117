"""The part that all stores share: closing, watching, and the calls that a session left open.

A store that derives from `BaseStore` has these methods of `handrail.store.Store`, and defines the others.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta
from functools import partial
from itertools import accumulate, count
from typing import TYPE_CHECKING, Final, Self, Unpack

from handrail.clock import Clock
from handrail.process import process_in_words
from handrail.session import Session
from handrail.session.calls import OpenCall
from handrail.session.persistence.protocol import EntrySegment, SessionLock
from handrail.session.session import OpenOptions
from handrail.store.locks import LIVE_CLAIMS, SessionLockTable, StoreOwner, is_of_this_process, session_lost
from handrail.store.protocol import (
    EffectRow,
    LedgerStore,
    Store,
    WatchCallback,
    change_effect,
    disown,
    with_proof,
)
from handrail.waiting import await_shielded, closing_after, run_in_thread_or_here

# A method that a store lacks is an error of type checkers, and an `AttributeError`. Derived from the protocol at run
# time, the store would have it, and it would do nothing.
if TYPE_CHECKING:
    _Rest = Store
else:
    _Rest = object


_LAST = 2**62  # no entry has this number

LEASE_OF_EVICTED: Final = timedelta(seconds=20)
"""How long an effect is waited for at most whose process has lost the session, and does not renew it."""


class BaseStore(_Rest):
    """The part of a store that does not depend on where its rows are; `watchers` are notified of changes.

    `clock` measures how long a caller waits for a session, and `url` names the store to people.
    """

    def __init__(self, owner: StoreOwner, *, clock: Clock, url: str) -> None:
        self.watchers: Watchers = Watchers()
        self._owner = owner
        self.url: str = url
        self._locks = SessionLockTable(owner, clock=clock, store=url)

    def _origin(self, session_id: str) -> tuple[str, int] | None:
        row = self.find(session_id)
        return None if row is None or row.origin is None else (row.origin, row.origin_head)

    def _segments(self, session_id: str, after: int = 0, until: int | None = None) -> list[EntrySegment]:
        """Where the entries with `after < number <= until` are: those of a fork are in its origin, too; in order."""
        segments: list[EntrySegment] = []
        until = _LAST if until is None else until
        while (origin := self._origin(session_id)) is not None and origin[1] > after:
            segments.append(EntrySegment(session_id, origin[1], until))
            session_id, until = origin[0], min(until, origin[1])
        segments.append(EntrySegment(session_id, after, until))
        return [one for one in reversed(segments) if one.after < one.until]

    def slots_below(self, root: str) -> Iterable[EffectRow]:
        """Returns rows of a session and those below it, among them all slots that are running, unknown or unread."""
        return self.effects_below(root)

    def effects_below(self, root: str) -> tuple[EffectRow, ...]:
        """Returns all rows of a session and those below it."""
        return tuple(row for row in self.rows() if row.is_below(root))

    def open_effects(self, session_id: str) -> Iterable[EffectRow]:
        """Returns the effects of a session's calls that are running, unknown, or done and not applied."""
        own = (row for row in self.rows() if row.owner.session_id == session_id and row.applied_at is None)
        return [row for row in own if row.status != "failed"]

    def process(self) -> str:
        """Names this store in the claims that it makes, with its lock held; empty if no other process can reach it."""
        return self._owner.own()

    def owner_lives(self, row: EffectRow) -> bool | None:
        """Tests whether a ledger here renews the claim, or its owner lives; `None` if neither is proved."""
        owner = row.owner.process
        if row.claim in LIVE_CLAIMS:
            return True
        return None if not owner or is_of_this_process(owner) else self._owner.lives(owner)

    def check_lock(self, lock: SessionLock, head: int) -> None:
        """Checks that the store answers, that the lock is valid, and that no other process has written."""
        holder = self.holder(lock.session_id)
        if holder != (lock.token, head):
            raise session_lost(lock, head, holder)
        self.process()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object, /) -> None:
        """Closes the store; if an exception leaves the block, an error of closing is logged and noted on it."""
        with closing_after(error, self):
            self.close()

    async def close_async(self) -> None:
        """Closes the store on a thread."""
        await await_shielded(run_in_thread_or_here(self.close))

    def session(self, session_id: str, **options: Unpack[OpenOptions]) -> Session:
        """Resumes or begins a session; short for `Session.open(store, session_id)`."""
        return Session.open(self, session_id, **options)

    def watch(self, partition: str, key: str, wake: WatchCallback) -> Callable[[], None]:
        """Calls `wake` after each change of the key's row that this store makes; returns how to stop that."""
        return self.watchers.watch(partition, key, wake)

    def unresolved_slots(self, root: str, tool: str = "") -> tuple[EffectRow, ...]:
        """Returns the unresolved slots of a tool, or all, of a session and those below it; they are searched once."""
        slots = self.watchers.unresolved.find(root, tool, lambda: self.slots_below(root))
        return tuple(row for slot in slots if (row := self.get(*slot)) is not None and row.is_unresolved_slot)

    def has_no_slots(self, root: str, tool: str) -> bool:
        """Tests whether the slots have been searched, and there are none."""
        return self.watchers.unresolved.has_none(root, tool)

    def rows_by_age(self, *, is_settled: bool, after: tuple[datetime, str] | None = None) -> Iterator[EffectRow]:
        """Returns the rows that are done or failed, or else those that are running or unknown; the newest first."""
        places = {(row.created_at, row.effect_id): row for row in self.rows()}
        rows = (places[place] for place in sorted(places, reverse=True) if after is None or place < after)
        return (row for row in rows if (row.status in {"done", "failed"}) == is_settled)

    def expired(self, now: datetime) -> int:
        """Counts the rows that are done or failed and expired by `now`."""
        return sum(row.has_expired(now) for row in self.rows())

    def open_claims(self, session_id: str) -> tuple[OpenCall, ...]:
        """Returns the calls of the effects that are running, unknown, or done and not applied."""
        rows = [*self.open_effects(session_id)]
        return tuple(map(partial(_open_call, self, now=self.now()), rows)) if rows else ()

    def end_leases_of_dead(self, session_id: str, *, is_evicted: bool = False) -> tuple[OpenCall, ...]:
        """Ends the leases of the session's running effects whose owner is proved dead; returns the others."""
        now = self.now()
        for row in self.open_effects(session_id):
            is_awaited = row.status == "running" and row.lease_until is not None and row.lease_until > now
            if is_awaited and self.owner_lives(row) is False:
                change_effect(self, row, row._replace(lease_until=now))
            elif is_evicted and row.status == "running" and row.lease_until is not None:
                # A process that is not stopped renews it all the same.
                until = min(row.lease_until, now + LEASE_OF_EVICTED)
                change_effect(self, row, disown(row)._replace(lease_until=until))
        claims = self.open_claims(session_id)
        return tuple(call for call in claims if call.lease_until is not None and call.lease_until > now)


def _open_call(store: LedgerStore, row: EffectRow, now: datetime) -> OpenCall:
    is_running, is_done = row.status == "running", row.status == "done"
    lives = store.owner_lives(row) if is_running else None
    return OpenCall(
        call=row.owner.call,
        tool=row.tool,
        state="running" if is_running else "unapplied" if is_done else "unknown",
        key=row.key,
        lease_until=None if lives is False else with_proof(row, lives, now).lease_until,
        owner=process_in_words(row.owner.process) if is_running else "",
        claimed_at=row.created_at,
        awaits_apply=is_done and row.is_kept_until_applied,
    )


_Identity = tuple[str, str]


class Watchers:
    """Callbacks that watch rows, and the `unresolved` slots of the sessions that were asked about."""

    __slots__ = ("_lock", "_watching", "unresolved")

    def __init__(self) -> None:
        self.unresolved: UnresolvedSlots = UnresolvedSlots()
        self._lock = threading.Lock()
        self._watching: dict[_Identity, dict[object, WatchCallback]] = {}

    def watch(self, partition: str, key: str, wake: WatchCallback) -> Callable[[], None]:
        """Calls `wake` after each change of the key's row; returns how to stop that."""
        identity = (partition, key)
        watcher = object()
        with self._lock:
            self._watching.setdefault(identity, {})[watcher] = wake

        def stop() -> None:
            with self._lock:
                watching = self._watching.get(identity, {})
                if watching.pop(watcher, None) is not None and not watching:
                    del self._watching[identity]

        return stop

    def notify(self, partition: str, key: str, row: EffectRow | None) -> None:
        """Notifies the watchers of a row of its change; no lock is held meanwhile."""
        self.unresolved.note(partition, key, row)
        if not self._watching:
            return
        with self._lock:
            watching = tuple(self._watching.get((partition, key), {}).values())
        for wake in watching:
            wake(row)


class UnresolvedSlots:
    """The slots that are running, unknown or unread, below sessions that were asked about.

    They are cached, so that a call costs no query. One process at a time writes to a session, so the first read and the
    writes of this store since are complete. They are forgotten when the session, or one below it, is acquired anew. A
    slot that this process has claimed is recorded when it becomes unknown: while it is running, its call is too. A slot
    that is done stays until a call has succeeded with it. Each access is one operation of a dictionary, so atomic.
    """

    __slots__ = ("_counter", "_newest", "_tools")

    def __init__(self) -> None:
        self._tools: dict[str, dict[_Identity, str]] = {}
        self._counter = count(1)
        self._newest = 0

    def note(self, partition: str, key: str, row: EffectRow | None) -> None:
        """Records a row as a committed change has left it; `None` if it was removed."""
        if row is not None and row.status == "running":
            return
        is_left = row is not None and row.is_unresolved_slot
        if is_left:
            self._newest = next(self._counter)  # before the slots are looked at: see `find`
        for root in _roots(partition):
            tools = self._tools.get(root)
            if tools is None:
                continue
            if row is not None and is_left:
                tools[partition, key] = row.tool
            else:
                tools.pop((partition, key), None)

    def find(self, root: str, tool: str, load: Callable[[], Iterable[EffectRow]]) -> list[_Identity]:
        """Returns the slots of a tool, or all if it is empty, in a session and those below it; `load` reads them."""
        tools = self._tools.get(root)
        while tools is None:
            newest = self._newest
            slots = {row[:2]: row.tool for row in load() if row.is_unresolved_slot}
            self._tools[root] = slots
            # What was noted between the two is in neither.
            tools = slots if newest == self._newest else None
        return [identity for identity, name in tuple(tools.items()) if name == tool or not tool]

    def has_none(self, root: str, tool: str) -> bool:
        """Tests whether `find` would return nothing, without reading."""
        tools = self._tools.get(root)
        return tools is not None and tool not in tools.values()

    def forget(self, partition: str) -> None:
        """Forgets a session and those above it, because another process may have written to it."""
        for root in _roots(partition):
            self._tools.pop(root, None)


def _roots(partition: str) -> Iterator[str]:
    return accumulate(partition.split("/"), "{}/{}".format)
