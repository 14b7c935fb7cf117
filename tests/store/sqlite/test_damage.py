"""What only the store in a file promises: clear errors for bad files and bad rows."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from handrail.errors import StoreCorruptError, StoreError, StoreReadOnlyError, StoreUnavailableError
from handrail.session.persistence.loading import slice_indexes
from handrail.session.persistence.protocol import SessionRow
from handrail.store import SqliteStore
from handrail.store.protocol import ClaimOwner, EffectInsert
from handrail.store.sql.store import SqlStore
from handrail.store.sqlite.store import SqliteDriver, SqliteFile
from handrail.transaction import UnitOfWork
from tests.kit import raises
from tests.store.kit import CLOCK, NOBODY, NOW, append, edited, entries, filled, held, insert, running_row, session_row
from tests.wording import Wording

# ---------------------------------------------------------------------------------------------------------- bad files


def test_other_file_is_no_store(tmp_path: Path, wording: Wording) -> None:
    """And it is left as it was."""
    path = tmp_path / "desk.db"
    path.write_bytes(b"Dear diary, " * 100)
    with raises(StoreCorruptError, wording):
        SqliteStore(path)
    assert path.read_bytes() == b"Dear diary, " * 100
    assert [found.name for found in tmp_path.iterdir()] == ["desk.db"]


def test_truncated_file_is_told_and_kept(tmp_path: Path) -> None:
    """Half a database is not read as if the other half had never been."""
    path = tmp_path / "desk.db"
    filled(path).close()
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(StoreCorruptError, match="malformed"):
        SqliteStore(path)
    assert path.read_bytes() == whole[: len(whole) // 2]


def test_damaged_page_is_told_when_it_is_read(tmp_path: Path) -> None:
    """Rows on other pages can be read still."""
    path = tmp_path / "desk.db"
    filled(path).close()
    data = bytearray(path.read_bytes())
    for start in range(4096 * 16, len(data), 4096):
        data[start : start + 4096] = b"\xff" * 4096
    path.write_bytes(data)
    with SqliteStore(path) as store, pytest.raises(StoreCorruptError):
        list(store.rows())


@contextmanager
def as_a_user_without_rights() -> Generator[Path]:
    """A folder, entered with the rights of a user who is not root; the superuser may write to anything."""
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        root = os.geteuid() == 0
        if root:
            os.chown(folder, NOBODY, -1)
            os.seteuid(NOBODY)
        try:
            yield Path(folder)
        finally:
            if root:
                os.seteuid(0)


@pytest.mark.parametrize("sealed", ["file", "folder", "both"])
def test_what_cannot_be_written_can_be_read(sealed: str, wording: Wording) -> None:
    """A file or folder without the right to write to is read; whoever writes to it is told."""
    with as_a_user_without_rights() as folder:
        path = folder / "desk.db"
        filled(path, 3).close()
        if sealed != "folder":
            path.chmod(0o444)
        if sealed != "file":
            folder.chmod(0o555)
        with SqliteStore(path) as store:
            assert len(list(store.rows())) == 3
            assert list(store.entries("s1")) == entries(1, 5)
            with pytest.raises(StoreReadOnlyError) as raised:
                insert(store, running_row(CLOCK))
            assert str(raised.value).replace(str(folder), "<folder>") == wording
            with pytest.raises(StoreReadOnlyError) as raised:
                store.acquire("s1", wait=NOW)
            assert str(raised.value).replace(str(folder), "<folder>") == wording
        folder.chmod(0o755)


def test_full_disk_loses_nothing(tmp_path: Path) -> None:
    """A unit that does not fit is refused, and may be tried again when there is room."""
    path = tmp_path / "desk.db"
    filled(path, 3).close()
    driver = SqliteDriver(_Small(path, durability="normal"), clock=CLOCK)
    with SqlStore(driver, clock=CLOCK) as store:
        rows = [running_row(CLOCK, f"more {number}") for number in range(2000)]
        with pytest.raises(StoreUnavailableError, match="full"):
            store.apply(UnitOfWork(tuple(map(EffectInsert, rows))))
        assert len(list(store.rows())) == 3
        assert insert(store, running_row(CLOCK, "one more")) is None


class _Small(SqliteFile):
    """A file on a disk with little room: SQLite answers as it does when there is none left."""

    def connect(self) -> sqlite3.Connection:
        connection = super().connect()
        connection.execute("PRAGMA max_page_count = 40")
        return connection


@pytest.mark.parametrize(
    "place", [".", "nowhere/desk.db", "desk\0", "x" * 300], ids=["folder", "missing", "nul", "long"]
)
def test_path_that_cannot_be_a_file_is_told(tmp_path: Path, place: str, wording: Wording) -> None:
    """A folder, one in a folder that is missing, or none at all; nothing is made."""
    with pytest.raises(StoreError) as raised:
        SqliteStore(tmp_path / place)
    cause, text = str(raised.value.__cause__ or ""), str(raised.value)
    assert (text.replace(cause, "<cause>") if cause else text).replace("x" * 300, "<long>") == wording
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("is_there", [True, False])
def test_no_store_is_made_without_rights(*, is_there: bool) -> None:
    """An empty file that cannot be written to stays empty, and none is made in a folder that takes none."""
    with as_a_user_without_rights() as folder:
        path = folder / "desk.db"
        if is_there:
            path.touch(0o444)
        folder.chmod(0o755 if is_there else 0o555)
        with pytest.raises(StoreReadOnlyError if is_there else StoreError):
            SqliteStore(path)
        assert not is_there or path.stat().st_size == 0
        folder.chmod(0o755)


# ------------------------------------------------------------------------------------------------------- bad rows


@pytest.mark.parametrize(
    "column, value",
    [
        ("message", "text"),
        ("value", 5),
        ("fence", "one"),
        ("created_at", 2**62),
        ("lease_until", b"soon"),
        pytest.param("tool", b"\xff" * 100, id="tool"),
    ],
)
def test_effect_that_cannot_be_read_is_an_error(tmp_path: Path, column: str, value: object, wording: Wording) -> None:
    """It names the key. The row is neither passed over nor claimed, and other keys can be."""
    sql = f"UPDATE handrail_effects SET {column} = ? WHERE key = 'key 0001'"  # noqa: S608 - a column's name
    with edited(tmp_path / "desk.db", sql, (value,)) as store:
        with raises(StoreCorruptError, wording):
            store.get("s1", "key 0001")
        for read in (store.rows, partial(store.rows, "key 0001"), partial(store.effects_below, "s1")):
            with pytest.raises(StoreCorruptError):
                list(read())
        with pytest.raises(StoreCorruptError):
            insert(store, running_row(CLOCK, "key 0001"))
        assert insert(store, running_row(CLOCK, "key 0009")) is None


MISPLACED = [
    pytest.param("UPDATE handrail_entries SET role = 'king' WHERE number = 3", id="role"),
    pytest.param("UPDATE handrail_entries SET start = 'x' WHERE number = 3", id="start"),
    pytest.param("DELETE FROM handrail_entries WHERE number = 3", id="an entry is missing"),
    pytest.param("DELETE FROM handrail_entries WHERE number = 5", id="the last entry is missing"),
]


@pytest.mark.parametrize("sql", MISPLACED)
def test_a_session_whose_entries_are_not_where_they_must_be_is_not_opened(tmp_path: Path, sql: str) -> None:
    """What they hold is not read then."""
    with edited(tmp_path / "desk.db", sql) as store, pytest.raises(StoreCorruptError):
        slice_indexes(store, SessionRow("s1", {}, None, CLOCK.now(), 5))


@pytest.mark.parametrize(
    "sql",
    [
        *MISPLACED,
        pytest.param("UPDATE handrail_entries SET items = 'text' WHERE number = 3", id="items"),
        pytest.param("UPDATE handrail_entries SET items = x'7801' WHERE number = 3", id="compressed"),
        pytest.param("UPDATE handrail_sessions SET tags = '[1]'", id="tags"),
        pytest.param("UPDATE handrail_sessions SET tags = '{'", id="tags that are not JSON"),
        pytest.param("UPDATE handrail_sessions SET head = 'x', parent = 3", id="head"),
        pytest.param("INSERT INTO handrail_checkpoints VALUES ('s1', 5, 'text')", id="checkpoint"),
    ],
)
def test_what_cannot_be_read_of_a_session_is_an_error(tmp_path: Path, sql: str, wording: Wording) -> None:
    """It names the session and the number, and nothing is left out in silence."""
    with edited(tmp_path / "desk.db", sql) as store, raises(StoreCorruptError, wording):
        _ = store.find("s1"), store.checkpoint("s1"), list(store.entries("s1"))


def test_text_that_no_database_takes_is_refused(tmp_path: Path) -> None:
    """In what names something; what people read is mended, and what the model is told is kept to the letter."""
    with SqliteStore(tmp_path / "desk.db", clock=CLOCK) as store:
        with pytest.raises(StoreError, match="surrogates"):
            store.create(session_row(CLOCK, "\ud800"))
        with pytest.raises(StoreError, match="surrogates"):
            store.find("\ud800")
        hold = held(store, CLOCK)
        with pytest.raises(StoreError, match="surrogates"):
            append(store, hold, 0, [entries(1, 1)[0]._replace(call_id="\ud800")], None)
        row = running_row(CLOCK)._replace(message="\ud800\0", note="\ud800\0ü", owner=ClaimOwner("\0", "\0", "\0"))
        insert(store, row)
        assert store.get("s1", row.key) == row._replace(note="?\ufffdü", owner=ClaimOwner(*"\ufffd" * 3))
