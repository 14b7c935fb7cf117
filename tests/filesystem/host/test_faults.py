"""A disk that is full, refuses or fails: the tree is as it was, whichever call it was."""

from __future__ import annotations

import errno
import resource
from contextlib import suppress
from pathlib import Path

import pytest

from handrail.errors import FilesystemError, JournalError, RollbackError
from tests.extent import step
from tests.filesystem.kit import CHANGES, ROOM, Change, FromNth, Nth, PlantedTree, WatchedDisk, call, fail
from tests.kit import raises
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


def test_file_larger_than_the_process_may_write_changes_nothing(tree: PlantedTree, wording: Wording) -> None:
    """The limit is one that the operating system sets and keeps."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with tree.open() as fs:
        resource.setrlimit(resource.RLIMIT_FSIZE, (32 << 20, limits[1]))
        try:
            with raises(FilesystemError, wording):
                fs.write_bytes("data.bin", bytes(33 << 20))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
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


def test_journal_of_a_committed_call_that_cannot_be_removed_is_told_of(
    tree: PlantedTree, caplog: pytest.LogCaptureFixture, wording: Wording
) -> None:
    """The call has been committed all the same; nothing is changed on top of it."""
    with tree.open() as fs:
        with call(fs) as transaction:
            fs.write_text("data.bin", "x")
            tree.disk.fail(errno.EIO, "discard")
            transaction.commit()
        assert caplog.messages == wording
        with raises(JournalError, wording):
            fs.write_text("data.bin", "y")
