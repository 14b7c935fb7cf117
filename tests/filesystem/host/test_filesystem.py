"""What is particular to a filesystem on disk: names, permissions, owners, special files, and the part that is shown."""

from __future__ import annotations

import errno
import os
import socket
import stat
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from handrail.errors import PathConflictError, PathEscapeError, PathNotFoundError
from handrail.filesystem import FileStart, FileStat, HostFilesystem
from handrail.filesystem.path_filters import ExcludedPaths, NotIncluded
from handrail.filesystem.protocol import MOST_HASHED_BYTES
from tests.filesystem.kit import Nth, PlantedTree, WatchedDisk, fail, picture, unchanged
from tests.kit import raises
from tests.wording import Wording

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


def test_file_of_as_many_bytes_as_are_hashed_is_identified_by_its_content(fs: HostFilesystem, root: Path) -> None:
    """One byte more is too many."""
    (root / "large").touch()
    for size, is_hashed in ((MOST_HASHED_BYTES, True), (MOST_HASHED_BYTES + 1, False)):
        os.truncate(root / "large", size)
        assert (len(fs.identity("large")) == 64) is is_hashed


SPECIAL: dict[str, Operation] = {
    "read": lambda fs: fs.read_bytes("odd/fifo"),
    "read the start": lambda fs: fs.read_start("odd/fifo", 1),
    "identify": lambda fs: fs.identity("odd/fifo"),
    "read a socket": lambda fs: fs.read_bytes("odd/socket"),
    "write": lambda fs: fs.write_text("odd/fifo", "x"),
    "remove": lambda fs: fs.remove("odd/fifo"),
    "remove around": lambda fs: fs.remove("odd", recursive=True),
    "move": lambda fs: fs.move("odd/fifo", "fifo"),
    "move around": lambda fs: fs.move("odd", "other"),
}


@pytest.mark.parametrize("operation", SPECIAL.values(), ids=SPECIAL)
def test_special_files_are_listed_and_left_alone(
    fs: HostFilesystem, root: Path, monkeypatch: pytest.MonkeyPatch, operation: Operation, wording: Wording
) -> None:
    """A fifo would block whoever reads it, and none could be put back."""
    (root / "odd").mkdir()
    os.mkfifo(root / "odd" / "fifo")
    monkeypatch.chdir(root)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("odd/socket")
        with unchanged(picture, root), raises(PathConflictError, wording):
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
        with raises(PathConflictError, wording):
            fs.read_bytes("data.bin")


@pytest.mark.parametrize(
    "include,exclude,path,is_shown",
    [
        (["*.md"], [], "a/b.md", True),
        (["*.md"], [], "a/b.txt", False),
        (["docs/**"], [], "docs/a", True),
        (["docs/**"], [], "other/a", False),
        (["docs"], [], "docs/a/b", True),
        (["docs/**", "src/*.py"], ["*.pyc"], "src/a.py", True),
    ],
)
def test_path_is_shown_if_it_is_included_and_not_excluded(
    include: list[str], exclude: list[str], path: str, *, is_shown: bool
) -> None:
    """A pattern without a slash fits at any depth, and what lies in an excluded folder is excluded."""
    sets = (ExcludedPaths(exclude), NotIncluded(include))
    assert all(paths.why(path, is_folder=False) is None for paths in sets) is is_shown


@pytest.mark.parametrize("folder, is_shown", [("docs", True), ("docs/a/b", True), ("src", False)])
def test_folder_that_may_hold_something_shown_can_be_reached(folder: str, *, is_shown: bool) -> None:
    """A folder on the way is shown, another is not."""
    assert (NotIncluded(["docs/**/*.md"]).why(folder, is_folder=True) is None) is is_shown


def test_pattern_that_leaves_the_root_is_refused(tmp_path: Path) -> None:
    """At once, and nothing is left open."""
    with pytest.raises(PathEscapeError):
        HostFilesystem(tmp_path, exclude=["../x"])


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
    """They are as if they were not there, also through a link."""
    assert [stat.path for stat in part.list()] == ["docs", "kept", "only", "src", "to key"]
    assert not [stat.path for stat in part.glob("**") if "key" in stat.path.partition("/")[2] or ".git" in stat.path]
    assert not part.exists("docs/secret.key")
    for name in ("circle", "circle.key"):
        (part.root / name).symlink_to(name)
    with pytest.raises(PathConflictError):
        part.read_text("circle")
    for path in ("docs/secret.key", ".git/config", "to key", "circle.key"):
        with pytest.raises(PathNotFoundError):
            part.read_text(path)
    with raises(PathNotFoundError, wording):
        part.stat(".git/hooks/x")


HIDDEN: dict[str, Operation] = {
    "write anew": lambda fs: fs.write_text("src/new.key", "x"),
    "move there": lambda fs: fs.move("src/x.py", "src/x.key"),
    "remove what looks empty": lambda fs: fs.remove("only"),
    "move around": lambda fs: fs.move("kept", "elsewhere"),
}


@pytest.mark.parametrize("change", HIDDEN.values(), ids=HIDDEN)
def test_hidden_files_are_not_changed(part: HostFilesystem, change: Operation, wording: Wording) -> None:
    """The refusal names the pattern, and nothing changes."""
    with unchanged(picture, part.root), raises(PathConflictError, wording):
        change(part)


def test_what_is_not_included_is_refused_with_the_patterns(tmp_path: Path, wording: Wording) -> None:
    """The message says where to write instead."""
    with HostFilesystem(tmp_path, journal=tmp_path.with_name("journal"), include=["docs/**"]) as fs:
        fs.write_text("docs/a.md", "x")
        with raises(PathConflictError, wording):
            fs.write_text("src/a.md", "x")
        assert [stat.path for stat in fs.glob("**")] == ["docs", "docs/a.md"]
