"""What is particular to the filesystem in memory: how it is made, what its snapshots cost, and threads."""

from __future__ import annotations

import sys
import threading
import tracemalloc
from collections.abc import Callable
from types import FrameType

import pytest

from handrail.errors import PathConflictError, PathEscapeError
from handrail.filesystem import InMemoryFilesystem
from handrail.transaction import Transaction
from handrail.turns import draw_ticket
from tests.filesystem.stores import tree_of


def test_filesystem_is_made_of_text_and_bytes() -> None:
    """Paths may be spelled in any way, and folders need not be named."""
    fs = InMemoryFilesystem({"./a//b.md": "text", "c": b"\xff"})
    assert tree_of(fs) == {"a": None, "a/b.md": b"text", "c": b"\xff"}


@pytest.mark.parametrize("paths", [("a", "./a"), ("a", "a/b"), ("a/b", "a"), (".", "a")])
def test_filesystem_is_not_made_of_files_that_exclude_each_other(paths: tuple[str, str]) -> None:
    """One path is one thing, and nothing given is silently lost."""
    with pytest.raises(PathConflictError):
        InMemoryFilesystem(dict.fromkeys(paths, "x"))


def test_filesystem_is_not_made_of_paths_outside_the_root() -> None:
    """What is given at the start is held to the rules of paths too."""
    with pytest.raises(PathEscapeError):
        InMemoryFilesystem({"../a": "x"})


def test_filesystem_may_be_made_in_a_call_that_only_reads() -> None:
    """Making one changes nothing that anybody had."""
    ticket = draw_ticket((), exclusive=False)
    with Transaction("look", ticket=ticket, writes=False):
        assert InMemoryFilesystem({"a": "x"}).read_text("a") == "x"
    ticket.release()


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


def memory_during(work: Callable[[], object]) -> int:
    """How many bytes are taken at the most."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def least(measured_during: Callable[[Callable[[], object]], int], fs: InMemoryFilesystem) -> int:
    """The least of some measurements: what the undoing itself costs, without what else the process happens to do."""
    return min(measured_during(lambda: undo_one_write(fs)) for _ in range(10))


def test_undoing_a_write_costs_the_same_however_many_files_there_are() -> None:
    """A snapshot copies nothing and a restore touches what has changed: 5,000 files cost what 10 cost."""
    few, many = filesystem_of(20), filesystem_of(5_000)
    assert least(calls_during, many) == least(calls_during, few)
    assert least(memory_during, many) < least(memory_during, few) + 2_000


def test_content_that_no_snapshot_needs_is_freed() -> None:
    """A replaced content lives as long as a snapshot from before is held."""
    old = bytes(bytearray(b"some content that nobody else holds"))
    fs = InMemoryFilesystem({"a": old})
    held = sys.getrefcount(old)
    snapshot = fs.snapshot()
    fs.write_text("a", "new")
    assert sys.getrefcount(old) == held
    del snapshot
    assert sys.getrefcount(old) == held - 1


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
