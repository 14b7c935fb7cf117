"""On SQLite a call keeps others from writing from its own first write on, not while it reads."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from handrail.errors import StoreError, StoreUnavailableError
from handrail.session.persistence.protocol import DatabaseConnection
from handrail.store.protocol import EffectInsert
from handrail.store.sql import call_statements
from handrail.store.sql.store import SqlStore
from handrail.store.sqlite.file import SqliteFile
from handrail.store.sqlite.store import SqliteDriver
from handrail.testing import FakeClock
from tests.store.calls import Record, call
from tests.store.failing import failing
from tests.store.ledger_stores import running_row
from tests.store.orders import add, items, with_orders
from tests.store.units import insert
from tests.wording import Wording


@pytest.fixture
def driver(tmp_path: Path) -> SqliteDriver:
    """A database that waits for nobody."""
    return SqliteDriver(SqliteFile(tmp_path / "desk.db", busy=timedelta(0)))


@pytest.fixture
def store(driver: SqliteDriver) -> Iterator[SqlStore]:
    """A store whose database has an order."""
    with SqlStore(driver) as opened:
        with_orders(opened)
        change(opened, "INSERT INTO orders VALUES (1, 'tea')")
        yield opened


def change(store: SqlStore, sql: str) -> None:
    """Have another program write."""
    path = store.url.removeprefix("sqlite:///")
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute(sql)


def count(connection: DatabaseConnection) -> int:
    """How many orders there are."""
    (found,) = connection.execute("SELECT COUNT(*) FROM orders").fetchone()
    return int(found)


def test_calls_that_read_hold_up_nobody(store: SqlStore, driver: SqliteDriver, clock: FakeClock) -> None:
    """Neither each other, nor a unit, nor a call that writes; each sees one state until it has ended."""
    with call() as one:
        assert count(store.connection()) == 1
        with call() as two:
            assert count(store.connection()) == 1
            insert(store, running_row(clock))
            with call() as writer:
                add(store.connection(), "milk")
                writer.commit()
            two.commit()
        assert count(store.connection()) == 1
        one.enlist(Record(store))
        one.commit()
    assert items(store) == ["tea", "milk"]
    assert driver.call_places.acquire(0.0)


def test_unit_of_a_call_that_has_only_read_is_written(store: SqlStore, clock: FakeClock) -> None:
    """Although the database was changed since, which its transaction could not be written after."""
    row = running_row(clock)
    with call() as reader:
        assert count(store.connection()) == 1
        change(store, "INSERT INTO orders VALUES (2, 'milk')")
        reader.enlist(Record(store, EffectInsert(row)))
        reader.commit()
    assert store.get("s1", row.key) == row


@pytest.mark.parametrize("unrelated", [None, "CREATE TABLE other (n INTEGER)", "UPDATE orders SET item = 'tea'"])
def test_call_that_has_read_writes_on_what_it_has_read(store: SqlStore, unrelated: str | None) -> None:
    """Also if the database was changed, but nothing that it has read. The savepoints of inner calls stand."""
    with call() as outer:
        assert count(store.connection()) == 1
        with failing(call("inner", inside=outer)) as inner:
            assert count(store.connection()) == 1
            if unrelated is not None:
                change(store, unrelated)
            add(store.connection(), "milk")
            assert count(store.connection()) == 2
            assert inner.is_open()
        assert count(store.connection()) == 1
        add(store.connection(), "coffee")
        outer.commit()
    assert items(store) == ["tea", "coffee"]


@pytest.mark.parametrize("most", [call_statements.MOST_ROWS, 1])
def test_call_whose_reading_is_outdated_writes_nothing(
    store: SqlStore, monkeypatch: pytest.MonkeyPatch, wording: Wording, most: int
) -> None:
    """It would write what follows from rows that are not there any more; so also if it has read more than is kept."""
    monkeypatch.setattr(call_statements, "MOST_ROWS", most)
    with call() as transaction:
        pieces = count(store.connection())
        change(store, "DELETE FROM orders" if most > 1 else "CREATE TABLE other (n INTEGER)")
        with pytest.raises(StoreUnavailableError) as raised:
            store.connection().execute("INSERT INTO orders VALUES (7, ?)", (f"after {pieces}",))
        assert str(raised.value) == wording
        with pytest.raises(StoreError):
            add(store.connection(), "milk")
        transaction.enlist(Record(store))
        with pytest.raises(StoreError):
            transaction.commit()
    assert items(store) == ([] if most > 1 else ["tea"])


def test_call_that_no_other_writer_has_overtaken_reads_nothing_again(
    store: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So it may have read more rows than are kept, and values that differ at each reading."""
    with call() as transaction:
        store.connection().execute("SELECT random()")
        add(store.connection(), "milk")
        transaction.commit()
    monkeypatch.setattr(call_statements, "MOST_ROWS", 1)
    with call() as transaction:
        assert count(store.connection()) == 2
        add(store.connection(), "coffee")
        transaction.commit()
    assert items(store) == ["tea", "milk", "coffee"]


def test_call_that_could_not_begin_to_write_may_try_again(store: SqlStore, wording: Wording) -> None:
    """What it has read is compared with what it finds then."""
    path = store.url.removeprefix("sqlite:///")
    with closing(sqlite3.connect(path, isolation_level=None)) as other, call() as transaction:
        assert count(store.connection()) == 1
        other.execute("BEGIN IMMEDIATE")
        other.execute("INSERT INTO orders VALUES (2, 'milk')")
        with pytest.raises(StoreUnavailableError, match="locked"):
            add(store.connection(), "coffee")
        other.execute("COMMIT")
        with pytest.raises(StoreUnavailableError) as raised:
            add(store.connection(), "coffee")
        assert str(raised.value) == wording
        transaction.rollback()
    assert items(store) == ["tea", "milk"]


def test_commit_says_that_it_has_waited_for_another_process(store: SqlStore, clock: FakeClock) -> None:
    """So nobody tries it again at once. Afterwards it is waited for as long as before."""
    row = running_row(clock)
    path = store.url.removeprefix("sqlite:///")
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailableError) as raised:
            insert(store, row)
        other.execute("COMMIT")
    assert raised.value.waited
    insert(store, row)
    assert store.get("s1", row.key) == row
