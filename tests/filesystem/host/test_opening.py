"""A folder as a filesystem: opening, sharing, closing; names, permissions, owners, special files, the part shown."""

from __future__ import annotations

import errno
import os
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Generator
from datetime import timedelta
from pathlib import Path

import pytest

from handrail import errors
from handrail.filesystem import FileStart, FileStat, HostFilesystem
from handrail.filesystem.disk import Disk
from handrail.filesystem.host.recovery import default_journal_folder
from handrail.filesystem.path_filters import NotIncluded
from handrail.testing import FakeClock
from tests.filesystem.kit import Nth, PlantedTree, WatchedDisk, call, fail, picture, unchanged
from tests.kit import raises
from tests.wording import Wording

AT_ONCE = timedelta(0)


def test_root_that_vanished_is_told(fs: HostFilesystem, tree: PlantedTree, wording: Wording) -> None:
    """Neither the folder that was moved away nor what stands in its place is touched; when it is back, all goes on."""
    away = tree.root.rename(tree.root.with_name("away"))
    with raises(errors.RootMissingError, wording):
        fs.write_text("new", "x")
    tree.root.mkdir()
    with raises(errors.RootMissingError, wording):
        fs.read_text("data.bin")
    assert not list(tree.root.iterdir())
    assert picture(away) == tree.before
    tree.root.rmdir()
    away.rename(tree.root)
    fs.write_text("new", "x")


def test_root_that_vanishes_in_a_call_is_put_back_when_it_is_there_again(tree: PlantedTree, wording: Wording) -> None:
    """The rollback says so, and the next opening does it."""
    with tree.open() as fs, raises(errors.RollbackError, wording), call(fs):
        fs.write_text("data.bin", "x")
        away = tree.root.rename(tree.root.with_name("away"))
    away.rename(tree.root)
    tree.reopen()
    assert tree.now == tree.before


def test_root_must_be_a_folder(tmp_path: Path, wording: Wording) -> None:
    """The message says what to do; nothing is made."""
    with raises(errors.RootMissingError, wording):
        HostFilesystem(tmp_path / "absent", journal=tmp_path / "journal")
    assert list(tmp_path.iterdir()) == []


def test_journals_are_in_the_state_folder(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    with raises(errors.JournalError, wording):
        HostFilesystem(root, journal=root / inside)


def test_journal_folder_belongs_to_one_root(tree: PlantedTree, wording: Wording) -> None:
    """What one root left there is not undone in another; the file `root` that a crash left empty is of no root."""
    tree.journal.mkdir()
    (tree.journal / "root").touch()
    tree.reopen()
    assert (tree.journal / "root").read_bytes() == os.fsencode(tree.root)
    with raises(errors.JournalError, wording):
        HostFilesystem(tree.root / "notes", journal=tree.journal)
    tree.reopen()


def test_journal_that_cannot_be_kept_is_told(root: Path, tmp_path: Path, wording: Wording) -> None:
    """Before anything is opened for work."""
    (tmp_path / "file").write_text("")
    with raises(errors.JournalError, wording):
        HostFilesystem(root, journal=tmp_path / "file" / "journal")


class Watcher(FakeClock):
    """A clock that does something when it is asked for the second time."""

    act: Callable[[], object] = bool
    readings = 0

    def monotonic(self) -> float:
        self.readings += 1
        if self.readings == 2:
            self.act()
        return float(self.readings)


def test_second_filesystem_on_a_root_waits_and_is_then_refused(tree: PlantedTree, wording: Wording) -> None:
    """Two of them would undo each other's work; which process they are in makes no difference."""
    first = tree.open()
    with raises(errors.FilesystemBusyError, wording):
        tree.open(wait=timedelta(seconds=2), clock=Watcher())
    clock = Watcher()
    clock.act = first.close
    tree.reopen(wait=timedelta(seconds=60), clock=clock)
    assert clock.readings == 2


def test_second_filesystem_with_another_journal_is_refused(tree: PlantedTree, wording: Wording) -> None:
    """It is the root that one filesystem at a time works on, by whatever path; and the refused one holds nothing."""
    other, link = tree.root.with_name("other"), tree.root.with_name("link")
    link.symlink_to(tree.root)
    with tree.open():
        for path in (tree.root, link):
            with raises(errors.FilesystemBusyError, wording):
                HostFilesystem(path, journal=other, wait=AT_ONCE)
    HostFilesystem(tree.root, journal=other, wait=AT_ONCE).close()
    tree.reopen(wait=AT_ONCE)


@pytest.mark.parametrize(
    "folder, error",
    [("root", errors.FilesystemBusyError), ("root/notes", errors.JournalError)],
    ids=["busy", "of another root"],
)
def test_refused_opening_leaves_the_journal_alone(
    tree: PlantedTree, folder: str, error: type[errors.FilesystemError]
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

    with raises(errors.JournalError, wording):
        tree.open(disk=Unlockable())


def test_closed_filesystem_does_nothing(fs: HostFilesystem, wording: Wording) -> None:
    """Closing twice is once."""
    fs.close()
    fs.close()
    for operation in (fs.list, lambda: fs.write_text("a", "x"), lambda: fs.read_text("data.bin")):
        with raises(errors.FilesystemError, wording):
            operation()


def test_filesystem_is_not_closed_under_a_call(fs: HostFilesystem, wording: Wording) -> None:
    """The call could not be undone then."""
    with call(fs):
        fs.write_text("new", "x")
        with raises(errors.FilesystemError, wording):
            fs.close()
    assert not fs.exists("new")


_FORKING = """
import os, sys
from handrail.errors import FilesystemError
from handrail.filesystem import HostFilesystem
fs = HostFilesystem(sys.argv[1], journal=sys.argv[2])
child = os.fork()
if child:
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print("on", flush=True)
    input()
    sys.exit(code)
try:
    fs.list()
except FilesystemError as error:
    fs.close()
    os._exit("forked" not in str(error))
"""


def test_forked_process_may_not_use_it_and_does_not_let_go_of_the_root(tree: PlantedTree) -> None:
    """What it asks is refused, and its end leaves the lock with the process that has it."""
    line = [sys.executable, "-c", _FORKING, str(tree.root), str(tree.journal)]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"on\n"
        with pytest.raises(errors.FilesystemBusyError):
            tree.open(wait=AT_ONCE)
        process.communicate(b"\n")
    assert process.returncode == 0


def test_disk_that_fails_at_the_opening_is_told_in_words(tree: PlantedTree, wording: Wording) -> None:
    """And nothing is left open."""
    disk = WatchedDisk()
    disk.fail(errno.EIO, "names")
    with raises(errors.FilesystemError, wording):
        tree.open(disk=disk)
    tree.reopen(wait=AT_ONCE)


Operation = Callable[[HostFilesystem], object]


def test_name_that_is_no_utf8_can_be_used_everywhere(fs: HostFilesystem, tree: PlantedTree) -> None:
    """It is listed, read, written, moved, found and removed by its spelling, and undone to the byte."""
    snapshot = fs.snapshot()
    assert "caf␛E9" in [stat.path for stat in fs.list()]
    assert [stat.path for stat in fs.glob("caf*")] == ["caf␛E9"]
    assert fs.read_text("caf␛E9") == "latin"
    fs.write_text("caf␛E9", "changed")
    fs.move("caf␛E9", "new/␛FF")
    assert [os.fsencode(path.name) for path in (tree.root / "new").iterdir()] == [b"\xff"]
    fs.remove("new/␛FF")
    fs.restore(snapshot)
    assert tree.now == tree.before


def test_replaced_file_keeps_its_permissions_and_a_new_one_gets_the_usual(fs: HostFilesystem, root: Path) -> None:
    """A script stays executable; the mask of the process holds for what is new."""
    fs.write_text("notes/run.sh", "echo")
    assert stat.S_IMODE((root / "notes/run.sh").stat().st_mode) == 0o750
    mask = os.umask(0o027)
    try:
        fs.write_text("new", "x")
    finally:
        os.umask(mask)
    assert stat.S_IMODE((root / "new").stat().st_mode) == 0o640


def test_write_leaves_the_other_names_of_a_file_alone(fs: HostFilesystem, root: Path) -> None:
    """A hard link is another file to the model, and becomes one."""
    fs.write_text("data.bin", "changed")
    assert (root / "twin").read_bytes() == bytes(range(256)) * 10


def test_large_file_is_identified_without_being_read(tree: PlantedTree) -> None:
    """By size, time and inode: a change of any of them is another identity, and no byte of it is read."""
    large, reads, size = tree.root / "large", Nth(1, lambda: None, among=frozenset({"chunks", "start"})), 4 << 30

    def exchange() -> None:
        large.rename(tree.root / "aside")
        large.touch()
        os.truncate(large, size + 1)

    large.touch()
    os.truncate(large, size)
    with tree.open(disk=WatchedDisk(reads)) as fs:
        identities = {fs.identity("large")}
        changes: tuple[Callable[[], object], ...] = (lambda: 0, lambda: os.truncate(large, size + 1), exchange)
        for change in changes:
            change()
            os.utime(large, ns=(1, 1))
            identities.add(fs.identity("large"))
        assert len(identities) == 4
        assert all(len(identity) < 64 for identity in identities)
        assert not reads.seen
        assert fs.read_start("large", 2) == FileStart(b"\0\0", size + 1)


SPECIAL: dict[str, Operation] = {
    "read": lambda fs: fs.read_bytes("odd/fifo"), "read the start": lambda fs: fs.read_start("odd/fifo", 1),
    "identify": lambda fs: fs.identity("odd/fifo"), "read a socket": lambda fs: fs.read_bytes("odd/socket"),
    "write": lambda fs: fs.write_text("odd/fifo", "x"), "remove": lambda fs: fs.remove("odd/fifo"),
    "remove around": lambda fs: fs.remove("odd", recursive=True), "move": lambda fs: fs.move("odd/fifo", "fifo"),
    "move around": lambda fs: fs.move("odd", "other"),
}  # fmt: skip


@pytest.mark.parametrize("operation", SPECIAL.values(), ids=SPECIAL)
def test_special_files_stay(
    fs: HostFilesystem, root: Path, monkeypatch: pytest.MonkeyPatch, operation: Operation, wording: Wording
) -> None:
    """A fifo would block whoever reads it, and none could be put back."""
    (root / "odd").mkdir()
    os.mkfifo(root / "odd" / "fifo")
    monkeypatch.chdir(root)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("odd/socket")
        with unchanged(picture, root), raises(errors.PathConflictError, wording):
            operation(fs)
        assert fs.list("odd") == (FileStat("odd/fifo", "special", 0), FileStat("odd/socket", "special", 0))


@pytest.mark.parametrize("may_give", [True, False])
def test_replaced_file_keeps_its_owner_if_the_process_may_give_files_away(tree: PlantedTree, *, may_give: bool) -> None:
    """If it may not, the file loses the right to run as its owner."""
    owners = list[tuple[int, int]]()

    class Theirs(WatchedDisk):
        def give(self, descriptor: int, owner: tuple[int, int]) -> None:
            owners.append(owner)
            if not may_give:
                fail(errno.EPERM)()
            super().give(descriptor, (-1, -1))

        def look(self, name: bytes, *, at: int) -> os.stat_result | None:
            status = super().look(name, at=at)
            return status if status is None else os.stat_result((*status[:4], 4242, *status[5:]))

    path = tree.root / "notes/run.sh"
    path.chmod(0o4755)
    with tree.open(disk=Theirs()) as fs:
        fs.write_text("notes/run.sh", "x")
    assert owners == [(4242, path.stat().st_gid)]
    assert stat.S_IMODE(path.stat().st_mode) == (0o4755 if may_give else 0o755)


def test_file_that_becomes_a_fifo_meanwhile_is_not_read(tree: PlantedTree, wording: Wording) -> None:
    """It is looked at again once it is open."""

    def exchange() -> None:
        (tree.root / "data.bin").unlink()
        os.mkfifo(tree.root / "data.bin")

    with tree.open() as fs:
        tree.disk.before = Nth(1, exchange, among=frozenset({"open_file"}))
        with raises(errors.PathConflictError, wording):
            fs.read_bytes("data.bin")


@pytest.mark.parametrize("include, path, is_folder, is_shown", [
    ("*.md", "a/b.md", False, True), ("*.md", "a/b.txt", False, False), ("docs/**", "docs/a", False, True),
    ("docs/**", "other/a", False, False), ("docs", "docs/a/b", False, True), ("docs/**/*.md", "docs", True, True),
    ("docs/**/*.md", "docs/a/b", True, True), ("docs/**/*.md", "src", True, False),
])  # fmt: skip
def test_included_paths_are_shown(include: str, path: str, *, is_folder: bool, is_shown: bool) -> None:
    """A pattern without a slash fits at any depth; a folder that may hold something shown can be reached."""
    assert (NotIncluded([include]).why(path, is_folder=is_folder) is None) is is_shown


@pytest.fixture
def part(tmp_path: Path) -> Generator[HostFilesystem]:
    """A folder of which a part is hidden."""
    root = tmp_path / "root"
    for path in ("docs/a.md", "docs/secret.key", ".git/config", "src/x.py", "kept/.git/config", "only/b.key"):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(path)
    (root / "to key").symlink_to("docs/secret.key")
    with HostFilesystem(root, journal=tmp_path / "journal", exclude=[".git", "*.key"]) as filesystem:
        yield filesystem


def test_hidden_files_are_neither_listed_nor_read(part: HostFilesystem, wording: Wording) -> None:
    """They are as if they were not there; and a link does not tell where it leads."""
    assert [stat.path for stat in part.list()] == ["docs", "kept", "only", "src", "to key"]
    assert not [stat.path for stat in part.glob("**") if "key" in stat.path.partition("/")[2] or ".git" in stat.path]
    assert not part.exists("docs/secret.key")
    with raises(errors.PathConflictError, wording):
        part.read_text("to key")
    for path in ("docs/secret.key", ".git/config"):
        with pytest.raises(errors.PathNotFoundError):
            part.read_text(path)
    with raises(errors.PathNotFoundError, wording):
        part.stat(".git/hooks/x")


def test_what_is_not_included_is_refused_with_the_patterns(tmp_path: Path, wording: Wording) -> None:
    """The message says where to write instead."""
    with HostFilesystem(tmp_path, journal=tmp_path.with_name("journal"), include=["docs/**"]) as fs:
        fs.write_text("docs/a.md", "x")
        with raises(errors.PathConflictError, wording):
            fs.write_text("src/a.md", "x")
        assert [stat.path for stat in fs.glob("**")] == ["docs", "docs/a.md"]
