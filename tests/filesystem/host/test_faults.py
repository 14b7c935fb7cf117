"""A disk that is full, refuses or fails: the tree is as it was, whichever call it was."""

from __future__ import annotations

import errno
import resource
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from handrail.errors import FilesystemError, JournalError, RollbackError
from handrail.filesystem import HostFilesystem
from tests.extent import step
from tests.filesystem.calls import call
from tests.filesystem.changes import CHANGES, Change
from tests.filesystem.disks import ROOM, FromNth, Nth, WatchedDisk, fail, picture, plant, quiet
from tests.kit import raises
from tests.wording import Wording

each_change = pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)


STEPS = {CHANGES["several"]: 7, CHANGES["move a folder"]: 4, CHANGES["remove a folder"]: 3}
"""Changes that make so many calls that not all of them are tried, by the distance of those that are."""


def planted(folder: Path) -> Path:
    """A root with the usual tree, in a folder of its own."""
    root = folder / "root"
    root.mkdir(parents=True)
    plant(root)
    return root


def fails_at_each(
    folder: Path, change: Change, watch: Callable[[int], Nth], look: Callable[[HostFilesystem, Path, Nth], None]
) -> int:
    """Make a change over and over, with a fault one call later each time; returns how often it failed."""
    number = 0
    while True:
        number += 1
        root, disk = planted(folder / str(number)), WatchedDisk()
        nth = watch(number)
        with HostFilesystem(root, journal=folder / str(number) / "journal", disk=disk, durability="full") as fs:
            disk.before = nth
            try:
                change(fs)
            except FilesystemError:
                disk.before = quiet
                look(fs, root, nth)
            else:
                disk.before = quiet
                if not nth.has_acted:
                    return number - 1


@pytest.mark.parametrize("what", [what for what in CHANGES if what != "several"])
def test_full_disk_leaves_the_tree_as_it_was(tmp_path: Path, what: str) -> None:
    """Whichever call finds the disk full, and however often: nothing has changed, and nothing is left lying about."""

    def look(fs: HostFilesystem, root: Path, _nth: Nth) -> None:
        expected = root.with_name("expected")
        expected.mkdir()
        plant(expected)
        assert picture(root) == picture(expected)
        fs.write_text("works", "again")

    change = CHANGES[what]
    assert fails_at_each(tmp_path, change, lambda number: FromNth(number, fail(errno.ENOSPC), among=ROOM), look) >= 2


@each_change
@pytest.mark.short(2)
def test_failing_call_to_the_disk_is_undone(tmp_path: Path, change: Change) -> None:
    """One call fails, any one: what was changed is put back; or, where that fails, when the tree is opened again."""
    number, distance = 1, STEPS.get(change, 1) * step(2)
    while True:
        number += distance
        folder = tmp_path / str(number)
        root, disk = planted(folder), WatchedDisk()
        before, nth = picture(root), Nth(number, fail(errno.EIO))
        with HostFilesystem(root, journal=folder / "journal", disk=disk) as fs:
            with suppress(FilesystemError, RollbackError), call(fs):
                disk.before = nth
                change(fs)
            disk.before = quiet
        HostFilesystem(root, journal=folder / "journal").close()
        assert picture(root) == before, number
        assert sorted(each.name for each in (folder / "journal").iterdir()) == ["lock", "root"]
        if not nth.has_acted:
            assert number > 10
            return


def test_fault_is_told_in_words_that_name_no_path_outside(tmp_path: Path, wording: Wording) -> None:
    """What a model may read says what was tried, why not, and that nothing was changed."""
    root, disk = planted(tmp_path), WatchedDisk()
    with HostFilesystem(root, journal=tmp_path / "journal", disk=disk) as fs:
        for number in (errno.ENOSPC, errno.EROFS, 9999):
            disk.before = Nth(1, fail(number), among=frozenset({"make_file"}))
            with raises(FilesystemError, wording) as caught:
                fs.write_text("new", "x")
            assert caught.value.path == "new"
            assert str(tmp_path) not in str(caught.value)


def test_file_that_may_not_be_written_is_not_replaced(tmp_path: Path, wording: Wording) -> None:
    """Replacing needs no permission of the file itself; it is asked for all the same."""

    class Strict(WatchedDisk):
        def may_write(self, name: bytes, *, at: int) -> bool:
            return name != b"data.bin"

    root = planted(tmp_path)
    before = picture(root)
    with HostFilesystem(root, journal=tmp_path / "journal", disk=Strict()) as fs:
        with raises(FilesystemError, wording):
            fs.write_text("data.bin", "x")
        assert picture(root) == before


def test_file_larger_than_the_process_may_write_changes_nothing(tmp_path: Path, wording: Wording) -> None:
    """The limit is one that the operating system sets and keeps."""
    root = planted(tmp_path)
    before, limits = picture(root), resource.getrlimit(resource.RLIMIT_FSIZE)
    with HostFilesystem(root, journal=tmp_path / "journal") as fs:
        resource.setrlimit(resource.RLIMIT_FSIZE, (32 << 20, limits[1]))
        try:
            with raises(FilesystemError, wording):
                fs.write_bytes("data.bin", bytes(33 << 20))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert picture(root) == before


def test_tree_that_cannot_be_put_back_is_not_changed_any_more(tmp_path: Path, wording: Wording) -> None:
    """The rollback fails, so writing is refused until the filesystem has been opened again, which puts it back."""
    root, disk = planted(tmp_path), WatchedDisk()
    before = picture(root)
    with HostFilesystem(root, journal=tmp_path / "journal", disk=disk) as fs:
        with pytest.raises(RollbackError), call(fs):  # noqa: PT012 - a call
            fs.write_text("data.bin", "x")
            disk.before = FromNth(1, fail(errno.EIO), among=frozenset({"rename"}))
        disk.before = quiet
        with raises(JournalError, wording):
            fs.write_text("other", "x")
        assert fs.read_text("data.bin") == "x"
    HostFilesystem(root, journal=tmp_path / "journal").close()
    assert picture(root) == before


def test_call_that_cannot_be_synced_is_not_committed(tmp_path: Path, wording: Wording) -> None:
    """What might not outlive a power failure is not called done."""
    root, disk = planted(tmp_path), WatchedDisk()
    before = picture(root)
    with HostFilesystem(root, journal=tmp_path / "journal", disk=disk) as fs:
        with call(fs) as transaction:
            fs.write_text("data.bin", "x")
            disk.before = Nth(1, fail(errno.EIO), among=frozenset({"sync"}))
            with raises(FilesystemError, wording):
                transaction.commit()
        assert picture(root) == before
        fs.write_text("data.bin", "works again")


def test_journal_of_a_committed_call_that_cannot_be_removed_is_told_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, wording: Wording
) -> None:
    """The call has been committed all the same; nothing is changed on top of it."""
    root, disk = planted(tmp_path), WatchedDisk()
    with HostFilesystem(root, journal=tmp_path / "journal", disk=disk) as fs:
        with call(fs) as transaction:
            fs.write_text("data.bin", "x")
            disk.before = Nth(1, fail(errno.EIO), among=frozenset({"discard"}))
            transaction.commit()
        assert caplog.messages == wording
        with raises(JournalError, wording):
            fs.write_text("data.bin", "y")
