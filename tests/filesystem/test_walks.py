"""How far a walk goes, and what it costs."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from handrail.errors import PathConflictError, PathEscapeError
from handrail.filesystem import Filesystem, HostFilesystem, WalkRequest
from handrail.filesystem.paths import MAX_DEPTH
from tests.filesystem.kit import WatchedDisk
from tests.kit import raises
from tests.wording import Wording

DEEPEST = "/".join(["d"] * MAX_DEPTH)


def dig(root: Path, depth: int) -> None:
    """Folders in each other, deeper than a path can name."""
    at = os.open(root, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=at)
        inner = os.open("d", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = inner
    os.close(at)


@contextmanager
def counted(root: Path) -> Generator[tuple[HostFilesystem, Counter[str]]]:
    """A folder as a filesystem, and how often each call to the disk is made."""
    calls, disk = Counter[str](), WatchedDisk()
    with HostFilesystem(root, journal=root.with_name("journal"), disk=disk) as fs:

        def count(name: str) -> None:
            calls[name] += 1

        disk.before = count
        yield fs, calls


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """An empty folder."""
    (root := tmp_path / "root").mkdir()
    return root


def test_a_walk_lists_each_folder_once_and_stops_at_the_greatest_depth(root: Path, wording: Wording) -> None:
    """What lies deeper is neither removed nor moved, since it could not be put back; finding out costs a walk."""
    dig(root, 400)
    with counted(root) as (fs, calls):
        scan = fs.scan(".", "**")
        assert (len(scan.entries), scan.too_deep) == (MAX_DEPTH, 1)
        assert calls["names"] <= MAX_DEPTH + 1
        assert calls["open_folder"] <= 2 * MAX_DEPTH + 2
        assert calls["look"] <= MAX_DEPTH + 1
        calls.clear()
        for change in (partial(fs.remove, "d", recursive=True), partial(fs.move, "d", "e")):
            with raises(PathConflictError, wording):
                change()
        assert calls["names"] <= 2 * MAX_DEPTH + 2
    shutil.rmtree(root)


def test_the_deepest_path_is_a_path_and_the_next_is_none(make: Callable[..., Filesystem], wording: Wording) -> None:
    """Every operation refuses what is deeper, and says how deep it is."""
    fs = make()
    fs.make_folder(DEEPEST)
    assert [stat.path for stat in fs.glob(DEEPEST)] == [DEEPEST]
    assert fs.scan(".", "**").too_deep == 1
    changes = (fs.make_folder, fs.remove, partial(fs.write_text, text="x"), partial(fs.move, "d"))
    for operate in (fs.read_text, fs.exists, fs.list, fs.glob, *changes):
        with raises(PathEscapeError, wording):
            operate(f"{DEEPEST}/x")
    fs.make_folder("a/b")
    with raises(PathEscapeError, wording):
        fs.move("d", "a/d")
    fs.remove("d", recursive=True)
    assert not fs.exists("d")


def test_a_walk_ends_when_it_has_looked_at_enough(make: Callable[..., Filesystem]) -> None:
    """It says so, and what it has found counts."""
    fs = make({f"a/{number}": "" for number in range(10)})
    found = fs.scan(".", "**", WalkRequest(most=4))
    assert (found.looked_at, found.stop_reason, len(found.entries)) == (4, "number", 4)
    assert fs.scan(".", "**", WalkRequest(most=11)).stop_reason is None


def test_a_walk_ends_when_its_time_is_over(make: Callable[..., Filesystem]) -> None:
    """The time is asked for before each folder is listed."""
    fs = make({"a/b/c": "", "x": ""})
    answers = iter((False, True))
    found = fs.scan(".", "**", WalkRequest(is_over=lambda: next(answers)))
    assert ([stat.path for stat in found.entries], found.stop_reason) == (["a", "x"], "time")


def test_only_folders_that_can_hold_a_match_are_listed(root: Path) -> None:
    """What a pattern costs is what it can find."""
    for path in ("src/deep/er", "docs/a", "docs/b"):
        (root / path).mkdir(parents=True)
    with counted(root) as (fs, calls):
        assert fs.glob("src/*.py") == ()
        assert calls["names"] == 2


def test_each_ignore_file_is_read_once_in_a_walk(root: Path) -> None:
    """And none is looked for where there is none."""
    for number in range(20):
        (root / f"{number}/deep").mkdir(parents=True)
    for path in (".gitignore", "3/.gitignore", "3/deep/.ignore"):
        (root / path).write_text("x\n")
    with counted(root) as (fs, calls):
        fs.scan(".", "**", WalkRequest(ignored=False))
    assert calls["open_file"] == 3


def test_links_are_found_but_not_followed(root: Path, tmp_path: Path) -> None:
    """A link may lead in a circle; the folder that a look begins in may be one."""
    (root / "a").mkdir()
    (root / "a/b").write_text("")
    (root / "a/up").symlink_to("..")
    (root / "link").symlink_to("a")
    with HostFilesystem(root, journal=tmp_path / "journal") as fs:
        assert [stat.path for stat in fs.glob("**")] == ["a", "a/b", "a/up", "link"]
        assert [stat.path for stat in fs.scan("link", "**").entries] == ["link/b", "link/up"]
