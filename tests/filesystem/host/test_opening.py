"""Opening a folder as a filesystem, sharing it, and closing it."""

from __future__ import annotations

import errno
import gc
import os
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from handrail.errors import (
    FilesystemBusyError,
    FilesystemError,
    JournalError,
    RollbackError,
    RootMissingError,
)
from handrail.filesystem import HostFilesystem
from handrail.filesystem.disk import Disk
from handrail.filesystem.host.recovery import default_journal_folder
from tests.filesystem.calls import call
from tests.filesystem.disks import Nth, WatchedDisk, fail, picture
from tests.kit import raises
from tests.wording import Wording


def test_root_that_vanished_is_told_and_nothing_happens(fs: HostFilesystem, root: Path, wording: Wording) -> None:
    """Neither the folder that was moved away nor what stands in its place is touched; when it is back, all goes on."""
    away = root.with_name("away")
    root.rename(away)
    before = picture(away)
    with raises(RootMissingError, wording):
        fs.write_text("new", "x")
    root.mkdir()
    with raises(RootMissingError, wording):
        fs.read_text("data.bin")
    assert not list(root.iterdir())
    assert picture(away) == before
    root.rmdir()
    away.rename(root)
    fs.write_text("new", "x")


def test_root_that_vanishes_in_a_call_is_put_back_when_it_is_there_again(
    root: Path, tmp_path: Path, wording: Wording
) -> None:
    """The rollback says so, and the next opening does it."""
    before = picture(root)
    with HostFilesystem(root, journal=tmp_path / "journal") as fs, raises(RollbackError, wording), call(fs):
        fs.write_text("data.bin", "x")
        root.rename(root.with_name("away"))
    root.with_name("away").rename(root)
    HostFilesystem(root, journal=tmp_path / "journal").close()
    assert picture(root) == before


def test_root_must_be_a_folder(tmp_path: Path, wording: Wording) -> None:
    """The message says what to do; nothing is made."""
    with raises(RootMissingError, wording):
        HostFilesystem(tmp_path / "absent", journal=tmp_path / "journal")
    assert list(tmp_path.iterdir()) == []


def test_journal_is_kept_by_root_in_the_state_folder(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Below `XDG_STATE_HOME` if that is absolute, else in the home folder; and each root has its own."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    HostFilesystem(root).close()
    at = default_journal_folder(root, {"XDG_STATE_HOME": str(tmp_path / "state")})
    assert at.is_relative_to(tmp_path / "state" / "handrail" / "journals")
    assert (at / "root").read_bytes() == os.fsencode(root)
    home = default_journal_folder(root, {"XDG_STATE_HOME": "relative"})
    assert home.parts[-5:-1] == (".local", "state", "handrail", "journals")
    assert default_journal_folder(root / "notes", {}) != home


@pytest.mark.parametrize("inside", [".", "notes/journal"])
def test_journal_lies_outside_of_the_tree(root: Path, inside: str, wording: Wording) -> None:
    """Inside it would be listed, and changed by what it is to undo."""
    with raises(JournalError, wording):
        HostFilesystem(root, journal=root / inside)


def test_journal_folder_belongs_to_one_root(root: Path, tmp_path: Path, wording: Wording) -> None:
    """What one root left there is not undone in another."""
    HostFilesystem(root, journal=tmp_path / "journal").close()
    with raises(JournalError, wording):
        HostFilesystem(root / "notes", journal=tmp_path / "journal")


def test_journal_that_cannot_be_kept_is_told(root: Path, tmp_path: Path, wording: Wording) -> None:
    """Before anything is opened for work."""
    (tmp_path / "file").write_text("")
    with raises(JournalError, wording):
        HostFilesystem(root, journal=tmp_path / "file" / "journal")


class Watcher:
    """A clock that does something when it is asked for the second time.

    Attributes:
        act: what it does.
    """

    def __init__(self, act: Callable[[], object]) -> None:
        self.act = act
        self.asked = 0

    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC)

    def monotonic(self) -> float:
        self.asked += 1
        if self.asked == 2:
            self.act()
        return float(self.asked)


def test_second_filesystem_on_a_root_waits_and_is_then_refused(root: Path, tmp_path: Path, wording: Wording) -> None:
    """Two of them would undo each other's work; which process they are in makes no difference."""
    journal = tmp_path / "journal"
    first = HostFilesystem(root, journal=journal)
    with raises(FilesystemBusyError, wording):
        HostFilesystem(root, journal=journal, wait=timedelta(seconds=2), clock=Watcher(lambda: None))
    clock = Watcher(first.close)
    HostFilesystem(root, journal=journal, wait=timedelta(seconds=60), clock=clock).close()
    assert clock.asked == 2


def test_second_filesystem_with_another_journal_is_refused(root: Path, tmp_path: Path, wording: Wording) -> None:
    """It is the root that one filesystem at a time works on, by whatever path; and the refused one holds nothing."""
    one, other = tmp_path / "journal", tmp_path / "other"
    (tmp_path / "link").symlink_to(root)
    with HostFilesystem(root, journal=one):
        for path in (root, tmp_path / "link"):
            with raises(FilesystemBusyError, wording):
                HostFilesystem(path, journal=other, wait=timedelta(0))
    HostFilesystem(root, journal=other, wait=timedelta(0)).close()
    HostFilesystem(root, journal=one, wait=timedelta(0)).close()


@pytest.mark.parametrize(
    "folder, error", [("root", FilesystemBusyError), ("root/notes", JournalError)], ids=["busy", "of another root"]
)
def test_refused_opening_removes_nothing_from_the_folder_of_the_holder(
    root: Path, tmp_path: Path, folder: str, error: type[FilesystemError]
) -> None:
    """Only the holder of the lock cleans the journal's folder: a snapshot that it took before is restored after."""
    journal = tmp_path / "journal"
    with HostFilesystem(root, journal=journal) as fs:
        before, snapshot = picture(root), fs.snapshot()
        fs.write_text("notes/plan.md", "changed")
        held = sorted(journal.iterdir())
        with pytest.raises(error):
            HostFilesystem(tmp_path / folder, journal=journal, wait=timedelta(0))
        assert sorted(journal.iterdir()) == held
        fs.restore(snapshot)
        assert picture(root) == before


def test_journal_that_cannot_be_locked_is_told(root: Path, tmp_path: Path, wording: Wording) -> None:
    """As over a network; then the journal's folder alone keeps others away, which must be lockable."""

    class Unlockable(Disk):
        def append_file(self, name: bytes, *, at: int) -> int:
            return os.open(root, os.O_PATH)

    with raises(JournalError, wording):
        HostFilesystem(root, journal=tmp_path / "journal", disk=Unlockable())


def test_filesystem_that_was_dropped_lets_go_of_its_root(root: Path, tmp_path: Path) -> None:
    """Closing it is better, forgetting it no harm."""
    fs = HostFilesystem(root, journal=tmp_path / "journal")
    fs.write_text("new", "x")
    del fs
    gc.collect()
    HostFilesystem(root, journal=tmp_path / "journal", wait=timedelta(0)).close()


def test_closed_filesystem_does_nothing(fs: HostFilesystem, wording: Wording) -> None:
    """Closing twice is once."""
    fs.close()
    fs.close()
    for operation in (fs.list, lambda: fs.write_text("a", "x"), lambda: fs.read_text("data.bin")):
        with raises(FilesystemError, wording):
            operation()


def test_filesystem_is_not_closed_under_a_call(fs: HostFilesystem, wording: Wording) -> None:
    """The call could not be undone then."""
    with call(fs):
        fs.write_text("new", "x")
        with raises(FilesystemError, wording):
            fs.close()
    assert not fs.exists("new")


def test_forked_process_may_not_use_it_and_does_not_let_go_of_the_root(root: Path, tmp_path: Path) -> None:
    """What it asks is refused, and its end leaves the lock with the process that has it."""
    program = """
import os, sys
from datetime import UTC, datetime, timedelta
from handrail.errors import FilesystemError, FilesystemBusyError
from handrail.filesystem import HostFilesystem
fs = HostFilesystem(sys.argv[1], journal=sys.argv[2])
child = os.fork()
if not child:
    try:
        fs.list()
    except FilesystemError as error:
        fs.close()
        os._exit(0 if "forked" in str(error) else 1)
    os._exit(2)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
try:
    HostFilesystem(sys.argv[1], journal=sys.argv[2], wait=timedelta(0))
except FilesystemBusyError:
    fs.close()
    sys.exit(0)
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(root), str(tmp_path / "journal")],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


def test_disk_that_fails_at_the_opening_is_told_in_words(root: Path, tmp_path: Path, wording: Wording) -> None:
    """And nothing is left open."""
    disk = WatchedDisk(Nth(1, fail(errno.EIO), among=frozenset({"names"})))
    with raises(FilesystemError, wording):
        HostFilesystem(root, journal=tmp_path / "journal", disk=disk)
    HostFilesystem(root, journal=tmp_path / "journal", wait=timedelta(0)).close()
