"""A disk that is full, refuses or fails; and what an opening does with what a dead process has left."""

from __future__ import annotations

import errno
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from handrail import programs
from handrail.errors import FilesystemError, JournalError, RollbackError
from handrail.filesystem import HostFilesystem
from handrail.programs import Process, ProgramRecord
from tests.extent import step
from tests.filesystem.kit import (
    CHANGES,
    ROOM,
    Change,
    FromNth,
    Nth,
    PlantedTree,
    WatchedDisk,
    call,
    fail,
    leave_half_done,
)
from tests.kit import raises
from tests.programs.test_program import child
from tests.wording import Wording

STEPS = {CHANGES["several"]: 7, CHANGES["move a folder"]: 4, CHANGES["remove a folder"]: 3}
"""Changes that make so many calls that not all of them are tried, by the distance of those that are."""


@pytest.mark.parametrize("what", [what for what in CHANGES if what != "several"])
def test_full_disk_leaves_the_tree_as_it_was(tmp_path: Path, what: str) -> None:
    """Whichever call finds the disk full, and however often: nothing has changed, and nothing is left lying about."""
    number = 0
    while True:
        number += 1
        tree = PlantedTree(tmp_path / str(number))
        nth = FromNth(number, fail(errno.ENOSPC), among=ROOM)
        with tree.open() as fs:
            tree.disk.before = nth
            try:
                CHANGES[what](fs)
            except FilesystemError:
                tree.disk.heal()
                assert tree.now == tree.before
                fs.write_text("works", "again")
            tree.disk.heal()
        if not nth.has_acted:
            assert number > 2
            return


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.short(2)
def test_failing_call_to_the_disk_is_undone(tmp_path: Path, change: Change) -> None:
    """One call fails, any one: what was changed is put back; or, where that fails, when the tree is opened again."""
    number, distance = 1, STEPS.get(change, 1) * step(2)
    while True:
        number += distance
        tree = PlantedTree(tmp_path / str(number))
        nth = Nth(number, fail(errno.EIO))
        with tree.open() as fs:
            with suppress(FilesystemError, RollbackError), call(fs):
                tree.disk.before = nth
                change(fs)
            tree.disk.heal()
        tree.reopen()
        assert tree.now == tree.before, number
        assert tree.leftovers == []
        if not nth.has_acted:
            assert number > 10
            return


def test_fault_is_told_in_words_that_name_no_path_outside(tree: PlantedTree, wording: Wording) -> None:
    """What a model may read says what was tried, why not, and that nothing was changed."""
    with tree.open() as fs:
        for number in (errno.ENOSPC, errno.EROFS, 9999):
            tree.disk.fail(number, "make_file")
            with raises(FilesystemError, wording) as caught:
                fs.write_text("new", "x")
            assert caught.value.path == "new"
            assert str(tree.root.parent) not in str(caught.value)


def test_file_that_may_not_be_written_is_not_replaced(tmp_path: Path, wording: Wording) -> None:
    """Replacing needs no permission of the file itself; it is asked for all the same."""

    class Strict(WatchedDisk):
        def may_write(self, name: bytes, *, at: int) -> bool:
            return name != b"data.bin"

    tree = PlantedTree(tmp_path, Strict())
    with tree.open() as fs, raises(FilesystemError, wording):
        fs.write_text("data.bin", "x")
    assert tree.now == tree.before


def test_tree_that_cannot_be_put_back_is_not_changed_any_more(tree: PlantedTree, wording: Wording) -> None:
    """The rollback fails, so writing is refused until the filesystem has been opened again, which puts it back."""
    with tree.open() as fs:
        with pytest.raises(RollbackError), call(fs):  # noqa: PT012 - a call
            fs.write_text("data.bin", "x")
            tree.disk.fail(errno.EIO, "rename", on=True)
        tree.disk.heal()
        with raises(JournalError, wording):
            fs.write_text("other", "x")
        assert fs.read_text("data.bin") == "x"
    tree.reopen()
    assert tree.now == tree.before


def test_call_that_cannot_be_synced_is_not_committed(tree: PlantedTree, wording: Wording) -> None:
    """What might not outlive a power failure is not called done."""
    with tree.open() as fs:
        with call(fs) as transaction:
            fs.write_text("data.bin", "x")
            tree.disk.fail(errno.EIO, "sync")
            with raises(FilesystemError, wording):
                transaction.commit()
        assert tree.now == tree.before
        fs.write_text("data.bin", "works again")


def test_journal_that_stays_is_told_of(tree: PlantedTree, caplog: pytest.LogCaptureFixture, wording: Wording) -> None:
    """The call has been committed all the same; nothing is changed on top of it."""
    with tree.open() as fs:
        with call(fs, commits=True):
            fs.write_text("data.bin", "x")
            tree.disk.fail(errno.EIO, "discard")
        assert caplog.messages == wording
        with raises(JournalError, wording):
            fs.write_text("data.bin", "y")


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
@pytest.mark.parametrize("at", [0, 1, 2])
def test_damaged_image_stays(tree: PlantedTree, damage: Callable[[Path], object], at: int, wording: Wording) -> None:
    """Nothing is; the message names it, and when the copy is back all is put back."""
    leave_half_done(tree, change)
    image, changed = images(tree.journal)[at], tree.now
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


def test_unkillable_process_closes_it(tree: PlantedTree, monkeypatch: pytest.MonkeyPatch, wording: Wording) -> None:
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
