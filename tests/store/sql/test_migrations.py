"""The version of the tables: brought forward, and refused if newer."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from handrail.errors import StoreCorruptError, StoreError, StoreReadOnlyError, StoreVersionError
from handrail.store import SqliteStore, Store
from handrail.store.sql.database import Database
from handrail.store.sql.migrations import MIGRATIONS, migrate
from handrail.store.sql.version import TABLES_VERSION
from handrail.store.sqlite.file import SqliteFile
from handrail.store.sqlite.store import SqliteDriver
from handrail.testing import FakeClock
from tests.store.session_rows import session_row
from tests.wording import Wording

SECOND = (
    "ALTER TABLE handrail_sessions ADD COLUMN colour TEXT NOT NULL DEFAULT 'grey'",
    "CREATE TABLE more (x {number})",
)
THIRD = ("UPDATE handrail_sessions SET colour = 'blue'",)


def database(path: Path) -> Database:
    """The database of a store, before anybody has looked at its tables."""
    return Database(SqliteDriver(SqliteFile(path)))


def test_older_tables_are_brought_forward(tmp_path: Path) -> None:
    """Each version is made of the one before it, in one transaction; what was in the tables stays."""
    path = tmp_path / "desk.db"
    with SqliteStore(path) as store:
        store.create(session_row(FakeClock()))
    newer = database(path)
    migrate(newer, (*MIGRATIONS, SECOND, THIRD))
    assert newer.query("SELECT version FROM handrail_schema") == [(len(MIGRATIONS) + 2,)]
    assert newer.query("SELECT session_id, colour FROM handrail_sessions") == [("s1", "blue")]
    migrate(newer, (*MIGRATIONS, SECOND, THIRD))
    newer.driver.close()


def test_the_statements_are_those_of_the_newest_version() -> None:
    """Each of them compares the version with one number."""
    assert len(MIGRATIONS) == TABLES_VERSION


def test_newer_tables_are_refused_and_unchanged(tmp_path: Path, wording: Wording) -> None:
    """An older Handrail would not keep what the newer one has written."""
    path = tmp_path / "desk.db"
    newer = database(path)
    migrate(newer, (*MIGRATIONS, SECOND))
    newer.driver.close()
    before = path.read_bytes()
    with pytest.raises(StoreVersionError) as told:
        SqliteStore(path)
    assert str(told.value) == wording
    assert (told.value.found, told.value.known) == (len(MIGRATIONS) + 1, len(MIGRATIONS))
    assert path.read_bytes() == before


def test_older_tables_that_may_only_be_read_are_refused(tmp_path: Path, wording: Wording) -> None:
    """Commands that only look migrate nothing."""
    path = tmp_path / "desk.db"
    SqliteStore(path).close()
    before = path.read_bytes()
    store = Database(SqliteDriver(SqliteFile(path, read_only=True)))
    with pytest.raises(StoreReadOnlyError) as raised:
        migrate(store, (*MIGRATIONS, SECOND))
    assert str(raised.value) == wording
    store.driver.close()
    assert path.read_bytes() == before


def test_migration_that_fails_changes_nothing(tmp_path: Path, wording: Wording) -> None:
    """The next attempt begins where this one did."""
    path = tmp_path / "desk.db"
    SqliteStore(path).close()
    store = database(path)
    with pytest.raises(StoreError) as raised:
        migrate(store, (*MIGRATIONS, (*SECOND, "DELETE FROM nowhere")))
    assert str(raised.value) == wording
    migrate(store, (*MIGRATIONS, SECOND))
    store.driver.close()


@pytest.mark.parametrize("sql", ["DELETE FROM handrail_schema", "UPDATE handrail_schema SET version = 'old'"])
def test_version_that_cannot_be_read_is_told(tmp_path: Path, sql: str, wording: Wording) -> None:
    """Nobody guesses what the tables are."""
    path = tmp_path / "desk.db"
    SqliteStore(path).close()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(sql)
    with pytest.raises(StoreCorruptError) as raised:
        SqliteStore(path)
    assert str(raised.value) == wording


def test_tables_of_the_program_stay_untouched(database: Store) -> None:
    """Ours carry a prefix of their own."""
    assert all(name.startswith("handrail_") for migration in MIGRATIONS for name in _tables(migration))
    assert list(database.rows()) == []


def _tables(migration: object) -> list[str]:
    return [word for word in str(migration).split() if "CREATE" not in word and word.startswith("handrail_")]


def test_the_key_for_hashes_is_that_of_the_database(tmp_path: Path) -> None:
    """Every process that opens the store has the same; no two stores do. It is read once."""
    with SqliteStore(tmp_path / "a.db") as store, SqliteStore(tmp_path / "b.db") as other:
        key = store.hash_key()
        assert key != other.hash_key()
        with closing(sqlite3.connect(tmp_path / "a.db")) as connection, connection:
            assert connection.execute("SELECT hash_key FROM handrail_schema").fetchone() == (key,)
            connection.execute("UPDATE handrail_schema SET hash_key = NULL")
        assert store.hash_key() == key
    with SqliteStore(tmp_path / "b.db", read_only=True) as read:
        assert len(read.hash_key()) == 32


@pytest.mark.parametrize("damage", ["hash_key = NULL", "hash_key = ''", "hash_key = 'text'"])
def test_a_store_without_a_key_for_hashes_is_corrupt(tmp_path: Path, damage: str, wording: Wording) -> None:
    """A hash without a key would give secrets away, so none is made."""
    path = tmp_path / "desk.db"
    SqliteStore(path).close()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"UPDATE handrail_schema SET {damage}")  # noqa: S608 - our own words
    with SqliteStore(path) as store, pytest.raises(StoreCorruptError) as raised:
        store.hash_key()
    assert str(raised.value) == wording
