"""The lock of an owner in a file beside the database of SQLite: how it is made, tested, removed and lost."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from handrail.errors import StoreClosedError, StoreError, StoreReadOnlyError
from handrail.store import SqliteStore
from handrail.store.sqlite.owner import FileOwner
from handrail.testing import FakeClock
from tests.kit import raises
from tests.open_files import open_files
from tests.store.kit import NOBODY, NOW, delete, insert, running_row, session_row
from tests.store.processes import another_process, child
from tests.wording import Wording


@pytest.fixture
def url(tmp_path: Path) -> str:
    """The store of the owners."""
    return f"sqlite:///{tmp_path / 'desk.db'}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the locked files are; made by the first owner."""
    return tmp_path / "desk.db-holds"


@pytest.fixture
def owner(folder: Path) -> Generator[FileOwner]:
    """An owner in this process."""
    owner = made(folder)
    yield owner
    owner.close()


def made(folder: Path, *in_use: str) -> FileOwner:
    """One more store over the same file, in which some owners are named."""
    return FileOwner(folder, store="sqlite:///desk.db", in_use=lambda: in_use)


def files(folder: Path) -> list[Path]:
    """The files of owners."""
    return [*folder.iterdir()]


def test_lock_is_taken_once_and_given_up_with_its_file(owner: FileOwner, folder: Path) -> None:
    """A program that opens many files does not run out of descriptors; a store that is closed takes none again."""
    waits = [owner.own_waits]
    name = owner.own()
    assert (owner.own(), owner.name) == (name, name)
    assert [*waits, owner.own_waits] == [True, False]
    (file,) = files(folder)
    assert open_files().count(file) == 1
    owner.close()
    owner.close()
    assert (files(folder), open_files().count(file), made(folder).lives(name)) == ([], 0, None)
    with pytest.raises(StoreClosedError):
        owner.own()


def test_program_that_is_started_does_not_keep_the_owner_alive(owner: FileOwner, folder: Path, url: str) -> None:
    """The lock is not inherited by what a handler starts."""
    owner.own()
    (own,) = files(folder)
    with child(url) as other:  # started while this process holds its lock
        assert own in open_files()
        assert own not in open_files(other.pid)


def test_no_process_is_forked_off_while_a_lock_is_taken(
    owner: FileOwner, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would inherit a file that it does not know of, and keep it locked."""
    forking, ended = threading.Event(), list[int]()

    def fork() -> None:
        forked = os.fork()
        if forked == 0:  # pragma: no cover - another process, which leaves without a word to pytest
            os._exit(len({*files(folder)}.intersection(open_files())))
        ended.append(os.waitstatus_to_exitcode(os.waitpid(forked, 0)[1]))

    def lock(file: int, operation: int) -> None:
        if thread.ident is None:
            thread.start()
            assert forking.wait(60)
        flock(file, operation)

    flock, thread = fcntl.flock, threading.Thread(target=fork)
    os.register_at_fork(before=forking.set)  # the hook of the latest one is called first
    with monkeypatch.context() as patched:
        patched.setattr(fcntl, "flock", lock)
        owner.own()
    thread.join()
    assert ended == [0]


def test_missing_file_proves_nothing(owner: FileOwner, folder: Path, url: str) -> None:
    """Somebody may have removed it, or its folder, while the process runs; it is not dead for that."""
    with child(url) as other:
        shutil.rmtree(folder)
        assert owner.lives(other.name) is None
        other.kill()
        assert owner.lives(other.name) is None


def test_file_that_was_removed_is_made_again(owner: FileOwner, folder: Path) -> None:
    """At the next unit of work, with the lock; one that another program has put there is replaced."""
    name, other = owner.own(), made(folder)
    (file,) = files(folder)
    shutil.rmtree(folder)
    owner.restore()
    assert (owner.own(), other.lives(name), files(folder), open_files().count(file)) == (name, True, [file], 1)
    file.unlink()
    file.touch()
    assert other.lives(name) is False
    owner.restore()
    assert (owner.own(), other.lives(name)) == (name, True)
    shutil.rmtree(folder)
    folder.touch()
    owner.restore()  # a disk that does not take it keeps no unit from being written
    assert (owner.own(), other.lives(name)) == (name, None)


def test_files_of_dead_owners_are_removed_when_nothing_names_them(folder: Path, url: str) -> None:
    """By the next store that takes its lock; those of living owners stay."""
    with child(url) as alive, child(url) as killed, child(url) as named:
        killed.kill()
        named.kill()
        owner = made(folder, named.name)
        owner.own()
        assert len(files(folder)) == 3
        assert owner.lives(alive.name) is True
        assert owner.lives(named.name) is False
        assert owner.lives(killed.name) is None  # its file is gone, and nobody asks
        owner.close()


def test_files_of_owners_that_rows_name_stay(tmp_path: Path, folder: Path, url: str) -> None:
    """Those of running claims and of sessions that were not released: the next one who meets them asks."""
    clock = FakeClock()
    with SqliteStore(tmp_path / "desk.db", clock=clock) as store:
        store.create(session_row(clock))
    with child(url) as claims, another_process(url, "hold") as holds:
        claims.kill()
        holds.kill()
        holds.wait()
        with SqliteStore(tmp_path / "desk.db", clock=clock) as store:
            row = running_row(clock)
            row = row._replace(owner=row.owner._replace(process=claims.name))
            insert(store, row)
            store.process()
            assert len(files(folder)) == 3
            store.release(store.acquire("s1", wait=NOW))
            delete(store, row)
    with SqliteStore(tmp_path / "desk.db", clock=clock) as store:
        store.process()
        assert len(files(folder)) == 1


def test_what_is_in_use_is_read_after_the_locks(folder: Path, url: str) -> None:
    """An owner that claims and dies in between keeps its file: it was alive when the locks were looked at."""
    with child(url) as other, child(url) as dead:
        dead.kill()
        read: list[str] = []

        def in_use() -> list[str]:
            other.kill()
            read.append(other.name)
            return [other.name]

        owner = FileOwner(folder, store="sqlite:///desk.db", in_use=in_use)
        owner.own()
        assert read
        assert owner.lives(other.name) is False
        owner.close()


def test_lock_that_cannot_be_made_is_told(folder: Path, wording: Wording) -> None:
    """Where its folder cannot be: nothing could prove the death of the owner later."""
    folder.touch()
    with raises(StoreError, wording):
        made(folder).own()


def failing(number: int) -> Callable[..., int]:
    """In place of `os.open` on a disk that gives one error."""

    def open_file(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    return open_file


@pytest.mark.parametrize(
    "number, kind",
    [*product((errno.EROFS, errno.EACCES, errno.EPERM), [StoreReadOnlyError]), (errno.EMFILE, StoreError)],
)
def test_lock_where_nothing_can_be_written_is_told_from_other_failures(
    folder: Path, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[StoreError]
) -> None:
    """The disk is mounted for reading only, or the user lacks the rights."""
    monkeypatch.setattr(os, "open", failing(number))
    with pytest.raises(StoreError, match=r"sqlite:///desk\.db") as told:
        made(folder).own()
    assert type(told.value) is kind
    assert made(folder).lives("host - 1 0 x") is None


def test_store_that_may_only_be_read_takes_no_lock(folder: Path, url: str, wording: Wording) -> None:
    """It can claim and hold nothing; but it can tell who is dead."""
    reader = FileOwner(folder, store="sqlite:///desk.db", in_use=list, read_only=True)
    with raises(StoreReadOnlyError, wording):
        reader.own()
    assert not folder.exists()
    with child(url) as other:
        other.kill()
        assert reader.lives(other.name) is False
    reader.close()


@contextmanager
def out_of_reach(folder: Path) -> Generator[None]:
    """The files of a folder cannot be opened: for the superuser they are another user's."""
    is_superuser = os.geteuid() == 0
    folder.parent.chmod(0o755)
    for path in files(folder):
        path.chmod(0)
    folder.chmod(0o555)
    if is_superuser:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if is_superuser:
            os.seteuid(0)
        folder.chmod(0o755)
        for path in files(folder):
            path.chmod(0o600)


def test_file_that_cannot_be_opened_proves_nothing() -> None:
    """A session is opened all the same, and the lease of a claim is waited for."""
    with TemporaryDirectory() as place, child(f"sqlite:///{place}/desk.db") as other:
        folder = Path(place) / "desk.db-holds"
        other.kill()
        with out_of_reach(folder):
            assert made(folder).lives(other.name) is None
            with pytest.raises(StoreReadOnlyError):
                made(folder).own()
        assert made(folder).lives(other.name) is False
