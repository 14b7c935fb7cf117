"""The driver's connection of a call: libraries commit and roll back on it, and the call remains one transaction."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from typing import Any

import psycopg
import pytest

from handrail.errors import (
    CallTransactionEndedError,
    SessionError,
    SessionUseError,
    StoreError,
    StoreUnavailableError,
    TransactionClosedError,
)
from handrail.store import Store
from handrail.store.protocol import EffectChange, EffectInsert
from handrail.testing import FakeClock
from handrail.transaction import Transaction
from tests.store.calls import Record, call
from tests.store.failing import failing
from tests.store.ledger_stores import running_row
from tests.store.orders import add, items, with_orders
from tests.store.postgres_server import server_url
from tests.store.stores import STORES
from tests.wording import Wording

DRIVERS: Any = (sqlite3.Connection, psycopg.Connection)

TEA, MILK = "INSERT INTO orders VALUES (1, 'tea')", "INSERT INTO orders VALUES (2, 'milk')"


@pytest.fixture
def orders(database: Store) -> Store:
    """A store whose database has a table of the program's own."""
    return with_orders(database)


def test_what_is_written_on_it_is_committed_with_the_call(orders: Store) -> None:
    """Beside what the handler executes; `commit` and `close` commit nothing."""
    for kept in (False, True):
        with call() as transaction:
            native = orders.connection().driver_connection()
            assert isinstance(native, DRIVERS)
            cursor: Any = native.cursor()
            cursor.execute(TEA)
            native.commit()
            native.close()
            native.close()
            native.rollback()  # without effect
            with pytest.raises(SessionError):
                native.cursor()
            orders.connection().execute(MILK)
            if kept:
                transaction.commit()
        assert items(orders) == ["tea", "milk"] * kept


def test_what_a_handler_sets_on_it_is_set_on_the_drivers(orders: Store, clock: FakeClock) -> None:
    """It holds until the handler has ended: a unit that meets another row than it has seen reads that one as before."""

    def dictionary(_: Any, row: tuple[Any, ...] | None = None) -> Any:
        if row is None:  # psycopg asks for what makes the rows
            return made
        return made(row)

    def made(row: tuple[Any, ...]) -> dict[Any, Any]:
        return {**dict(enumerate(row)), "own": True}

    row = running_row(clock)
    with call() as transaction:
        transaction.enlist(Record(orders, EffectInsert(row), EffectChange(row, row._replace(status="done"))))
        native = orders.connection().driver_connection()
        native.row_factory = dictionary
        assert native.execute("SELECT 1").fetchone() == {0: 1, "own": True}
        native.row_factory = dictionary
        transaction.commit()
    assert orders.get("s1", row.key) == row._replace(status="done")


def test_as_a_context_manager_it_keeps_what_was_written_or_undoes_it_on_an_exception(orders: Store) -> None:
    """As the driver's connections do; nothing is committed before the call is."""
    with call() as transaction:
        native: Any = orders.connection().driver_connection()
        with native as inside:
            inside.execute(TEA)
        with suppress(KeyError), native:
            native.execute(MILK)
            raise KeyError
        transaction.commit()
    assert items(orders) == ["tea"]


def test_a_rollback_undoes_what_came_after_the_last_commit(orders: Store) -> None:
    """Also after a statement that has failed; what the handler wrote before stays."""
    with call() as transaction:
        add(orders.connection(), "tea")
        native = orders.connection().driver_connection()
        native.execute(MILK)
        native.commit()
        native.execute("DELETE FROM orders")
        with pytest.raises(Exception, match=r"(?i)syntax"):
            native.execute("SELEC")
        native.rollback()
        native.rollback()
        transaction.commit()
    assert items(orders) == ["tea", "milk"]


def test_a_backup_inside_the_call_is_refused(orders: Store) -> None:
    """It would wait for the call for ever, which waits for it."""
    with call():
        native: Any = orders.connection().driver_connection()
        native.execute(TEA)
        with sqlite3.connect(":memory:") as copy, pytest.raises((SessionUseError, AttributeError)) as refused:
            native.backup(copy)
        copy.close()
        assert isinstance(refused.value, SessionUseError) is isinstance(native, sqlite3.Connection)


def test_an_inner_call_that_fails_takes_its_commits_along(orders: Store) -> None:
    """The outer one goes on with its own connection of the driver."""
    with call() as outer:
        native = orders.connection().driver_connection()
        native.execute(TEA)
        with failing(call("inner", inside=outer)):
            inner = orders.connection().driver_connection()
            inner.execute(MILK)
            inner.commit()
        native.commit()
        outer.commit()
    assert items(orders) == ["tea"]


def commit(native: Any) -> None:
    """By SQL."""
    native.execute("COMMIT")


def commit_and_begin(native: Any) -> None:
    """And have another one in its place."""
    native.execute("COMMIT")
    native.execute("BEGIN")


def roll_back(native: Any) -> None:
    """By SQL, too."""
    native.execute("ROLLBACK")


def commit_on_the_drivers_own(native: Any) -> None:
    """By the connection behind the one that the call has given."""
    native.cursor().connection.commit()


def finish_the_drivers_own(native: Any) -> None:
    """The same, below the driver where that has a connection of libpq."""
    own = native.cursor().connection
    if hasattr(own, "pgconn"):
        own.pgconn.finish()
    else:
        own.close()


ENDS = [
    commit,
    commit_and_begin,
    roll_back,
    commit_on_the_drivers_own,
    finish_the_drivers_own,
]


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("fails", [False, True])
def test_a_handler_that_ends_the_transaction_is_noticed(
    orders: Store, end: Callable[[Any], None], *, fails: bool
) -> None:
    """Whether it returns or raises: nothing else of the call is committed, and each effect is unknown."""
    record = Claim(orders)

    def handle(transaction: Transaction) -> None:
        transaction.enlist(record)
        native = orders.connection().driver_connection()
        native.execute(TEA)
        end(native)
        if fails:
            raise ValueError("out of stock")
        transaction.commit()

    with pytest.raises(CallTransactionEndedError) as raised, call() as transaction:
        handle(transaction)
    assert (raised.value.tool, raised.value.store) == ("pay", orders.url)
    assert record.heard == ["unknown", "undone"]
    assert set(items(orders)) <= {"tea"}
    with call() as transaction:
        add(orders.connection(), "sugar")
        transaction.commit()
    assert items(orders)[-1] == "sugar"


def test_a_connection_that_the_server_has_ended_makes_the_store_unavailable() -> None:
    """The handler has not ended it, and another attempt may succeed."""
    orders = with_orders(STORES["postgres"](FakeClock()))

    def handle(transaction: Transaction) -> None:
        native = orders.connection().driver_connection()
        native.execute(TEA)
        ((pid,),) = native.execute("SELECT pg_backend_pid()").fetchall()
        with psycopg.connect(server_url(), autocommit=True) as other:
            other.execute("SELECT pg_terminate_backend(%s, 60000)", (pid,))
        transaction.commit()

    with pytest.raises(StoreUnavailableError), call() as transaction:
        handle(transaction)
    assert items(orders) == []


class Claim(Record):
    """One that records what is known of the effect."""

    def outcome_unknown(self, why: str) -> None:
        assert why
        self.heard.append("unknown")


def test_a_commit_or_rollback_after_the_end_is_refused(orders: Store) -> None:
    """And the call is not committed, even if the handler catches that."""

    def handle(transaction: Transaction) -> None:
        native = orders.connection().driver_connection()
        native.execute("ROLLBACK")
        with pytest.raises(CallTransactionEndedError):
            add(orders.connection(), "tea")
        for method in (native.commit, native.rollback, orders.connection().driver_connection):
            with pytest.raises(CallTransactionEndedError):
                method()
        transaction.commit()

    with pytest.raises(CallTransactionEndedError), call() as transaction:
        handle(transaction)


def test_a_statement_that_has_failed_and_is_not_rolled_back_fails_the_call(orders: Store, wording: Wording) -> None:
    """PostgreSQL takes no other statement then: the call is undone, and nobody is to blame."""
    if orders.url.startswith("sqlite"):
        with call() as transaction:
            with pytest.raises(sqlite3.OperationalError):
                orders.connection().driver_connection().execute("SELEC")
            transaction.commit()
        return
    with call() as transaction:
        record = Record(orders)
        transaction.enlist(record)
        with pytest.raises(psycopg.Error):
            orders.connection().driver_connection().execute("SELEC")
        with pytest.raises(StoreError) as raised:
            transaction.commit()
        assert str(raised.value) == wording
    assert record.heard == ["undone"]


def test_a_late_handler_writes_nothing_on_it(orders: Store) -> None:
    """Neither through it nor through a cursor that it has; and it gets no other one."""
    with call() as transaction:
        late, native = copy_context(), orders.connection().driver_connection()
        connection, cursor = orders.connection(), native.cursor()
        cursor.execute(TEA)
        transaction.commit()
    with pytest.raises(Exception, match=r"(?i)closed"):
        late.run(cursor.execute, MILK)
    with pytest.raises(TransactionClosedError):
        late.run(connection.driver_connection)
    assert items(orders) == ["tea"]


def test_a_call_that_is_undone_does_not_wait_for_a_statement_of_a_late_handler(orders: Store) -> None:
    """It is cancelled; and that the transaction went with it is not taken for the handler's doing."""
    started = threading.Event()
    met: list[Exception] = []
    endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) INSERT INTO orders SELECT x, 'x' FROM n"

    def late() -> None:
        native = orders.connection().driver_connection()
        started.set()
        try:
            native.execute(endless)
        except Exception as error:  # noqa: BLE001 - each driver has its own
            met.append(error)

    with call() as transaction:
        thread = threading.Thread(target=copy_context().run, args=(late,))
        thread.start()
        assert started.wait(60)
        transaction.rollback()
        thread.join()
    assert len(met) == 1
    assert items(orders) == []
