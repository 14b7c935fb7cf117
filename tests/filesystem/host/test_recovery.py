"""What an opening does with what a dead process has left: damaged contents, and programs."""

from __future__ import annotations

import errno
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from handrail import programs
from handrail.errors import JournalError, RollbackError
from handrail.filesystem import HostFilesystem
from handrail.programs import Process, ProgramRecord
from tests.filesystem.kit import PlantedTree, call
from tests.kit import raises
from tests.programs.test_processes import child
from tests.wording import Wording


def leave_half_done(tree: PlantedTree, work: Callable[[HostFilesystem], object]) -> None:
    """Leave a journal behind, as a process that dies in a call does."""
    with tree.open() as fs:
        with pytest.raises(RollbackError), call(fs):  # noqa: PT012 - leaving it
            work(fs)
            tree.disk.fail(errno.EIO, on=True)
        tree.disk.heal()
    assert tree.now != tree.before


def change(fs: HostFilesystem) -> None:
    """Replace a file that has one name and one that has two, and remove a folder."""
    fs.write_text("notes/plan.md", "2. leap\n")
    fs.write_text("data.bin", "half")
    fs.remove("notes/old", recursive=True)


def images(journal: Path) -> list[Path]:
    """The files that hold contents."""
    return sorted(journal.glob("image-*"))


def cut(image: Path) -> None:
    """As a failing disk does."""
    os.truncate(image, 1 if image.stat().st_size != 1 else 0)


def alter(image: Path) -> None:
    """Leave the size as it is."""
    status = image.stat()
    image.write_bytes(bytes(status.st_size))
    os.utime(image, ns=(status.st_atime_ns, status.st_mtime_ns + 1))


def exchange(image: Path) -> None:
    """Put something else in its place."""
    image.unlink()
    image.symlink_to("/etc/hostname")


@pytest.mark.parametrize("damage", [cut, alter, exchange, Path.unlink])
@pytest.mark.parametrize("number", [0, 1, 2])
def test_damaged_content_is_not_put_back(
    tree: PlantedTree, damage: Callable[[Path], object], number: int, wording: Wording
) -> None:
    """Nothing is; the message names it, and when the copy is back all is put back."""
    leave_half_done(tree, change)
    image, changed = images(tree.journal)[number], tree.now
    copy = tree.root.with_name("copy")
    shutil.copy2(image, copy)
    damage(image)
    with pytest.raises(JournalError) as raised:
        tree.open()
    assert re.sub("[0-9a-f]{32}", "<journal>", str(raised.value)) == wording
    assert tree.now == changed
    copy.replace(image)
    tree.reopen()
    assert tree.now == tree.before


def test_file_that_is_still_in_the_tree_may_have_been_written_to(tree: PlantedTree) -> None:
    """It is the very file that the journal holds; the rest is put back."""
    plan = tree.root / "notes" / "plan.md"
    leave_half_done(tree, lambda fs: fs.write_text("notes/plan.md", "2. leap\n"))
    (image,) = images(tree.journal)
    plan.unlink()
    plan.hardlink_to(image)
    plan.write_text("by hand\n")
    tree.reopen()
    tree.before["notes/plan.md"] = (*tree.before["notes/plan.md"][:2], b"by hand\n")
    assert tree.now == tree.before


@contextmanager
def left_over(call: str) -> Generator[tuple[ProgramRecord, subprocess.Popen[bytes]]]:
    """A process of a call."""
    with child(call) as (process, _):
        yield ProgramRecord(call), process


def test_program_of_a_dead_process_is_killed_at_the_next_opening(tree: PlantedTree) -> None:
    """And no other one."""
    with left_over("one") as (program, process), left_over("other") as (_, other):
        with tree.open() as files:
            files.programs.record(program)
        assert (tree.journal / "program-one").exists()
        tree.reopen()
        assert (process.wait(), other.poll(), tree.leftovers) == (-9, None, [])


def test_record_of_a_program_that_has_ended_is_removed(tree: PlantedTree) -> None:
    """By the call; or by the next opening, if the disk failed meanwhile."""
    with left_over("one") as (program, _), tree.open() as files:
        files.programs.record(program)
        for _number in range(2):
            files.programs.discard(program)
            assert tree.leftovers == []


@pytest.mark.parametrize("data", [b"", b"desk a-boot/1/2 17", b"\xff"])
def test_part_of_a_record_is_removed(tree: PlantedTree, data: bytes) -> None:
    """Its program was never started."""
    tree.journal.mkdir()
    (tree.journal / "program-one").write_bytes(data)
    tree.reopen()
    assert tree.leftovers == []


def test_process_that_cannot_be_killed_keeps_the_folder_closed(
    tree: PlantedTree, monkeypatch: pytest.MonkeyPatch, wording: Wording
) -> None:
    """It could change files that are being restored; the next opening tries again."""

    def unkillable(find: Callable[[], set[Process]]) -> set[Process]:
        assert len(find()) == 1
        return {Process(12, 1), Process(7, 1)}

    with left_over("one") as (program, process):
        with tree.open() as files:
            files.programs.record(program)
        with monkeypatch.context() as patched, raises(JournalError, wording):
            patched.setattr(programs, "kill_all", unkillable)
            tree.open()
        assert tree.leftovers == ["program"]
        tree.reopen()
        assert process.wait() == -9


def test_disk_that_fails_keeps_a_program_from_running_but_not_its_call_from_ending(tree: PlantedTree) -> None:
    """What is not recorded must not run; a record that stays harms nobody."""
    with left_over("one") as (program, _), tree.open() as files:
        tree.disk.fail(errno.EIO, "write", "unlink", on=True)
        with pytest.raises(OSError):
            files.programs.record(program)
        files.programs.discard(program)
        tree.disk.heal()
