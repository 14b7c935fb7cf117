"""Several filesystems in one tree."""

from __future__ import annotations

from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

from handrail.contrib.tools import MountedFilesystem
from handrail.errors import (
    FilesystemError,
    PathConflictError,
    PathEscapeError,
    PathNotFoundError,
    ReadOnlyViolation,
    SnapshotError,
    ToolValidationError,
)
from handrail.filesystem import FileStat, Filesystem, HostFilesystem, InMemoryFilesystem, excluding
from handrail.prompt import Tool, ToolContext, ToolResult
from handrail.testing import run_tool
from tests.filesystem.stores import STORES, tree_of
from tests.wording import Wording


class Tree:
    """Two filesystems, and the tree in which they are mounted."""

    def __init__(self, source: Filesystem) -> None:
        self.source = source
        self.notes = InMemoryFilesystem({"plan.md": "# Plan\n"})
        self.whole = MountedFilesystem({"src": self.source, "notes": self.notes})


@pytest.fixture(params=list(STORES))
def tree(request: pytest.FixtureRequest) -> Generator[Tree]:
    """Source, in a store of each kind, and notes."""
    with STORES[request.param]({"a.py": "a = 1\n", "deep/b.py": "b = 2\n"}) as source:
        yield Tree(source)


def refusal(act: Callable[[], object]) -> FilesystemError:
    """What is raised."""
    with pytest.raises(FilesystemError) as caught:
        act()
    return caught.value


def test_it_is_a_filesystem(tree: Tree) -> None:
    """So it can be bound as one, and mounted itself."""
    assert isinstance(tree.whole, Filesystem)
    outer = MountedFilesystem({"desk": tree.whole})
    assert outer.read_text("desk/src/a.py") == "a = 1\n"
    assert tree.whole.turn is tree.whole.turn


def test_each_filesystem_is_a_folder_of_the_root(tree: Tree) -> None:
    """Paths are those of the whole tree."""
    assert tree.whole.list() == (FileStat("notes", "folder", 0), FileStat("src", "folder", 0))
    assert tree.whole.list("src/deep") == (FileStat("src/deep/b.py", "file", 6),)
    assert [stat.path for stat in tree.whole.glob("**/*.py")] == ["src/a.py", "src/deep/b.py"]
    assert tree.whole.stat("src") == FileStat("src", "folder", 0)
    assert tree.whole.stat(".") == FileStat(".", "folder", 0)
    assert tree.whole.stat("./src//a.py") == FileStat("src/a.py", "file", 6)


def test_files_are_those_of_the_parts(tree: Tree) -> None:
    """Read, written, moved and removed where they are."""
    whole = tree.whole
    whole.write_text("notes/new.md", "new")
    whole.write_bytes("notes/data", b"\0")
    whole.make_folder("notes/empty")
    whole.move("src/deep/b.py", "src/c.py")
    whole.remove("src/deep")
    assert tree_of(tree.notes) == {"plan.md": b"# Plan\n", "new.md": b"new", "data": b"\0", "empty": None}
    assert tree_of(tree.source) == {"a.py": b"a = 1\n", "c.py": b"b = 2\n"}
    assert whole.read_text("notes/new.md") == "new"
    assert whole.read_bytes("notes/data") == b"\0"
    assert whole.digest("src/a.py") == tree.source.digest("a.py")
    assert whole.identity("src/a.py") == tree.source.identity("a.py")
    assert whole.read_start("src/a.py", 2) == tree.source.read_start("a.py", 2)


def test_what_exists(tree: Tree) -> None:
    """The root, the mounts, what they hold, and nothing else."""
    there = {path for path in (".", "src", "src/a.py", "src/b.py", "lib", "lib/a.py") if tree.whole.exists(path)}
    assert there == {".", "src", "src/a.py"}


def test_folders_that_are_there_may_be_made(tree: Tree) -> None:
    """The root and the mounts are."""
    tree.whole.make_folder(".")
    tree.whole.make_folder("src")


def test_root_holds_the_mounts_and_nothing_else(tree: Tree, wording: Wording) -> None:
    """What is looked for or made beside them is refused with their names."""
    whole = tree.whole
    missing = refusal(lambda: whole.read_text("lib/a.py"))
    assert isinstance(missing, PathNotFoundError)
    assert str(missing) == wording
    assert isinstance(refusal(lambda: whole.read_text(".")), PathConflictError)
    assert str(refusal(lambda: whole.read_text("."))) == wording
    for make in (lambda: whole.write_text("a.txt", ""), lambda: whole.make_folder("a.txt")):
        assert str(refusal(make)) == wording
    assert isinstance(refusal(lambda: whole.list("lib")), PathNotFoundError)
    assert isinstance(refusal(lambda: whole.exists("../a")), PathEscapeError)


@pytest.mark.parametrize("path", [".", "src"])
def test_root_and_mounts_stay(tree: Tree, path: str, wording: Wording) -> None:
    """The program has put them there."""
    for act in (lambda: tree.whole.remove(path, recursive=True), lambda: tree.whole.move(path, "notes/x")):
        assert str(refusal(act)) == wording


def test_nothing_moves_from_one_filesystem_to_another(tree: Tree, wording: Wording) -> None:
    """Each undoes by itself and keeps its own modes and links, so the model writes the file anew."""
    error = refusal(lambda: tree.whole.move("src/a.py", "notes/a.py"))
    assert (type(error), error.path) == (PathConflictError, "notes/a.py")
    assert str(error) == wording
    assert tree.source.exists("a.py")


def test_error_of_a_part_says_where_its_paths_begin(tree: Tree, wording: Wording) -> None:
    """It is of the same class, and carries the whole path."""
    error = refusal(lambda: tree.whole.read_text("src/nope/c.py"))
    assert (type(error), error.path) == (PathNotFoundError, "src/nope/c.py")
    assert str(error) == wording


def test_error_of_a_move_says_once_where_paths_begin(tree: Tree, wording: Wording) -> None:
    """Both paths begin in the same part."""
    error = refusal(lambda: tree.whole.move("src/nope.py", "src/a.py"))
    assert str(error) == wording
    assert error.path.count("src") == 1


def test_snapshot_takes_all_parts_back(tree: Tree) -> None:
    """A snapshot of something else is refused."""
    before = tree.whole.snapshot()
    tree.whole.write_text("src/a.py", "")
    tree.whole.remove("notes/plan.md")
    tree.whole.restore(before)
    assert tree.whole.read_text("src/a.py") == "a = 1\n"
    assert tree.whole.exists("notes/plan.md")
    other: list[Any] = ["nothing", Tree(InMemoryFilesystem()).whole.snapshot(), tree.source.snapshot()]
    for snapshot_of_else in other:
        with pytest.raises(SnapshotError):
            tree.whole.restore(snapshot_of_else)


def test_failed_call_leaves_all_parts_as_they_were(tree: Tree) -> None:
    """Each part joins the call's transaction by itself."""

    def fail(_params: None, *, context: ToolContext) -> ToolResult[None]:
        files = context.resources.get(Filesystem)
        files.write_text("src/a.py", "half")
        files.remove("notes/plan.md")
        raise ToolValidationError("no")

    tool = Tool[None, None](name="fail", description="Fails.", handler=fail)
    before = tree_of(tree.whole)
    assert not run_tool(tool, None, resources={Filesystem: tree.whole}).success
    assert tree_of(tree.whole) == before


def test_call_that_only_reads_may_not_write_to_a_part(tree: Tree) -> None:
    """The right to write is asked for where something is written."""

    def write(_params: None, *, context: ToolContext) -> ToolResult[None]:
        with pytest.raises(ReadOnlyViolation):
            context.resources.get(Filesystem).write_text("src/a.py", "")
        return ToolResult.ok(None)

    tool = Tool[None, None](name="look", description="Looks.", handler=write, effect="read")
    assert run_tool(tool, None, resources={Filesystem: tree.whole}).success


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/", "a\\b", "./a", "a/"])
def test_name_of_a_mount_is_the_name_of_a_folder(name: str, wording: Wording) -> None:
    """It is the first part of each path."""
    with pytest.raises(ValueError) as raised:
        MountedFilesystem({name: InMemoryFilesystem()})
    assert str(raised.value) == wording


def test_what_is_mounted_is_a_filesystem_and_there_once(wording: Wording) -> None:
    """Otherwise a file would have two paths."""
    one = InMemoryFilesystem()
    for mounts in ({"a": one, "b": one}, {}):
        with pytest.raises(ValueError) as raised:
            MountedFilesystem(mounts)
        assert str(raised.value) == wording
    wrong: Any = "notes"
    with pytest.raises(TypeError) as another:
        MountedFilesystem({"a": wrong})
    assert str(another.value) == wording


def test_path_resolves_below_its_mount(tmp_path: Path) -> None:
    """The mounts themselves, and what lies in none, resolve to themselves."""
    root = tmp_path / "root"
    root.mkdir()
    for link, target in {"l": "docs/a.md", "top": "."}.items():
        (root / link).symlink_to(target)
    with HostFilesystem(root, journal=tmp_path / "journal") as inner:
        tree = MountedFilesystem({"m": inner})
        resolved = [tree.resolve(path) for path in ("m/l", "m/top", "m", "else/l", ".")]
        assert resolved == ["m/docs/a.md", "m", "m", "else/l", "."]
        assert tree.resolve("m/l", follow=False) == "m/l"


def test_parts_may_be_put_behind_filters_of_their_own(tree: Tree) -> None:
    """The whole stays one participant."""
    hidden = excluding(("a.py",), show_git=True)
    behind = tree.whole.with_parts(lambda part: part.filtered(hidden))
    assert (behind.exists("src/a.py"), tree.whole.exists("src/a.py")) == (False, True)
    assert behind.turn is tree.whole.turn
    assert list(behind.mounts) == list(tree.whole.mounts)
