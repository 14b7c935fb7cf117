"""Group commit: units of work that wait at the same time are written in one transaction.

Theory of operation
    A commit costs mostly a flush of the disk or a round trip, whatever it holds. So while one transaction is being
    committed, the units that are asked for wait in a queue, and all of them are written in the next one. There is no
    timer: a unit that comes while no other is being written is written at once, on its own.

    The thread that writes is the *leader*. A thread that calls `apply` leads if no other does: it takes what waits,
    its own unit included, writes it, lets the first that still waits lead in its place, and answers those whose units
    it has written. If no thread waits for the first one (`submit`), an idle thread leads (`handrail.threads`).

    `lanes` leaders may be at work at the same time: one where a database has one writer, several where it is a server.

    A leader that is interrupted, as by Ctrl-C, returns the units of the others to the head of the queue, and the next
    leader finds out whether they were written. So no unit is lost, and none is answered before the commit that
    holds it.

    How units are written is the affair of the caller (`write`). A unit that fails fails alone.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from datetime import timedelta
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from handrail.errors import StoreUnavailableError
from handrail.store.protocol import RefusedWrite
from handrail.threads import THREADS
from handrail.transaction import UnitOfWork
from handrail.transaction.unit_of_work import Refusal
from handrail.waiting import check_blocking

MOST_TOGETHER = 512
"""The most units of one transaction, so that it stays short."""

MOST_WAITING = 10_000
"""The most units that wait. Each belongs to a call that waits for it, so there are as many as calls at one time."""

UnitAnswer: TypeAlias = RefusedWrite | Exception | None
"""What a unit has come to: `None` if it was written, what has refused it, or what is raised."""


class PendingUnit(NamedTuple):
    """A unit that is to be written.

    Attributes:
        unit: the unit.
        may_be_written: whether an earlier attempt was interrupted, so that it may have been written.
    """

    unit: UnitOfWork
    may_be_written: bool = False


Write: TypeAlias = Callable[[Sequence[PendingUnit]], Sequence[UnitAnswer]]
"""Writes units, in one transaction if there are several, and returns the answer of each."""

_PENDING: Any = object()


class _Waiting:
    """A unit, and who waits for its answer: a thread, which may become the leader, or a completion.

    Attributes:
        pending: the unit.
        answer: what it has come to; `_PENDING` before.
        completion: completed with the answer; `None` if a thread waits.
        wakes: set when the thread that waits is to look again; `None` if it does not wait.
        batch: what its leader writes, itself included; empty if it has none of its own.
    """

    __slots__ = ("answer", "batch", "completion", "pending", "wakes")

    def __init__(self, unit: UnitOfWork, completion: Future[Refusal | None] | None = None) -> None:
        self.pending = PendingUnit(unit)
        self.answer: UnitAnswer = _PENDING
        self.completion = completion
        self.wakes: threading.Event | None = None
        self.batch: list[_Waiting] = []

    def notify(self) -> None:
        """Give the answer to who waits; idempotent."""
        if self.wakes is not None:
            self.wakes.set()
        elif self.completion is None or self.completion.done():
            return
        elif isinstance(self.answer, Exception):
            self.completion.set_exception(self.answer)
        else:
            self.completion.set_result(self.answer)


class Committer:
    """Writes the units of one store, those that wait together in one transaction.

    Args:
        write: how units are written. What it raises is raised to all whose units it was to write.
        lanes: how many transactions there may be at one time, from 1.
        patience: how long a thread waits for others before its unit is begun.
        url: names the store to people.

    Attributes:
        write: how units are written.
    """

    def __init__(self, write: Write, *, lanes: int, patience: timedelta, url: str) -> None:
        """Wait for units."""
        self.write = write
        self._lanes = lanes
        self._patience = patience.total_seconds()
        self._url = url
        self._lock = threading.RLock()  # a leader whose thread cannot be started any more leads in this one
        self._queue: deque[_Waiting] = deque()
        self._leaders: set[_Waiting] = set()

    def apply(self, unit: UnitOfWork) -> RefusedWrite | None:
        """Write a unit, alone or with others; see `UnitStore.apply`.

        Raises:
            StoreUnavailableError: too many units wait, or those before it do not end. Nothing was written.
            Exception: what writing the unit has come to.
            BaseException: this thread was interrupted. The unit was withdrawn, or its commit has ended.
        """
        check_blocking("a unit of work in", self._url)
        own = _Waiting(unit)
        interrupt: BaseException | None = None
        try:
            self._add(own)
            if own.wakes is not None:
                interrupt = self._await_answer(own, own.wakes)
            if own in self._leaders:
                self._lead(own)
        finally:
            self._resign(own)
        if interrupt is not None:
            raise interrupt
        if isinstance(own.answer, Exception):
            raise own.answer
        return own.answer

    def submit(self, unit: UnitOfWork) -> Future[Refusal | None]:
        """Have a unit written by another thread; see `UnitStore.submit`.

        Raises:
            StoreUnavailableError: too many units wait. Nothing was written.
        """
        answer: Future[Refusal | None] = Future()
        self._add(_Waiting(unit, answer))
        return answer

    def _add(self, waiting: _Waiting) -> None:
        """Have a unit written at once if there is a lane for it; else it waits."""
        with self._lock:
            if len(self._leaders) < self._lanes:
                self._appoint(waiting)
                return
            if len(self._queue) >= MOST_WAITING:
                raise StoreUnavailableError(
                    f"{self._url} cannot be used now: {MOST_WAITING} units of work wait. Make fewer calls at a time",
                    store=self._url,
                )
            if waiting.completion is None:
                waiting.wakes = threading.Event()
            self._queue.append(waiting)

    def _await_answer(self, own: _Waiting, wakes: threading.Event) -> BaseException | None:
        """Block until the unit of this thread has an answer, or this thread is a leader.

        Returns the interrupt, if there was one when the unit could no longer be withdrawn.
        """
        interrupt: BaseException | None = None
        while own.answer is _PENDING and own not in self._leaders:
            try:
                if wakes.wait(self._patience):
                    continue
            except BaseException as error:  # noqa: BLE001 - raised when the unit has an answer
                interrupt = error
            with self._lock:
                if own in self._leaders or own not in self._queue:
                    continue  # it is being written, or is about to be
                self._queue.remove(own)
            if interrupt is not None:
                raise interrupt
            msg = f"{self._url} cannot be used now: a unit of work in another thread does not come to its end"
            raise StoreUnavailableError(msg, store=self._url, waited=True)
        return interrupt

    def _lead(self, leader: _Waiting) -> None:
        """Write what waits, up to the most that go together."""
        batch = leader.batch
        if self._queue:
            with self._lock:
                batch += [self._queue.popleft() for _ in range(min(len(self._queue), MOST_TOGETHER - len(batch)))]
        try:
            answers = self.write([waiting.pending for waiting in batch])
        except Exception as error:  # noqa: BLE001 - raised to those whose units these are
            answers = [error, *(_twin(error) for _ in batch[1:])]
        for waiting, answer in zip(batch, answers, strict=True):
            waiting.answer = answer

    def _resign(self, leader: _Waiting) -> None:
        """Let another one lead, if that is needed, and give their answers to those whose units have been written.

        Without effect if it does not lead. An interrupted leader has units without answers: they are queued again, but
        for the one of the thread that is interrupted.
        """
        with self._lock:
            if leader not in self._leaders:
                return
            batch, own = leader.batch, leader if leader.completion is None else None
            again = [waiting for waiting in batch if waiting.answer is _PENDING and waiting is not own]
            for waiting in again:
                waiting.pending = waiting.pending._replace(may_be_written=True)
            self._queue.extendleft(reversed(again))
            self._leaders.remove(leader)
            leader.batch = []  # it holds the leader itself, which may lead again
            if self._queue:
                self._appoint(self._queue.popleft())
        # Without the lock: what waits for a completion continues in this thread.
        try:
            _notify(batch)
        except BaseException:
            _notify(batch)  # an interrupt leaves none without its answer
            raise

    def _appoint(self, leader: _Waiting) -> None:
        """Have the thread of a unit lead; another one if no thread waits for that unit."""
        leader.batch = [leader]
        self._leaders.add(leader)
        if leader.completion is None:
            leader.notify()
        else:
            THREADS.run(partial(self._lead_once, leader))

    def _lead_once(self, leader: _Waiting) -> None:
        try:
            self._lead(leader)
        finally:
            self._resign(leader)


def _twin(error: Exception) -> Exception:
    """An exception that says the same: one that several threads raise would collect the tracebacks of all."""
    twin = type(error).__new__(type(error), *error.args)
    twin.__dict__.update(error.__dict__)
    twin.__cause__ = error
    return twin


def _notify(batch: Sequence[_Waiting]) -> None:
    for waiting in batch:
        if waiting.answer is not _PENDING:
            waiting.notify()
