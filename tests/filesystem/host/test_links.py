"""Links, and whoever exchanges folders for links meanwhile: nothing leaves the root."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Generator
from functools import partial
from pathlib import Path

import pytest

from handrail.errors import FilesystemError, PathConflictError
from handrail.filesystem import FileStat, HostFilesystem, excluding
from tests.filesystem.kit import Nth, WatchedDisk, picture, quiet, unchanged
from tests.kit import raises
from tests.wording import Wording


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A tree with links of all kinds, and a folder outside of it."""
    root, outside = tmp_path / "root", tmp_path / "outside"
    (root / "docs" / "deep").mkdir(parents=True)
    outside.mkdir()
    (outside / "secret").write_text("secret")
    (root / "docs" / "a.md").write_text("a")
    links = {
        "to file": "docs/a.md", "to folder": "docs", "to link": "to file", "docs/up": "../docs/./a.md",
        "docs/deep/over": "../../docs/up", "absolute": str(root / "docs"), "to root": str(root), "out": "../outside",
        "out absolute": str(outside), "out file": "../outside/secret", "out by folder": "to folder/../../outside",
        "circle": "circle", "dangling": "docs/new.md",
    }  # fmt: skip
    for name, target in links.items():
        (root / name).symlink_to(target)
    return root


@pytest.fixture
def fs(root: Path, tmp_path: Path) -> Generator[HostFilesystem]:
    """The tree, opened."""
    with HostFilesystem(root, journal=tmp_path / "journal") as filesystem:
        yield filesystem


INSIDE = {
    "to file": "docs/a.md", "to link": "to file", "to folder/a.md": "docs/a.md", "docs/up": "docs/a.md",
    "docs/deep/over": "docs/up", "absolute/a.md": "docs/a.md", "to root/to folder/a.md": "to folder/a.md",
    "dangling": "docs/new.md", "to folder/new/x": "docs/new/x",
}  # fmt: skip


@pytest.mark.parametrize("path", INSIDE)
def test_link_is_not_followed_and_the_error_names_where_it_leads(fs: HostFilesystem, root: Path, path: str) -> None:
    """Nothing is read or written, on the way through one or at its end; a filter keeps back what it hides."""
    hidden = fs.filtered(excluding((INSIDE[path],)))
    with unchanged(picture, root.parent):
        for operation in (fs.read_text, fs.list, partial(fs.write_text, text="x"), fs.make_folder):
            with pytest.raises(PathConflictError) as caught:
                operation(path)
            assert repr(INSIDE[path]) in str(caught.value)
        with pytest.raises(PathConflictError) as caught:
            hidden.read_text(path)
        assert INSIDE[path] not in str(caught.value).replace(path, "")
    assert fs.exists(path) == ("/" not in path or path.startswith("docs/"))


@pytest.mark.parametrize("path", ["out/secret", "out absolute/secret", "out file", "out by folder/secret", "out/new"])
def test_link_that_leaves_the_root_is_refused(fs: HostFilesystem, tmp_path: Path, path: str, wording: Wording) -> None:
    """Whatever is asked; and the message does not say where it leads."""
    before = picture(tmp_path / "outside")
    for operation in (fs.read_text, fs.list, partial(fs.write_text, text="x"), fs.make_folder):
        with raises(PathConflictError, wording) as caught:
            operation(path)
        assert "outside" not in str(caught.value)
    assert picture(tmp_path / "outside") == before


def test_listing_tells_of_links_and_glob_does_not_follow_them(fs: HostFilesystem) -> None:
    """A link is an entry of its own."""
    assert FileStat("docs/up", "symlink", 0) in fs.list("docs")
    assert fs.stat("to file") == FileStat("to file", "symlink", 0)
    assert not fs.glob("to folder/**")
    assert fs.exists("out")
    assert fs.exists("dangling")


def test_removing_and_moving_act_on_the_link(fs: HostFilesystem, root: Path) -> None:
    """What it leads to stays where it is."""
    fs.remove("to folder", recursive=True)
    fs.remove("out")
    fs.move("to file", "moved")
    assert os.fspath((root / "moved").readlink()) == "docs/a.md"
    assert (root / "docs/a.md").read_text() == "a"
    assert (root.parent / "outside/secret").exists()


OPERATIONS: dict[str, Callable[[HostFilesystem], object]] = {
    "read": lambda fs: fs.read_text("docs/deep/secret"), "write": lambda fs: fs.write_text("docs/deep/secret", "x"),
    "write anew": lambda fs: fs.write_text("docs/deep/new/file", "x"), "list": lambda fs: fs.list("docs/deep"),
    "remove": lambda fs: fs.remove("docs/deep", recursive=True), "move": lambda fs: fs.move("docs/deep/secret", "here"),
    "move there": lambda fs: fs.move("docs/a.md", "docs/deep/a.md"),
}  # fmt: skip


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
def test_folder_become_a_link_leads_nowhere(tmp_path: Path, operation: Callable[[HostFilesystem], object]) -> None:
    """Whichever call to the disk it happens at: nothing outside is read or changed."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("outside")
    before = picture(outside)
    number = 0
    while True:
        number += 1
        root, disk = tmp_path / str(number) / "root", WatchedDisk()
        deep = root / "docs" / "deep"
        deep.mkdir(parents=True)
        (deep / "secret").write_text("inside")
        (root / "docs/a.md").write_text("a")

        def exchange(deep: Path = deep) -> None:
            if deep.exists():
                deep.rename(deep.with_name("away"))
            deep.symlink_to(outside)

        nth = Nth(number, exchange)
        fs = HostFilesystem(root, journal=tmp_path / str(number) / "journal", disk=disk, durability="normal")
        disk.before = nth
        with contextlib.suppress(FilesystemError):
            assert operation(fs) != "outside"
        disk.before = quiet
        fs.close()
        assert picture(outside) == before
        if not nth.has_acted:
            return


class FoldingDisk(WatchedDisk):
    """A disk that takes upper and lower case for the same."""

    def folds_case(self, folder: Path) -> bool:
        return True

    def step(self, name: bytes, *, at: int) -> int:
        return self.open_folder(name, at=at)

    def look(self, name: bytes, *, at: int) -> os.stat_result | None:
        entry = next((entry for entry in map(os.fsencode, os.listdir(at)) if entry.lower() == name.lower()), None)
        return None if entry is None else super().look(entry, at=at)


def test_file_has_one_spelling_where_case_does_not_count(tmp_path: Path, wording: Wording) -> None:
    """Another spelling is refused with the right one: two paths of one file would undo each other."""
    root = tmp_path / "root"
    (root / "Docs").mkdir(parents=True)
    (root / "Docs" / "Plän.md").write_text("x")
    with HostFilesystem(root, journal=tmp_path / "journal", disk=FoldingDisk()) as fs:
        assert fs.read_text("Docs/Plän.md") == "x"
        for path in ("docs/Plän.md", "Docs/plän.md"):
            with raises(PathConflictError, wording):
                fs.write_text(path, "y")
        fs.write_text("Docs/new.md", "y")
        assert [stat.path for stat in fs.list("Docs")] == ["Docs/Plän.md", "Docs/new.md"]


def test_case_is_asked_of_the_names_above_the_root(tmp_path: Path) -> None:
    """Without writing anything: the root itself is looked up in the other case."""
    disk = WatchedDisk()
    assert disk.folds_case(tmp_path) is False
    assert disk.folds_case(Path("/")) is False
    (tmp_path / "ROOT").mkdir()
    (tmp_path / "root").symlink_to("ROOT")
    assert disk.folds_case(tmp_path / "ROOT") is True
