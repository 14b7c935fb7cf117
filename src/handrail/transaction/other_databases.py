"""Another database in the commit of a call: in two phases where it can prepare, and after the call where it cannot.

Both participants end the connection's part in the call: they release it when they are settled, `connection.close` by
default.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from hmac import digest
from typing import NamedTuple, Protocol, runtime_checkable
from uuid import uuid4
from weakref import WeakValueDictionary

from handrail.errors import InvalidArgumentError, StoreError
from handrail.redaction import redacted_logger
from handrail.transaction.dbapi_connections import (
    PlainConnection,
    TwoPhaseConnection,
    check_not_aborted,
    check_plain,
    check_transaction,
    check_two_phase,
    database_of,
    is_elsewhere,
)
from handrail.transaction.participants import CommitRecordStore
from handrail.transaction.unit_of_work import RecordCommit, UnitStore

_log = redacted_logger("handrail.transaction")

_FORMAT = 0x48524C
"""The format id of our transactions: databases list those of all programs."""

_STAYS = (
    "if it is prepared, it holds its locks until it is recovered: by the next PreparedTransaction of this process in "
    "that database, or by PreparedTransaction.recover(connection, session=session), which may be called at any time"
)
_MISSING = "its database has committed it, and the answer was lost, or it was settled by hand"


@runtime_checkable
class IdentifiedStore(CommitRecordStore, Protocol):
    """A store that has a key which no other store has."""

    def hash_key(self) -> bytes:
        """Its random key.

        Raises:
            StoreUnavailableError: the store does not answer.
        """
        ...


class SessionRecord(Protocol):
    """What writes a session to its store, as far as it is needed here."""

    def check_open(self) -> None:
        """Refuse a session that is closed.

        Raises:
            SessionError: the program has closed it, or its store was lost, so that it has to be opened again.
        """
        ...


class SessionView(Protocol):
    """A session, as far as it is needed here; `Session` is one."""

    @property
    def recorder(self) -> SessionRecord | None:
        """What writes it to its store; `None` in memory."""
        ...

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
        missing: how many this process could not commit after their calls, and which are not prepared any more: the
            database has committed them, and its answer was lost, or they were settled by hand. Each is logged.
    """

    committed: int
    rolled_back: int
    missing: int = 0


class _Left(NamedTuple):
    """A transaction that stays prepared although the outcome of its call is known: its connection was lost."""

    place: Hashable
    committed: bool
    records: CommitRecordStore


class _Transactions:
    """The transactions that this process has begun, by their records. A lock guards it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: set[str] = set()
        self._left: dict[str, _Left] = {}
        self._recoveries: WeakValueDictionary[Hashable, threading.Lock] = WeakValueDictionary()

    def begin(self, record: str) -> None:
        """Note that a call runs that the transaction belongs to, so that recovery leaves it alone."""
        with self._lock:
            self._open.add(record)

    def end(self, record: str) -> None:
        """Note that the call has ended."""
        with self._lock:
            self._open.discard(record)

    def is_open(self, record: str) -> bool:
        """Whether its call runs."""
        with self._lock:
            return record in self._open

    def leave(self, record: str, left: _Left) -> None:
        """Note that it is left prepared."""
        with self._lock:
            self._left[record] = left

    def left_at(self, place: Hashable) -> dict[str, _Left]:
        """What is left in a database, of all sessions."""
        with self._lock:
            return {record: left for record, left in self._left.items() if left.place == place}

    def settle(self, record: str) -> None:
        """Note that one does not exist any more."""
        with self._lock:
            self._left.pop(record, None)

    def recovery_at(self, place: Hashable) -> threading.Lock:
        """The lock of the thread that recovers in a database."""
        with self._lock:
            return self._recoveries.setdefault(place, threading.Lock())


_TRANSACTIONS = _Transactions()


class PreparedTransaction:
    """A transaction of another database that is committed if, and only if, the call is; a crash does not change that.

    It begins when this is made. The handler executes its statements on the connection, and enlists this. The
    transaction is prepared before the call is committed, and committed after it. If the process dies in between, the
    transaction stays prepared, and holds its locks, until `recover` settles it.

    The same holds if the connection is lost in between, which is logged. Then the next `PreparedTransaction` of this
    process in the same database settles it before it begins, whatever its session.

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
        InvalidArgumentError: the session is in memory; or the connection cannot prepare, is in autocommit mode or in a
            transaction; or the server has `max_prepared_transactions` 0.
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
        check_plain("PreparedTransaction", connection)
        check_two_phase("PreparedTransaction", connection)
        self._records = _records_of("PreparedTransaction", session)
        self.store: UnitStore | None = self._records
        scope, name = _scope_of(session, self._records), new_id()
        self._connection = connection
        self._release: Callable[[], object] = connection.close if release is None else release
        self._place = database_of(connection)
        _settle_left(connection, self._place)
        connection.tpc_begin(connection.xid(_FORMAT, scope, name))
        self._prepared = False
        self._record = f"{scope}:{name}"
        _TRANSACTIONS.begin(self._record)

    def prepare(self) -> None:
        """Prepare the transaction.

        Raises:
            EnlistedTransactionError: a statement has failed in it, or it has been ended: PostgreSQL answers `PREPARE
                TRANSACTION` with a rollback then, and raises nothing.
            Exception: the driver cannot prepare it.
        """
        check_transaction("PreparedTransaction", self._connection)
        self._prepared = True  # also if the answer is lost
        self._connection.tpc_prepare()

    def write(self) -> Sequence[RecordCommit]:
        """What says, in the unit of the call, that the transaction is to be committed."""
        return (RecordCommit(self._record),)

    def after_commit(self) -> None:
        """Commit the transaction; if that fails, which is logged, recovery does it."""
        try:
            self._connection.tpc_commit()
        except BaseException as error:
            self._leave(committed=True)
            if not isinstance(error, Exception):
                raise
            _log.exception("a call is committed, and its transaction in another database could not be: %s", _STAYS)
        else:
            _delete(self._record, self._records)
        finally:
            self._end()

    def in_doubt(self) -> None:
        """Leave the transaction prepared; recovery asks the store when the session has been opened again."""
        self._end()

    def after_rollback(self) -> None:
        """Roll the transaction back; if that fails, its database or recovery does it."""
        try:
            self._connection.tpc_rollback()
        except Exception:  # noqa: BLE001 - logged: one that is not prepared ends with its connection
            if self._prepared:
                self._leave(committed=False)
            what = _STAYS if self._prepared else "it ends with its connection"
            _log.exception("a transaction of another database could not be rolled back with its call: %s", what)
        finally:
            self._end()

    def _leave(self, *, committed: bool) -> None:
        _TRANSACTIONS.leave(self._record, _Left(self._place, committed, self._records))

    def _end(self) -> None:
        _TRANSACTIONS.end(self._record)
        self._release()

    @staticmethod
    def recover(connection: TwoPhaseConnection, *, session: SessionView) -> Recovered:
        """Settle the transactions of a session that are prepared, and whose process has died.

        Call it each time that the session has been opened, before its first call. No other process has a call of the
        session then, and what one that was killed had sent to the store has been committed or not.

        It may be called at any other time while the session is open, from any thread: what belongs to a call that runs
        is left alone. So a program settles what lost connections have left, of all its sessions.

        Args:
            connection: a connection to the database that the transactions are prepared in. Those of other databases of
                its server stay.
            session: the session, open.

        Raises:
            InvalidArgumentError: the session is in memory; or the connection or its server cannot prepare, or it is in
                a transaction.
            SessionError: the session is closed.
            StoreUnavailableError: the store does not answer. What is left is settled by the next recovery.
            Exception: what the driver raises; as above.
        """
        check_two_phase("PreparedTransaction.recover", connection)
        records = _records_of("PreparedTransaction.recover", session)
        if session.recorder is not None:
            session.recorder.check_open()
        return _recover(connection, database_of(connection), _scope_of(session, records), records)


def _settle_left(connection: TwoPhaseConnection, place: Hashable) -> None:
    """Settle what lost connections have left in a database; what cannot be settled stays, which is logged."""
    if not _TRANSACTIONS.left_at(place):
        return
    try:
        _recover(connection, place, None, None)
    except Exception:  # noqa: BLE001 - logged: it may belong to another session, and to another user of the database
        _log.exception("a transaction that a lost connection has left prepared could not be settled: %s", _STAYS)


def _recover(
    connection: TwoPhaseConnection, place: Hashable, scope: str | None, records: CommitRecordStore | None
) -> Recovered:
    """Settle what is left in a database, and what is prepared of a session, if one is given."""
    done = {True: 0, False: 0}
    with _TRANSACTIONS.recovery_at(place):
        # Read before the database is asked: what is left from here on may not be listed.
        left = _TRANSACTIONS.left_at(place)
        for xid in connection.tpc_recover():
            if xid.format_id != _FORMAT or is_elsewhere(connection, xid):
                continue
            record = f"{xid.gtrid}:{xid.bqual}"
            known = left.pop(record, None)
            if known is not None:
                committed, store = known.committed, known.records
            elif records is not None and xid.gtrid == scope and not _TRANSACTIONS.is_open(record):
                committed, store = records.is_committed(record), records
            else:
                continue
            if committed:
                connection.tpc_commit(xid)
            else:
                connection.tpc_rollback(xid)
            _TRANSACTIONS.settle(record)
            if committed:
                _delete(record, store)
            done[committed] += 1
        # Where the driver does not show the place, they may be in another database.
        missing = 0 if place is None else _forget(left)
    return Recovered(done[True], done[False], missing)


def _forget(left: Mapping[str, _Left]) -> int:
    """Forget what is not prepared any more; returns how many of them belong to calls that are committed."""
    missing = 0
    for record, (_, committed, records) in left.items():
        _TRANSACTIONS.settle(record)
        if committed:
            missing += 1
            _log.warning("%s is not prepared any more, and its call is committed: %s", record, _MISSING)
            _delete(record, records)
    return missing


def _delete(record: str, records: CommitRecordStore) -> None:
    try:
        records.delete_commit_record(record)
    except StoreError:  # the store may be that of another session, and closed
        _log.warning("the commit record %s is not needed any more, and could not be deleted", record, exc_info=True)


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
        InvalidArgumentError: it is not a connection, is asynchronous, or is in autocommit mode, as far as its attribute
            `autocommit` shows it.
    """

    store: UnitStore | None = None

    def __init__(self, connection: PlainConnection, *, release: Callable[[], object] | None = None) -> None:
        check_plain("CommitsLast", connection)
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
    store: object = getattr(session, "store", None)
    if not isinstance(store, IdentifiedStore):
        expected = 'a session in a store: Session.open(handrail.store.open("sqlite:///desk.db"), "desk")'
        raise InvalidArgumentError(function=function, argument="session", given=session, expected=expected)
    return store


def _scope_of(session: SessionView, records: IdentifiedStore) -> str:
    """What names a session of a store among the transactions of a database; ids of these are short."""
    return digest(records.hash_key(), f"prepared\n{session.session_id}".encode(), "sha256").hex()[:40]
