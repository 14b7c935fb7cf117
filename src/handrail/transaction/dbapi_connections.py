"""What a connection of the DB-API has, and what it shows of its transaction.

The DB-API itself shows nothing of a transaction. The drivers that are made with libpq, psycopg and psycopg2, do:
`connection.info.transaction_status`. Nothing is known of a connection of another driver, and no statement is executed
to find out.

A mistake of the program is found when a participant is made, before anything is executed that would have to be undone.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from enum import IntEnum
from inspect import iscoroutinefunction
from typing import Any, Protocol

from handrail.errors import EnlistedTransactionError, InvalidArgumentError
from handrail.redaction import redacted


class PlainConnection(Protocol):
    """A connection of the DB-API that is not in autocommit mode."""

    def commit(self) -> object:
        """Commit its transaction."""
        ...

    def rollback(self) -> object:
        """Roll its transaction back."""
        ...

    def close(self) -> object:
        """End it; an open transaction is rolled back."""
        ...


class TwoPhaseConnection(PlainConnection, Protocol):
    """A connection with the two-phase methods of the DB-API (PEP 249), as psycopg has them."""

    def cursor(self) -> Any:  # noqa: ANN401 - the driver's own
        """Make what executes statements."""
        ...

    def xid(self, format_id: int, gtrid: str, bqual: str, /) -> Any:  # noqa: ANN401 - the driver's own
        """Make the id of a transaction."""
        ...

    def tpc_begin(self, xid: Any, /) -> object:  # noqa: ANN401 - as above
        """Begin a transaction of that id."""
        ...

    def tpc_prepare(self) -> object:
        """Prepare it: from then on it survives the connection."""
        ...

    def tpc_commit(self, xid: Any = ..., /) -> object:  # noqa: ANN401 - as above
        """Commit it, or the prepared one of an id."""
        ...

    def tpc_rollback(self, xid: Any = ..., /) -> object:  # noqa: ANN401 - as above
        """Roll it back, or the prepared one of an id."""
        ...

    def tpc_recover(self) -> Iterable[Any]:
        """The ids of the transactions that are prepared, with `format_id`, `gtrid` and `bqual`."""
        ...


class TransactionStatus(IntEnum):
    """The state of a connection's transaction, by the numbers of libpq (`PQtransactionStatus`)."""

    IDLE = 0
    ACTIVE = 1
    OPEN = 2
    ABORTED = 3
    LOST = 4


_STATUSES = {status.value: status for status in TransactionStatus}


def status_of(connection: object) -> TransactionStatus | None:
    """The state of the transaction, as the driver knows it without asking the server; `None` if it does not show it."""
    status: object = getattr(getattr(connection, "info", None), "transaction_status", None)
    return _STATUSES.get(status) if isinstance(status, int) else None


_PLAIN = ("commit", "rollback", "close")
_TWO_PHASES = ("cursor", "xid", "tpc_begin", "tpc_prepare", "tpc_commit", "tpc_rollback", "tpc_recover")
_CAN_PREPARE: set[Hashable] = set()
"""The databases that have been found to prepare transactions."""

_CANNOT_PREPARE = "SELECT 1 FROM pg_catalog.pg_settings WHERE name = 'max_prepared_transactions' AND setting = '0'"


def check_plain(function: str, connection: PlainConnection) -> None:
    """Refuse what is not a connection of the DB-API, is asynchronous, or is in autocommit mode, as far as it shows it.

    Args:
        function: the function or class that it was given to.
        connection: what was given.

    Raises:
        InvalidArgumentError: it is none.
    """
    if not _has(connection, _PLAIN):
        expected = 'a connection of the DB-API, which is not asynchronous: psycopg.connect("postgresql://...")'
        raise _refused(function, connection, expected)
    # Drivers have the attribute with other values and meanings, too: a method, or -1 for `sqlite3`.
    if getattr(connection, "autocommit", None) is True:
        expected = "a connection that is not in autocommit mode, where each statement is committed by itself"
        raise _refused(function, connection, expected)


def check_two_phase(function: str, connection: TwoPhaseConnection) -> None:
    """Refuse a connection that cannot prepare, or is in a transaction, as far as it shows it.

    A server of PostgreSQL is asked for its setting, once in a process.

    Args:
        function: the function or class that it was given to.
        connection: what was given.

    Raises:
        InvalidArgumentError: it is none that can prepare.
        Exception: the driver cannot ask the server.
    """
    if not _has(connection, (*_PLAIN, *_TWO_PHASES)):
        expected = (
            "a connection with the two-phase methods of the DB-API, which is not asynchronous: "
            'psycopg.connect("postgresql://..."); one that cannot prepare is enlisted by CommitsLast'
        )
        raise _refused(function, connection, expected)
    if status_of(connection) in {TransactionStatus.ACTIVE, TransactionStatus.OPEN, TransactionStatus.ABORTED}:
        expected = "a connection that is not in a transaction; nothing has been executed on it since the last one"
        raise _refused(function, connection, expected)
    place = database_of(connection)
    if place is None or place in _CAN_PREPARE:
        return
    cursor = connection.cursor()
    cursor.execute(_CANNOT_PREPARE)
    cannot = cursor.fetchone() is not None
    cursor.close()
    connection.rollback()
    if cannot:
        expected = (
            "a connection to a server that can prepare transactions; max_prepared_transactions is 0 there. Execute "
            "ALTER SYSTEM SET max_prepared_transactions = 100, with as many as calls may commit at a time, and restart "
            "the server"
        )
        raise _refused(function, connection, expected)
    _CAN_PREPARE.add(place)


def _has(connection: object, methods: Iterable[str]) -> bool:
    found = [getattr(connection, name, None) for name in methods]
    return not isinstance(connection, type) and all(
        callable(method) and not iscoroutinefunction(method) for method in found
    )


def _refused(function: str, connection: object, expected: str) -> InvalidArgumentError:
    given = redacted(connection) if isinstance(connection, str) else connection  # a URL with a password, by mistake
    return InvalidArgumentError(function=function, argument="connection", given=given, expected=expected)


def check_not_aborted(participant: str, connection: PlainConnection) -> None:
    """Refuse a transaction in which a statement has failed, or whose connection is lost, as far as the driver shows it.

    Args:
        participant: the class that is to commit it.
        connection: its connection.

    Raises:
        EnlistedTransactionError: PostgreSQL would roll it back, without an error, in place of committing it.
        Exception: the connection is lost; what the driver raises then.
    """
    status = status_of(connection)
    if status is TransactionStatus.ABORTED:
        raise EnlistedTransactionError(participant=participant, state="aborted")
    if status is TransactionStatus.LOST:
        connection.rollback()


def check_transaction(participant: str, connection: PlainConnection) -> None:
    """As `check_not_aborted`, and refuse also a transaction that was begun and has been ended.

    Raises:
        EnlistedTransactionError: there is no transaction that can be committed.
        Exception: as of `check_not_aborted`.
    """
    check_not_aborted(participant, connection)
    if status_of(connection) is TransactionStatus.IDLE:
        raise EnlistedTransactionError(participant=participant, state="ended")


def database_of(connection: object) -> Hashable:
    """The host, the port and the database of an open connection; `None` if the driver does not show them.

    Also `None` for a standby server, which does not list what is prepared on its primary.
    """
    info = getattr(connection, "info", None)
    if status_of(connection) in {None, TransactionStatus.LOST} or info is None:
        return None
    # A parameter that the server reports by itself, from PostgreSQL 14 on.
    is_standby = info.parameter_status("in_hot_standby") == "on"
    return None if is_standby else (info.host, info.port, info.dbname)


def is_elsewhere(connection: TwoPhaseConnection, xid: object) -> bool:
    """Whether a transaction is prepared in another database of the server, which alone can settle it."""
    database = getattr(xid, "database", None)
    own = getattr(getattr(connection, "info", None), "dbname", None)
    return database is not None and own is not None and database != own
