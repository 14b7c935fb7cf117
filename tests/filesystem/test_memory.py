"""What is particular to the filesystem in memory: how it is made, what its snapshots cost, and threads."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType

import pytest

from handrail.errors import PathConflictError, PathEscapeError
from handrail.filesystem import HostFilesystem, InMemoryFilesystem
from tests.filesystem.kit import tree_of


@pytest.mark.parametrize("paths", [("a", "./a"), ("a", "a/b"), ("a/b", "a"), (".", "a"), ("../a", "b")])
def test_filesystem_is_not_made_of_files_that_exclude_each_other(paths: tuple[str, str]) -> None:
    """One path is one thing, nothing given is silently lost, and all of it lies in the root."""
    with pytest.raises(PathEscapeError if paths[0] == "../a" else PathConflictError):
        InMemoryFilesystem(dict.fromkeys(paths, "x"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder on disk with code, a secret, a repository, a link that leads out, a pipe, and an empty folder."""
    folder = tmp_path / "project"
    for path in ("src/a.py", "src/deep/b.py", "notes.md", "site.key", ".git/config", os.fsdecode(b"caf\xe9.md")):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text("on disk")
    (tmp_path / "secret").write_text("hunter2")
    (folder / "link").symlink_to("../secret")
    (folder / "way out").symlink_to("..")
    os.mkfifo(folder / "pipe")
    (folder / "empty").mkdir()
    return folder


def test_a_folder_on_disk_is_copied_by_what_is_seen_of_it(folder: Path, tmp_path: Path) -> None:
    """By the patterns of a folder on disk, without links and pipes; neither side sees later what the other changes."""
    include, exclude = ("*.py", "*.md", "*.key"), (".git", "*.key", "src/deep/**")
    with HostFilesystem(folder, journal=tmp_path / "journal", include=include, exclude=exclude) as source:
        paths = [each.path for each in source.glob("**") if each.kind == "file"]
        fs = InMemoryFilesystem({path: source.read_bytes(path) for path in paths})
    files = {path: data for path, data in tree_of(fs).items() if data is not None}
    assert {path for path in files if path.isascii()} == {"notes.md", "src/a.py"}
    assert len(files) == 3, "a name that is not UTF-8 is spelled as a folder on disk spells it"
    fs.write_text("src/a.py", "changed")
    (folder / "notes.md").write_text("changed")
    assert ((folder / "src/a.py").read_text(), fs.read_text("notes.md")) == ("on disk", "on disk")


def undo_one_write(fs: InMemoryFilesystem) -> None:
    """What a call that writes one file and fails costs the filesystem."""
    snapshot = fs.snapshot()
    fs.write_text("folder 1/file 1.md", "changed")
    fs.restore(snapshot)


def filesystem_of(count: int) -> InMemoryFilesystem:
    """A filesystem of so many files, ten in a folder."""
    return InMemoryFilesystem({f"folder {number // 10}/file {number}.md": "text" for number in range(count)})


def calls_during(work: Callable[[], object]) -> int:
    """How many functions are called, those written in C included."""
    count = 0

    def profile(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal count
        count += event in {"call", "c_call"}

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


def test_undoing_a_write_costs_the_same_however_many_files_there_are() -> None:
    """A snapshot copies nothing and a restore touches what has changed: 5,000 files cost what 10 cost."""
    few, many = filesystem_of(20), filesystem_of(5_000)
    costs = [min(calls_during(partial(undo_one_write, fs)) for _ in range(10)) for fs in (few, many)]
    assert costs[0] == costs[1]


def test_threads_may_write_at_once() -> None:
    """No write is lost, and every folder lists what it holds."""
    fs, start = InMemoryFilesystem(), threading.Barrier(8)

    def write(thread: int) -> None:
        start.wait()
        for number in range(50):
            fs.write_text(f"shared/{thread}/{number}", "x")
            fs.move(f"shared/{thread}/{number}", f"moved/{number}/{thread}")

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(stat.kind == "file" for stat in fs.glob("moved/**")) == 400
    assert all(len(fs.list(f"moved/{number}")) == 8 for number in range(50))
    assert not any(fs.list(f"shared/{thread}") for thread in range(8))
