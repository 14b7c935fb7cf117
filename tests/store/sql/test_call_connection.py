"""What a handler writes through the store's own database, and what a call that may only read finds there."""

from __future__ import annotations

import sqlite3
from contextlib import ExitStack, closing
from contextvars import copy_context
from pathlib import Path

import pytest

from handrail.errors import (
    LeaseLostError,
    ReadOnlyViolation,
    SessionError,
    StoreUnavailableError,
    TransactionClosedError,
)
from handrail.session.persistence.protocol import SessionAppend
from handrail.store import MemoryStore, Store
from handrail.store.protocol import EffectChange, EffectInsert
from handrail.store.sql.call_connection import check_statement
from handrail.store.sql.store import SqlStore
from handrail.store.sqlite.store import SqliteDriver, SqliteFile
from handrail.testing import FakeClock
from tests.kit import raises
from tests.store.kit import (
    CountingDriver,
    Record,
    add,
    call,
    entries,
    failing,
    held,
    insert,
    items,
    running_row,
    with_orders,
)
from tests.store.stores import ALL_STORES
from tests.wording import Wording


@pytest.fixture
def orders(database: Store) -> Store:
    """A store whose database has a table of the program's own."""
    return with_orders(database)


def test_what_a_call_writes_is_kept_with_it(orders: Store, clock: FakeClock) -> None:
    """At one stroke with what else is settled with the call."""
    row, hold = running_row(clock), held(orders, clock)
    insert(orders, row)

    settled = EffectChange(row, row._replace(status="unknown"))
    record = Record(orders, settled, SessionAppend(hold, 0, tuple(entries(1, 2))))
    with call() as transaction:
        transaction.enlist(record)
        add(orders.connection(), "tea")
        assert orders.connection() is orders.connection()
        transaction.commit()
    assert record.heard == ["committed"]
    assert items(orders) == ["tea"]
    assert list(orders.entries("s1")) == entries(1, 2)


def test_what_a_call_writes_is_undone_with_it(orders: Store) -> None:
    """A call that fails leaves nothing."""
    with failing(call()):
        add(orders.connection(), "tea")
    assert items(orders) == []


def test_what_cannot_be_settled_takes_the_handlers_writes_along(orders: Store, clock: FakeClock) -> None:
    """If another part cannot be written, nothing is: neither the part nor what the handler wrote."""
    row = running_row(clock)

    gone = running_row(clock, "gone")
    record = Record(orders, EffectInsert(row), EffectChange(gone, gone._replace(status="done")))
    with ExitStack() as blocks:
        blocks.enter_context(pytest.raises(LeaseLostError))
        transaction = blocks.enter_context(call())
        transaction.enlist(record)
        add(orders.connection(), "tea")
        transaction.commit()
    assert record.heard == ["undone"]
    assert items(orders) == []
    assert orders.get("s1", row.key) is None


def test_settling_is_tried_again_with_the_handlers_writes(orders: Store, clock: FakeClock) -> None:
    """A store that was busy in between loses nothing of what the handler wrote, and writes nothing twice."""
    row = running_row(clock)
    attempts: list[int] = []

    def settle() -> None:
        attempts.append(1)
        if len(attempts) == 1:
            raise StoreUnavailableError("busy", store=orders.url)

    with call() as transaction:
        transaction.enlist(Record(orders, EffectInsert(row), settle=settle))
        add(orders.connection(), "tea")
        transaction.commit()
    assert len(attempts) == 2
    assert items(orders) == ["tea"]
    assert orders.get("s1", row.key) == row


def test_statement_that_fails_undoes_itself_alone(orders: Store) -> None:
    """The handler may go on after what its database has refused."""
    with call() as transaction:
        connection = orders.connection()
        connection.execute("INSERT INTO orders VALUES (1, 'tea')")
        with pytest.raises(Exception, match=r"(?i)unique"):
            connection.execute("INSERT INTO orders VALUES (2, 'milk'), (1, 'tea')")
        connection.execute("INSERT INTO orders VALUES (3, 'sugar')")
        transaction.commit()
    assert items(orders) == ["tea", "sugar"]


@pytest.mark.parametrize(
    "sql",
    [
        *("COMMIT", " begin", "-- why\nROLLBACK", "/* a */ ; savepoint x", "PRAGMA x", "prepare transaction 'a'"),
        *("\ufeffCOMMIT", "/*/ a */ COMMIT;", "-- a\rCOMMIT", ";COMMIT", "\n\tSET LOCAL x = 1", "", "-- a"),
    ],
)
def test_transaction_is_not_the_handlers_to_end(orders: Store, sql: str, wording: Wording) -> None:
    """Statements that would begin, end or change it are refused, and the call may go on."""
    with call() as transaction:
        add(orders.connection(), "tea")
        with raises(SessionError, wording):
            orders.connection().execute(sql)
        transaction.commit()
    assert items(orders) == ["tea"]


@pytest.mark.parametrize(
    "sql", ["SELECT 1", "(SELECT 1)", "WITH x AS (SELECT 1) SELECT 1", "\n SELECT 'COMMIT' -- COMMIT"]
)
def test_other_statements_pass(sql: str) -> None:
    """What they mean is for the database to say."""
    check_statement(sql)


def test_statements_come_one_by_one(orders: Store, wording: Wording) -> None:
    """A second one in the same text is refused by the database; so it cannot end the transaction."""
    with call() as transaction:
        add(orders.connection(), "tea")
        with raises(Exception, wording):
            orders.connection().execute("DELETE FROM orders; COMMIT")
        transaction.commit()
    assert items(orders) == ["tea"]


def test_connection_belongs_to_one_call(orders: Store, wording: Wording) -> None:
    """Another call, and whoever runs outside of calls, takes its own."""
    with call():
        connection = orders.connection()
    with call(), raises(SessionError, wording):
        connection.execute("SELECT 1")
    with raises(SessionError, wording):
        connection.execute("SELECT 1")
    with raises(SessionError, wording):
        orders.connection()


def test_memory_has_no_database() -> None:
    """And says which stores have one."""
    with call(), pytest.raises(SessionError, match=r"sqlite:///desk\.db"):
        MemoryStore().connection()


def test_a_call_that_may_write_has_the_writer_from_its_first_statement(tmp_path: Path) -> None:
    """So what it reads is still there when it writes; another process waits for its end."""
    driver = SqliteDriver(SqliteFile(tmp_path / "desk.db"))
    with SqlStore(driver) as store, closing(sqlite3.connect(tmp_path / "desk.db", timeout=0)) as other:
        with_orders(store)
        with call() as transaction:
            assert store.connection().execute("SELECT item FROM orders").fetchall() == []
            with pytest.raises(sqlite3.OperationalError, match="locked"):
                other.execute("INSERT INTO orders VALUES (1, 'milk')")
            add(store.connection(), "tea")
            transaction.commit()
        assert items(store) == ["tea"]


READ = "SELECT item FROM orders ORDER BY id"

WRITES = (
    "INSERT INTO orders VALUES (9, 'salt')",
    "WITH one AS (SELECT 9) DELETE FROM orders WHERE id IN (SELECT * FROM one) OR 1 = 1",
    "CREATE TABLE more (id INTEGER)",
    "DROP TABLE orders",
)


@pytest.fixture
def with_tea(database: Store) -> Store:
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
def test_the_database_refuses_what_a_reading_call_writes(with_tea: Store, sql: str) -> None:
    """Whatever the statement looks like; the call may go on reading."""
    with call("look", writes=False) as transaction:
        with pytest.raises(ReadOnlyViolation) as raised:
            with_tea.connection().execute(sql)
        assert (raised.value.tool, raised.value.what) == ("look", "write to the database")
        assert read(with_tea) == ["tea"]
        transaction.commit()
    assert items(with_tea) == ["tea"]


def test_the_store_of_the_how_to_refuses_it_too(clock: FakeClock) -> None:
    """Its driver holds the transaction of a reading call to reading."""
    store = with_orders(ALL_STORES["third"](clock))
    with call("look", writes=False) as transaction:
        with pytest.raises(ReadOnlyViolation):
            store.connection().execute(WRITES[0])
        transaction.commit()
    assert items(store) == []


def test_a_reading_call_inside_one_that_writes_finds_what_that_one_has_written(with_tea: Store) -> None:
    """It is held to reading all the same, and the outer one goes on writing."""
    with call() as outer:
        add(with_tea.connection(), "milk")
        with call("look", inside=outer, writes=False) as inner:
            assert read(with_tea) == ["tea", "milk"]
            for sql in WRITES:
                with pytest.raises(ReadOnlyViolation):
                    with_tea.connection().execute(sql)
            inner.commit()
        add(with_tea.connection(), "sugar")
        outer.commit()
    assert items(with_tea) == ["tea", "milk", "sugar"]


def test_a_reading_call_inside_may_be_the_first_to_use_the_connection(with_tea: Store) -> None:
    """The outer one writes on it afterwards, and what it wrote is undone with it."""
    with failing(call()) as outer:
        with call("look", inside=outer, writes=False) as inner:
            assert read(with_tea) == ["tea"]
            inner.commit()
        add(with_tea.connection(), "milk")
    assert items(with_tea) == ["tea"]


def test_a_reading_call_sees_one_state_and_holds_up_nobody(with_tea: Store) -> None:
    """Another call commits meanwhile; what the first one reads stays as it was."""
    with call("look", writes=False) as transaction:
        looking = copy_context()
        assert read(with_tea) == ["tea"]

        def change() -> None:
            with call() as other:
                add(with_tea.connection(), "milk")
                other.commit()

        looking.run(change)
        assert read(with_tea) == ["tea"]
        record = Record(with_tea)
        transaction.enlist(record)
        transaction.commit()
    assert record.heard == ["committed"]
    assert items(with_tea) == ["tea", "milk"]


def test_the_connection_of_a_reading_call_is_returned(tmp_path: Path) -> None:
    """However the call ends."""
    driver = CountingDriver(SqliteFile(tmp_path / "desk.db"))
    with SqlStore(driver) as store:
        with call("look", writes=False) as transaction:
            store.connection().execute("SELECT 1")
            transaction.commit()
        with failing(call("look", writes=False)):
            store.connection().execute("SELECT 1")
        assert driver.lent == 0


@pytest.mark.parametrize("has_begun", [True, False])
def test_inner_call_is_a_savepoint(orders: Store, *, has_begun: bool) -> None:
    """Its writes are undone when it fails, and those of the outer one stay; it may be the first to write."""
    with call() as outer:
        connection = orders.connection()
        if has_begun:
            add(connection, "tea")
        with failing(call("inner", inside=outer)):
            add(orders.connection(), "milk")
        with call("inner", inside=outer) as inner:
            add(connection, "sugar")
            inner.commit()
        add(connection, "lemon")
        outer.commit()
    assert items(orders) == [*(["tea"] if has_begun else []), "sugar", "lemon"]


@pytest.mark.parametrize("writes", [True, False])
@pytest.mark.parametrize("has_begun", [True, False])
def test_late_handler_executes_nothing(orders: Store, *, writes: bool, has_begun: bool) -> None:
    """Its call has ended, whether it had executed anything before or not."""
    with call(writes=writes) as transaction:
        late, connection = copy_context(), orders.connection()
        if has_begun:
            connection.execute(READ)
        transaction.commit()
    with pytest.raises(TransactionClosedError):
        late.run(connection.execute, READ)
