"""What is refused at the opening: contents that are not what was saved."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from handrail.errors import JournalError, RollbackError
from handrail.filesystem import HostFilesystem
from tests.filesystem.calls import call
from tests.filesystem.disks import FromNth, Picture, WatchedDisk, fail, picture, plant, quiet
from tests.wording import Wording


def left_half_done(root: Path, journal: Path, work: Callable[[HostFilesystem], object]) -> Picture:
    """Leave a journal behind, as a process that dies in a call does; returns the tree as it was."""
    plant(root)
    before, disk = picture(root), WatchedDisk()
    with HostFilesystem(root, journal=journal, disk=disk) as fs:
        with pytest.raises(RollbackError), call(fs):  # noqa: PT012 - leaving it
            work(fs)
            disk.before = FromNth(1, fail(errno.EIO))
        disk.before = quiet
    assert picture(root) != before
    return before


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
    tmp_path: Path, damage: Callable[[Path], object], number: int, wording: Wording
) -> None:
    """Nothing is; the message names it, and when the copy is back all is put back."""
    root, journal = tmp_path / "root", tmp_path / "journal"
    root.mkdir()
    before = left_half_done(root, journal, change)
    image, changed = images(journal)[number], picture(root)
    away = tmp_path / "away"
    content, status = image.read_bytes(), image.stat()
    damage(image)
    with pytest.raises(JournalError) as raised:
        HostFilesystem(root, journal=journal)
    assert re.sub("[0-9a-f]{32}", "<journal>", str(raised.value)) == wording
    assert picture(root) == changed
    away.write_bytes(content)
    away.chmod(status.st_mode)
    os.utime(away, ns=(status.st_atime_ns, status.st_mtime_ns))
    away.replace(image)
    HostFilesystem(root, journal=journal).close()
    assert picture(root) == before


def test_file_that_is_still_in_the_tree_may_have_been_written_to(tmp_path: Path) -> None:
    """It is the very file that the journal holds; the rest is put back."""
    root, journal = tmp_path / "root", tmp_path / "journal"
    root.mkdir()

    def fail_half_way(fs: HostFilesystem) -> None:
        fs.write_text("notes/plan.md", "2. leap\n")

    before = left_half_done(root, journal, fail_half_way)
    (image,) = images(journal)
    (root / "notes" / "plan.md").unlink()
    (root / "notes" / "plan.md").hardlink_to(image)
    (root / "notes" / "plan.md").write_text("by hand\n")
    HostFilesystem(root, journal=journal).close()
    before["notes/plan.md"] = (*before["notes/plan.md"][:2], b"by hand\n")
    assert picture(root) == before
