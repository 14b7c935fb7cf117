"""A call that may only read: it finds what is committed, or what the call around it has written, and writes nothing."""

from __future__ import annotations

from contextvars import copy_context
from pathlib import Path

import pytest

from handrail.errors import ReadOnlyViolation, TransactionClosedError
from handrail.store import Store
from handrail.store.sql.driver import DriverConnection
from handrail.store.sql.store import SqlStore
from handrail.store.sqlite.store import SqliteDriver, SqliteFile
from handrail.testing import FakeClock
from tests.store.calls import Record, call
from tests.store.failing import failing
from tests.store.orders import add, items, with_orders
from tests.store.stores import ALL_STORES

READ = "SELECT item FROM orders ORDER BY id"

WRITES = (
    "INSERT INTO orders VALUES (9, 'salt')",
    "WITH one AS (SELECT 9) DELETE FROM orders WHERE id IN (SELECT * FROM one) OR 1 = 1",
    "CREATE TABLE more (id INTEGER)",
    "DROP TABLE orders",
)


@pytest.fixture
def orders(database: Store) -> Store:
    """A store whose database has a table of the program's own, with one row."""
    store = with_orders(database)
    with call() as transaction:
        add(store.connection(), "tea")
        transaction.commit()
    return store


def read(store: Store) -> list[str]:
    """What a call finds in the table."""
    return [item for (item,) in store.connection().execute(READ).fetchall()]


@pytest.mark.parametrize("sql", WRITES)
def test_the_database_refuses_what_a_reading_call_writes(orders: Store, sql: str) -> None:
    """Whatever the statement looks like; the call may go on reading."""
    with call("look", writes=False) as transaction:
        with pytest.raises(ReadOnlyViolation) as raised:
            orders.connection().execute(sql)
        assert (raised.value.tool, raised.value.what) == ("look", "write to the database")
        assert read(orders) == ["tea"]
        transaction.commit()
    assert items(orders) == ["tea"]


def test_the_store_of_the_how_to_refuses_it_too(clock: FakeClock) -> None:
    """Its driver holds the transaction of a reading call to reading."""
    store = with_orders(ALL_STORES["third"](clock))
    with call("look", writes=False) as transaction:
        with pytest.raises(ReadOnlyViolation):
            store.connection().execute(WRITES[0])
        transaction.commit()
    assert items(store) == []


def test_a_reading_call_inside_one_that_writes_finds_what_that_one_has_written(orders: Store) -> None:
    """It is held to reading all the same, and the outer one goes on writing."""
    with call() as outer:
        add(orders.connection(), "milk")
        with call("look", inside=outer, writes=False) as inner:
            assert read(orders) == ["tea", "milk"]
            for sql in WRITES:
                with pytest.raises(ReadOnlyViolation):
                    orders.connection().execute(sql)
            inner.commit()
        add(orders.connection(), "sugar")
        outer.commit()
    assert items(orders) == ["tea", "milk", "sugar"]


def test_a_reading_call_inside_may_be_the_first_to_use_the_connection(orders: Store) -> None:
    """The outer one writes on it afterwards, and what it wrote is undone with it."""
    with failing(call()) as outer:
        with call("look", inside=outer, writes=False) as inner:
            assert read(orders) == ["tea"]
            inner.commit()
        add(orders.connection(), "milk")
    assert items(orders) == ["tea"]


def test_a_reading_call_sees_one_state_and_holds_up_nobody(orders: Store) -> None:
    """Another call commits meanwhile; what the first one reads stays as it was."""
    with call("look", writes=False) as transaction:
        looking = copy_context()
        assert read(orders) == ["tea"]

        def change() -> None:
            with call() as other:
                add(orders.connection(), "milk")
                other.commit()

        looking.run(change)
        assert read(orders) == ["tea"]
        record = Record(orders)
        transaction.enlist(record)
        transaction.commit()
    assert record.heard == ["committed"]
    assert items(orders) == ["tea", "milk"]


def test_a_late_handler_reads_nothing(orders: Store) -> None:
    """Its call has ended, whether it had read before or not."""
    for first in (True, False):
        with call("look", writes=False) as transaction:
            late, connection = copy_context(), orders.connection()
            if first:
                read(orders)
            transaction.commit()
        with pytest.raises(TransactionClosedError):
            late.run(connection.execute, READ)


def test_the_connection_of_a_reading_call_is_returned(tmp_path: Path) -> None:
    """However the call ends."""
    driver = _Counted(SqliteFile(tmp_path / "desk.db"))
    with SqlStore(driver) as store:
        with call("look", writes=False) as transaction:
            store.connection().execute("SELECT 1")
            transaction.commit()
        with failing(call("look", writes=False)):
            store.connection().execute("SELECT 1")
        assert driver.lent == 0


class _Counted(SqliteDriver):
    """Counts the connections that calls have."""

    lent = 0

    def acquire(self, *, for_call: bool = False) -> DriverConnection:
        self.lent += 1
        return super().acquire(for_call=for_call)

    def release(self, connection: DriverConnection) -> None:
        self.lent -= 1
        super().release(connection)
