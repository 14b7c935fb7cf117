"""What proves the death of a process that has claimed effects in a file, with real processes and real kills."""

from __future__ import annotations

import fcntl
import os
import shutil
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from handrail.errors import StoreError, StoreReadOnlyError
from handrail.process_identity import own_name
from handrail.store import SqliteStore
from handrail.store.sqlite import process_locks
from handrail.store.sqlite.process_locks import ProcessLocks
from handrail.testing import FakeClock
from tests.open_files import open_files
from tests.store.ledger_stores import running_row
from tests.store.process_child import child
from tests.store.sqlite_files import NOBODY
from tests.store.units import insert, replace
from tests.wording import Wording


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the locked files are; made by the first process."""
    return tmp_path / "desk.db-holds"


@pytest.fixture
def locks(folder: Path) -> Generator[ProcessLocks]:
    """What this process knows of those that use the file."""
    locks = made(folder)
    yield locks
    locks.close()


def made(folder: Path) -> ProcessLocks:
    """One more store over the same file."""
    return ProcessLocks(folder, store="sqlite:///desk.db")


def files(folder: Path) -> int:
    """How many processes have a file."""
    return len(list(folder.iterdir()))


def test_process_that_was_killed_is_dead(locks: ProcessLocks, folder: Path) -> None:
    """The kernel frees its lock, also while it is a zombie."""
    with child(folder) as other:
        assert locks.lives(other.name) is True
        other.kill(reaped=False)
        assert locks.lives(other.name) is False


def test_process_that_was_stopped_is_alive(locks: ProcessLocks, folder: Path) -> None:
    """It may go on."""
    with child(folder) as other:
        other.stop()
        assert locks.lives(other.name) is True


def test_process_that_is_forked_off_does_not_keep_its_parent_alive(locks: ProcessLocks, folder: Path) -> None:
    """It closes what it inherited, and takes a lock of its own."""
    with child(folder) as other:
        forked = other.fork()
        other.kill()
        assert locks.lives(other.name) is False
        assert locks.lives(forked) is True


def test_program_that_is_started_does_not_keep_its_parent_alive(locks: ProcessLocks, folder: Path) -> None:
    """The locks are not inherited by what a handler starts."""
    name = locks.own(list)
    with child(folder) as other:  # started while this process holds its lock
        assert made(folder).lives(name) is None
        (own,) = {*folder.iterdir()}.intersection(open_files())
        assert own not in open_files(other.pid)


def test_this_process_has_one_lock_for_all_its_stores(locks: ProcessLocks, folder: Path) -> None:
    """A second store over the same file takes no second lock. Which claims of its own live, its ledgers know."""
    waits = [locks.own_waits]
    name = locks.own(list)
    other = made(folder)
    assert [*waits, locks.own_waits] == [True, False]
    assert other.lives(name) is None
    assert other.own(list) == name == locks.own(list)
    assert files(folder) == 1
    other.close()
    assert files(folder) == 1  # the first store relies on it
    with child(folder) as observer:
        assert observer.name != name
        assert locks.lives(name) is None


def test_lock_is_given_up_with_the_last_store(folder: Path) -> None:
    """A program that opens many files does not run out of descriptors."""
    first, last = made(folder), made(folder)
    first.own(list)
    last.own(list)
    first.close()
    assert files(folder) == 1
    last.close()
    assert files(folder) == 0


def test_missing_file_proves_nothing(locks: ProcessLocks, folder: Path) -> None:
    """Somebody may have removed it, or its folder, while the process runs; it is not dead for that."""
    with child(folder) as other:
        shutil.rmtree(folder)
        assert locks.lives(other.name) is None
        other.kill()
        assert locks.lives(other.name) is None
    assert locks.own(list)
    assert files(folder) == 1


def test_folder_that_is_gone_is_no_fault_for_who_closes(folder: Path) -> None:
    """The lock is given up all the same, and taken anew the next time."""
    locks = made(folder)
    name = locks.own(list)
    shutil.rmtree(folder)
    locks.close()
    assert locks.own(list) == name
    assert files(folder) == 1
    locks.close()


def test_files_of_dead_processes_are_removed_when_no_claim_names_them(folder: Path) -> None:
    """By the next process that claims something; those of live processes stay."""
    with child(folder) as alive, child(folder) as killed, child(folder) as named:
        killed.kill()
        named.kill()
        locks = made(folder)
        locks.own(lambda: [named.name])
        assert files(folder) == 3
        assert locks.lives(alive.name) is True
        assert locks.lives(named.name) is False
        assert locks.lives(killed.name) is None  # its file is gone, and nobody asks
        locks.close()


def test_claims_are_read_after_the_locks(folder: Path) -> None:
    """A process that claims and dies in between keeps its file: it was alive when the locks were looked at."""
    with child(folder) as other, child(folder) as dead:
        dead.kill()
        read: list[str] = []

        def in_use() -> list[str]:
            other.kill()
            read.append(other.name)
            return [other.name]

        locks = made(folder)
        locks.own(in_use)
        assert read
        assert locks.lives(other.name) is False
        locks.close()


def test_name_that_is_none_proves_nothing(locks: ProcessLocks, folder: Path) -> None:
    """As in a row that was written by hand; nor does a name that stands in no file."""
    locks.own(list)
    for name in ("", "host - 1 0", str(own_name()._replace(pid=1))):
        assert locks.lives(name) is None


def test_lock_that_cannot_be_made_is_told(folder: Path, wording: Wording) -> None:
    """Where its folder cannot be: nothing could prove the death of the process later."""
    folder.touch()
    with pytest.raises(StoreError) as raised:
        made(folder).own(list)
    assert str(raised.value) == wording


def test_store_that_may_only_be_read_takes_no_lock(folder: Path) -> None:
    """It can claim nothing; but it can tell who is dead."""
    locks = ProcessLocks(folder, store="sqlite:///desk.db", read_only=True)
    assert locks.own(list) == str(own_name())
    assert not folder.exists()
    with child(folder) as other:
        other.kill()
        assert locks.lives(other.name) is False
    locks.close()


@contextmanager
def out_of_reach(folder: Path) -> Generator[None]:
    """The files of a folder cannot be opened: for the superuser they are another user's, for others without rights."""
    files_in = [*folder.iterdir()]
    is_superuser = os.geteuid() == 0
    folder.parent.chmod(0o755)
    if is_superuser:
        os.seteuid(NOBODY)
    else:
        for path in files_in:
            path.chmod(0)
        folder.chmod(0o555)
    try:
        yield
    finally:
        if is_superuser:
            os.seteuid(0)
        else:
            folder.chmod(0o755)
            for path in files_in:
                path.chmod(0o600)


def test_file_of_another_user_proves_nothing() -> None:
    """It cannot be opened; a session is opened all the same, and the lease is waited for."""
    with TemporaryDirectory() as place, child(Path(place) / "desk.db-holds") as other:
        folder = Path(place) / "desk.db-holds"
        other.kill()
        with out_of_reach(folder):
            assert made(folder).lives(other.name) is None
            with pytest.raises(StoreReadOnlyError):
                made(folder).own(list)
        assert made(folder).lives(other.name) is False


@pytest.mark.parametrize("ends", [True, False])
def test_store_that_is_closed_gives_up_its_running_claims_and_the_lock(tmp_path: Path, ends: bool) -> None:
    """The rows name no process any more, so that their leases decide."""
    clock = FakeClock()
    with SqliteStore(tmp_path / "desk.db", clock=clock) as store:
        row = running_row(clock)
        row = row._replace(owner=row.owner._replace(process=store.process()))
        insert(store, row)
        if ends:
            assert replace(store, row, row._replace(status="done", lease_until=None, completed_at=clock.now()))
    assert list((tmp_path / "desk.db-holds").glob("process-*")) == []
    with SqliteStore(tmp_path / "desk.db", clock=clock) as store:
        (left,) = store.rows()
    assert (left.status == "running", left.owner.process == "") == (not ends, not ends)


@pytest.fixture
def tested(folder: Path) -> Generator[int]:
    """The descriptor of a file of this process that another one tests at this moment: it has a shared lock."""
    locks = made(folder)
    locks.own(list)
    [path] = folder.iterdir()
    locks.close()
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(file, fcntl.LOCK_SH)
    yield file
    os.close(file)


def test_process_waits_while_another_one_tests_its_lock(folder: Path, tested: int) -> None:
    """A test takes a moment."""
    threading.Timer(0.01, fcntl.flock, (tested, fcntl.LOCK_UN)).start()
    locks = made(folder)
    assert locks.own(list) == str(own_name())
    locks.close()


def test_lock_that_stays_taken_is_told(
    folder: Path, tested: int, monkeypatch: pytest.MonkeyPatch, wording: Wording
) -> None:
    """No effect is claimed then."""
    monkeypatch.setattr(process_locks, "_MOST_SECONDS", 0.0)
    with pytest.raises(StoreError) as raised:
        made(folder).own(list)
    assert str(raised.value) == wording
