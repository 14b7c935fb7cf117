"""The tables of a store: they are made, and refused if they have another version."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from handrail.errors import StoreCorruptError, StoreVersionError
from handrail.store import SqliteStore, Store
from handrail.store.sql.database import Database, make_tables
from handrail.store.sql.statements import TABLES_VERSION
from handrail.store.sql.tables import TABLES
from handrail.store.sqlite.store import SqliteDriver, SqliteFile
from tests.kit import raises
from tests.wording import Wording


def change(path: Path, sql: str) -> None:
    """Change the tables, as another program does."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(sql)


@pytest.mark.parametrize("version", [TABLES_VERSION - 1, TABLES_VERSION + 1])
def test_tables_of_another_version_are_refused_and_unchanged(tmp_path: Path, version: int, wording: Wording) -> None:
    """Whatever they have, this Handrail would not store it."""
    path = tmp_path / "desk.db"
    SqliteStore(path).close()
    change(path, f"UPDATE handrail_schema SET version = {version}")  # noqa: S608 - a number
    before = path.read_bytes()
    with raises(StoreVersionError, wording) as raised:
        SqliteStore(path)
    assert (raised.value.version, raised.value.supported_version) == (version, TABLES_VERSION)
    assert path.read_bytes() == before


def test_tables_are_made_in_one_transaction(tmp_path: Path) -> None:
    """What fails leaves none of them, and the next attempt makes them."""
    path = tmp_path / "desk.db"

    def fail() -> bytes:
        raise ValueError("no key")

    database = Database(SqliteDriver(SqliteFile(path)))
    with pytest.raises(ValueError, match="no key"):
        make_tables(database, new_key=fail)
    assert not database.query(database.driver.types.find_table, ("handrail_effects",))
    make_tables(database)
    assert database.query(database.driver.types.find_table, ("handrail_effects",))
    database.driver.close()


def test_tables_of_the_program_stay_untouched(database: Store) -> None:
    """Ours carry a prefix of their own."""
    assert all(name.startswith("handrail_") for table in TABLES for made in table.definition for name in _names(made))
    assert list(database.rows()) == []


def _names(statement: str) -> list[str]:
    made = re.match(r"CREATE (?:TABLE|INDEX) (\w+)(?: ON (\w+))?", statement)
    assert made is not None
    return [name for name in made.groups() if name]


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


DAMAGED = {
    "no version": "DELETE FROM handrail_schema",
    "a version that is a text": "UPDATE handrail_schema SET version = 'old'",
    **{f"hash_key = {key}": f"UPDATE handrail_schema SET hash_key = {key}" for key in ("NULL", "''", "'text'")},  # noqa: S608 - ours
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_store_without_a_version_or_a_key_for_hashes_is_corrupt(
    tmp_path: Path, damage: str, wording: Wording
) -> None:
    """What the tables are is not guessed, and a hash without a key would give secrets away."""
    path = tmp_path / "desk.db"
    SqliteStore(path).close()
    change(path, DAMAGED[damage])
    with raises(StoreCorruptError, wording):
        SqliteStore(path)
