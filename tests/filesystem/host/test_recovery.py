"""What an opening does with what a dead process has left: damaged contents, and programs."""

from __future__ import annotations

import errno
import os
import re
import subprocess
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from handrail import programs
from handrail.errors import JournalError, RollbackError
from handrail.filesystem import HostFilesystem
from handrail.filesystem.disk import Disk
from handrail.programs import Process, ProgramRecord
from tests.filesystem.kit import FromNth, Picture, WatchedDisk, call, fail, picture, plant, quiet
from tests.programs.test_process_tree import child
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


Opening = Callable[[], HostFilesystem]


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """Where the journal is."""
    return tmp_path / "journal"


@pytest.fixture
def opening(tmp_path: Path, journal: Path) -> Opening:
    """Opens the folder of the test."""
    (tmp_path / "root").mkdir()
    return lambda: HostFilesystem(tmp_path / "root", journal=journal)


@contextmanager
def left_over(call: str) -> Generator[tuple[ProgramRecord, subprocess.Popen[bytes]]]:
    """A process of a call."""
    with child(call) as (process, _):
        yield ProgramRecord(call), process


def records_in(journal: Path) -> list[str]:
    """The records in a journal's folder."""
    return sorted(path.name for path in journal.glob("program-*"))


def test_program_of_a_dead_process_is_killed_at_the_next_opening(opening: Opening, journal: Path) -> None:
    """And no other one."""
    with left_over("one") as (program, process), left_over("other") as (_, other):
        with opening() as files:
            files.programs.record(program)
        assert records_in(journal) == ["program-one"]
        opening().close()
        assert process.wait() == -9
        assert other.poll() is None
        assert records_in(journal) == []


def test_record_of_a_program_that_has_ended_is_removed(opening: Opening, journal: Path) -> None:
    """By the call; or by the next opening, if the disk failed meanwhile."""
    with left_over("one") as (program, _), opening() as files:
        files.programs.record(program)
        files.programs.discard(program)
        assert records_in(journal) == []
        files.programs.discard(program)


@pytest.mark.parametrize("data", [b"", b"desk a-boot/1/2 17", b"\xff"])
def test_part_of_a_record_is_removed(opening: Opening, journal: Path, data: bytes) -> None:
    """Its program was never started."""
    opening().close()
    (journal / "program-one").write_bytes(data)
    opening().close()
    assert records_in(journal) == []


def test_process_that_cannot_be_killed_keeps_the_folder_closed(
    opening: Opening, journal: Path, monkeypatch: pytest.MonkeyPatch, wording: Wording
) -> None:
    """It could change files that are being restored; the next opening tries again."""

    def unkillable(find: Callable[[], set[Process]]) -> set[Process]:
        assert len(find()) == 1
        return {Process(12, 1), Process(7, 1)}

    with left_over("one") as (program, process):
        with opening() as files:
            files.programs.record(program)
        with monkeypatch.context() as patched:
            patched.setattr(programs, "kill_all", unkillable)
            with pytest.raises(JournalError) as caught:
                opening()
        assert str(caught.value) == wording
        assert records_in(journal) == ["program-one"]
        opening().close()
        assert process.wait() == -9


class _FailingDisk(Disk):
    """A disk on which files can be neither written nor removed."""

    def write(self, descriptor: int, data: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def unlink(self, name: bytes, *, at: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))


def test_disk_that_fails_keeps_a_program_from_running_but_not_its_call_from_ending(tmp_path: Path) -> None:
    """What is not recorded must not run; a record that stays harms nobody."""
    with (
        left_over("one") as (program, _),
        HostFilesystem(tmp_path, journal=tmp_path.with_name("other"), disk=_FailingDisk()) as files,
    ):
        with pytest.raises(OSError):
            files.programs.record(program)
        files.programs.discard(program)
