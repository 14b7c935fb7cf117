"""Locks between processes that share a folder."""

from __future__ import annotations

import errno
import fcntl
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from handrail.errors import StoreError, StoreReadOnlyError
from handrail.store.sqlite.locks import FileLocks
from handrail.store.sqlite.process_locks import ProcessLocks
from tests.wording import Wording


def locks(folder: Path) -> FileLocks:
    """The locks of one store in a folder."""
    return FileLocks(folder, store="sqlite:///desk.db")


def test_lock_is_one_owners_until_it_is_given_up(tmp_path: Path) -> None:
    """Giving up what was not taken, or was lost, is no fault."""
    folder = tmp_path / "holds"
    one, other = locks(folder), locks(folder)
    assert one.lock("s1")
    assert not other.lock("s1")
    assert other.lock("s2")
    one.unlock("s1")
    one.unlock("s1")
    assert other.lock("s1")
    other.close()
    assert list(folder.iterdir()) == []


def test_lock_that_cannot_be_made_is_told(tmp_path: Path, wording: Wording) -> None:
    """Where its folder cannot be."""
    (tmp_path / "holds").touch()
    with pytest.raises(StoreError) as raised:
        locks(tmp_path / "holds").lock("s1")
    assert str(raised.value) == wording


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
    sessions, processes = locks(tmp_path), ProcessLocks(tmp_path, store="sqlite:///desk.db")
    monkeypatch.setattr(os, "open", failing(number))
    for take in (lambda: sessions.lock("s1"), lambda: processes.own(list)):
        with pytest.raises(StoreError, match=r"sqlite:///desk\.db") as told:
            take()
        assert type(told.value) is kind


def test_process_that_is_forked_off_leaves_the_locks_behind(tmp_path: Path) -> None:
    """It gives its copies back, so that the locks die with the process that took them."""
    folder = tmp_path / "holds"
    one, other = locks(folder), locks(folder)
    assert one.lock("s1")
    one.forget()
    assert other.lock("s1")
    one.close()
    assert not one.lock("s1")
    other.close()


def test_no_process_is_forked_off_while_a_lock_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would inherit a file that it does not know of, and keep it locked."""
    forking, ended = threading.Event(), list[int]()

    def fork() -> None:
        child = os.fork()
        if child == 0:  # pragma: no cover - another process, which leaves without a word to pytest
            found = {path.stat().st_ino for path in Path("/proc/self/fd").iterdir() if path.exists()}
            os._exit(len({path.stat().st_ino for path in folder.iterdir()} & found))
        ended.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

    def lock(file: int, operation: int) -> None:
        flock(file, operation)
        thread.start()
        assert forking.wait(60)

    folder, flock, thread = tmp_path / "holds", fcntl.flock, threading.Thread(target=fork)
    one = locks(folder)
    os.register_at_fork(before=forking.set)  # the hook of the latest one is called first
    with monkeypatch.context() as patched:
        patched.setattr(fcntl, "flock", lock)
        assert one.lock("s1")
    thread.join()
    assert ended == [0]
    one.close()


def test_folder_that_is_gone_is_no_fault_for_who_gives_up(tmp_path: Path) -> None:
    """Somebody has tidied up."""
    folder = tmp_path / "holds"
    one = locks(folder)
    assert one.lock("s1")
    next(folder.iterdir()).unlink()
    folder.rmdir()
    one.unlock("s1")
    assert one.lock("s1")
    one.close()
