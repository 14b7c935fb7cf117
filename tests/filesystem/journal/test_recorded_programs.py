"""Programs that a dead process has left: what an opening does with each record, before it restores anything."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from handrail import programs
from handrail.errors import JournalError
from handrail.filesystem import HostFilesystem
from handrail.filesystem.disk import Disk
from handrail.programs import Process, ProgramRecord
from tests.programs.test_processes import child
from tests.wording import Wording

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
