"""The locks of stores and sessions: how an opened store names itself, and what proves that another one lives.

An owner is a store that is open in one process. It has a name that no other one ever has, and one lock, which it
acquires before its first claim or session and holds until it is closed or its process ends. A living owner keeps its
claims and sessions, whatever the clock says; a dead one has lost them.

| store | lock | lives | dead |
|---|---|---|---|
| memory | none: the store lives in one process | never | never |
| SQLite | a file beside the database (`sqlite.owner`) | it is locked | the file is there, and not locked |
| PostgreSQL | on the server (`postgres.server`) | it is locked | it is free, and its process does not run here |

Where nothing is proved, the lease of a claim decides, and a session may be taken over. Of the stores of this process
nothing is proved to claims: in this process a claim lives while a ledger renews it (`LIVE_CLAIMS`). So a running row
names its owner only as long as a ledger there renews it.

The row of a session has the token of the valid lock, and its owner. One statement acquires a session whose token is
empty, or the one that was read. Each write compares the token: after a session was taken over, the old holder's next
write is refused. A session that this store holds wakes the waiters when it is released; one that another owner holds is
polled until `wait` is over; one of an owner that is dead, or of which nothing is proved, is taken over.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TypeAlias
from uuid import uuid4

from handrail.clock import Clock
from handrail.errors import SessionError, SessionLockedError, SessionLostError, SessionNotFoundError, SessionUseError
from handrail.interrupts import raise_held_interrupt
from handrail.process import own_name
from handrail.session.persistence.protocol import SessionEntry, SessionLock
from handrail.threads import in_forked_process
from handrail.waiting import check_blocking, may_wait_for_calls


class StoreOwner:
    """One opened store among all that use the same database; as it is, of a store that no other process can reach.

    Attributes:
        name: its name; empty until its lock is acquired.
    """

    __slots__ = ("name",)

    def __init__(self) -> None:
        self.name: str = ""

    @property
    def own_waits(self) -> bool:
        """True if `own` waits for a disk or a server at this moment."""
        return False

    def own(self) -> str:
        """Acquires the lock, unless it is held, and returns the name; empty where no other process can reach the store.

        Raises:
            StoreError: nothing could prove the death of this owner later.
        """
        return self.name

    def lives(self, owner: str) -> bool | None:  # noqa: ARG002 - nothing is proved here
        """Tests whether the owner of that name lives; `None` where neither is proved. May raise a `StoreError`."""
        return None

    def close(self) -> None:
        """Releases the lock; idempotent. In a forked process the parent keeps it."""


LIVE_CLAIMS: dict[tuple[str, int], float] = {}
"""Of the process: two stores of one database have to know that the owner of a claim lives here. Until when its ledger
renews it, by effect and fence, on the monotonic clock of the ledger.
"""

NEW_CLAIMS: dict[tuple[str, int], float] = {}
"""Of the process, as `LIVE_CLAIMS`: claims that are being written and not renewed yet; until when that may take, by
`time.monotonic`.
"""

RUNNING_HANDLERS: set[tuple[str, int]] = set()
"""Of the process: an effect is not settled by another ledger while its `def` handler runs here, also after its call has
ended. By effect and fence.
"""

in_forked_process(LIVE_CLAIMS.clear, NEW_CLAIMS.clear, RUNNING_HANDLERS.clear)

_MOST_NAMED = 5
_POLL_SECONDS = 0.01


def new_owner() -> str:
    """Makes a name for a store of this process: that of the process, and a random word."""
    return f"{own_name()} {uuid4().hex}"


def is_of_this_process(owner: str) -> bool:
    """Tests whether an owner is a store of this process."""
    return owner.rpartition(" ")[0] == str(own_name())


LockAttempt: TypeAlias = Callable[[str, str | None], SessionLock | tuple[str, str]]
"""Writes the first token, if the row of a session has the second one; with `None` it writes nothing. If it has not
written, it returns the token and the owner of the row."""


class SessionLockTable:
    """The sessions that one store holds, by their tokens, and the threads that wait for a session.

    `unreleased` has sessions with tokens that are not valid any more, and that their rows may still have.
    """

    __slots__ = ("_clock", "_freed", "_owner", "_store", "_tokens", "unreleased")

    def __init__(self, owner: StoreOwner, *, clock: Clock, store: str) -> None:
        self._owner = owner
        self._clock = clock
        self._store = store
        self._freed = threading.Condition()
        self._tokens: set[str] = set()
        self.unreleased: set[tuple[str, str]] = set()

    def acquire(self, session_id: str, attempt: LockAttempt, *, wait: timedelta, evict: bool = False) -> SessionLock:
        """Acquires a session as soon as it is free; with `evict`, at once. `wait` is for a holder that lives.

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
        """Tests whether this store has the lock with a token, and has not released it."""
        return token in self._tokens

    def is_held_elsewhere(self, owner: str) -> bool:
        """Tests whether an owner that a row names is another store, and lives."""
        return owner not in {"", self._owner.name} and self._owner.lives(owner) is True

    def release(self, *tokens: str) -> None:
        """Wakes the waiters for a session, of which a token is not valid any more."""
        with self._freed:
            self._tokens.difference_update(tokens)
            self._freed.notify_all()

    def _await_change(self, session_id: str, until: float, *, is_here: bool) -> None:
        remaining = until - self._clock.monotonic()
        if remaining <= 0:
            who = "this process has it open already" if is_here else "another process has it open"
            cure = "Close it there; a program can wait longer with wait=, take it over with evict=True, or fork it"
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
            self._freed.wait(min(remaining, _POLL_SECONDS))


def session_not_found(session_id: str, store: str) -> SessionNotFoundError:
    """Describes a session that does not exist."""
    msg = f"{store} has no session {session_id!r}; Session.open(store, session_id, create=True) makes it"
    return SessionNotFoundError(msg, session_id=session_id)


def session_lost(lock: SessionLock, head: int, holder: tuple[str, int] | None) -> SessionLostError:
    """Describes a lock that is not valid, or a session that another process has written to."""
    if holder is None:
        why = "it has been deleted"
    elif holder[0] != lock.token:
        why = "it is no longer held: another process has taken it over, or it has been closed here"
    else:
        why = f"its newest entry is number {holder[1]}, not {head}: another process has written to it"
    msg = f"session {lock.session_id!r} cannot be written to: {why}. Open it again to continue from its present state"
    return SessionLostError(msg, session_id=lock.session_id)


def session_has_forks(session_id: str, forks: Sequence[str]) -> SessionError:
    """Describes a session that is not deleted because forks refer to its entries."""
    names = ", ".join(map(repr, forks[:_MOST_NAMED])) + (", ..." if len(forks) > _MOST_NAMED else "")
    return SessionError(f"session {session_id!r} has the first entries of its forks ({names}); delete these before it")


def newest_number(session_id: str, head: int, entries: Sequence[SessionEntry]) -> int:
    """Returns the number of the last of `entries`; raises `SessionError` if they do not follow `head`."""
    newest = head + len(entries)
    if entries and (entries[0].number != head + 1 or entries[-1].number != newest):
        raise SessionError(
            f"session {session_id!r} takes entries {head + 1} to {newest} next, and was given {entries[0].number} to "
            f"{entries[-1].number}"
        )
    return newest
