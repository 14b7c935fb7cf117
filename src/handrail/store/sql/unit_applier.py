"""How units of work are applied to a database: in a group where that is possible, and alone otherwise.

A unit is written alone, by its caller, if it is a part of the transaction that a handler has open, or of a kind that is
not written in groups (`handrail.store.sql.unit_writer`). All others go to the `Committer`.

A unit whose answer was lost, with the connection or with the transaction of its group, is looked up on the next
connection: what it writes is there, under ids, numbers and tokens that no other unit writes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Protocol

from handrail.crash_points import reached
from handrail.errors import SessionLostError, StoreError, StoreUnavailableError
from handrail.loop_guard import may_wait_for_calls
from handrail.session.persistence.protocol import AnswerChange, AnswerRow, SessionAppend, SessionHeld
from handrail.store.protocol import (
    EFFECT_WRITES,
    EffectChange,
    EffectInsert,
    EffectRow,
    MarkApplied,
    RefusedWrite,
    points_of,
)
from handrail.store.sql import statements
from handrail.store.sql.call_connection import CallConnection
from handrail.store.sql.committer import Committer, PendingUnit, UnitAnswer
from handrail.store.sql.database import Database, check_version
from handrail.store.sql.unit_writer import RefusedError, holder, insert_row, replace_row, write_with
from handrail.transaction import RecordCommit, UnitOfWork
from handrail.transaction.unit_of_work import Refusal
from handrail.waiting import run_in_thread


class StoredRows(Protocol):
    """What is read to find out whether a unit has been written."""

    def get(self, partition: str, key: str) -> EffectRow | None:
        """The present row; `None` if there is none."""
        ...

    def is_committed(self, journal_id: str) -> bool:
        """Whether the call that a journal belongs to has been committed."""
        ...

    def answers(self, session_id: str) -> tuple[AnswerRow, ...]:
        """The answers to calls of a session."""
        ...


class UnitApplier:
    """Applies units of work.

    Args:
        database: where they are written.
        rows: what is stored there.
        written: called with each change of a row of the ledger that has been committed, in any thread.
    """

    def __init__(
        self,
        database: Database,
        rows: StoredRows,
        written: Callable[[EffectInsert | EffectChange | MarkApplied], object],
    ) -> None:
        """Wait for units."""
        driver = database.driver
        self._database = database
        self._driver = driver
        self._rows = rows
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

    def close(self) -> None:
        """Let the threads end that write for event loops."""
        self._committer.close()

    def _goes_alone(self, unit: UnitOfWork) -> bool:
        self._driver.check_process()  # a forked process has no thread that would answer
        return self._database.is_beside_writer or not self._driver.may_group(unit.writes)

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
        """Write a unit on its own; what that raises is the answer.

        Args:
            unit: the unit.
            may_be_written: whether an earlier attempt may have written it.
        """
        try:
            if may_be_written and self._stands(unit):
                return self._notified(unit, None)
            refused = self._written_alone(unit)
            # The transaction of the earlier attempt may have been committed only now, on a connection that was lost.
            if refused is not None and may_be_written and self._stands(unit):
                refused = None
            return self._notified(unit, refused)
        except Exception as error:  # noqa: BLE001 - raised to who waits for the unit
            return error

    def _notified(self, unit: UnitOfWork, refused: RefusedWrite | None) -> RefusedWrite | None:
        """The answer of a unit; those who watch its rows are notified if it was written."""
        if refused is None:
            for write in unit.writes:
                if isinstance(write, EFFECT_WRITES):
                    self._changed(write)
        return refused

    # -------------------------------------------------------------------------------------------------- alone

    def _written_alone(self, unit: UnitOfWork) -> RefusedWrite | None:
        """Write a unit, and once more if its connection was lost, unless it is found to be there."""
        try:
            return self._written_once(unit)
        except StoreUnavailableError as error:
            lost = error
        if lost.in_doubt:
            try:
                if self._stands(unit):
                    return None
                lost.in_doubt = not self._is_undone(unit)
            except StoreError:  # it does not answer on another connection either
                raise lost from None
        # What a handler has written is lost with the connection of its call.
        if not lost.connection_lost or any(isinstance(write, CallConnection) for write in unit.writes):
            raise lost
        return self._written_again(unit, in_doubt=lost.in_doubt)

    def _written_again(self, unit: UnitOfWork, *, in_doubt: bool) -> RefusedWrite | None:
        """Write a unit whose connection was lost.

        Args:
            unit: the unit.
            in_doubt: whether the earlier attempt may be committed yet.
        """
        try:
            refused = self._written_once(unit)
            return None if in_doubt and refused is not None and self._stands(unit) else refused
        except StoreUnavailableError as error:
            error.in_doubt = error.in_doubt or in_doubt
            raise

    def _written_once(self, unit: UnitOfWork) -> RefusedWrite | None:
        try:
            match unit.writes:
                case (EffectInsert() as insert,):
                    refused = insert_row(self._database, insert)
                case (EffectInsert() as insert, SessionHeld() as held):
                    refused = insert_row(self._database, insert, held)
                case (EffectChange() as change,):
                    refused = self._change(change)
                case _:
                    refused = None if self._written_at_once(unit) else self._write_together(unit)
        except SessionLostError:
            check_version(self._database, self._database.url)
            raise
        if refused is not None and not _says_why(refused):
            check_version(self._database, self._database.url)
        return refused

    def _change(self, change: EffectChange) -> RefusedWrite | None:
        """Write a change in one statement, which is a transaction of its own."""
        seen, row = change
        # A renewal of the lease by the call that writes through `context.connection` would wait for itself.
        is_renewal = row is not None and (row.status, row.fence) == (seen.status, seen.fence)
        execute = self._database.execute_with_call if is_renewal else self._database.execute
        return replace_row(execute, change, self._database)

    def _written_at_once(self, unit: UnitOfWork) -> bool:
        """Whether a unit was written in one statement; if not, nothing was."""
        statement = self._driver.one_statement(unit.writes)
        if statement is None:
            return False
        for point in points_of(unit.writes):
            reached(point)
        if not self._database.execute(*statement):
            return False
        reached("unit-after-commit")
        return True

    def _write_together(self, unit: UnitOfWork) -> RefusedWrite | None:
        call = next((write for write in unit.writes if isinstance(write, CallConnection)), None)
        # The statements of these compare the version themselves.
        compares = any(isinstance(write, SessionAppend | EffectInsert | EffectChange) for write in unit.writes)
        try:
            with self._database.transaction(call, any_version=compares) as link:
                for write in unit.writes:
                    write_with(link, write)
        except RefusedError as error:
            return None if len(unit.writes) > 1 and self._stands(unit) else error.refused
        except SessionLostError:
            if not self._stands(unit):
                raise
        return None

    # ----------------------------------------------------------------------------------------- after a lost answer

    def _stands(self, unit: UnitOfWork) -> bool:
        """Whether a unit whose answer was lost has been committed: what it writes is there."""
        # What a handler has written proves nothing; it is committed with the rest.
        proofs = [write for write in unit.writes if not isinstance(write, CallConnection)]
        return bool(proofs) and all(map(self._is_written, proofs))

    def _is_undone(self, unit: UnitOfWork) -> bool:
        """Whether a unit whose answer was lost was rolled back: the row of its session, locked here, is as before it.

        A transaction that was still being committed would have that row locked.
        """
        for write in unit.writes:
            match write:
                case SessionAppend(lock, head, entries) if entries:
                    same = (head, lock.session_id, head, lock.token)
                    return bool(self._database.execute(statements.SET_HEAD, same))
                case _:
                    pass
        return False

    def _is_written(self, write: object) -> bool:
        match write:
            case EffectInsert(row):
                return self._rows.get(row.partition, row.key) == row
            case EffectChange(seen, row) | MarkApplied(seen, row):
                # Who has removed a row is not known, so a removal counts once.
                return row is not None and self._rows.get(seen.partition, seen.key) == row
            case SessionAppend(lock, head, entries):
                return holder(self._database, lock) == (lock.token, head + len(entries))
            case AnswerChange(_, row):
                return row in self._rows.answers(row.session_id)
            case _:
                return not isinstance(write, RecordCommit) or self._rows.is_committed(write.journal_id)


def _says_why(refused: RefusedWrite) -> bool:
    """Whether a write was refused for the row that stands there; if not, perhaps for the version of the tables."""
    match refused:
        case RefusedWrite(EffectInsert(), standing):
            return standing is not None
        case RefusedWrite(EffectChange() as change, standing):
            return standing is not None and not change.fits(standing)
        case _:  # written in a transaction, which asks for the version as it begins
            return True
