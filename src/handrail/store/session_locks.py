"""Who holds a session: one holder at a time, across threads, stores and processes.

The row of a session has the token of the lock that is valid, and the owner that holds it (`handrail.store.owners`). One
statement takes a session whose token is empty, or the one that was seen. The token is compared at each write: should a
session be taken over from a holder that lives, the old holder's next write is refused.

| the row names | the session |
|---|---|
| no token | is free |
| this store as its owner | is held until it is released, which wakes those who wait for it |
| an owner that lives | is held; it is looked at again and again until `wait` is over |
| an owner that is dead, or of which nothing is proved | is taken over |

The errors about a session that is not held are made here, in the same words over every store.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from uuid import uuid4

from handrail.clock import Clock, random_fraction
from handrail.errors import SessionError, SessionLockedError, SessionLostError, SessionNotFoundError, SessionUseError
from handrail.interrupts import raise_held_interrupt
from handrail.session.persistence.protocol import SessionEntry, SessionLock
from handrail.store.owners import StoreOwner, is_of_this_process
from handrail.waiting import check_blocking, may_wait_for_calls


class SessionLockTable:
    """The sessions that one store holds, by their tokens, and those who wait for a session.

    Args:
        owner: the store, and what is known of others.
        clock: measures waiting times.
        store: the URL of the store, for messages.
        jitter: a number from 0 to 1, drawn anew each time; it spreads those who poll.

    Attributes:
        unreleased: sessions with tokens that are not valid any more, and that their rows may have yet.
    """

    __slots__ = ("_clock", "_freed", "_jitter", "_owner", "_store", "_tokens", "unreleased")

    def __init__(
        self, owner: StoreOwner, *, clock: Clock, store: str, jitter: Callable[[], float] = random_fraction
    ) -> None:
        self._owner = owner
        self._clock = clock
        self._store = store
        self._jitter = jitter
        self._freed = threading.Condition()
        self._tokens: set[str] = set()
        self.unreleased: set[tuple[str, str]] = set()

    def acquire(
        self,
        session_id: str,
        attempt: Callable[[str, str | None], SessionLock | tuple[str, str]],
        *,
        wait: timedelta,
        evict: bool = False,
    ) -> SessionLock:
        """Take a session as soon as it is free; with `evict`, at once.

        Args:
            session_id: the session.
            attempt: takes it with a new token, if its row has the one given second, `None` for none; else the token
                and the owner that the row has.
            wait: how long to wait for a holder that lives.
            evict: whether to take it from one.

        Raises:
            SessionLockedError: it is still held after `wait`.
            SessionNotFoundError: it does not exist.
            StoreError: the store cannot say.
        """
        new_token = uuid4().hex
        until = self._clock.monotonic() + wait.total_seconds()
        self._tokens.add(new_token)  # before others can read it, and find that this store does not hold it
        try:
            lock = attempt(new_token, "")
            while not isinstance(lock, SessionLock):
                token, owner = lock
                if evict or not (self.holds(token) or self.is_held_elsewhere(owner)):
                    lock = attempt(new_token, token)
                else:
                    self._await_change(session_id, until, is_here=not owner or is_of_this_process(owner))
                    lock = attempt(new_token, None)
        except BaseException as error:
            self.release(new_token)
            if not isinstance(error, SessionError):  # what was interrupted may have been committed all the same
                self.unreleased.add((session_id, new_token))
            raise
        return lock

    def holds(self, token: str) -> bool:
        """Whether this store has the lock with a token, and has not released it."""
        return token in self._tokens

    def is_held_elsewhere(self, owner: str) -> bool:
        """Whether an owner that a row names is another store, and lives.

        Raises:
            StoreError: the store cannot say.
        """
        return owner not in {"", self._owner.name} and self._owner.lives(owner) is True

    def release(self, *tokens: str) -> None:
        """Wake those who wait for a session, of which a token is not valid any more."""
        with self._freed:
            self._tokens.difference_update(tokens)
            self._freed.notify_all()

    def _await_change(self, session_id: str, until: float, *, is_here: bool) -> None:
        left = until - self._clock.monotonic()
        if left <= 0:
            who = "this process has it open already" if is_here else "another process has it open"
            cure = "Close it there, wait longer with wait=, take it over with evict=True, or fork it"
            msg = f"session {session_id!r} in {self._store} has a writer: {who}. {cure}"
            raise SessionLockedError(msg, session_id=session_id)
        check_blocking("waiting for session", session_id)
        if is_here and not may_wait_for_calls():
            raise SessionUseError(
                f"session {session_id!r} in {self._store} is open in this process, and waiting here until it "
                "is closed would stop the event loop of this thread; await Session.open_async, or child_async"
            )
        raise_held_interrupt()
        with self._freed:
            self._freed.wait(min(left, 0.01 * (0.5 + self._jitter())))


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
