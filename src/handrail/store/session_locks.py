"""Locks of sessions: one holder at a time, across threads and, by a lock that ends with its process, across processes.

A session lock has two parts. A lock that lives exactly as long as the process (or its connection to the database) keeps
others from waiting for the lease of a dead process; it is `LockBackend`, and each kind of store has its own. The
token in the session's row, compared at each write, is what makes it valid: should a lock ever be lost without its
holder knowing, the next holder writes another token, and the old holder's next write is refused.

The errors about a session that is not held are made here, in the same words over every store.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Protocol

from handrail.clock import Clock, random_fraction
from handrail.errors import SessionError, SessionLockedError, SessionLostError, SessionNotFoundError, SessionUseError
from handrail.loop_guard import check_blocking, may_wait_for_calls
from handrail.session.persistence.protocol import SessionEntry, SessionLock

_POLL_SECONDS = 0.01


class LockBackend(Protocol):
    """Locks between processes, one for each session; used by one thread at a time."""

    def lock(self, session_id: str, *, evict: bool = False) -> bool:
        """Take the lock of a session if it is free; returns whether it was taken.

        With `evict`, the holder's connection is ended; a lock that lives as long as its process cannot be taken so.

        Raises:
            StoreError: the store cannot say.
        """
        ...

    def unlock(self, session_id: str) -> None:
        """Release a lock; one that was lost, or a store that is down, is not an error."""
        ...

    def locked(self, session_ids: Sequence[str]) -> Sequence[str]:
        """Those of some sessions that this process or another one has locked.

        Raises:
            StoreError: the store cannot say.
        """
        ...

    def refresh(self) -> None:
        """Take locks again that were lost without their holders knowing, unless other processes have them.

        Raises:
            StoreError: the store cannot say.
        """
        ...

    def close(self) -> None:
        """Give up all locks."""
        ...


class NoLockBackend:
    """The locks of a store that no other process can reach."""

    __slots__ = ()

    def lock(self, session_id: str, *, evict: bool = False) -> bool:  # noqa: ARG002 - the interface's
        """No other process can take a lock."""
        return True

    def unlock(self, session_id: str) -> None:
        """There was nothing to give up."""

    def locked(self, session_ids: Sequence[str]) -> Sequence[str]:  # noqa: ARG002 - the interface's
        """No other process has any."""
        return ()

    def refresh(self) -> None:
        """Nothing can have been lost."""

    def close(self) -> None:
        """There is nothing to give up."""


class SessionLockTable:
    """The sessions that one store of this process holds, with their tokens, and those who wait for them.

    Args:
        locks: keeps other processes out.
        clock: measures waiting times.
        store: the URL of the store, for messages.
        jitter: a number from 0 to 1, drawn anew each time; it spreads those who poll.
    """

    __slots__ = ("_clock", "_freed", "_held", "_jitter", "_locks", "_store")

    def __init__(
        self, locks: LockBackend, *, clock: Clock, store: str, jitter: Callable[[], float] = random_fraction
    ) -> None:
        self._locks = locks
        self._clock = clock
        self._store = store
        self._jitter = jitter
        self._freed = threading.Condition()
        self._held: dict[str, str] = {}

    def acquire(self, session_id: str, *, wait: timedelta, evict: bool = False) -> None:
        """Lock a session, as soon as it is free; with `evict`, from another process whose lock can be taken.

        Raises:
            SessionLockedError: it is still locked after `wait`.
            StoreError: the store cannot say.
        """
        until = self._clock.monotonic() + wait.total_seconds()
        with self._freed:
            while session_id in self._held or not self._locks.lock(session_id, evict=evict):
                left = until - self._clock.monotonic()
                if left <= 0:
                    raise self._refusal(session_id, evict=evict)
                check_blocking("waiting for session", session_id)
                if session_id in self._held and not may_wait_for_calls():
                    raise SessionUseError(
                        f"session {session_id!r} in {self._store} is open in this process, and waiting here until it "
                        "is closed would stop the event loop of this thread; await Session.open_async, or child_async"
                    )
                self._freed.wait(min(left, _POLL_SECONDS * (0.5 + self._jitter())))
            self._held[session_id] = ""

    def note(self, lock: SessionLock) -> None:
        """Remember what was given to the one who took a session."""
        with self._freed:
            self._held[lock.session_id] = lock.token

    def holds(self, lock: SessionLock) -> bool:
        """Whether a lock is the one that was given out last for its session, and not released."""
        return self._held.get(lock.session_id) == lock.token

    def held(self, session_ids: Sequence[str] = ()) -> frozenset[str]:
        """The sessions that this process holds, and those of `session_ids` that another one holds.

        Raises:
            StoreError: the store cannot say.
        """
        with self._freed:
            others = [session_id for session_id in session_ids if session_id not in self._held]
            return frozenset((*self._held, *self._locks.locked(others)))

    def refresh(self) -> None:
        """Take locks again that were lost without notice.

        Raises:
            StoreError: the store cannot say.
        """
        with self._freed:
            self._locks.refresh()

    def give(self, session_id: str) -> None:
        """Release a session."""
        with self._freed:
            if session_id in self._held:
                del self._held[session_id]
                self._locks.unlock(session_id)
                self._freed.notify_all()

    def close(self) -> None:
        """Release all sessions."""
        with self._freed:
            self._held.clear()
            self._locks.close()
            self._freed.notify_all()

    def _refusal(self, session_id: str, *, evict: bool) -> SessionLockedError:
        who = "this process has it open already" if session_id in self._held else "another process has it open"
        cure = "Close it there, wait longer with wait=, or fork it"
        if evict:  # what a process of this machine holds ends with it, and this one is not evicted by itself
            cure = "evict=True does not end it, only a connection to PostgreSQL. Close it there, or end that process"
        msg = f"session {session_id!r} in {self._store} has a writer: {who}. {cure}"
        return SessionLockedError(msg, session_id=session_id)


def session_not_found(session_id: str, store: str) -> SessionNotFoundError:
    """The session does not exist."""
    msg = f"{store} has no session {session_id!r}; Session.open(store, session_id, create=True) makes it"
    return SessionNotFoundError(msg, session_id=session_id)


def session_lost(lock: SessionLock, head: int, found: tuple[str, int] | None) -> SessionLostError:
    """A lock is not valid, or another process has written; `found` has the present token and head, if any."""
    if found is None:
        why = "it has been deleted"
    elif found[0] != lock.token:
        why = "it is no longer held: another process has taken it over, or it has been closed here"
    else:
        why = f"its newest entry is number {found[1]}, not {head}: another process has written to it"
    msg = f"session {lock.session_id!r} cannot be written to: {why}. Open it again to continue from its present state"
    return SessionLostError(msg, session_id=lock.session_id)


def newest_number(session_id: str, head: int, entries: Sequence[SessionEntry]) -> int:
    """The number of the last of `entries`, which follow `head`; `head` if there are none.

    Raises:
        SessionError: they are not numbered so.
    """
    newest = head + len(entries)
    if entries and (entries[0].number != head + 1 or entries[-1].number != newest):
        msg = (
            f"session {session_id!r} takes entries {head + 1} to {newest} next, and was given {entries[0].number} to "
            f"{entries[-1].number}"
        )
        raise SessionError(msg)
    return newest


def too_few_entries(session_id: str, head: int, wanted: int) -> SessionError:
    """A copy of more entries than there are was asked for."""
    return SessionError(f"session {session_id!r} has {head} entries, so the first {wanted} cannot be copied")
