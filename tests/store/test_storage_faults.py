"""Storage that is taken away from a process that uses it: nothing is lost without an error, and nothing done twice.

A process has made payments, and has been answered. Then its storage is damaged. It asks for more, another process asks
for the same payments, and the store is opened again.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import sqlite3
import subprocess
import threading
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from datetime import timedelta
from pathlib import Path
from sys import executable

import psycopg
import pytest

import handrail.store
from handrail.errors import StoreError, StoreReadOnlyError, StoreUnavailableError, StoreVersionError
from handrail.session import Session
from handrail.session.persistence.protocol import SessionAppend, SessionLock
from handrail.store import EffectRow, SqliteStore, Store
from handrail.store.protocol import EffectChange
from handrail.store.sql.statements import TABLES_VERSION
from handrail.transaction import RecordCommit, UnitOfWork
from tests.architecture.sources import ROOT
from tests.crash.forks import Fork, start
from tests.kit import raises
from tests.store import kit
from tests.store.payments import DONE, desk, paid, pay_all, pay_elsewhere
from tests.store.postgres_server import doomed, doomed_name, end_connections, fresh_url
from tests.wording import Wording

FIRST, SECOND, ALL = range(1, 4), range(4, 6), range(1, 6)


def refusals(outcomes: list[str]) -> list[str]:
    """What the model reads of calls, each text once, without what is wrong with the store."""
    return sorted({outcome.partition(":")[0] for outcome in outcomes})


@pytest.fixture(autouse=True)
def silent() -> Generator[None]:
    """Without the log, which has each refusal."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture(scope="module")
def another_process() -> Generator[Fork]:
    """Another process, which the tests of this file share."""
    with start("tests.store.payments") as process:
        yield process


def remove(path: Path, *suffixes: str) -> None:
    """Somebody tidies up."""
    for suffix in suffixes:
        Path(f"{path}-{suffix}").unlink()


def restore(path: Path) -> None:
    """A backup program puts an older copy there while the process runs."""
    shutil.copyfile(path, copy := Path(f"{path}.copy"))
    copy.replace(path)


def move_folder(path: Path) -> None:
    """The folder gets another name."""
    path.parent.rename(path.parent.with_name("moved"))


DAMAGES: dict[str, tuple[Callable[[Path], object], str | None]] = {
    "the log is removed": (lambda path: remove(path, "wal"), "StoreUnavailableError"),
    "the log and the index are removed": (lambda path: remove(path, "wal", "shm"), None),
    "the index is removed": (lambda path: remove(path, "shm"), None),
    "the log is replaced": (lambda path: restore(Path(f"{path}-wal")), None),
    "the database is replaced": (restore, None),
    "the folder is moved": (move_folder, "StoreError"),
}


@pytest.mark.parametrize("what", DAMAGES)
def test_files_that_are_taken_away_are_noticed_before_anything_is_written(
    tmp_path: Path, wording: Wording, another_process: Fork, what: str
) -> None:
    """By the process that has the store open; what was answered is not lost, if no other one opens it meanwhile."""
    (folder := tmp_path / "desk").mkdir()
    path, world = folder / "desk.db", tmp_path / "world"
    url = f"sqlite:///{path}"
    damage, elsewhere = DAMAGES[what]
    ends = pytest.raises(StoreUnavailableError) if damage in {restore, move_folder} else nullcontext()
    with ends, SqliteStore(path) as store, Session.open(store, "desk") as session:
        executor = desk(session, world)
        assert pay_all(executor, FIRST) == [DONE] * 3
        damage(path)
        assert refusals(pay_all(executor, SECOND)) == wording
        with pytest.raises(StoreUnavailableError):  # a question that is not stored
            session.conversation.append({"role": "user", "content": "pay"})
        with raises(StoreUnavailableError, wording):
            kit.record_commit(store, "j1")
        if elsewhere is not None:
            assert pay_elsewhere(another_process, url, world, FIRST) == [elsewhere]
        assert paid(world) == [f"order {order}" for order in FIRST]
    if damage is move_folder:
        folder.with_name("moved").rename(folder)
    assert pay_elsewhere(another_process, url, world, ALL) == [DONE] * 5
    assert paid(world) == [f"order {order}" for order in ALL]


UNNOTICED = """
import os, sys
from handrail.session import Session
from handrail.store import open

path = sys.argv[1]
with open(f"sqlite:///{path}") as store:
    session = Session.open(store, "desk")
    session.conversation.append({"role": "user", "content": "pay"})
    if sys.argv[2] == "cut the index":
        os.truncate(f"{path}-shm", 0)
    elif sys.argv[2] == "cut the log":
        os.truncate(f"{path}-wal", 0)
    else:
        with os.fdopen(os.open(f"{path}-wal", os.O_WRONLY), "wb") as log:
            log.write(bytes(os.stat(f"{path}-wal").st_size))
    session.conversation.append({"role": "user", "content": "pay more"})
    os._exit(0)
"""


@pytest.mark.parametrize(
    "damage, ends, left", [("cut the index", -signal.SIGBUS, 1), ("overwrite the log", 0, 0), ("cut the log", 0, 0)]
)
def test_what_is_not_noticed_is_what_the_page_says(tmp_path: Path, damage: str, ends: int, left: int) -> None:
    """SQLite has the index in memory, and does not read the log again. The database can be opened after it."""
    path = tmp_path / "desk.db"
    with SqliteStore(path) as store:
        Session.open(store, "desk").close()
    assert subprocess.run([executable, "-c", UNNOTICED, str(path), damage], check=False).returncode == ends
    with SqliteStore(path) as store, Session.open(store, "desk") as session:
        assert len(session.conversation.messages) == left


def checkpointed(path: Path, *, then: str = "SELECT 1") -> None:
    """Have another process copy the log into the database, and cut the log."""
    code = (
        "import sqlite3, sys; c = sqlite3.connect(sys.argv[1], isolation_level=None); "
        "[c.execute(sql) for sql in sys.argv[2:]]"
    )
    subprocess.run([executable, "-c", code, path, then, "PRAGMA wal_checkpoint(TRUNCATE)"], check=True)


def test_what_other_processes_may_do_to_the_files_is_no_fault(tmp_path: Path) -> None:
    """Both files become shorter by a checkpoint that cuts the log, and by VACUUM."""
    path = tmp_path / "desk.db"
    with SqliteStore(path) as store:
        with closing(sqlite3.connect(path)) as other, other:
            other.execute("CREATE TABLE large (x)")
            other.execute("INSERT INTO large VALUES (randomblob(400000))")
        kit.record_commit(store, "j1")
        checkpointed(path)
        kit.record_commit(store, "j2")
        sizes = path.stat().st_size
        with closing(sqlite3.connect(path)) as other, other:
            other.execute("DROP TABLE large")
        checkpointed(path, then="VACUUM")
        assert path.stat().st_size < sizes
        kit.record_commit(store, "j3")
        kit.record_commit(store, "j4")
        assert all(map(store.is_committed, ("j1", "j2", "j3", "j4")))


def test_a_log_whose_index_was_left_alone_is_missed_after_a_kill(tmp_path: Path, wording: Wording) -> None:
    """The index says that there was a log: what was committed last would be missing."""
    path = tmp_path / "desk.db"
    code = "import os, sys; from handrail.store import SqliteStore; SqliteStore(sys.argv[1]); os._exit(0)"
    subprocess.run([executable, "-c", code, path], check=True)
    remove(path, "wal")
    with raises(StoreUnavailableError, wording):
        SqliteStore(path)
    Path(f"{path}-shm").unlink()
    with pytest.raises(StoreError):  # the tables were in the log alone
        SqliteStore(path, read_only=True)


READ_ONLY = """
import sys, json
from pathlib import Path
from datetime import timedelta
import handrail.store
from handrail.errors import StoreError
from handrail.session import Session
from handrail.store.sqlite.store import SqliteFile
from tests.store.kit import record_commit

def kind(act):
    try:
        return str(act())
    except StoreError as error:
        return type(error).__name__

import sqlite3
failed = sqlite3.OperationalError("disk I/O error")
failed.sqlite_errorcode = sqlite3.SQLITE_IOERR_WRITE
with handrail.store.open(sys.argv[1]) as store:
    print(json.dumps([
        kind(lambda: store.find("desk").session_id),
        kind(lambda: record_commit(store, "j1")),
        kind(lambda: Session.open(store, "desk", wait=timedelta(0))),
        kind(store.process),
        type(SqliteFile(Path(store.url.removeprefix("sqlite:///"))).translate(failed)).__name__,
    ]))
"""


@pytest.mark.parametrize("was_killed", [False, True])
def test_a_read_only_disk_is_named_as_one(tmp_path: Path, *, was_killed: bool) -> None:
    """Also by a failure that SQLite reports as one of the disk. What is there can be read."""
    (folder := tmp_path / "desk").mkdir()
    path = folder / "desk.db"
    code = (
        "import os, sys; from handrail.store import open; from handrail.session import Session; "
        "store = open(sys.argv[1]); Session.open(store, 'desk').close(); "
        f"{'os._exit(0)' if was_killed else 'store.close()'}"
    )
    subprocess.run([executable, "-c", code, f"sqlite:///{path}"], check=True)
    inside = ("bwrap", "--bind", "/", "/", "--ro-bind", str(folder), str(folder), "--dev", "/dev")
    command = [*inside, executable, "-c", READ_ONLY, f"sqlite:///{path}"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert json.loads(ended.stdout) == ["desk", *["StoreReadOnlyError"] * 4]


def doom(connection: psycopg.Connection) -> None:
    """Have the server end a connection to a doomed URL, without waiting for that."""
    sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = %s ORDER BY random() LIMIT 1"
    connection.execute(sql, (doomed_name(),))


def test_a_connection_killed_every_50_ms_leaves_each_call_done_failed_or_unknown(tmp_path: Path) -> None:
    """200 calls end, none is made twice, and what was answered is in the store."""
    world = tmp_path / "world"
    with fresh_url() as url, handrail.store.open(doomed(url)) as store, Session.open(store, "desk") as session:
        executor = desk(session, world)
        ended = threading.Event()

        def kill() -> None:
            with psycopg.connect(url, autocommit=True) as other:
                while not ended.wait(0.05):
                    doom(other)

        killer = threading.Thread(target=kill)
        killer.start()
        try:
            outcomes = pay_all(executor, range(200))
        finally:
            ended.set()
            killer.join()
        statuses = {row.status for row in store.rows()}
        done = [f"order {order}" for order, outcome in enumerate(outcomes) if outcome == DONE]
        assert statuses <= {"done", "failed", "unknown"}
        assert len(done) > 150
        assert {*done} <= {*paid(world)}
        assert len(paid(world)) == len({*paid(world)})
        assert len([row for row in store.rows() if row.status == "done"]) >= len(done)


def test_a_server_that_takes_no_writes_is_named_as_one(tmp_path: Path, wording: Wording) -> None:
    """A role, a database or a standby; when it takes them again, calls are made again."""
    world, role = tmp_path / "world", f"teller_{os.getpid()}"
    with fresh_url() as url, psycopg.connect(url, autocommit=True) as admin:
        admin.execute(f"CREATE ROLE {role} LOGIN SUPERUSER".encode())
        handrail.store.open(url).close()  # the tables are not the role's, which can be dropped then
        try:
            as_role = doomed(url).replace("://postgres:", f"://{role}:")
            with handrail.store.open(as_role) as store, Session.open(store, "desk") as session:
                executor = desk(session, world)
                assert pay_all(executor, [1]) == [DONE]
                admin.execute(f"ALTER ROLE {role} SET default_transaction_read_only = on".encode())
                end_connections(url)
                assert refusals(pay_all(executor, [2])) == wording
                with pytest.raises(StoreReadOnlyError, match="default_transaction_read_only"):
                    kit.record_commit(store, "j1")
                admin.execute(f"ALTER ROLE {role} RESET default_transaction_read_only".encode())
                end_connections(url)
                assert pay_all(executor, [1, 2]) == [DONE, DONE]
        finally:
            admin.execute(f"DROP ROLE {role}".encode())
    assert paid(world) == ["order 1", "order 2"]


# -------------------------------------------------------------------------------------- each write, under each fault

Write = Callable[[Store, SessionLock, EffectRow], object]

WRITES: dict[str, Write] = {
    "create": lambda store, _lock, _row: store.create(kit.session_row(kit.CLOCK, "new")),
    "fork": lambda store, _lock, _row: store.create(kit.fork_row(kit.CLOCK, "fork", "s1", 1)),
    "acquire": lambda store, _lock, _row: store.acquire("s2", wait=kit.NOW),
    "append": lambda store, lock, _row: kit.append(store, lock, 1, kit.entries(2, 2), None),
    "insert": lambda store, _lock, _row: kit.insert(store, kit.running_row(kit.CLOCK, "new")),
    "replace": lambda store, _lock, row: kit.replace(store, row, row._replace(status="unknown")),
    "delete": lambda store, _lock, row: kit.delete(store, row),
    "unit": lambda store, lock, row: store.apply(
        UnitOfWork((EffectChange(row, None), SessionAppend(lock, 1, tuple(kit.entries(2, 2))), RecordCommit("j1")))
    ),
    "commit record": lambda store, _lock, _row: kit.record_commit(store, "j1"),
    "remove_expired": lambda store, _lock, _row: store.remove_expired(kit.CLOCK.now()),
    "delete_session": lambda store, lock, _row: store.delete_session(lock),
}


@contextmanager
def another_version(url: str) -> Generator[type[StoreError]]:
    """Another Handrail changes the tables, and so their version."""
    for version in (TABLES_VERSION + 1, TABLES_VERSION):
        sql = f"UPDATE handrail_schema SET version = {version}"  # noqa: S608 - a number
        if url.startswith("sqlite"):
            with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as file, file:
                file.execute(sql)
        else:
            with psycopg.connect(url) as server:
                server.execute(sql.encode())
        if version != TABLES_VERSION:
            yield StoreVersionError


@contextmanager
def busy(url: str) -> Generator[type[StoreError]]:
    """Another process writes."""
    with kit.written(Path(url.removeprefix("sqlite:///"))):
        yield StoreUnavailableError


@contextmanager
def missing(url: str) -> Generator[type[StoreError]]:
    """The files have another place for a while."""
    path = Path(url.removeprefix("sqlite:///"))
    files = [path, *(path.with_name(f"{path.name}-{what}") for what in ("wal", "shm"))]
    for file in files:
        file.rename(f"{file}.away")
    yield StoreUnavailableError
    for file in files:
        Path(f"{file}.away").rename(file)


FAULTS: dict[str, Callable[[str], AbstractContextManager[type[StoreError]]]] = {
    "sqlite, busy": busy,
    "sqlite, missing": missing,
    "sqlite, another version": another_version,
    "postgres, another version": another_version,
}


def contents(store: Store) -> object:
    """Everything that a write changes."""
    listed = [*store.rows()], [*store.sessions()], [*store.entries("s1")] if store.find("s1") else None
    return listed, store.held_sessions(), store.is_committed("j1")


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("fault", FAULTS)
def test_write_that_fails_changes_nothing_and_may_be_repeated(tmp_path: Path, fault: str, write: str) -> None:
    """Whatever is written, and whatever keeps it from being written, until that has passed."""
    with ExitStack() as stack:
        is_file = fault.startswith("sqlite")
        url = f"sqlite:///{tmp_path}/desk.db" if is_file else stack.enter_context(fresh_url())
        store = stack.enter_context(handrail.store.open(url, busy=kit.NOW if is_file else timedelta(seconds=20)))
        lock, row = kit.held(store, kit.CLOCK), kit.running_row(kit.CLOCK)
        kit.append(store, lock, 0, kit.entries(1, 1), None)
        store.create(kit.session_row(kit.CLOCK, "s2"))
        kit.insert(store, row)
        kit.insert(store, kit.ended_row(kit.CLOCK, 1, expires=kit.NOW))
        before = contents(store)
        with FAULTS[fault](url) as error, pytest.raises(error):
            WRITES[write](store, lock, row)
        assert contents(store) == before
        WRITES[write](store, lock, row)
        assert contents(store) != before


def test_no_call_is_made_over_tables_whose_version_has_changed(url: str, tmp_path: Path, wording: Wording) -> None:
    """While the store was open; the error has both versions."""
    world = tmp_path / "world"
    with handrail.store.open(url) as store, Session.open(store, "desk") as session:
        executor = desk(session, world)
        assert pay_all(executor, FIRST) == [DONE] * 3
        with another_version(url):
            assert refusals(pay_all(executor, SECOND)) == wording
            with kit.refused(StoreVersionError, wording, store) as raised:
                kit.record_commit(store, "j1")
            assert (raised.value.version, raised.value.supported_version) == (TABLES_VERSION + 1, TABLES_VERSION)
    assert paid(world) == [f"order {order}" for order in FIRST]
