"""What only the store in a file promises: other processes, forks, calls."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from handrail.errors import SessionLockedError, SessionLostError, StoreUnavailableError
from handrail.store import SqliteStore
from handrail.store.protocol import EffectInsert
from handrail.store.sqlite.store import SqliteFile
from handrail.transaction import RecordCommit, UnitOfWork
from tests.architecture.sources import ROOT
from tests.kit import raises
from tests.store.kit import (
    CLOCK,
    NOW,
    append,
    at_point,
    call,
    entries,
    filled,
    held,
    insert,
    record_commit,
    replace,
    running_row,
    session_row,
)
from tests.store.processes import DESCRIPTORS, SESSIONS
from tests.wording import Wording

# ----------------------------------------------------------------------------------------------------- which file it is


def test_relative_path_is_followed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that changes its folder goes on with the same file, also on the connections of calls."""
    home, away = tmp_path / "home", tmp_path / "away"
    home.mkdir()
    away.mkdir()
    monkeypatch.chdir(home)
    with filled(Path("desk.db"), 3) as store:
        assert store.url == f"sqlite:///{home}/desk.db"
        monkeypatch.chdir(away)
        with call():
            assert store.connection().execute("SELECT count(*) FROM handrail_sessions").fetchone() == (1,)
    assert list(away.iterdir()) == []


def test_link_to_a_file_is_the_file(tmp_path: Path) -> None:
    """Whoever comes through a link finds the session held."""
    (tmp_path / "link.db").symlink_to("desk.db")
    with SqliteStore(tmp_path / "desk.db") as store, SqliteStore(tmp_path / "link.db") as other:
        held(store, CLOCK)
        with pytest.raises(SessionLockedError):
            other.acquire("s1", wait=NOW)
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
        hold = held(store, CLOCK)
        append(store, hold, 0, entries(1, 1), None)
        for file in files:
            file.rename(away / file.name)
        if replaced:
            path.touch()
        uses: list[Callable[[], object]] = [
            lambda: append(store, hold, 1, entries(2, 2), None),
            lambda: store.check_lock(hold, 1),
        ]
        for use in uses:
            with raises(StoreUnavailableError, wording):
                use()
        with call(), raises(StoreUnavailableError, wording):
            store.connection().execute("SELECT 1")
        for file in files:
            (away / file.name).rename(file)
        append(store, hold, 1, entries(2, 2), None)
        assert list(store.entries("s1")) == entries(1, 2)


# ----------------------------------------------------------------------------------------------- many users of a file


def test_file_in_which_another_program_writes_is_not_turned_into_a_store(tmp_path: Path) -> None:
    """Its log is turned on once nobody writes, or not at all."""
    path = tmp_path / "desk.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailableError):
            SqliteStore(path, busy=timedelta(milliseconds=50))


def test_error_of_a_folder_that_is_gone_is_that_of_the_disk(tmp_path: Path) -> None:
    """Whether the disk is read-only cannot be looked up there."""
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR
    assert type(SqliteFile(tmp_path / "gone" / "desk.db").translate(error)) is StoreUnavailableError


def test_call_that_writes_keeps_the_file_to_itself(tmp_path: Path, wording: Wording) -> None:
    """What else the call would write is refused at once; only its signs of life go along with it."""
    row = running_row(CLOCK)
    with SqliteStore(tmp_path / "desk.db", clock=CLOCK) as store:
        insert(store, row)
        with call() as transaction:
            store.connection().execute("CREATE TABLE orders (id INTEGER)")
            later = row._replace(lease_until=CLOCK.now() + timedelta(hours=1))
            assert replace(store, row, later)
            with raises(StoreUnavailableError, wording):
                insert(store, running_row(CLOCK, "nested"))
            transaction.commit()
        assert store.get("s1", row.key) == later


def test_store_closed_during_a_call_takes_its_connection_back(tmp_path: Path, wording: Wording) -> None:
    """What the call wrote is undone with it."""
    path = tmp_path / "desk.db"
    store = filled(path, 1)
    with call():
        store.connection().execute("CREATE TABLE orders (id INTEGER)")
        store.close()
    with SqliteStore(path) as again, call(), pytest.raises(sqlite3.OperationalError) as raised:
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
        hold = held(store, CLOCK)
        shutil.rmtree(folder)
        record_commit(store, "j1")
        with pytest.raises(SessionLockedError):
            other.acquire("s1", wait=NOW)
        shutil.rmtree(folder)
        taken = other.acquire("s1", wait=NOW)
        with raises(SessionLostError, wording):
            append(store, hold, 0, entries(1, 1), None)
        store.release(hold)
        append(other, taken, 0, entries(1, 1), None)
        other.release(taken)


def test_thread_that_writes_a_unit_cannot_begin_another_one(tmp_path: Path, wording: Wording) -> None:
    """It waits for itself as long as for others; the unit that it writes is not harmed."""
    with SqliteStore(tmp_path / "desk.db", busy=timedelta(0)) as store:
        refused: list[str] = []

        def nested() -> None:
            with pytest.raises(StoreUnavailableError) as raised:
                store.create(session_row(CLOCK, "nested"))
            refused.append(str(raised.value))

        with at_point("unit-begun", nested):
            store.apply(UnitOfWork((RecordCommit("outer"), EffectInsert(running_row(CLOCK)))))
        assert refused == [wording]
        assert (store.is_committed("outer"), store.find("nested")) == (True, None)


def test_unit_is_read_by_no_thread_before_its_commit(tmp_path: Path) -> None:
    """Neither by another thread nor by the one that writes it; neither has to wait."""
    row = running_row(CLOCK)
    found: list[tuple[object, bool]] = []
    with SqliteStore(tmp_path / "desk.db") as store:

        def read() -> None:
            found.append((store.get("s1", row.key), store.is_committed("j1")))

        def read_beside() -> None:
            read()
            thread = threading.Thread(target=read)
            thread.start()
            thread.join()

        with at_point("unit-before-commit", read_beside):
            store.apply(UnitOfWork((RecordCommit("j1"), EffectInsert(row))))
        read()
    assert found == [(None, False), (None, False), (row, True)]
