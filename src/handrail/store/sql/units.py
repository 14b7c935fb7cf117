"""How units of work are written to a database: each row is compared by the statement that changes it.

A unit is a list of statements. One that compares a row changes it, or else the unit is refused, and nothing of it
remains. A claim, and a change of one row, is one statement, which is a transaction of its own; a database may have one
statement for other units too, which saves round trips (`handrail.store.sql.driver.Driver.one_statement`).

A unit is written alone, by its caller, if it is a part of the transaction that a handler has open, or of a kind that
its database does not write in groups. All others go to the `Committer`. Where a unit of a group is refused after a
statement of it has changed something, the transaction is undone and each unit is written alone. That is seldom: the
lease of a call has been lost, or its session.

A unit whose answer was lost, with the connection or with the transaction of its group, is looked up on the next
connection: what it writes is there, under ids, numbers and tokens that no other unit writes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from typing import TypeAlias, cast

from handrail.crash_points import reached
from handrail.errors import SessionError, SessionLostError, StoreError, StoreUnavailableError
from handrail.session.persistence.protocol import AnswerChange, SessionAppend, SessionHeld
from handrail.store.protocol import (
    EFFECT_WRITES,
    EffectChange,
    EffectInsert,
    MarkApplied,
    RefusedWrite,
    Store,
    has_written,
    points_of,
)
from handrail.store.session_locks import newest_number, session_lost
from handrail.store.sql import statements, tables
from handrail.store.sql.call_connection import CallConnection
from handrail.store.sql.committer import Committer, PendingUnit, UnitAnswer
from handrail.store.sql.database import Database, check_version
from handrail.store.sql.driver import DriverConnection, QueryExecutor, Statement, StatementParameters
from handrail.transaction import RecordCommit, UnitOfWork
from handrail.transaction.unit_of_work import Refusal
from handrail.waiting import may_wait_for_calls, run_in_thread

# ---------------------------------------------------------------------------------------------------------- statements


_Step: TypeAlias = tuple[str, Sequence[StatementParameters], bool]
"""A statement, the parameters of each execution, and whether it is compared: if so it has one, and changes a row."""

ROW_UNITS = ((EffectInsert,), (EffectInsert, SessionHeld), (EffectChange,))
"""The kinds of writes of the units that are one statement in every database."""


def row_statement(writes: Sequence[object]) -> Statement | None:
    """The statement of a unit that claims an effect or changes a row of one; `None` for other units."""
    match writes:
        case (EffectInsert(row),):
            return Statement(statements.INSERT_EFFECT, tables.effect_columns(row))
        case (EffectInsert(row), SessionHeld(lock)):
            return Statement(statements.INSERT_EFFECT_WHILE_HELD, (*tables.effect_columns(row), *lock[:2]))
        case (EffectChange() as change,):
            return change_statement(change)
        case _:
            return None


def change_statement(change: EffectChange) -> Statement:
    """The statement of a change, which changes nothing if the row is not the one seen."""
    seen, row = change
    compared = tables.seen_columns(seen)
    if row is None:
        return Statement(statements.DELETE_EFFECT, compared)
    return Statement(statements.REPLACE_EFFECT, (*tables.effect_columns(row)[2:], *compared))


def _steps(write: object) -> Iterator[_Step]:
    match write:
        case EffectInsert(row):
            yield statements.INSERT_EFFECT, (tables.effect_columns(row),), True
        case EffectChange():
            sql, columns = change_statement(write)
            yield sql, (columns,), True
        case MarkApplied(seen, row):
            compared = (*seen[:3], *(moment or 0 for moment in tables.applied_columns(seen)))
            yield statements.MARK_APPLIED, ((*tables.applied_columns(row), *compared),), True
        case AnswerChange(seen, row):
            columns = tables.ANSWER_TABLE.write(row)
            if seen is None:
                yield statements.INSERT_ANSWER, ((*columns, row.session_id),), True
            else:
                yield statements.REPLACE_ANSWER, ((*columns[3:], *tables.ANSWER_TABLE.write(seen)),), True
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


def write_unit(link: DriverConnection, writes: Sequence[object]) -> object | None:
    """Write a unit in the transaction that is open on a connection; returns the write that is refused, if one is.

    Raises:
        SessionError: entries do not follow the newest one.
        StoreError: a statement has failed.
    """
    for write in writes:
        for sql, rows, is_compared in _steps(write):
            if is_compared:
                if not link.execute(sql, rows[0]):
                    return write
            elif rows:
                link.execute_many(sql, rows)
        if isinstance(write, EFFECT_WRITES):
            reached("unit-ledger-written")
        elif isinstance(write, SessionAppend):
            reached("unit-session-written")
    return None


def why_refused(executor: QueryExecutor, write: object, store: str) -> RefusedWrite:
    """Why a write was refused, which is undone.

    Args:
        executor: answers what stands there.
        write: what was refused.
        store: the URL of the store.

    Raises:
        SessionLostError: its session has passed to another process.
        StoreCorruptError: the row of its key cannot be read.
    """
    match write:
        case SessionAppend(lock, head):
            raise session_lost(lock, head, holder(executor, lock.session_id))
        case SessionHeld(lock):
            raise session_lost(lock, 0, holder(executor, lock.session_id))
        case EffectInsert() | EffectChange() | MarkApplied():
            found = executor.query(statements.GET_EFFECT, write.seen[:2])
            return RefusedWrite(write, tables.read_effect(found[0], store) if found else None)
        case _:
            return RefusedWrite(cast("AnswerChange", write))  # no other write is compared


def holder(executor: QueryExecutor, session_id: str) -> tuple[str, int] | None:
    """The token of the lock of a session that is valid, and the number of its newest entry."""
    found = executor.query(statements.GET_HOLDER, (session_id,))
    return (found[0][0], found[0][1]) if found else None


def write_group(link: DriverConnection, units: Sequence[Sequence[object]]) -> list[bool] | None:
    """Write units in the transaction that is open on a connection.

    Returns:
        Which of them were written: one that is refused by its first statement has changed nothing. `None` if another
        statement has refused one, or its entries do not follow: the transaction is to be undone.

    Raises:
        StoreError: a statement has failed.
    """
    written: list[bool] = []
    reached("unit-begun")
    for writes in units:
        statement = row_statement(writes)
        try:
            refused = write_unit(link, writes) if statement is None else None if link.execute(*statement) else writes[0]
        except SessionError:
            return None
        if refused is not None and refused is not writes[0]:
            return None
        written.append(refused is None)
        reached("unit-group-written")
    return written


# ------------------------------------------------------------------------------------------------------------- applying


class _RefusedError(Exception):
    """A write of a unit was refused, so its transaction is undone. Never leaves this module."""


def _call_connection(unit: UnitOfWork) -> CallConnection | None:
    """The connection of the call in whose transaction a unit is written, if there is one."""
    return next((write for write in unit.writes if isinstance(write, CallConnection)), None)


class UnitApplier:
    """Applies units of work.

    Args:
        database: where they are written.
        store: the store there.
        written: called with each change of a row of the ledger that has been committed, in any thread.
    """

    def __init__(
        self,
        database: Database,
        store: Store,
        written: Callable[[EffectInsert | EffectChange | MarkApplied], object],
    ) -> None:
        """Wait for units."""
        driver = database.driver
        self._database = database
        self._driver = driver
        self._store = store
        self._changed = written
        self._committer = Committer(self._write_group, lanes=driver.lanes, patience=driver.busy, url=driver.url)

    def apply(self, unit: UnitOfWork) -> RefusedWrite | None:
        """Write all of a unit, or nothing; see `SqlStore.apply`."""
        # Where this thread may not wait for calls: as a leader it would write the units of threads that may.
        if self._goes_alone(unit) or (self._driver.one_writer and not may_wait_for_calls()):
            return self._notified(unit, self._written_alone(unit))
        return self._committer.apply(unit)

    def submit(self, unit: UnitOfWork) -> Future[Refusal | None]:
        """Have a unit written by another thread; see `UnitStore.submit`."""
        return run_in_thread(partial(self.apply, unit)) if self._goes_alone(unit) else self._committer.submit(unit)

    def _goes_alone(self, unit: UnitOfWork) -> bool:
        self._database.check_process()  # a forked process has no thread that would answer
        writes = unit.writes
        in_call = _call_connection(unit) is not None
        return in_call or self._database.is_beside_writer or not self._driver.may_group(writes)

    def _write_group(self, pending: Sequence[PendingUnit]) -> Sequence[UnitAnswer]:
        """Write units in one transaction, and each on its own if that fails: then the one at fault fails alone."""
        if len(pending) == 1:
            return (self._answer(*pending[0]),)
        written = self._driver.write_group([each.unit.writes for each in pending])
        if written is None:
            # The connection may have been lost in the moment of the commit.
            return [self._answer(each.unit, may_be_written=True) for each in pending]
        reached("unit-after-commit")
        return [
            self._notified(each.unit, None) if is_written else self._answer(*each)
            for each, is_written in zip(pending, written, strict=True)
        ]

    def _answer(self, unit: UnitOfWork, may_be_written: bool) -> UnitAnswer:  # noqa: FBT001 - as of `PendingUnit`
        """Write a unit on its own; what that raises is the answer."""
        try:
            return self._notified(unit, self._written_alone(unit, may_be_written=may_be_written))
        except Exception as error:  # noqa: BLE001 - raised to who waits for the unit
            return error

    def _notified(self, unit: UnitOfWork, refused: RefusedWrite | None) -> RefusedWrite | None:
        """The answer of a unit; those who watch its rows are notified if it was written."""
        if refused is None:
            for write in unit.writes:
                if isinstance(write, EFFECT_WRITES):
                    self._changed(write)
        return refused

    # --------------------------------------------------------------------------------------------------------- alone

    def _written_alone(self, unit: UnitOfWork, *, may_be_written: bool = False) -> RefusedWrite | None:
        """Write a unit, and once more if its connection was lost, unless it is found to be there.

        Args:
            unit: the unit.
            may_be_written: whether an earlier attempt may have written it, or may be committed yet.
        """
        for is_last in (False, True):
            try:
                if may_be_written and has_written(self._store, unit):
                    return None
                refused = self._written_once(unit)
                return None if refused and may_be_written and has_written(self._store, unit) else refused
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

    def _written_once(self, unit: UnitOfWork) -> RefusedWrite | None:
        writes = unit.writes
        statement = self._driver.one_statement(writes)
        if statement is not None:
            points, first = points_of(writes), writes[0]
            for point in points:
                reached(point)
            # A renewal of the lease by the call that writes through `context.connection` would wait for itself.
            is_renewal = isinstance(first, EffectChange) and first.is_renewal
            if (self._database.execute_with_call if is_renewal else self._database.execute)(*statement):
                if points:
                    reached("unit-after-commit")
                return None
            if isinstance(first, EffectInsert | EffectChange) and tuple(map(type, writes)) in ROW_UNITS:
                refused = why_refused(self._database, first, self._database.url)
                if refused.standing is not None and not first.fits(refused.standing):
                    return refused
        return self._write_together(unit)  # which says what else refuses it, or finds that nothing does any more

    def _write_together(self, unit: UnitOfWork) -> RefusedWrite | None:
        # Their statements compare the version of the tables.
        compares = any(isinstance(write, SessionAppend | EffectInsert | EffectChange) for write in unit.writes)
        refused: RefusedWrite | None = None
        try:
            with self._database.transaction(_call_connection(unit), any_version=compares) as link:
                write = write_unit(link, unit.writes)
                if write is not None:
                    refused = why_refused(link, write, self._database.url)
                    raise _RefusedError  # noqa: TRY301 - undoes the transaction
        except (_RefusedError, SessionLostError):
            if (len(unit.writes) > 1 or refused is None) and has_written(self._store, unit):
                return None
            check_version(self._database, self._database.url)
            if refused is None:
                raise
        return refused

    def _is_undone(self, unit: UnitOfWork) -> bool:
        """Whether a unit whose answer was lost was rolled back: the row of its session, locked here, is as before it.

        A transaction that was still being committed would have that row locked.
        """
        append = next((write for write in unit.writes if isinstance(write, SessionAppend) and write.entries), None)
        if append is None:
            return False
        lock, head = append.lock, append.head
        return bool(self._database.execute(statements.SET_HEAD, (head, lock.session_id, head, lock.token)))
