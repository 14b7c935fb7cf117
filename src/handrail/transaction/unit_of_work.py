"""A unit of work: what is committed atomically, as a value; what writes it, and the order in which units are written.

It is put together before a store is asked, and is the same in every attempt: then a unit that was committed although
its answer was lost is known again by what it wrote.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import NamedTuple, Protocol, runtime_checkable

from handrail.waiting import block_until_done


class RecordCommit(NamedTuple):
    """Records that a call has been committed; again, it changes nothing.

    Attributes:
        journal_id: a journal of files of the call, or what a participant of the program has prepared.
    """

    journal_id: str


class UnitOfWork(NamedTuple):
    """The writes of a store that are atomic: all of them, or none if a row that is compared has changed.

    Attributes:
        writes: the rows to compare and to write: `RecordCommit`, and the kinds of
            `handrail.session.persistence.protocol` and `handrail.store.protocol`; and the connection of a call that
            wrote through `context.connection`: then the unit is written in the transaction of that connection, and ends
            it.
    """

    writes: tuple[object, ...]


class Refusal(Protocol):
    """The answer of a store to a unit that it has not written: a row is no longer the one seen."""

    def error(self) -> Exception:
        """The exception that is raised to a call whose commit this was."""
        ...


@runtime_checkable
class UnitStore(Protocol):
    """A store that writes a unit of work atomically."""

    @property
    def waits(self) -> bool:
        """True if writing may wait for a disk or a server, so that it is not done on the thread of an event loop."""
        ...

    def apply(self, unit: UnitOfWork) -> Refusal | None:
        """Writes all of a unit, and returns `None`; or nothing of it, and returns what has refused it.

        A unit of several writes that has been written already changes nothing and is answered with `None`: so it is
        repeated when its answer is lost.

        Raises:
            SessionLostError: the session that it appends to has passed to another process. Nothing has been written.
            StoreUnavailableError: the store does not answer; nothing has been written, unless `in_doubt` is true.
        """
        ...

    def submit(self, unit: UnitOfWork) -> Future[Refusal | None]:
        """Begins to write a unit; the future is completed, in any thread, with what `apply` would return or raise.

        It cannot be cancelled. Units that are submitted one after the other may be written in any order.
        """
        ...


@runtime_checkable
class CommitRecordStore(UnitStore, Protocol):
    """A store that knows which journals, and what participants have prepared, belong to committed calls.

    One is recorded by a `RecordCommit` in the unit that commits the call. All methods raise `StoreUnavailableError` if
    the store does not answer.
    """

    @property
    def url(self) -> str:
        """The URL that names the store to people, without any password."""
        ...

    def is_committed(self, journal_id: str) -> bool:
        """True if the call of this journal has been committed."""
        ...

    def delete_commit_record(self, journal_id: str) -> None:
        """Drops the record, because the journal is gone; without effect if there is none."""
        ...


class WriteQueue:
    """The order of units that follow each other; the one at the head of the queue has the turn.

    A turn may be released by another thread than the one that has taken it.

    Attributes:
        check_wait: called before a thread blocks until its turn comes; refuses what may not wait.
        waiting: who has the turn, and those that wait for it, in their order.
        unsure: a unit was handed to the store, and its commit may have begun. Who has the turn and finds this true asks
            the store first.
    """

    __slots__ = ("_lock", "check_wait", "unsure", "waiting")

    def __init__(self) -> None:
        self.check_wait: Callable[[], None] = lambda: None
        self.unsure: bool = False
        self._lock = threading.Lock()
        self.waiting: dict[object, Future[None] | None] = {}

    def enter(self, who: object) -> Future[None] | None:
        """Queues for the turn: `None` if it has come already, or else what is completed when it comes."""
        with self._lock:
            turn: Future[None] | None = Future() if self.waiting else None
            self.waiting[who] = turn
            return turn

    @contextmanager
    def turn(self) -> Generator[None]:
        """A block that has the turn; blocks this thread until it has come."""
        who = object()
        try:
            if (turn := self.enter(who)) is not None:
                block_until_done(turn)
            yield
        finally:
            self.leave(who)

    def leave(self, who: object) -> None:
        """Releases the turn, or stops waiting for it; without effect for who is not in the queue."""
        with self._lock:
            has_turn = next(iter(self.waiting), None) is who
            self.waiting.pop(who, None)
            following = next(iter(self.waiting.values()), None) if has_turn else None
        # Without the lock: the one that follows may write at once, in this thread.
        if following is not None:
            following.set_result(None)
