"""How a call's connection comes to its end: taken twice, lost, interrupted, cancelled, or given back with leftovers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from contextvars import copy_context
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest

from handrail.errors import StoreError, StoreUnavailableError, TransactionClosedError
from handrail.session.persistence.protocol import DatabaseConnection
from handrail.store import SqliteStore, Store
from handrail.store.protocol import EffectInsert
from handrail.store.sql.driver import DriverConnection
from handrail.store.sql.store import SqlStore
from handrail.store.sqlite.store import SqliteConnection, SqliteDriver, SqliteFile
from handrail.testing import FakeClock
from tests.kit import raises
from tests.store.kit import Record, add, call, failing, items, refused, running_row, with_orders
from tests.store.stores import STORES
from tests.wording import Wording

ENDLESS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x FROM n WHERE x < 0"


@pytest.fixture
def orders(database: Store) -> Store:
    """A store whose database has a table of the program's own."""
    return with_orders(database)


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
    row = running_row(clock)
    record = Record(orders, EffectInsert(row))
    with pytest.raises(StoreError) if commits else nullcontext(), call() as transaction:
        transaction.enlist(record)
        add(orders.connection(), "tea")
        lose(orders.connection())
        if commits:
            transaction.commit()
    assert record.heard == ["undone"]
    assert items(orders) == []
    assert orders.get("s1", row.key) is None


def test_outer_call_does_not_write_on_after_an_inner_one_has_lost_the_connection(
    orders: Store, wording: Wording
) -> None:
    """What it wrote before is lost too, so it can neither write more nor be committed."""
    with call() as outer:
        add(orders.connection(), "tea")
        with failing(call("inner", inside=outer)):
            lose(orders.connection())
        with refused(StoreError, wording, orders):
            add(orders.connection(), "milk")
        outer.enlist(Record(orders))
        with refused(StoreError, wording, orders):
            outer.commit()
    assert items(orders) == []


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
        with pytest.raises(KeyboardInterrupt), call():
            store.connection().execute("CREATE TABLE orders (id INTEGER)")
        assert driver.lent == 0
        assert items(with_orders(other)) == []


class _BusyLink(SqliteConnection):
    """Others write at the moment."""

    busy = True

    def begin(self, *, reading: bool = False) -> None:
        if _BusyLink.busy:
            _BusyLink.busy = False
            raise StoreUnavailableError("busy", store="desk.db")
        super().begin(reading=reading)


def test_handler_may_try_again_to_begin(tmp_path: Path) -> None:
    """What could not be begun has written nothing, and keeps the call neither from writing nor from succeeding."""
    driver = _Counted(SqliteFile(tmp_path / "desk.db"), _BusyLink)
    with SqlStore(driver) as store:
        with_or_without: list[bool] = []
        for again in (False, True):
            _BusyLink.busy = True
            with call() as transaction:
                with pytest.raises(StoreUnavailableError, match="busy"):
                    store.connection().execute("CREATE TABLE orders (id INTEGER)")
                if again:
                    store.connection().execute("CREATE TABLE orders (id INTEGER)")
                transaction.commit()
            with_or_without.append(bool(driver.query(driver.types.find_table, ("orders",))))
        assert with_or_without == [False, True]
        assert driver.lent == 0


def test_late_statement_takes_nothing_along_from_a_call_that_is_being_settled(orders: Store) -> None:
    """It is refused, and what the call wrote before is kept."""
    refused: list[TransactionClosedError] = []

    def settle() -> None:
        with pytest.raises(TransactionClosedError) as raised:
            add(connection, "milk")
        refused.append(raised.value)

    with call() as transaction:
        connection = orders.connection()
        transaction.enlist(Record(orders, settle=settle))
        add(connection, "tea")
        transaction.commit()
    assert len(refused) == 1
    assert items(orders) == ["tea"]


# --------------------------------------------------------------------------------------------------------- cancellation


class _Late:
    """A thread that a handler has left in a statement.

    Attributes:
        met: what the statement has come to.
    """

    def __init__(self, store: Store) -> None:
        self.met: list[Exception] = []
        self._store = store
        self._started = threading.Event()
        self._thread = threading.Thread(target=copy_context().run, args=(self._execute,))
        self._thread.start()
        assert self._started.wait(60)

    def join(self) -> None:
        self._thread.join()

    def _execute(self) -> None:
        connection = self._store.connection()
        connection.execute("SELECT 1")
        self._started.set()
        try:
            connection.execute(ENDLESS)
        except Exception as error:  # noqa: BLE001 - each driver has its own
            self.met.append(error)


@pytest.mark.parametrize("nested", [False, True])
def test_undoing_a_call_cancels_its_statement(orders: Store, *, nested: bool) -> None:
    """A call that has timed out is not waited for; nor is one inside of another."""
    with call() as outer, call("inner", inside=outer) if nested else nullcontext(outer) as undone:
        late = _Late(orders)
        undone.rollback()
        late.join()
    assert len(late.met) == 1
    assert items(orders) == []


def test_end_of_a_call_that_reads_cancels_its_statement(orders: Store) -> None:
    """Its connection is not given back while a late handler uses it."""
    with call(writes=False) as reading:
        late = _Late(orders)
        reading.commit()
        late.join()
    assert len(late.met) == 1
    assert items(orders) == []


# ----------------------------------------------------------------------------------------------------------- leftovers


def test_next_call_does_not_meet_what_a_handler_left_on_the_connection(orders: Store) -> None:
    """Temporary tables go with the call that made them, and statements work as before."""
    for _ in range(8):
        with call() as transaction:
            connection = orders.connection()
            connection.execute("CREATE TEMP TABLE scratch (n INTEGER)")
            add(connection, "tea")
            transaction.commit()
    assert items(orders) == ["tea"] * 8


def test_next_call_does_not_meet_settings_of_a_handler(clock: FakeClock) -> None:
    """They are again those that the store was opened with."""
    store = with_orders(STORES["postgres"](clock))
    with call() as transaction:
        connection = store.connection()
        connection.execute("SELECT set_config('lock_timeout', '0', false), set_config('search_path', 'public', false)")
        transaction.commit()
    with call():
        found = store.connection().execute("SELECT current_setting('lock_timeout')").fetchone()
        assert found is not None
        assert found != ("0",)
    assert items(store) == []


def test_call_that_waits_for_a_place_is_undone_at_once(tmp_path: Path) -> None:
    """Its thread does not wait on, and leaves the place to the next call."""
    driver = SqliteDriver(SqliteFile(tmp_path / "desk.db"))
    with SqlStore(driver) as store, call() as first:
        with_orders(store)
        add(store.connection(), "tea")
        with ThreadPoolExecutor(1) as pool, call() as second:
            connection = store.connection()
            waiting = pool.submit(copy_context().run, add, connection, "coffee")
            while not driver.call_places.waiting:
                threading.Event().wait(0)
            second.rollback()
            assert isinstance(waiting.exception(), TransactionClosedError)
            first.rollback()
        assert driver.call_places.ask().done()


def test_call_is_refused_if_others_keep_their_places_for_too_long(tmp_path: Path, wording: Wording) -> None:
    """It may be tried again when they have ended."""
    driver = SqliteDriver(SqliteFile(tmp_path / "desk.db", busy=timedelta(0)))
    with SqlStore(driver) as store:
        with_orders(store)
        with call() as first:
            add(store.connection(), "tea")
            with call(), raises(StoreUnavailableError, wording):
                add(store.connection(), "coffee")
            first.rollback()
        with call() as second:
            add(store.connection(), "coffee")
            second.commit()
        assert items(store) == ["coffee"]
