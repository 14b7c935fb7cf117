"""What is particular to a filesystem on disk: names, permissions, owners and special files."""

from __future__ import annotations

import errno
import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from handrail.errors import (
    PathConflictError,
)
from handrail.filesystem import FileStart, FileStat, HostFilesystem
from handrail.filesystem.protocol import MOST_HASHED_BYTES
from tests.filesystem.disks import Nth, WatchedDisk, fail, picture
from tests.kit import raises
from tests.wording import Wording


def test_name_that_is_no_utf8_can_be_used_everywhere(fs: HostFilesystem, root: Path) -> None:
    """It is listed, read, written, moved, found and removed by its spelling, and undone to the byte."""
    before, snapshot = picture(root), fs.snapshot()
    assert "caf␛E9" in [each.path for each in fs.list()]
    assert [each.path for each in fs.glob("caf*")] == ["caf␛E9"]
    assert fs.read_text("caf␛E9") == "latin"
    fs.write_text("caf␛E9", "changed")
    fs.move("caf␛E9", "new/␛FF")
    assert [os.fsencode(each.name) for each in (root / "new").iterdir()] == [b"\xff"]
    fs.remove("new/␛FF")
    fs.restore(snapshot)
    assert picture(root) == before


def test_replaced_file_keeps_its_permissions_and_a_new_one_gets_the_usual(fs: HostFilesystem, root: Path) -> None:
    """A script stays executable; the mask of the process holds for what is new."""
    fs.write_text("notes/run.sh", "echo")
    assert stat.S_IMODE((root / "notes/run.sh").stat().st_mode) == 0o750
    mask = os.umask(0o027)
    try:
        fs.write_text("new", "x")
    finally:
        os.umask(mask)
    assert stat.S_IMODE((root / "new").stat().st_mode) == 0o640


def test_write_leaves_the_other_names_of_a_file_alone(fs: HostFilesystem, root: Path) -> None:
    """A hard link is another file to the model, and becomes one."""
    fs.write_text("data.bin", "changed")
    assert (root / "twin").read_bytes() == bytes(range(256)) * 10


def test_large_file_is_identified_without_being_read(root: Path, tmp_path: Path) -> None:
    """By size, time and inode: a change of any of them is another identity, and no byte of it is read."""
    large, read = root / "large", Nth(1, lambda: None, among=frozenset({"chunks", "start"}))
    with large.open("wb") as file:
        file.truncate(4 << 30)
    with HostFilesystem(root, journal=tmp_path / "j", disk=WatchedDisk(read)) as fs:
        seen = {fs.identity("large")}
        assert len(next(iter(seen))) < 64
        os.utime(large, ns=(1, 1))
        seen.add(fs.identity("large"))
        os.truncate(large, (4 << 30) + 1)
        os.utime(large, ns=(1, 1))
        seen.add(fs.identity("large"))
        large.rename(root / "aside")
        with large.open("wb") as file:
            file.truncate((4 << 30) + 1)
        os.utime(large, ns=(1, 1))
        seen.add(fs.identity("large"))
        assert len(seen) == 4
        assert not read.seen
        assert fs.read_start("large", 2) == FileStart(b"\0\0", (4 << 30) + 1)


def test_file_of_as_many_bytes_as_are_hashed_is_identified_by_its_content(fs: HostFilesystem, root: Path) -> None:
    """One byte more is too many."""
    with (root / "large").open("wb") as file:
        file.truncate(MOST_HASHED_BYTES)
    assert len(fs.identity("large")) == 64
    os.truncate(root / "large", MOST_HASHED_BYTES + 1)
    assert len(fs.identity("large")) < 64


SPECIAL: dict[str, Callable[[HostFilesystem], object]] = {
    "read": lambda fs: fs.read_bytes("odd/fifo"),
    "read the start": lambda fs: fs.read_start("odd/fifo", 1),
    "identify": lambda fs: fs.identity("odd/fifo"),
    "read a socket": lambda fs: fs.read_bytes("odd/socket"),
    "write": lambda fs: fs.write_text("odd/fifo", "x"),
    "remove": lambda fs: fs.remove("odd/fifo"),
    "remove around": lambda fs: fs.remove("odd", recursive=True),
    "move": lambda fs: fs.move("odd/fifo", "fifo"),
    "move around": lambda fs: fs.move("odd", "other"),
}


@pytest.mark.parametrize("operation", SPECIAL.values(), ids=SPECIAL)
def test_special_files_are_listed_and_left_alone(
    fs: HostFilesystem,
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    operation: Callable[[HostFilesystem], object],
    wording: Wording,
) -> None:
    """A fifo would block whoever reads it, and none could be put back."""
    (root / "odd").mkdir()
    os.mkfifo(root / "odd" / "fifo")
    monkeypatch.chdir(root)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("odd/socket")
        before = picture(root)
        with raises(PathConflictError, wording):
            operation(fs)
        assert picture(root) == before
        assert fs.list("odd") == (FileStat("odd/fifo", "special", 0), FileStat("odd/socket", "special", 0))


@pytest.mark.parametrize("may_give", [True, False])
def test_replaced_file_keeps_its_owner_if_the_process_may_give_files_away(
    root: Path, tmp_path: Path, *, may_give: bool
) -> None:
    """If it may not, the file loses the right to run as its owner."""
    given = list[tuple[int, int]]()

    class Theirs(WatchedDisk):
        def give(self, descriptor: int, owner: tuple[int, int]) -> None:
            given.append(owner)
            if not may_give:
                fail(errno.EPERM)()
            super().give(descriptor, (-1, -1))

        def look(self, name: bytes, *, at: int) -> os.stat_result | None:
            status = super().look(name, at=at)
            return status if status is None else os.stat_result((*status[:4], 4242, *status[5:]))

    path = root / "notes/run.sh"
    path.chmod(0o4755)
    with HostFilesystem(root, journal=tmp_path / "journal", disk=Theirs()) as fs:
        fs.write_text("notes/run.sh", "x")
    assert given == [(4242, path.stat().st_gid)]
    assert stat.S_IMODE(path.stat().st_mode) == (0o4755 if may_give else 0o755)


def test_file_that_becomes_a_fifo_meanwhile_is_not_read(root: Path, tmp_path: Path, wording: Wording) -> None:
    """It is looked at again once it is open."""

    def exchange() -> None:
        (root / "data.bin").unlink()
        os.mkfifo(root / "data.bin")

    disk = WatchedDisk()
    with HostFilesystem(root, journal=tmp_path / "journal", disk=disk) as fs:
        disk.before = Nth(1, exchange, among=frozenset({"open_file"}))
        with pytest.raises(PathConflictError) as raised:
            fs.read_bytes("data.bin")
    assert str(raised.value) == wording
