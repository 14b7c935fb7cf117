"""What a connection of the DB-API has, and what it shows of its transaction.

The DB-API itself shows nothing of a transaction. The drivers that are made with libpq, psycopg and psycopg2, do:
`connection.info.transaction_status`. Nothing is known of a connection of another driver, and no statement is executed
to find out.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from enum import IntEnum
from typing import Any, Protocol

from handrail.errors import EnlistedTransactionError


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


def place_of(connection: object) -> Hashable:
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
