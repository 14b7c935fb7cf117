"""What all stores do alike: they are opened and closed, watched, and asked for what the calls of a session left open.

A store that derives from `BaseStore` has these methods of `handrail.store.Store`, and defines the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from functools import partial
from typing import Protocol, Self, Unpack

from handrail.clock import Clock
from handrail.process import process_in_words
from handrail.session import Session
from handrail.session.calls import OpenCall
from handrail.session.persistence.protocol import SessionLock
from handrail.session.session import OpenOptions
from handrail.store.owners import LIVE_CLAIMS, StoreOwner, is_of_this_process
from handrail.store.protocol import (
    EffectRow,
    ExpiredEffects,
    LedgerStore,
    Store,
    WatchCallback,
    change_effect,
    with_proof,
)
from handrail.store.session_locks import SessionLockTable, session_lost
from handrail.store.watchers import Watchers
from handrail.waiting import await_shielded, closing_after, run_in_thread_or_here


class _Rows(Store, Protocol):
    """What a store has beside the protocol."""

    watchers: Watchers

    def open_effects(self, session_id: str) -> Iterable[EffectRow]:
        """The effects of a session's calls that are running, unknown, or done without having been applied.

        They have the session as their partition, or a key that all sessions share and an owner of that session.
        """
        ...

    def slots_below(self, root: str) -> Iterable[EffectRow]:
        """Rows of a session and those below it, among which are all slots that are running, unknown or unread."""
        ...


class BaseStore:
    """The part of a store that does not depend on where its rows are; its `watchers` are to be notified of changes."""

    def __init__(self, owner: StoreOwner, *, clock: Clock, store: str) -> None:
        """Watch for nothing yet.

        Args:
            owner: the store among all that use the same rows.
            clock: measures how long a caller waits for a session.
            store: the URL of the store.
        """
        self.watchers: Watchers = Watchers()
        self._owner = owner
        self._locks = SessionLockTable(owner, clock=clock, store=store)

    def slots_below(self: Store, root: str) -> Iterable[EffectRow]:
        """Rows of a session and those below it, among which are all slots that are running, unknown or unread."""
        return self.effects_below(root)

    def process(self) -> str:
        """Names this store in the claims that it makes, with its lock held; empty if no other process can reach it.

        Raises:
            StoreError: the lock cannot be taken, so that its death could not be proved.
        """
        return self._owner.own()

    def owner_lives(self, row: EffectRow) -> bool | None:
        """Whether a ledger here renews the claim, or its owner lives; `None` if neither life nor death is proved."""
        owner = row.owner.process
        if row.claim in LIVE_CLAIMS:
            return True
        return None if not owner or is_of_this_process(owner) else self._owner.lives(owner)

    def check_lock(self: Store, lock: SessionLock, head: int) -> None:
        """Make sure that the store answers, that the lock is valid and that no other process has written.

        Raises:
            SessionLostError: another process has taken the session over, or has written to it.
            StoreUnavailableError: the store does not answer.
        """
        standing = self.holder(lock.session_id)
        if standing != (lock.token, head):
            raise session_lost(lock, head, standing)
        self.process()

    def __enter__(self) -> Self:
        """Return the store."""
        return self

    def __exit__(self: Store, kind: object, error: BaseException | None, traceback: object, /) -> None:
        """Close it; if an exception leaves the block, what closing raises is logged, and a note of that."""
        with closing_after(error, self):
            self.close()

    async def close_async(self: Store) -> None:
        """As `close`, on a thread."""
        await await_shielded(run_in_thread_or_here(self.close))

    def session(self: Store, session_id: str, **options: Unpack[OpenOptions]) -> Session:
        """Resumes or begins a session; short for `Session.open(store, session_id)`."""
        return Session.open(self, session_id, **options)

    def watch(self, partition: str, key: str, wake: WatchCallback) -> Callable[[], None]:
        """Call `wake` after each change of the key's row that this store makes; returns how to stop that."""
        return self.watchers.watch(partition, key, wake)

    def unresolved_slots(self: _Rows, root: str, tool: str = "") -> tuple[EffectRow, ...]:
        """The running, unknown and unread slots of a tool, or all, of a session and those below it.

        They are looked for once, and then one row is read for each.
        """
        slots = self.watchers.unresolved.find(root, tool, lambda: self.slots_below(root))
        return tuple(row for slot in slots if (row := self.get(*slot)) is not None and row.is_unresolved_slot)

    def has_no_slots(self, root: str, tool: str) -> bool:
        """Whether they have been looked for, and there are none."""
        return self.watchers.unresolved.has_none(root, tool)

    def expired(self: Store, now: datetime) -> ExpiredEffects:
        """How many rows are done or failed and expired by `now`, and how much they hold."""
        sizes = [row.size for row in self.rows() if row.has_expired(now)]
        return ExpiredEffects(len(sizes), sum(sizes))

    def open_claims(self: _Rows, session_id: str) -> tuple[OpenCall, ...]:
        """The calls of the effects that are running, unknown, or done without having been applied."""
        rows = [*self.open_effects(session_id)]
        return tuple(map(partial(_open_call, self, now=self.now()), rows)) if rows else ()

    def end_leases_of_dead(self: _Rows, session_id: str) -> tuple[OpenCall, ...]:
        """End the leases of the session's running effects whose owner is proved dead; returns the others."""
        now = self.now()
        for row in self.open_effects(session_id):
            is_awaited = row.status == "running" and row.lease_until is not None and row.lease_until > now
            if is_awaited and self.owner_lives(row) is False:
                change_effect(self, row, row._replace(lease_until=now))
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
