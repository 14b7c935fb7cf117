"""Another database in the commit of a call: in two phases where it can prepare, and after the call where it cannot.

Both participants end the connection's part in the call: they release it when they are settled, `connection.close` by
default.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from hmac import digest
from typing import NamedTuple, Protocol, runtime_checkable
from uuid import uuid4

from handrail.errors import InvalidArgumentError
from handrail.redaction import redacted_logger
from handrail.transaction.dbapi_connections import (
    PlainConnection,
    TwoPhaseConnection,
    check_not_aborted,
    check_transaction,
    is_elsewhere,
)
from handrail.transaction.participants import CommitRecordStore
from handrail.transaction.unit_of_work import RecordCommit, UnitStore

_log = redacted_logger("handrail.transaction")

_FORMAT = 0x48524C
"""The format id of our transactions: databases list those of all programs."""

_GUARD = threading.Lock()
_OPEN: set[str] = set()
"""The transactions of calls that run in this process, which are not for recovery to settle."""


@runtime_checkable
class IdentifiedStore(CommitRecordStore, Protocol):
    """A store that has a key which no other store has."""

    def hash_key(self) -> bytes:
        """Its random key.

        Raises:
            StoreUnavailableError: the store does not answer.
        """
        ...


class SessionView(Protocol):
    """A session, as far as it is needed here; `Session` is one."""

    @property
    def session_id(self) -> str:
        """Its id."""
        ...

    @property
    def store(self) -> UnitStore | None:
        """Its store; `None` in memory."""
        ...


class Recovered(NamedTuple):
    """What a recovery has done.

    Attributes:
        committed: how many transactions it has committed, because their calls were.
        rolled_back: how many it has rolled back, because their calls were not committed.
    """

    committed: int
    rolled_back: int


class PreparedTransaction:
    """A transaction of another database that is committed if, and only if, the call is; a crash does not change that.

    It begins when this is made. The handler executes its statements on the connection, and enlists this. The
    transaction is prepared before the call is committed, and committed after it. If the process dies in between, the
    transaction stays prepared, and holds its locks, until `recover` settles it.

    It is named by the store, the session and an id. A store is known by its random key, wherever it is; a copy of it
    has the same key.

    On PostgreSQL it is `PREPARE TRANSACTION`, which the server allows if `max_prepared_transactions` is not 0.

    Args:
        connection: a connection with the two-phase methods of the DB-API, outside of a transaction, and not in
            autocommit mode.
        session: the session of the call, which has to be in a store: `context.session`.
        release: called when the transaction is settled; `connection.close` by default.
        new_id: makes the id of the transaction.

    Raises:
        InvalidArgumentError: the session is in memory.
        StoreUnavailableError: the store does not answer.
        Exception: the driver cannot begin a transaction.
    """

    def __init__(
        self,
        connection: TwoPhaseConnection,
        *,
        session: SessionView,
        release: Callable[[], object] | None = None,
        new_id: Callable[[], str] = lambda: uuid4().hex,
    ) -> None:
        self._records = _records_of("PreparedTransaction", session)
        self.store: UnitStore | None = self._records
        scope, name = _scope_of(session, self._records), new_id()
        self._connection = connection
        self._release: Callable[[], object] = connection.close if release is None else release
        connection.tpc_begin(connection.xid(_FORMAT, scope, name))
        self._record = f"{scope}:{name}"
        with _GUARD:
            _OPEN.add(self._record)

    def prepare(self) -> None:
        """Prepare the transaction.

        Raises:
            EnlistedTransactionError: a statement has failed in it, or it has been ended: PostgreSQL answers `PREPARE
                TRANSACTION` with a rollback then, and raises nothing.
            Exception: the driver cannot prepare it.
        """
        check_transaction("PreparedTransaction", self._connection)
        self._connection.tpc_prepare()

    def write(self) -> Sequence[RecordCommit]:
        """What says, in the unit of the call, that the transaction is to be committed."""
        return (RecordCommit(self._record),)

    def after_commit(self) -> None:
        """Commit the transaction; if that fails, recovery does it."""
        try:
            self._connection.tpc_commit()
        finally:
            self._end()
        self._records.delete_commit_record(self._record)

    def in_doubt(self) -> None:
        """Leave the transaction prepared; recovery asks the store."""
        self._end()

    def after_rollback(self) -> None:
        """Roll the transaction back; if that fails, its database or recovery does it."""
        try:
            self._connection.tpc_rollback()
        except Exception:  # noqa: BLE001 - logged: one that is not prepared ends with its connection
            _log.exception("a transaction of another database could not be rolled back; if it is prepared, recover it")
        finally:
            self._end()

    def _end(self) -> None:
        with _GUARD:
            _OPEN.discard(self._record)
        self._release()

    @staticmethod
    def recover(connection: TwoPhaseConnection, *, session: SessionView) -> Recovered:
        """Settle the transactions of a session that are prepared, and whose process has died.

        Call it each time that the session has been opened, before its first call. No other process has a call of the
        session then, and what one that was killed had sent to the store has been committed or not.

        Args:
            connection: a connection to the database that the transactions are prepared in. Those of other databases of
                its server stay.
            session: the session, open.

        Raises:
            InvalidArgumentError: the session is in memory.
            StoreUnavailableError: the store does not answer. What is left is settled by the next recovery.
            Exception: what the driver raises; as above.
        """
        records = _records_of("PreparedTransaction.recover", session)
        scope, done = _scope_of(session, records), {True: 0, False: 0}
        for xid in connection.tpc_recover():
            record = f"{scope}:{xid.bqual}"
            with _GUARD:
                is_ours = (xid.format_id, xid.gtrid) == (_FORMAT, scope) and record not in _OPEN
            if not is_ours or is_elsewhere(connection, xid):
                continue
            committed = records.is_committed(record)
            if committed:
                connection.tpc_commit(xid)
                records.delete_commit_record(record)
            else:
                connection.tpc_rollback(xid)
            done[committed] += 1
        return Recovered(done[True], done[False])


class CommitsLast:
    """The transaction of a connection that cannot prepare: it is committed as soon as the call is.

    If the process dies between the two commits, or the second one fails, which is logged, the call is recorded as done,
    and what it wrote through this connection is lost. Where that must not be, write to an outbox in the store's own
    database instead.

    Args:
        connection: a connection of the DB-API that is not in autocommit mode. What is committed on it before the call
            is, by the handler or by a library, stays if the call fails.
        release: called when the transaction is settled; `connection.close` by default.

    Raises:
        InvalidArgumentError: the connection is in autocommit mode, as far as its attribute `autocommit` shows it.
    """

    store: UnitStore | None = None

    def __init__(self, connection: PlainConnection, *, release: Callable[[], object] | None = None) -> None:
        # Drivers have the attribute with other values and meanings, too: a method, or -1 for `sqlite3`.
        if getattr(connection, "autocommit", None) is True:
            expected = "a connection that is not in autocommit mode, where each statement is committed by itself"
            raise InvalidArgumentError(
                function="CommitsLast", argument="connection", given=connection, expected=expected
            )
        self._connection = connection
        self._release: Callable[[], object] = connection.close if release is None else release

    def prepare(self) -> None:
        """Refuse a transaction that would not be committed, as far as the driver shows it.

        Raises:
            EnlistedTransactionError: a statement has failed in it, so that PostgreSQL answers `COMMIT` with a rollback.
            Exception: the connection is known to be lost.
        """
        check_not_aborted("CommitsLast", self._connection)

    def write(self) -> Sequence[RecordCommit]:
        """Nothing: there is nothing to recover."""
        return ()

    def after_commit(self) -> None:
        """Commit the transaction.

        Raises:
            EnlistedTransactionError: a statement has failed in it since the call was prepared.
            Exception: the driver cannot commit it.
        """
        try:
            check_not_aborted("CommitsLast", self._connection)
            self._connection.commit()
        finally:
            self._release()

    def in_doubt(self) -> None:
        """Roll the transaction back: whether the call was committed is not known, and cannot be waited for."""
        self.after_rollback()

    def after_rollback(self) -> None:
        """Roll the transaction back; if that fails, it ends with the connection."""
        try:
            self._connection.rollback()
        except Exception:  # noqa: BLE001 - logged, because its database undoes what is not committed
            _log.exception("a transaction of another database could not be rolled back; it ends with its connection")
        finally:
            self._release()


def _records_of(function: str, session: SessionView) -> IdentifiedStore:
    store = session.store
    if not isinstance(store, IdentifiedStore):
        expected = 'a session in a store: Session.open(handrail.store.open("sqlite:///desk.db"), "desk")'
        raise InvalidArgumentError(function=function, argument="session", given=session, expected=expected)
    return store


def _scope_of(session: SessionView, records: IdentifiedStore) -> str:
    """What names a session of a store among the transactions of a database; ids of these are short."""
    return digest(records.hash_key(), f"prepared\n{session.session_id}".encode(), "sha256").hex()[:40]
