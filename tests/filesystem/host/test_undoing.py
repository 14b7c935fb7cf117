"""How files on disk are put back: the very same ones, at what cost, and whatever somebody else did meanwhile."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from handrail.errors import FilesystemError
from handrail.filesystem import HostFilesystem
from tests.filesystem.kit import PlantedTree, WatchedDisk, call, damage, fail
from tests.kit import raises
from tests.wording import Wording


def test_undone_file_is_the_very_same_file(fs: HostFilesystem, root: Path) -> None:
    """Inode, times and permissions come back, because the file was never copied."""
    was = (root / "notes/run.sh").stat()
    with call(fs):
        fs.write_text("notes/run.sh", "other")
        assert (root / "notes/run.sh").stat().st_ino != was.st_ino
    now = (root / "notes/run.sh").stat()
    assert (now.st_ino, now.st_mtime_ns, now.st_mode) == (was.st_ino, was.st_mtime_ns, was.st_mode)


def test_snapshot_by_hand_is_safe_from_whoever_writes_into_a_file(fs: HostFilesystem, tree: PlantedTree) -> None:
    """What was put back by hand is a file of its own: writing into it does not reach the snapshot."""
    snapshot = fs.snapshot()
    for _ in range(4):
        fs.write_text("notes/run.sh", "other")
        fs.restore(snapshot)
        assert tree.now == tree.before
        with (tree.root / "notes/run.sh").open("a") as file:
            file.write("written by an editor, in place")


def test_what_others_wrote_is_kept(tree: PlantedTree, caplog: pytest.LogCaptureFixture, wording: Wording) -> None:
    """The tree is put back all the same; what was found goes to the journal's folder, or stays if it may."""
    with tree.open() as fs, call(fs):
        fs.write_text("data.bin", "changed")
        fs.remove("notes/plan.md")
        fs.remove("dangling")
        fs.write_text("made/by/tool", "x")
        fs.remove("notes/old", recursive=True)
        fs.move("notes/run.sh", "run.sh")
        (tree.root / "data.bin").write_text("an editor saved this")
        (tree.root / "dangling").symlink_to("elsewhere")
        (tree.root / "notes/plan.md").mkdir()
        (tree.root / "notes/plan.md/theirs").write_text("kept 1")
        (tree.root / "made/by/theirs").write_text("kept 2")
        (tree.root / "notes/old").write_text("kept 3")
    assert (tree.root / "data.bin").read_bytes() == bytes(range(256)) * 10
    assert (tree.journal / "data.bin.found").read_text() == "an editor saved this"
    assert os.fspath((tree.journal / "dangling.found").readlink()) == "elsewhere"
    assert (tree.root / "notes/plan.md").read_text() == "1. look\n"
    assert (tree.root / "notes/plan.md.found/theirs").read_text() == "kept 1"
    assert (tree.root / "made/by/theirs").read_text() == "kept 2"
    assert not (tree.root / "made/by/tool").exists()
    assert (tree.journal / "old.found").read_text() == "kept 3"
    assert (tree.root / "notes/old/a.md").read_text() == "a"
    assert sorted(caplog.messages) == wording


def swap(root: Path, path: str, make: Callable[[Path, Path], object]) -> None:
    """Move a folder, in the tree or out of it, and make something in its place, of both paths."""
    away = (root / path).rename(root / "moved" if path == "notes/old" else root.with_name("away"))
    make(root / path, away)


Swap = tuple[str, Callable[[Path, Path], object], str]
SWAPS: dict[str, Swap] = {
    "a link": ("notes/old", Path.symlink_to, "old"),
    "a link above": ("notes", Path.symlink_to, "notes"),
    "a file": ("notes", lambda place, _: place.write_text("theirs"), "notes"),
    "a fifo": ("notes/old", lambda place, _: os.mkfifo(place), ""),
}
"""For each what is swapped, what is made in its place, and what is found of that in the journal's folder."""


@pytest.mark.parametrize("path, make, found", SWAPS.values(), ids=SWAPS)
def test_swapped_folder_is_back(tree: PlantedTree, path: str, make: Callable[[Path, Path], object], found: str) -> None:
    """The call is rolled back at once, nothing is written through a link, and the next call goes through."""
    with tree.open() as fs:
        with call(fs):
            fs.write_text("notes/old/a.md", "changed")
            fs.write_text("notes/old/new.md", "new")
            swap(tree.root, path, make)
        assert (tree.root / "notes/old/a.md").read_text() == "a"
        assert not (tree.root / "notes/old").is_symlink()
        assert not (tree.root / "notes/old/new.md").exists()
        assert os.path.lexists(tree.journal / f"{found}.found") == bool(found)
        fs.write_text("notes/old/a.md", "again")
    assert (tree.root / "notes/old/a.md").read_text() == "again"


def test_folder_that_somebody_removed_meanwhile_is_made_again(tree: PlantedTree) -> None:
    """Else there would be no place to put things back to."""
    with tree.open() as fs, call(fs):
        fs.remove("notes/old/a.md")
        (tree.root / "notes/old/empty").rmdir()
        (tree.root / "notes/old").rmdir()
    assert (tree.root / "notes/old/a.md").read_text() == "a"


class OtherDisk(WatchedDisk):
    """A disk whose journal lies on another one, so that no file can have a name on both.

    Attributes:
        journal: the descriptor of the journal's folder.
    """

    journal = -1

    def link(self, name: bytes, new: bytes, *, at: int, to: int) -> None:
        self._refuse(at, to)
        super().link(name, new, at=at, to=to)

    def rename(self, name: bytes, new: bytes, *, at: int, to: int) -> None:
        self._refuse(at, to)
        super().rename(name, new, at=at, to=to)

    def append_file(self, name: bytes, *, at: int) -> int:
        self.journal = at
        return super().append_file(name, at=at)

    def _refuse(self, at: int, to: int) -> None:
        if (at == self.journal) != (to == self.journal):
            fail(errno.EXDEV)()


def test_journal_may_lie_on_another_disk(tree: PlantedTree) -> None:
    """What is saved is copied then, and so is what somebody else has left."""
    (tree.root / "run").write_bytes(b"x" * 3000)
    tree.before = tree.now
    disk = OtherDisk()
    with tree.open(disk=disk) as fs, call(fs):
        fs.write_text("run", "first")
        fs.write_text("run", "second")
        fs.write_text("data.bin", "x")
        fs.remove("dangling")
        fs.remove("notes", recursive=True)
        (tree.root / "data.bin").write_text("theirs")
        (tree.root / "dangling").symlink_to("theirs")
    assert tree.now == tree.before
    assert (tree.journal / "data.bin.found").read_text() == "theirs"
    assert os.fspath((tree.journal / "dangling.found").readlink()) == "theirs"


def test_second_thing_found_at_a_path_gets_another_name(tree: PlantedTree) -> None:
    """Nothing that was set aside is replaced."""
    with tree.open() as fs:
        for text in ("one", "two"):
            with call(fs):
                fs.write_text("data.bin", "x")
                (tree.root / "data.bin").write_text(text)
    assert (tree.journal / "data.bin.found").read_text() == "one"
    assert (tree.journal / "data.bin.2.found").read_text() == "two"


def test_snapshot_that_has_no_room_is_not_put_back_by_half(tree: PlantedTree, wording: Wording) -> None:
    """Then nothing changes; with room, all comes back."""
    with tree.open() as fs:
        snapshot = fs.snapshot()
        fs.write_text("data.bin", "x")
        changed = tree.now
        tree.disk.fail(errno.ENOSPC, "set_time")
        with raises(FilesystemError, wording):
            fs.restore(snapshot)
        tree.disk.heal()
        assert tree.now == changed
        fs.restore(snapshot)
        assert tree.now == tree.before


def test_snapshot_in_a_call_is_not_harmed_by_going_back_over_a_tree(fs: HostFilesystem, tree: PlantedTree) -> None:
    """What the program did is kept for it first; and the call is undone all the same."""
    oldest = fs.snapshot()
    with call(fs):
        fs.keep_tree()
        damage(tree.root)
        damaged, newest = tree.now, fs.snapshot()
        fs.restore(oldest)
        assert tree.now == tree.before
        fs.restore(newest)
        assert tree.now == damaged
    assert tree.now == tree.before
