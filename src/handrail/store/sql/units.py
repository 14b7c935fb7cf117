"""How units of work are written: the statements, alone or in groups, and what a failure means.

| the unit | is written |
|---|---|
| claims an effect, or changes one row of the ledger | by one statement, which is a transaction |
| appends to a session on PostgreSQL | so too, where it can (`handrail.store.postgres.one_statement`) |
| any other | in a transaction of its own |
| waits with others | with them, in one transaction: group commit |
| holds what a handler wrote through `context.connection` | in the transaction of its call |

A unit of one statement that changes nothing is compared row by row before it is answered. If the connection is lost, it
is not known whether the unit was committed: before it is written again, or refused, the rows that it writes are
compared with the rows of the store.

Group commit: a commit costs mostly a flush of the disk or a round trip. So while one transaction is being committed,
the next units wait in a queue, and all of them are written in the next one. There is no timer.

The thread that writes is the *leader*. A thread that calls `apply` leads if no other does: it dequeues the units that
wait, writes them with its own, appoints the first that still waits, and answers those whose units it has written. If no
thread waits for the first one (`submit`), an idle thread leads. `lanes` leaders may be at work at the same time: one
where a database has one writer, two where it is a server. An interrupted leader, as by Ctrl-C, returns the units of
the others to the head of the queue, and the next leader checks whether they were written. So no unit is lost, and none
is answered before the commit that holds it. A unit that fails fails alone.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any, TypeAlias, cast

from handrail.crash_points import reached
from handrail.errors import SessionError, SessionLostError, StoreError, StoreUnavailableError
from handrail.session.persistence.protocol import AnswerChange, RunChange, SessionAppend, SessionHeld
from handrail.store.locks import newest_number, session_lost
from handrail.store.protocol import (
    EffectChange,
    EffectInsert,
    EffectWrite,
    MarkApplied,
    RefusedWrite,
    Store,
    has_written,
    list_crash_points,
)
from handrail.store.sql import statements, tables
from handrail.store.sql.call_connection import CallConnection
from handrail.store.sql.database import Database, check_version
from handrail.store.sql.driver import Driver, DriverConnection, Query, Statement, StatementParameters
from handrail.threads import THREADS
from handrail.transaction import RecordCommit, UnitOfWork
from handrail.transaction.unit_of_work import Refusal
from handrail.waiting import check_blocking, may_wait_for_calls, run_in_thread

# ---------------------------------------------------------------------------------------------------------- statements


_Step: TypeAlias = tuple[str, Sequence[StatementParameters], bool]
"""A statement, the parameters of each execution, and whether it is compared: if so it has one, and changes a row."""

ROW_UNITS = ((EffectInsert,), (EffectInsert, SessionHeld), (EffectChange,))
"""The kinds of writes of the units that are one statement in every database."""


def row_statement(writes: Sequence[object]) -> Statement | None:
    """Makes the statement of a unit that claims an effect or changes a row of one; `None` for other units."""
    match writes:
        case ((EffectInsert() | EffectChange()) as write,):
            return _effect_statement(write)
        case (EffectInsert(row), SessionHeld(lock)):
            return Statement(statements.INSERT_EFFECT_WHILE_HELD, (*tables.effect_columns(row), *lock[:2]))
        case _:
            return None


def _effect_statement(write: EffectInsert | EffectChange) -> Statement:
    if isinstance(write, EffectInsert):
        return Statement(statements.INSERT_EFFECT, tables.effect_columns(write.row))
    compared = tables.seen_columns(write.before)
    if write.row is None:
        return Statement(statements.DELETE_EFFECT, compared)
    return Statement(statements.REPLACE_EFFECT, (*tables.effect_columns(write.row)[2:], *compared))


def _steps(write: object) -> Iterator[_Step]:
    match write:
        case EffectInsert() | EffectChange():
            sql, columns = _effect_statement(write)
            yield sql, (columns,), True
        case MarkApplied(before, row):
            compared = (*before[:3], *(moment or 0 for moment in tables.applied_columns(before)))
            yield statements.MARK_APPLIED, ((*tables.applied_columns(row), *compared),), True
        case AnswerChange(before, row):
            columns = tables.ANSWER_TABLE.write(row)
            if before is None:
                yield statements.INSERT_ANSWER, ((*columns, row.session_id),), True
            else:
                yield statements.REPLACE_ANSWER, ((*columns[3:], *tables.ANSWER_TABLE.write(before)),), True
        case RunChange(row):
            columns = tables.RUN_TABLE.write(row)
            if row.version == 1:
                yield statements.INSERT_RUN, ((*columns, row.session_id),), True
            else:
                yield statements.REPLACE_RUN, ((*columns[1:], row.session_id, row.version - 1),), True
        case SessionAppend(lock, head, entries, checkpoint):
            session_id = lock.session_id
            newest = newest_number(session_id, head, entries)
            yield statements.SET_HEAD, ((newest, session_id, head, lock.token),), True
            yield statements.INSERT_ENTRY, [tables.entry_columns(session_id, entry) for entry in entries], False
            yield statements.INSERT_CHECKPOINT, () if checkpoint is None else ((session_id, *checkpoint),), False
        case SessionHeld(lock):
            yield statements.KEEP_HOLDER, (lock[:2],), True
        case RecordCommit(journal_id):
            yield statements.INSERT_DECISION, ((journal_id,),), False
        case _:  # the connection of the call, whose transaction this is
            pass


def write_unit(connection: DriverConnection, writes: Sequence[object]) -> object | None:
    """Writes a unit in the transaction that is open on a connection; returns the write that is refused, if one is."""
    for write in writes:
        for sql, rows, is_compared in _steps(write):
            if is_compared:
                if not connection.execute(sql, rows[0]):
                    return write
            elif rows:
                connection.execute_many(sql, rows)
        if isinstance(write, EffectWrite):
            reached("unit-ledger-written")
        elif isinstance(write, SessionAppend):
            reached("unit-session-written")
    return None


def why_refused(query: Query, write: object, store: str) -> RefusedWrite:
    """Finds out why a write was refused, which is undone; raises `SessionLostError` if its session has passed on."""
    match write:
        case SessionAppend(lock, head):
            raise session_lost(lock, head, holder(query, lock.session_id))
        case SessionHeld(lock):
            raise session_lost(lock, 0, holder(query, lock.session_id))
        case EffectInsert() | EffectChange() | MarkApplied():
            rows = query(statements.GET_EFFECT, write.before[:2])
            return RefusedWrite(write, tables.read_effect(rows[0], store) if rows else None)
        case _:
            return RefusedWrite(cast("AnswerChange | RunChange", write))  # no other write is compared


def holder(query: Query, session_id: str) -> tuple[str, int] | None:
    """Reads the valid token of a session, and the number of its newest entry."""
    rows = query(statements.GET_HOLDER, (session_id,))
    return (rows[0][0], rows[0][1]) if rows else None


def write_group(driver: Driver, units: Sequence[Sequence[object]]) -> list[bool] | None:
    """Writes units in one transaction, as `Driver.write_group`."""
    connection = driver.acquire()
    try:
        connection.begin()
        with suppress(StoreError):
            if (answers := _write_units(connection, units)) is not None:
                reached("unit-before-commit")
                connection.commit()
            return answers
        return None
    finally:
        driver.release(connection)


def _write_units(connection: DriverConnection, units: Sequence[Sequence[object]]) -> list[bool] | None:
    """Writes units in the transaction that is open on a connection; returns which of them were written.

    One that is refused by its first statement has changed nothing. The answer is `None` if another statement has
    refused one, or its entries do not follow: the transaction is to be undone.
    """
    answers: list[bool] = []
    reached("unit-begun")
    for writes in units:
        statement = row_statement(writes)
        try:
            refusal = (
                write_unit(connection, writes)
                if statement is None
                else None
                if connection.execute(*statement)
                else writes[0]
            )
        except SessionError:
            return None
        if refusal is not None and refusal is not writes[0]:
            return None
        answers.append(refusal is None)
        reached("unit-group-written")
    return answers


# ------------------------------------------------------------------------------------------------------------- applying


class _RefusedError(Exception): ...


def _call_connection(unit: UnitOfWork) -> CallConnection | None:
    return next((write for write in unit.writes if isinstance(write, CallConnection)), None)


class UnitApplier:
    """Applies units of work; `on_change` is called with each committed change of a row of the ledger, in any thread."""

    def __init__(self, database: Database, store: Store, on_change: Callable[[EffectWrite], object]) -> None:
        driver = database.driver
        self._database = database
        self._driver = driver
        self._store = store
        self._on_change = on_change
        # While a server commits one group, the next one is on its way.
        lanes = 1 if driver.one_writer else 2
        self._committer = Committer(self._write_group, lanes=lanes, patience=driver.busy, url=driver.url)

    def apply(self, unit: UnitOfWork) -> RefusedWrite | None:
        """Writes all of a unit, or nothing; see `SqlStore.apply`."""
        # Where this thread may not wait for calls: as a leader it would write the units of threads that may.
        if self._goes_alone(unit) or (self._driver.one_writer and not may_wait_for_calls()):
            return self._notify_watchers(unit, self._write_alone(unit))
        return self._committer.apply(unit)

    def submit(self, unit: UnitOfWork) -> Future[Refusal | None]:
        """Writes a unit on another thread; see `UnitStore.submit`."""
        return run_in_thread(partial(self.apply, unit)) if self._goes_alone(unit) else self._committer.submit(unit)

    def _goes_alone(self, unit: UnitOfWork) -> bool:
        self._database.check_process()  # a forked process has no thread that would answer
        writes = unit.writes
        in_call = _call_connection(unit) is not None
        return in_call or self._database.writing_call() is not None or not self._driver.may_group(writes)

    def _write_group(self, pending: Sequence[PendingUnit]) -> Sequence[UnitAnswer]:
        """Writes units in one transaction, and each on its own if that fails: then the one at fault fails alone."""
        if len(pending) == 1:
            return (self._answer(pending[0]),)
        answers = self._driver.write_group([queued.unit.writes for queued in pending])
        if answers is None:
            # The connection may have been lost in the moment of the commit.
            return [self._answer(queued, may_be_written=True) for queued in pending]
        reached("unit-after-commit")
        return [
            self._notify_watchers(queued.unit, None) if is_written else self._answer(queued)
            for queued, is_written in zip(pending, answers, strict=True)
        ]

    def _answer(self, queued: PendingUnit, *, may_be_written: bool = False) -> UnitAnswer:
        unit, may_be_written = queued.unit, may_be_written or queued.may_be_written
        try:
            return self._notify_watchers(unit, self._write_alone(unit, may_be_written=may_be_written))
        except Exception as error:  # noqa: BLE001 - raised to who waits for the unit
            return error

    def _notify_watchers(self, unit: UnitOfWork, refusal: RefusedWrite | None) -> RefusedWrite | None:
        if refusal is None:
            for write in unit.writes:
                if isinstance(write, EffectWrite):
                    self._on_change(write)
        return refusal

    # --------------------------------------------------------------------------------------------------------- alone

    def _write_alone(self, unit: UnitOfWork, *, may_be_written: bool = False) -> RefusedWrite | None:
        """Writes a unit, and once more if its connection was lost, unless it has been written.

        `may_be_written` says that an earlier attempt may have written it, or may still commit it.
        """
        for is_last in (False, True):
            try:
                if may_be_written and has_written(self._store, unit):
                    return None
                refusal = self._write_once(unit)
                return None if refusal and may_be_written and has_written(self._store, unit) else refusal
            except StoreUnavailableError as error:
                try:
                    if error.in_doubt and has_written(self._store, unit):
                        return None
                    error.in_doubt = may_be_written = may_be_written or (error.in_doubt and not self._is_undone(unit))
                except StoreError:  # it does not answer on another connection either
                    raise error from None
                # What a handler has written is lost with the connection of its call.
                if is_last or not error.connection_lost or _call_connection(unit) is not None:
                    raise
        raise AssertionError  # pragma: no cover - the last attempt returns or raises

    def _write_once(self, unit: UnitOfWork) -> RefusedWrite | None:
        writes = unit.writes
        statement = self._driver.one_statement(writes)
        if statement is not None:
            points, first = list_crash_points(writes), writes[0]
            for point in points:
                reached(point)
            # A renewal of the lease by the call that writes through `context.connection` would wait for itself.
            is_renewal = isinstance(first, EffectChange) and first.is_renewal
            if (self._database.execute_with_call if is_renewal else self._database.execute)(*statement):
                if points:
                    reached("unit-after-commit")
                return None
            if isinstance(first, EffectInsert | EffectChange) and tuple(map(type, writes)) in ROW_UNITS:
                refusal = why_refused(self._database.query, first, self._database.url)
                if refusal.present is not None and not first.fits(refusal.present):
                    return refusal
        return self._write_together(unit)  # which says what else refuses it, or finds that nothing does any more

    def _write_together(self, unit: UnitOfWork) -> RefusedWrite | None:
        # Their statements compare the version of the tables.
        compares = any(isinstance(write, SessionAppend | EffectInsert | EffectChange) for write in unit.writes)
        refusal: RefusedWrite | None = None
        try:
            with self._database.transaction(_call_connection(unit), any_version=compares) as connection:
                write = write_unit(connection, unit.writes)
                if write is not None:
                    refusal = why_refused(connection.query, write, self._database.url)
                    raise _RefusedError  # noqa: TRY301 - undoes the transaction
        except (_RefusedError, SessionLostError):
            if (len(unit.writes) > 1 or refusal is None) and has_written(self._store, unit):
                return None
            check_version(self._database.query, self._database.url)
            if refusal is None:
                raise
        return refusal

    def _is_undone(self, unit: UnitOfWork) -> bool:
        append = next((write for write in unit.writes if isinstance(write, SessionAppend) and write.entries), None)
        if append is None:
            return False
        lock, head = append.lock, append.head
        return bool(self._database.execute(statements.SET_HEAD, (head, lock.session_id, head, lock.token)))


MOST_TOGETHER = 512
"""The most units of one transaction, so that it stays short."""

UnitAnswer: TypeAlias = RefusedWrite | Exception | None
"""The answer to a unit: `None` if it was written, its refusal, or an exception that is raised."""


_PENDING: Any = object()


class PendingUnit:
    """A unit, and the waiter for its answer: a thread, which may become the leader, or a completion.

    `may_be_written` says that an earlier attempt was interrupted. `answer` is `_PENDING` before there is one. `wakes`
    is set when the thread that waits is to look again. `batch` has the units that it writes if it leads, itself
    included.
    """

    __slots__ = ("answer", "batch", "completion", "may_be_written", "unit", "wakes")

    def __init__(self, unit: UnitOfWork, completion: Future[Refusal | None] | None = None) -> None:
        self.unit: UnitOfWork = unit
        self.may_be_written: bool = False
        self.answer: UnitAnswer = _PENDING
        self.completion: Future[Refusal | None] | None = completion
        self.wakes: threading.Event | None = None
        self.batch: list[PendingUnit] = []

    def notify(self) -> None:
        """Answers the waiter; idempotent."""
        if self.wakes is not None:
            self.wakes.set()
        elif self.completion is None or self.completion.done():
            return
        elif isinstance(self.answer, Exception):
            self.completion.set_exception(self.answer)
        else:
            self.completion.set_result(self.answer)


Write: TypeAlias = Callable[[Sequence[PendingUnit]], Sequence[UnitAnswer]]
"""Writes units, in one transaction if there are several, and returns the answer of each."""


class Committer:
    """Writes the units of one store, those that wait together in one transaction.

    `write` writes units; what it raises is raised to all of them. `lanes` is how many transactions there may be at one
    time, and `patience` how long a thread waits for others before its unit is begun.
    """

    def __init__(self, write: Write, *, lanes: int, patience: timedelta, url: str) -> None:
        self.write = write
        self._lanes = lanes
        self._patience = patience.total_seconds()
        self._url = url
        self._lock = threading.RLock()  # a leader whose thread cannot be started any more leads in this one
        self._queue: deque[PendingUnit] = deque()
        self._leaders: set[PendingUnit] = set()

    def apply(self, unit: UnitOfWork) -> RefusedWrite | None:
        """Writes a unit, alone or with others; see `UnitStore.apply`.

        Raises:
            StoreUnavailableError: the units before it do not end. Nothing was written.
            Exception: the answer of the unit.
            BaseException: this thread was interrupted. The unit was withdrawn, or its commit has ended.
        """
        check_blocking("a unit of work in", self._url)
        own = PendingUnit(unit)
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
        """Writes a unit on another thread."""
        answer: Future[Refusal | None] = Future()
        self._add(PendingUnit(unit, answer))
        return answer

    def _add(self, waiting: PendingUnit) -> None:
        with self._lock:
            if len(self._leaders) < self._lanes:
                self._appoint(waiting)
                return
            if waiting.completion is None:
                waiting.wakes = threading.Event()
            self._queue.append(waiting)

    def _await_answer(self, own: PendingUnit, wakes: threading.Event) -> BaseException | None:
        """Blocks until the unit has an answer or leads; returns an interrupt that came too late to withdraw it."""
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

    def _lead(self, leader: PendingUnit) -> None:
        batch = leader.batch
        if self._queue:
            with self._lock:
                batch += [self._queue.popleft() for _ in range(min(len(self._queue), MOST_TOGETHER - len(batch)))]
        try:
            answers = self.write(batch)
        except Exception as error:  # noqa: BLE001 - raised to those whose units these are
            answers = [error, *(_twin(error) for _ in batch[1:])]
        for waiting, answer in zip(batch, answers, strict=True):
            waiting.answer = answer

    def _resign(self, leader: PendingUnit) -> None:
        """Appoints another leader, if that is needed, and answers those whose units have been written.

        Without effect if it does not lead. An interrupted leader has units without answers: they are queued again, but
        for the one of the thread that is interrupted.
        """
        with self._lock:
            if leader not in self._leaders:
                return
            batch, own = leader.batch, leader if leader.completion is None else None
            again = [waiting for waiting in batch if waiting.answer is _PENDING and waiting is not own]
            for waiting in again:
                waiting.may_be_written = True
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

    def _appoint(self, leader: PendingUnit) -> None:
        leader.batch = [leader]
        self._leaders.add(leader)
        if leader.completion is None:
            leader.notify()
        else:
            THREADS.run(partial(self._lead_once, leader))

    def _lead_once(self, leader: PendingUnit) -> None:
        try:
            self._lead(leader)
        finally:
            self._resign(leader)


def _twin(error: Exception) -> Exception:
    """Copies an exception: one that several threads raise would collect the tracebacks of all."""
    twin = type(error).__new__(type(error), *error.args)
    twin.__dict__.update(error.__dict__)
    twin.__cause__ = error
    return twin


def _notify(batch: Sequence[PendingUnit]) -> None:
    for waiting in batch:
        if waiting.answer is not _PENDING:
            waiting.notify()
