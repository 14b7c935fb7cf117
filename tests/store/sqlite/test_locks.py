"""Locks between processes that share a folder: of bytes, and of files where a system does not have those."""

from __future__ import annotations

import errno
import os
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from subprocess import PIPE, Popen

import pytest

from handrail.errors import StoreError, StoreReadOnlyError
from handrail.posix import fcntl
from handrail.store.session_locks import LockBackend
from handrail.store.sqlite.locks import ByteLocks, SessionFileLocks, file_of_byte_locks, has_byte_locks, session_locks
from handrail.store.sqlite.process_locks import ProcessLocks
from tests.open_files import open_files
from tests.wording import Wording

URL = "sqlite:///desk.db"


def of_bytes(folder: Path) -> LockBackend:
    """The locks of one store, in the bytes of a file."""
    return session_locks(folder, file_of_byte_locks(folder), store=URL, read_only=False)


def of_files(folder: Path) -> LockBackend:
    """The locks of one store, each in a file."""
    return session_locks(folder, None, store=URL, read_only=False)


@pytest.fixture(params=[of_bytes, of_files])
def locks(request: pytest.FixtureRequest) -> Callable[[Path], LockBackend]:
    """Makes the locks of one store in a folder, one kind after the other."""
    make: Callable[[Path], LockBackend] = request.param
    return make


def test_lock_is_one_owners_until_it_is_given_up(tmp_path: Path, locks: Callable[[Path], LockBackend]) -> None:
    """Giving up what was not taken, or was lost, is not an error; a store does not lock a session twice."""
    folder = tmp_path / "holds"
    one, other = locks(folder), locks(folder)
    assert one.locked(["s1"]) == []
    assert one.lock("s1")
    assert not one.lock("s1")
    assert not other.lock("s1")
    assert other.lock("s2")
    assert (one.locked(["s1", "s2", "s3"]), other.locked(["s1", "s3"])) == (["s1", "s2"], ["s1"])
    one.unlock("s1")
    one.unlock("s1")
    assert other.lock("s1")
    other.close()
    assert one.lock("s2")
    one.close()
    assert one.locked(["s1", "s2"]) == []


HOLDER = """
import sys
from pathlib import Path
from handrail.store.sqlite.locks import file_of_byte_locks, session_locks
folder = Path(sys.argv[1])
bytes_of = file_of_byte_locks(folder) if sys.argv[2] == "of_bytes" else None
locks = session_locks(folder, bytes_of, store="", read_only=False)
print(locks.lock("s1"), flush=True)
sys.stdin.read()
"""


def test_lock_of_a_process_ends_when_it_is_killed(tmp_path: Path, locks: Callable[[Path], LockBackend]) -> None:
    """At once, however it ends; until then every other process is kept out."""
    folder = tmp_path / "holds"
    here = locks(folder)
    with Popen([sys.executable, "-c", HOLDER, folder, locks.__name__], stdin=PIPE, stdout=PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "True\n"
        assert not here.lock("s1")
        assert here.locked(["s1"]) == ["s1"]
        holder.kill()
        holder.wait()
        assert here.lock("s1")
    here.close()


def test_a_system_without_locks_of_bytes_has_locks_of_files(tmp_path: Path) -> None:
    """Linux has both."""
    assert has_byte_locks() == (file_of_byte_locks(tmp_path) is not None) == (sys.platform == "linux")
    assert type(of_files(tmp_path)) is SessionFileLocks


def test_locks_of_bytes_are_shared_or_of_one_owner(tmp_path: Path) -> None:
    """Any number of bytes is locked with one descriptor, in a file that stays empty."""
    path = tmp_path / "bytes"
    one, other = ByteLocks(path), ByteLocks(path)
    one.restore()
    assert (one.is_locked(0, 100), path.exists()) == (False, False)
    assert all(one.lock(byte) for byte in range(1000))
    assert one.lock(5000, shared=True)
    assert (open_files().count(path), path.stat().st_size) == (1, 0)
    assert (other.lock(5000), other.lock(5000, shared=True), other.lock(999)) == (False, True, False)
    one.unlock(999)
    one.unlock(999)
    assert (other.is_locked(0, 999), other.is_locked(999, 4001), other.is_locked(999, 0)) == (True, False, True)
    one.close()
    one.close()
    assert not other.is_locked(0, 0)
    other.close()


@pytest.mark.parametrize("make", [of_bytes, of_files])
def test_lock_that_cannot_be_made_is_told(
    tmp_path: Path, wording: Wording, make: Callable[[Path], LockBackend]
) -> None:
    """Where its folder cannot be."""
    (tmp_path / "holds").touch()
    with pytest.raises(StoreError) as raised:
        make(tmp_path / "holds").lock("s1")
    assert str(raised.value) == wording


def test_a_file_that_no_process_has_locked_is_free_or_is_not_a_lock(tmp_path: Path) -> None:
    """As a process leaves it that was killed, or as another program has written it."""
    locks = of_files(tmp_path)
    assert locks.lock("s1")
    (file,) = tmp_path.iterdir()
    locks.close()
    file.touch()
    assert not locks.locked(["s1"])
    file.write_text("text" * 200)
    with pytest.raises(StoreError):
        locks.lock("s1")
    with pytest.raises(StoreReadOnlyError):
        SessionFileLocks(tmp_path, store=URL, read_only=True).lock("s2")


def failing(number: int) -> Callable[..., int]:
    """In place of `os.open` on a disk that gives one error."""

    def open_file(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    return open_file


@pytest.mark.parametrize(
    "number, kind",
    [
        (errno.EROFS, StoreReadOnlyError),
        (errno.EACCES, StoreReadOnlyError),
        (errno.EPERM, StoreReadOnlyError),
        (errno.EMFILE, StoreError),
    ],
)
def test_lock_where_nothing_can_be_written_is_told_from_other_failures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[StoreError]
) -> None:
    """The disk is mounted for reading only, or the user lacks the rights: to sessions and to claims alike."""
    processes = ProcessLocks(tmp_path, store=URL)
    sessions = [of_bytes(tmp_path), of_files(tmp_path)]
    monkeypatch.setattr(os, "open", failing(number))
    takes: list[Callable[[], object]] = [lambda: processes.own(list)]
    takes += [partial(each.lock, "s1") for each in sessions]
    for take in takes:
        with pytest.raises(StoreError, match=r"sqlite:///desk\.db") as told:
            take()
        assert type(told.value) is kind
    assert sessions[0].locked(["s1"]) == ()


def test_process_that_is_forked_off_leaves_the_locks_behind(tmp_path: Path) -> None:
    """It gives its copies back, so that the locks die with the process that took them."""
    one, other = ByteLocks(tmp_path / "bytes"), ByteLocks(tmp_path / "bytes")
    assert one.lock(1)
    one.forget()
    assert other.lock(1)
    assert not one.lock(1)
    one.close()
    other.close()


def test_no_process_is_forked_off_while_a_lock_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would inherit a file that it does not know of, and keep it locked."""
    forking, ended = threading.Event(), list[int]()

    def fork() -> None:
        child = os.fork()
        if child == 0:  # pragma: no cover - another process, which leaves without a word to pytest
            os._exit(open_files().count(tmp_path / "bytes"))
        ended.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

    def lock(file: int, operation: int, flock: bytes) -> object:
        thread.start()
        assert forking.wait(60)
        return set_lock(file, operation, flock)

    set_lock, thread = fcntl.fcntl, threading.Thread(target=fork)
    one = ByteLocks(tmp_path / "bytes")
    os.register_at_fork(before=forking.set)  # the hook of the latest one is called first
    with monkeypatch.context() as patched:
        patched.setattr(fcntl, "fcntl", lock)
        assert one.lock(1)
    thread.join()
    assert ended == [0]
    one.close()


def test_folder_that_is_gone_is_no_fault_for_who_gives_up(tmp_path: Path, locks: Callable[[Path], LockBackend]) -> None:
    """Somebody has tidied up; what is locked later is made anew, and what was held is held there, too."""
    folder = tmp_path / "holds"
    one = locks(folder)
    assert one.lock("s1")
    next(folder.iterdir()).unlink()
    folder.rmdir()
    assert one.lock("s2")
    other = locks(folder)
    assert not other.lock("s2")
    one.unlock("s1")
    one.unlock("s2")
    assert other.lock("s2")
    one.close()
    other.close()
