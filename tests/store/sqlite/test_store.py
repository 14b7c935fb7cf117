"""What only the store in a file promises: other processes, forks, calls."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from handrail import errors
from handrail.session.persistence.loading import slice_indexes
from handrail.session.persistence.protocol import SessionRow
from handrail.store import SqliteStore
from handrail.store.protocol import ClaimOwner, EffectInsert
from handrail.store.sql.store import SqlStore
from handrail.store.sqlite.store import SqliteDriver, SqliteFile
from handrail.transaction import RecordCommit, UnitOfWork
from tests.architecture.sources import ROOT
from tests.kit import raises
from tests.store import kit
from tests.store.processes import DESCRIPTORS, SESSIONS
from tests.wording import Wording

# ----------------------------------------------------------------------------------------------------- which file it is


def test_relative_path_is_followed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that changes its folder goes on with the same file, also on the connections of calls."""
    home, away = tmp_path / "home", tmp_path / "away"
    home.mkdir()
    away.mkdir()
    monkeypatch.chdir(home)
    with kit.filled(Path("desk.db"), 3) as store:
        assert store.url == f"sqlite:///{home}/desk.db"
        monkeypatch.chdir(away)
        with kit.call():
            assert store.connection().execute("SELECT count(*) FROM handrail_sessions").fetchone() == (1,)
    assert list(away.iterdir()) == []


def test_link_to_a_file_is_the_file(tmp_path: Path) -> None:
    """Whoever comes through a link finds the session held."""
    (tmp_path / "link.db").symlink_to("desk.db")
    with SqliteStore(tmp_path / "desk.db") as store, SqliteStore(tmp_path / "link.db") as other:
        kit.held(store, kit.CLOCK)
        with pytest.raises(errors.SessionLockedError):
            other.acquire("s1", wait=kit.NOW)
        assert other.url == store.url


@pytest.mark.parametrize("replaced", [False, True])
def test_file_that_was_removed_while_open_is_not_written_to(
    tmp_path: Path, wording: Wording, *, replaced: bool
) -> None:
    """Nobody would find what was written; when the file is back, all goes on."""
    path, away = tmp_path / "desk.db", tmp_path / "away"
    away.mkdir()
    files = [path, *(path.with_name(f"desk.db-{what}") for what in ("wal", "shm"))]
    with SqliteStore(path) as store:
        hold = kit.held(store, kit.CLOCK)
        kit.append(store, hold, 0, kit.entries(1, 1), None)
        for file in files:
            file.rename(away / file.name)
        if replaced:
            path.touch()
        uses: list[Callable[[], object]] = [
            lambda: kit.append(store, hold, 1, kit.entries(2, 2), None),
            lambda: store.check_lock(hold, 1),
        ]
        for use in uses:
            with raises(errors.StoreUnavailableError, wording):
                use()
        with kit.call(), raises(errors.StoreUnavailableError, wording):
            store.connection().execute("SELECT 1")
        for file in files:
            (away / file.name).rename(file)
        kit.append(store, hold, 1, kit.entries(2, 2), None)
        assert list(store.entries("s1")) == kit.entries(1, 2)


# ----------------------------------------------------------------------------------------------- many users of a file


def test_file_in_which_another_program_writes_is_not_turned_into_a_store(tmp_path: Path) -> None:
    """Its log is turned on once nobody writes, or not at all."""
    path = tmp_path / "desk.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(errors.StoreUnavailableError):
            SqliteStore(path, busy=timedelta(milliseconds=50))


def test_call_that_writes_keeps_the_file_to_itself(tmp_path: Path, wording: Wording) -> None:
    """What else the call would write is refused at once; only its signs of life go along with it."""
    row = kit.running_row(kit.CLOCK)
    with SqliteStore(tmp_path / "desk.db", clock=kit.CLOCK) as store:
        kit.insert(store, row)
        with kit.call() as transaction:
            store.connection().execute("CREATE TABLE orders (id INTEGER)")
            later = row._replace(lease_until=kit.CLOCK.now() + timedelta(hours=1))
            assert kit.replace(store, row, later)
            with raises(errors.StoreUnavailableError, wording):
                kit.insert(store, kit.running_row(kit.CLOCK, "nested"))
            transaction.commit()
        assert store.get("s1", row.key) == later


def test_store_closed_during_a_call_takes_its_connection_back(tmp_path: Path, wording: Wording) -> None:
    """What the call wrote is undone with it."""
    path = tmp_path / "desk.db"
    store = kit.filled(path, 1)
    with kit.call():
        store.connection().execute("CREATE TABLE orders (id INTEGER)")
        store.close()
    with SqliteStore(path) as again, kit.call(), pytest.raises(sqlite3.OperationalError) as raised:
        again.connection().execute("SELECT * FROM orders")
    assert str(raised.value) == wording


def test_open_sessions_need_no_descriptor_each(tmp_path: Path) -> None:
    """A process may hold more sessions than it may open files."""
    command = [sys.executable, "-m", "tests.store.processes", "many", f"sqlite:///{tmp_path / 'desk.db'}"]
    assert SESSIONS > DESCRIPTORS
    assert subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout == f"{SESSIONS}\n"


def test_lock_file_that_was_removed_is_made_anew(tmp_path: Path, wording: Wording) -> None:
    """Whoever tidies up the folder of locks lets another process in; the token keeps the first one from writing.

    With the next unit of the first one the file is there again.
    """
    path, folder = tmp_path / "desk.db", tmp_path / "desk.db-holds"
    with SqliteStore(path) as store, SqliteStore(path) as other:
        hold = kit.held(store, kit.CLOCK)
        shutil.rmtree(folder)
        kit.record_commit(store, "j1")
        with pytest.raises(errors.SessionLockedError):
            other.acquire("s1", wait=kit.NOW)
        shutil.rmtree(folder)
        taken = other.acquire("s1", wait=kit.NOW)
        with raises(errors.SessionLostError, wording):
            kit.append(store, hold, 0, kit.entries(1, 1), None)
        store.release(hold)
        kit.append(other, taken, 0, kit.entries(1, 1), None)
        other.release(taken)


def test_thread_that_writes_a_unit_cannot_begin_another_one(tmp_path: Path, wording: Wording) -> None:
    """It waits for itself as long as for others; the unit that it writes is not harmed."""
    with SqliteStore(tmp_path / "desk.db", busy=timedelta(0)) as store:
        refused: list[str] = []

        def nested() -> None:
            with pytest.raises(errors.StoreUnavailableError) as raised:
                store.create(kit.session_row(kit.CLOCK, "nested"))
            refused.append(str(raised.value))

        with kit.at_point("unit-begun", nested):
            store.apply(UnitOfWork((RecordCommit("outer"), EffectInsert(kit.running_row(kit.CLOCK)))))
        assert refused == [wording]
        assert (store.is_committed("outer"), store.find("nested")) == (True, None)


def test_unit_is_read_by_no_thread_before_its_commit(tmp_path: Path) -> None:
    """Neither by another thread nor by the one that writes it; neither has to wait."""
    row = kit.running_row(kit.CLOCK)
    found: list[tuple[object, bool]] = []
    with SqliteStore(tmp_path / "desk.db") as store:

        def read() -> None:
            found.append((store.get("s1", row.key), store.is_committed("j1")))

        def read_beside() -> None:
            read()
            thread = threading.Thread(target=read)
            thread.start()
            thread.join()

        with kit.at_point("unit-before-commit", read_beside):
            store.apply(UnitOfWork((RecordCommit("j1"), EffectInsert(row))))
        read()
    assert found == [(None, False), (None, False), (row, True)]


# ---------------------------------------------------------------------------------------------------------- bad files


def test_other_file_is_no_store(tmp_path: Path, wording: Wording) -> None:
    """And it is left as it was."""
    path = tmp_path / "desk.db"
    path.write_bytes(b"Dear diary, " * 100)
    with raises(errors.StoreCorruptError, wording):
        SqliteStore(path)
    assert path.read_bytes() == b"Dear diary, " * 100
    assert [found.name for found in tmp_path.iterdir()] == ["desk.db"]


def test_truncated_file_is_told_and_kept(tmp_path: Path) -> None:
    """Half a database is not read as if the other half had never been."""
    path = tmp_path / "desk.db"
    kit.filled(path).close()
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(errors.StoreCorruptError, match="malformed"):
        SqliteStore(path)
    assert path.read_bytes() == whole[: len(whole) // 2]


def test_damaged_page_is_told_when_it_is_read(tmp_path: Path) -> None:
    """Rows on other pages can be read still."""
    path = tmp_path / "desk.db"
    kit.filled(path).close()
    data = bytearray(path.read_bytes())
    for start in range(4096 * 17, len(data), 4096):
        data[start : start + 4096] = b"\xff" * 4096
    path.write_bytes(data)
    with SqliteStore(path) as store, pytest.raises(errors.StoreCorruptError):
        list(store.rows())


@contextmanager
def as_a_user_without_rights() -> Generator[Path]:
    """A folder, entered with the rights of a user who is not root; the superuser may write to anything."""
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        root = os.geteuid() == 0
        if root:
            os.chown(folder, kit.NOBODY, -1)
            os.seteuid(kit.NOBODY)
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
        kit.filled(path, 3).close()
        if sealed != "folder":
            path.chmod(0o444)
        if sealed != "file":
            folder.chmod(0o555)
        with SqliteStore(path) as store:
            assert len(list(store.rows())) == 3
            assert list(store.entries("s1")) == kit.entries(1, 5)
            with pytest.raises(errors.StoreReadOnlyError) as raised:
                kit.insert(store, kit.running_row(kit.CLOCK))
            assert str(raised.value).replace(str(folder), "<folder>") == wording
            with pytest.raises(errors.StoreReadOnlyError) as raised:
                store.acquire("s1", wait=kit.NOW)
            assert str(raised.value).replace(str(folder), "<folder>") == wording
        folder.chmod(0o755)


def test_full_disk_loses_nothing(tmp_path: Path) -> None:
    """A unit that does not fit is refused, and may be tried again when there is room."""
    path = tmp_path / "desk.db"
    kit.filled(path, 3).close()
    driver = SqliteDriver(_Small(path, durability="normal"), clock=kit.CLOCK)
    with SqlStore(driver, clock=kit.CLOCK) as store:
        rows = [kit.running_row(kit.CLOCK, f"more {number}") for number in range(2000)]
        with pytest.raises(errors.StoreUnavailableError, match="full"):
            store.apply(UnitOfWork(tuple(map(EffectInsert, rows))))
        assert len(list(store.rows())) == 3
        assert kit.insert(store, kit.running_row(kit.CLOCK, "one more")) is None


class _Small(SqliteFile):
    """A file on a disk with little room: SQLite answers as it does when there is none left."""

    def connect(self) -> sqlite3.Connection:
        connection = super().connect()
        connection.execute("PRAGMA max_page_count = 40")
        return connection


@pytest.mark.parametrize("place", [".", "nowhere/desk.db"])
def test_path_that_cannot_be_a_file_is_told(tmp_path: Path, place: str) -> None:
    """A folder, or one in a folder that is missing; nothing is made."""
    with pytest.raises(errors.StoreError):
        SqliteStore(tmp_path / place)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("is_there", [True, False])
def test_no_store_is_made_without_rights(*, is_there: bool) -> None:
    """An empty file that cannot be written to stays empty, and none is made in a folder that takes none."""
    with as_a_user_without_rights() as folder:
        path = folder / "desk.db"
        if is_there:
            path.touch(0o444)
        folder.chmod(0o755 if is_there else 0o555)
        with pytest.raises(errors.StoreReadOnlyError if is_there else errors.StoreError):
            SqliteStore(path)
        assert not is_there or path.stat().st_size == 0
        folder.chmod(0o755)


# ------------------------------------------------------------------------------------------------------- bad rows


@pytest.mark.parametrize(
    "column, value",
    [
        *(("message", "text"), ("value", 5), ("fence", "one"), ("created_at", 2**62), ("lease_until", b"soon")),
        pytest.param("tool", b"\xff" * 100, id="tool"),
    ],
)
def test_effect_that_cannot_be_read_is_an_error(tmp_path: Path, column: str, value: object, wording: Wording) -> None:
    """It names the key. The row is neither passed over nor claimed, and other keys can be."""
    sql = f"UPDATE handrail_effects SET {column} = ? WHERE key = 'key 0001'"  # noqa: S608 - a column's name
    with kit.edited(tmp_path / "desk.db", sql, (value,)) as store:
        with raises(errors.StoreCorruptError, wording):
            store.get("s1", "key 0001")
        for read in (store.rows, partial(store.rows, "key 0001"), partial(store.effects_below, "s1")):
            with pytest.raises(errors.StoreCorruptError):
                list(read())
        with pytest.raises(errors.StoreCorruptError):
            kit.insert(store, kit.running_row(kit.CLOCK, "key 0001"))
        assert kit.insert(store, kit.running_row(kit.CLOCK, "key 0009")) is None


MISPLACED = [
    pytest.param("UPDATE handrail_entries SET role = 'king' WHERE number = 3", id="role"),
    pytest.param("UPDATE handrail_entries SET start = 'x' WHERE number = 3", id="start"),
    pytest.param("DELETE FROM handrail_entries WHERE number = 3", id="an entry is missing"),
    pytest.param("DELETE FROM handrail_entries WHERE number = 5", id="the last entry is missing"),
]


@pytest.mark.parametrize("sql", MISPLACED)
def test_a_session_whose_entries_are_not_where_they_must_be_is_not_opened(tmp_path: Path, sql: str) -> None:
    """What they hold is not read then."""
    with kit.edited(tmp_path / "desk.db", sql) as store, pytest.raises(errors.StoreCorruptError):
        slice_indexes(store, SessionRow("s1", {}, None, kit.CLOCK.now(), 5))


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
    with kit.edited(tmp_path / "desk.db", sql) as store, raises(errors.StoreCorruptError, wording):
        _ = store.find("s1"), store.checkpoint("s1"), list(store.entries("s1"))


def test_text_that_no_database_takes_is_refused(tmp_path: Path) -> None:
    """In what names something; what people read is mended, and what the model is told is kept to the letter."""
    with SqliteStore(tmp_path / "desk.db", clock=kit.CLOCK) as store:
        with pytest.raises(errors.StoreError, match="surrogates"):
            store.create(kit.session_row(kit.CLOCK, "\ud800"))
        with pytest.raises(errors.StoreError, match="surrogates"):
            store.find("\ud800")
        hold = kit.held(store, kit.CLOCK)
        with pytest.raises(errors.StoreError, match="surrogates"):
            kit.append(store, hold, 0, [kit.entries(1, 1)[0]._replace(call_id="\ud800")], None)
        row = kit.running_row(kit.CLOCK)._replace(message="\ud800\0", note="\ud800\0ü", owner=ClaimOwner(*"\0" * 3))
        kit.insert(store, row)
        assert store.get("s1", row.key) == row._replace(note="?\ufffdü", owner=ClaimOwner(*"\ufffd" * 3))
