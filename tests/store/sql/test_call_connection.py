"""What a handler writes through the store's own database, what a reading call finds there, and how the two end."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, nullcontext
from contextvars import copy_context
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest

from handrail import errors
from handrail.errors import TransactionClosedError
from handrail.session.persistence.protocol import DatabaseConnection, SessionAppend
from handrail.store import MemoryStore, SqliteStore, Store
from handrail.store.protocol import EffectChange, EffectInsert
from handrail.store.sql.driver import DriverConnection
from handrail.store.sql.store import SqlStore
from handrail.store.sqlite.store import SqliteConnection, SqliteDriver, SqliteFile
from handrail.testing import FakeClock
from tests.kit import raises
from tests.store import kit
from tests.store.stores import ALL_STORES, STORES
from tests.wording import Wording


@pytest.fixture
def orders(database: Store) -> Store:
    """A store whose database has a table of the program's own."""
    return kit.with_orders(database)


def test_what_a_call_writes_is_kept_with_it(orders: Store, clock: FakeClock) -> None:
    """At one stroke with what else is settled with the call, once; also when the store was busy in between."""
    row, hold, attempts = kit.running_row(clock), kit.held(orders, clock), list[int]()
    kit.insert(orders, row)

    def settle() -> None:
        attempts.append(1)
        if len(attempts) == 1:
            raise errors.StoreUnavailableError("busy", store=orders.url)

    ended = row._replace(status="unknown")
    writes = EffectChange(row, ended), SessionAppend(hold, 0, tuple(kit.entries(1, 2)))
    record = kit.Record(orders, *writes, settle=settle)
    with kit.call() as transaction:
        transaction.enlist(record)
        kit.add(orders.connection(), "tea")
        assert orders.connection() is orders.connection()
        transaction.commit()
    assert (record.heard, len(attempts), kit.items(orders)) == (["committed"], 2, ["tea"])
    assert (orders.get("s1", row.key), list(orders.entries("s1"))) == (ended, kit.entries(1, 2))


def test_what_cannot_be_settled_takes_the_handlers_writes_along(orders: Store, clock: FakeClock) -> None:
    """If another part cannot be written, nothing is: neither the part nor what the handler wrote."""
    row = kit.running_row(clock)

    gone = kit.running_row(clock, "gone")
    record = kit.Record(orders, EffectInsert(row), EffectChange(gone, gone._replace(status="done")))
    with kit.call() as transaction:
        transaction.enlist(record)
        kit.add(orders.connection(), "tea")
        with pytest.raises(errors.LeaseLostError):
            transaction.commit()
    assert record.heard == ["undone"]
    assert kit.items(orders) == []
    assert orders.get("s1", row.key) is None


def test_statement_that_fails_undoes_itself_alone(orders: Store) -> None:
    """The handler may go on after what its database has refused."""
    with kit.call() as transaction:
        connection = orders.connection()
        connection.execute("INSERT INTO orders VALUES (1, 'tea')")
        with pytest.raises(Exception, match=r"(?i)unique"):
            connection.execute("INSERT INTO orders VALUES (2, 'milk'), (1, 'tea')")
        connection.execute("INSERT INTO orders VALUES (3, 'sugar')")
        transaction.commit()
    assert kit.items(orders) == ["tea", "sugar"]


@pytest.mark.parametrize(
    "sql",
    [
        *("COMMIT", " begin", "-- why\nROLLBACK", "/* a */ ; savepoint x", "PRAGMA x", "prepare transaction 'a'"),
        *("\ufeffCOMMIT", "/*/ a */ COMMIT;", "-- a\rCOMMIT", ";COMMIT", "\n\tSET LOCAL x = 1", "", "-- a"),
    ],
)
def test_transaction_is_not_the_handlers_to_end(orders: Store, sql: str, wording: Wording) -> None:
    """Statements that would begin, end or change it are refused, and the call may go on."""
    with kit.call() as transaction:
        kit.add(orders.connection(), "tea")
        with raises(errors.SessionError, wording):
            orders.connection().execute(sql)
        transaction.commit()
    assert kit.items(orders) == ["tea"]


def test_statements_come_one_by_one(orders: Store, wording: Wording) -> None:
    """A second one in the same text is refused by the database; so it cannot end the transaction."""
    with kit.call() as transaction:
        kit.add(orders.connection(), "tea")
        with raises(Exception, wording):
            orders.connection().execute("DELETE FROM orders; COMMIT")
        transaction.commit()
    assert kit.items(orders) == ["tea"]


def test_connection_belongs_to_one_call(orders: Store, wording: Wording) -> None:
    """Another call, and whoever runs outside of calls, takes its own."""
    with kit.call():
        connection = orders.connection()
    with kit.call(), raises(errors.SessionError, wording):
        connection.execute("SELECT 1")
    with raises(errors.SessionError, wording):
        connection.execute("SELECT 1")
    with raises(errors.SessionError, wording):
        orders.connection()


def test_memory_has_no_database() -> None:
    """And says which stores have one."""
    with kit.call(), pytest.raises(errors.SessionError, match=r"sqlite:///desk\.db"):
        MemoryStore().connection()


def test_a_call_that_may_write_has_the_writer_from_its_first_statement(tmp_path: Path) -> None:
    """So what it reads is still there when it writes; another process waits for its end."""
    driver = SqliteDriver(SqliteFile(tmp_path / "desk.db"))
    with SqlStore(driver) as store, closing(sqlite3.connect(tmp_path / "desk.db", timeout=0)) as other:
        kit.with_orders(store)
        with kit.call() as transaction:
            assert store.connection().execute("SELECT item FROM orders").fetchall() == []
            with pytest.raises(sqlite3.OperationalError, match="locked"):
                other.execute("INSERT INTO orders VALUES (1, 'milk')")
            kit.add(store.connection(), "tea")
            transaction.commit()
        assert kit.items(store) == ["tea"]


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
    store = kit.with_orders(database)
    with kit.call() as transaction:
        kit.add(store.connection(), "tea")
        transaction.commit()
    return store


def read(store: Store) -> list[str]:
    """What a call finds in the table."""
    return [item for (item,) in store.connection().execute(READ).fetchall()]


@pytest.mark.parametrize("sql", WRITES)
def test_the_database_refuses_what_a_reading_call_writes(with_tea: Store, sql: str) -> None:
    """Whatever the statement looks like; the call may go on reading."""
    with kit.call("look", writes=False) as transaction:
        with pytest.raises(errors.ReadOnlyViolation) as raised:
            with_tea.connection().execute(sql)
        assert (raised.value.tool, raised.value.what) == ("look", "write to the database")
        assert read(with_tea) == ["tea"]
        transaction.commit()
    assert kit.items(with_tea) == ["tea"]


def test_the_store_of_the_how_to_refuses_it_too(clock: FakeClock) -> None:
    """Its driver holds the transaction of a reading call to reading."""
    store = kit.with_orders(ALL_STORES["third"](clock))
    with kit.call("look", writes=False) as transaction:
        with pytest.raises(errors.ReadOnlyViolation):
            store.connection().execute(WRITES[0])
        transaction.commit()
    assert kit.items(store) == []


def test_a_reading_call_inside_one_that_writes_finds_what_that_one_has_written(with_tea: Store) -> None:
    """It is held to reading all the same, and the outer one goes on writing."""
    with kit.call() as outer:
        kit.add(with_tea.connection(), "milk")
        with kit.call("look", inside=outer, writes=False) as inner:
            assert read(with_tea) == ["tea", "milk"]
            for sql in WRITES:
                with pytest.raises(errors.ReadOnlyViolation):
                    with_tea.connection().execute(sql)
            inner.commit()
        kit.add(with_tea.connection(), "sugar")
        outer.commit()
    assert kit.items(with_tea) == ["tea", "milk", "sugar"]


def test_a_reading_call_inside_may_be_the_first_to_use_the_connection(with_tea: Store) -> None:
    """The outer one writes on it afterwards, and what it wrote is undone with it."""
    with kit.failing(kit.call()) as outer:
        with kit.call("look", inside=outer, writes=False) as inner:
            assert read(with_tea) == ["tea"]
            inner.commit()
        kit.add(with_tea.connection(), "milk")
    assert kit.items(with_tea) == ["tea"]


def test_a_reading_call_sees_one_state_and_holds_up_nobody(with_tea: Store) -> None:
    """Another call commits meanwhile; what the first one reads stays as it was."""
    with kit.call("look", writes=False) as transaction:
        looking = copy_context()
        assert read(with_tea) == ["tea"]

        def change() -> None:
            with kit.call() as other:
                kit.add(with_tea.connection(), "milk")
                other.commit()

        looking.run(change)
        assert read(with_tea) == ["tea"]
        record = kit.Record(with_tea)
        transaction.enlist(record)
        transaction.commit()
    assert record.heard == ["committed"]
    assert kit.items(with_tea) == ["tea", "milk"]


def test_the_connection_of_a_reading_call_is_returned(tmp_path: Path) -> None:
    """However the call ends."""
    driver = _Counted(SqliteFile(tmp_path / "desk.db"), SqliteConnection)
    with SqlStore(driver) as store:
        with kit.call("look", writes=False) as transaction:
            store.connection().execute("SELECT 1")
            transaction.commit()
        with kit.failing(kit.call("look", writes=False)):
            store.connection().execute("SELECT 1")
        assert driver.lent == 0


@pytest.mark.parametrize("has_begun", [True, False])
def test_inner_call_is_a_savepoint(orders: Store, *, has_begun: bool) -> None:
    """Its writes are undone when it fails, and those of the outer one stay; it may be the first to write."""
    with kit.call() as outer:
        connection = orders.connection()
        if has_begun:
            kit.add(connection, "tea")
        with kit.failing(kit.call("inner", inside=outer)):
            kit.add(orders.connection(), "milk")
        with kit.call("inner", inside=outer) as inner:
            kit.add(connection, "sugar")
            inner.commit()
        kit.add(connection, "lemon")
        outer.commit()
    assert kit.items(orders) == [*(["tea"] if has_begun else []), "sugar", "lemon"]


@pytest.mark.parametrize("writes", [True, False])
@pytest.mark.parametrize("has_begun", [True, False])
def test_late_handler_executes_nothing(orders: Store, *, writes: bool, has_begun: bool) -> None:
    """Its call has ended, whether it had executed anything before or not."""
    with kit.call(writes=writes) as transaction:
        late, connection = copy_context(), orders.connection()
        if has_begun:
            connection.execute(READ)
        transaction.commit()
    with pytest.raises(errors.TransactionClosedError):
        late.run(connection.execute, READ)


ENDLESS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x FROM n WHERE x < 0"


def lose(connection: DatabaseConnection) -> None:
    """Have the database end the transaction in the middle of the call."""
    try:
        connection.execute("SELECT pg_terminate_backend(pg_backend_pid())")
    except psycopg.Error:
        return
    except Exception:  # noqa: BLE001 - SQLite has no such function; a conflict can do it there
        connection.execute("INSERT INTO orders VALUES (100, 'coffee')")
        with pytest.raises(Exception, match="UNIQUE"):
            connection.execute("INSERT OR ROLLBACK INTO orders VALUES (100, 'coffee')")


# ------------------------------------------------------------------------------------------------------------- its loss


@pytest.mark.parametrize("commits", [True, False])
def test_call_that_loses_its_connection_is_undone(orders: Store, clock: FakeClock, *, commits: bool) -> None:
    """It cannot be committed without what the database has undone; nor is the loss a failure of its rollback."""
    row = kit.running_row(clock)
    record = kit.Record(orders, EffectInsert(row))
    with pytest.raises(errors.StoreError) if commits else nullcontext(), kit.call() as transaction:
        transaction.enlist(record)
        kit.add(orders.connection(), "tea")
        lose(orders.connection())
        if commits:
            transaction.commit()
    assert record.heard == ["undone"]
    assert kit.items(orders) == []
    assert orders.get("s1", row.key) is None


def test_outer_call_does_not_write_on_after_an_inner_one_has_lost_the_connection(
    orders: Store, wording: Wording
) -> None:
    """What it wrote before is lost too, so it can neither write more nor be committed."""
    with kit.call() as outer:
        kit.add(orders.connection(), "tea")
        with kit.failing(kit.call("inner", inside=outer)):
            lose(orders.connection())
        with kit.refused(errors.StoreError, wording, orders):
            kit.add(orders.connection(), "milk")
        outer.enlist(kit.Record(orders))
        with kit.refused(errors.StoreError, wording, orders):
            outer.commit()
    assert kit.items(orders) == []


# --------------------------------------------------------------------------------------------------------- interruption


class _Counted(SqliteDriver):
    """Lends links of the test's own, and counts those that are out."""

    def __init__(self, file: SqliteFile, connection: Callable[[SqliteFile], SqliteConnection]) -> None:
        super().__init__(file)
        self.file = file
        self.connection = connection
        self.lent = 0

    def acquire(self, *, for_call: bool = False) -> DriverConnection:
        connection = self.connection(self.file) if for_call else super().acquire()
        self.lent += 1
        return connection

    def release(self, connection: DriverConnection) -> None:
        self.lent -= 1
        super().release(connection)


def _no_link(_file: SqliteFile) -> SqliteConnection:
    raise KeyboardInterrupt


class _InterruptedLink(SqliteConnection):
    """Ctrl-C comes when the transaction has just been begun."""

    def begin(self, *, reading: bool = False) -> None:
        super().begin(reading=reading)
        raise KeyboardInterrupt


@pytest.mark.parametrize("connection", [_no_link, _InterruptedLink])
def test_ctrl_c_while_the_transaction_is_begun_leaves_nothing_begun(
    tmp_path: Path, connection: Callable[[SqliteFile], SqliteConnection]
) -> None:
    """The file can be written to at once, by everybody."""
    driver = _Counted(SqliteFile(tmp_path / "desk.db"), connection)
    with SqlStore(driver) as store, SqliteStore(tmp_path / "desk.db", busy=timedelta(0)) as other:
        with pytest.raises(KeyboardInterrupt), kit.call():
            store.connection().execute("CREATE TABLE orders (id INTEGER)")
        assert driver.lent == 0
        assert kit.items(kit.with_orders(other)) == []


class _BusyLink(SqliteConnection):
    """Others write at the moment."""

    busy = True

    def begin(self, *, reading: bool = False) -> None:
        if _BusyLink.busy:
            _BusyLink.busy = False
            raise errors.StoreUnavailableError("busy", store="desk.db")
        super().begin(reading=reading)


@pytest.mark.parametrize("again", [False, True])
def test_handler_may_try_again_to_begin(tmp_path: Path, again: bool) -> None:
    """What could not be begun has written nothing, and keeps the call neither from writing nor from succeeding."""
    driver, _BusyLink.busy = _Counted(SqliteFile(tmp_path / "desk.db"), _BusyLink), True
    with SqlStore(driver) as store:
        with kit.call() as transaction:
            with pytest.raises(errors.StoreUnavailableError, match="busy"):
                store.connection().execute("CREATE TABLE orders (id INTEGER)")
            if again:
                store.connection().execute("CREATE TABLE orders (id INTEGER)")
            transaction.commit()
        assert bool(driver.query(driver.types.find_table, ("orders",))) == again
        assert driver.lent == 0


# --------------------------------------------------------------------------------------------------------- cancellation


@contextmanager
def late_statement(store: Store) -> Generator[list[Exception]]:
    """A thread that a handler has left in a statement; its list has what that has come to, at the end of the block."""
    met, started = list[Exception](), threading.Event()

    def execute() -> None:
        connection = store.connection()
        connection.execute("SELECT 1")
        started.set()
        try:
            connection.execute(ENDLESS)
        except Exception as error:  # noqa: BLE001 - each driver has its own
            met.append(error)

    thread = threading.Thread(target=copy_context().run, args=(execute,))
    thread.start()
    assert started.wait(60)
    yield met
    thread.join()


@pytest.mark.parametrize("kind", ["outermost", "nested", "reading"])
def test_end_of_a_call_cancels_its_statement(orders: Store, kind: str) -> None:
    """One that has timed out is not waited for, and no connection is given back while a late handler uses it."""
    with (
        kit.call(writes=kind != "reading") as outer,
        kit.call("inner", inside=outer) if kind == "nested" else nullcontext(outer) as ending,
        late_statement(orders) as met,
    ):
        (ending.commit if kind == "reading" else ending.rollback)()
    assert len(met) == 1
    assert kit.items(orders) == []


# ----------------------------------------------------------------------------------------------------------- leftovers


def test_next_call_does_not_meet_what_a_handler_left_on_the_connection(orders: Store) -> None:
    """Temporary tables go with the call that made them, and statements work as before."""
    for _ in range(8):
        with kit.call() as transaction:
            connection = orders.connection()
            connection.execute("CREATE TEMP TABLE scratch (n INTEGER)")
            kit.add(connection, "tea")
            transaction.commit()
    assert kit.items(orders) == ["tea"] * 8


def test_next_call_does_not_meet_settings_of_a_handler(clock: FakeClock) -> None:
    """They are again those that the store was opened with."""
    store = kit.with_orders(STORES["postgres"](clock))
    with kit.call() as transaction:
        connection = store.connection()
        connection.execute("SELECT set_config('lock_timeout', '0', false), set_config('search_path', 'public', false)")
        transaction.commit()
    with kit.call():
        found = store.connection().execute("SELECT current_setting('lock_timeout')").fetchone()
        assert found is not None
        assert found != ("0",)
    assert kit.items(store) == []


def test_call_that_waits_for_a_place_is_undone_at_once(tmp_path: Path) -> None:
    """Its thread does not wait on, and leaves the place to the next call."""
    driver = SqliteDriver(SqliteFile(tmp_path / "desk.db"))
    with SqlStore(driver) as store, kit.call() as first:
        kit.with_orders(store)
        kit.add(store.connection(), "tea")
        with ThreadPoolExecutor(1) as pool, kit.call() as second:
            connection = store.connection()
            waiting = pool.submit(copy_context().run, kit.add, connection, "coffee")
            while not driver.call_places.waiting:
                threading.Event().wait(0)
            second.rollback()
            assert isinstance(waiting.exception(), errors.TransactionClosedError)
            first.rollback()
        assert driver.call_places.ask().turn.done()


def test_call_is_refused_if_others_keep_their_places_for_too_long(tmp_path: Path, wording: Wording) -> None:
    """It may be tried again when they have ended."""
    driver = SqliteDriver(SqliteFile(tmp_path / "desk.db", busy=timedelta(0)))
    with SqlStore(driver) as store:
        kit.with_orders(store)
        with kit.call() as first:
            kit.add(store.connection(), "tea")
            with kit.call(), raises(errors.StoreUnavailableError, wording):
                kit.add(store.connection(), "coffee")
            first.rollback()
        with kit.call() as second:
            kit.add(store.connection(), "coffee")
            second.commit()
        assert kit.items(store) == ["coffee"]


def test_late_statement_takes_nothing_along_from_a_call_that_is_being_settled(orders: Store) -> None:
    """It is refused, and what the call wrote before is kept."""
    refused: list[TransactionClosedError] = []

    def settle() -> None:
        with pytest.raises(TransactionClosedError) as raised:
            kit.add(connection, "milk")
        refused.append(raised.value)

    with kit.call() as transaction:
        connection = orders.connection()
        transaction.enlist(kit.Record(orders, settle=settle))
        kit.add(connection, "tea")
        transaction.commit()
    assert len(refused) == 1
    assert kit.items(orders) == ["tea"]
