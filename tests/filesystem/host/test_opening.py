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

from handrail.errors import FilesystemBusyError, FilesystemError, JournalError, RollbackError, RootMissingError
from handrail.filesystem import HostFilesystem
from handrail.filesystem.disk import Disk
from handrail.filesystem.host.recovery import default_journal_folder
from tests.filesystem.kit import PlantedTree, WatchedDisk, call, picture
from tests.kit import raises
from tests.wording import Wording

AT_ONCE = timedelta(0)


def test_root_that_vanished_is_told_and_nothing_happens(
    fs: HostFilesystem, tree: PlantedTree, wording: Wording
) -> None:
    """Neither the folder that was moved away nor what stands in its place is touched; when it is back, all goes on."""
    away = tree.root.rename(tree.root.with_name("away"))
    with raises(RootMissingError, wording):
        fs.write_text("new", "x")
    tree.root.mkdir()
    with raises(RootMissingError, wording):
        fs.read_text("data.bin")
    assert not list(tree.root.iterdir())
    assert picture(away) == tree.before
    tree.root.rmdir()
    away.rename(tree.root)
    fs.write_text("new", "x")


def test_root_that_vanishes_in_a_call_is_put_back_when_it_is_there_again(tree: PlantedTree, wording: Wording) -> None:
    """The rollback says so, and the next opening does it."""
    with tree.open() as fs, raises(RollbackError, wording), call(fs):
        fs.write_text("data.bin", "x")
        away = tree.root.rename(tree.root.with_name("away"))
    away.rename(tree.root)
    tree.reopen()
    assert tree.now == tree.before


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


def test_journal_folder_belongs_to_one_root(tree: PlantedTree, wording: Wording) -> None:
    """What one root left there is not undone in another; the file `root` that a crash left empty is of no root."""
    tree.journal.mkdir()
    (tree.journal / "root").touch()
    tree.reopen()
    assert (tree.journal / "root").read_bytes() == os.fsencode(tree.root)
    with raises(JournalError, wording):
        HostFilesystem(tree.root / "notes", journal=tree.journal)
    tree.reopen()


def test_journal_that_cannot_be_kept_is_told(root: Path, tmp_path: Path, wording: Wording) -> None:
    """Before anything is opened for work."""
    (tmp_path / "file").write_text("")
    with raises(JournalError, wording):
        HostFilesystem(root, journal=tmp_path / "file" / "journal")


class Watcher:
    """A clock that does something when it is asked for the second time."""

    def __init__(self, act: Callable[[], object]) -> None:
        self.act = act
        self.readings = 0

    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC)

    def monotonic(self) -> float:
        self.readings += 1
        if self.readings == 2:
            self.act()
        return float(self.readings)


def test_second_filesystem_on_a_root_waits_and_is_then_refused(tree: PlantedTree, wording: Wording) -> None:
    """Two of them would undo each other's work; which process they are in makes no difference."""
    first = tree.open()
    with raises(FilesystemBusyError, wording):
        tree.open(wait=timedelta(seconds=2), clock=Watcher(lambda: None))
    clock = Watcher(first.close)
    tree.reopen(wait=timedelta(seconds=60), clock=clock)
    assert clock.readings == 2


def test_second_filesystem_with_another_journal_is_refused(tree: PlantedTree, wording: Wording) -> None:
    """It is the root that one filesystem at a time works on, by whatever path; and the refused one holds nothing."""
    other, link = tree.root.with_name("other"), tree.root.with_name("link")
    link.symlink_to(tree.root)
    with tree.open():
        for path in (tree.root, link):
            with raises(FilesystemBusyError, wording):
                HostFilesystem(path, journal=other, wait=AT_ONCE)
    HostFilesystem(tree.root, journal=other, wait=AT_ONCE).close()
    tree.reopen(wait=AT_ONCE)


@pytest.mark.parametrize(
    "folder, error", [("root", FilesystemBusyError), ("root/notes", JournalError)], ids=["busy", "of another root"]
)
def test_refused_opening_removes_nothing_from_the_folder_of_the_holder(
    tree: PlantedTree, folder: str, error: type[FilesystemError]
) -> None:
    """Only the holder of the lock cleans the journal's folder: a snapshot that it took before is restored after."""
    with tree.open() as fs:
        snapshot = fs.snapshot()
        fs.write_text("notes/plan.md", "changed")
        files = sorted(tree.journal.iterdir())
        with pytest.raises(error):
            HostFilesystem(tree.root.parent / folder, journal=tree.journal, wait=AT_ONCE)
        assert sorted(tree.journal.iterdir()) == files
        fs.restore(snapshot)
        assert tree.now == tree.before


def test_journal_that_cannot_be_locked_is_told(tree: PlantedTree, wording: Wording) -> None:
    """As over a network; then the journal's folder alone keeps others away, which must be lockable."""

    class Unlockable(Disk):
        def append_file(self, name: bytes, *, at: int) -> int:
            return os.open(tree.root, os.O_PATH)

    with raises(JournalError, wording):
        tree.open(disk=Unlockable())


def test_filesystem_that_was_dropped_lets_go_of_its_root(tree: PlantedTree) -> None:
    """Closing it is better, forgetting it no harm."""
    fs = tree.open()
    fs.write_text("new", "x")
    del fs
    gc.collect()
    tree.reopen(wait=AT_ONCE)


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


_FORKING = """
import os, sys
from datetime import timedelta
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
sys.exit(3)
"""


def test_forked_process_may_not_use_it_and_does_not_let_go_of_the_root(tree: PlantedTree) -> None:
    """What it asks is refused, and its end leaves the lock with the process that has it."""
    line = [sys.executable, "-c", _FORKING, str(tree.root), str(tree.journal)]
    done = subprocess.run(line, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_disk_that_fails_at_the_opening_is_told_in_words(tree: PlantedTree, wording: Wording) -> None:
    """And nothing is left open."""
    disk = WatchedDisk()
    disk.fail(errno.EIO, "names")
    with raises(FilesystemError, wording):
        tree.open(disk=disk)
    tree.reopen(wait=AT_ONCE)
