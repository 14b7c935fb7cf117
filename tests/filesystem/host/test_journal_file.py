"""The format of a journal on disk: what is read of one that was cut short, damaged, or written by others."""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail.errors import JournalError
from handrail.filesystem.disk import Disk
from handrail.filesystem.host.journal import (
    NO_BEFORE_IMAGE,
    BeforeImage,
    FileIdentity,
    JournalFile,
    JournalHeader,
    JournalRecords,
    read_journal,
)
from tests.filesystem.kit import PlantedTree, WatchedDisk
from tests.kit import raises
from tests.wording import Wording

HEADER = JournalHeader(7, "sqlite:///desk.db")
FILE = BeforeImage("file", 0o640, (1, 2), "image-1", b"", FileIdentity("file", 5, 6, 7), (6, 8))
LINK = BeforeImage("symlink", target=b"caf\xe9/..", mark=FileIdentity("symlink", 8, 9, 10))


@pytest.fixture
def folder(tmp_path: Path) -> Generator[int]:
    """A descriptor of a folder for journals."""
    descriptor = os.open(tmp_path, os.O_RDONLY)
    yield descriptor
    os.close(descriptor)


def made(*records: dict[str, object]) -> bytes:
    """A journal of any records, and of two notes and a preparation if none are given."""
    with tempfile.TemporaryDirectory() as path:
        descriptor = os.open(path, os.O_RDONLY)
        written = JournalFile("id", descriptor, Disk(), synced=False)
        for record in records:
            written.append(record)
        if not records:
            written.record_images({"a": FILE, "b␛E9": NO_BEFORE_IMAGE}, HEADER)
            written.record_images({"c": LINK}, HEADER)
            written.prepare()
            written.prepare()
        written.close()
        os.close(descriptor)
        return Path(path, "journal-id").read_bytes()


JOURNAL = made()


WHOLE = JournalRecords(HEADER, {"a": FILE, "b␛E9": NO_BEFORE_IMAGE, "c": LINK}, {}, prepared=True)


def test_journal_that_was_cut_short_holds_what_was_whole() -> None:
    """Whatever the length: each record counts or does not, and none is taken for another."""
    records = [read_journal("id", JOURNAL[:length], b"") for length in range(len(JOURNAL) + 1)]
    counts = [len(read.images) for read in records]
    assert (counts, {*counts}) == (sorted(counts), {0, 2, 3})
    assert [read.prepared for read in records] == [False] * len(JOURNAL) + [True]


def test_zeros_at_the_end_are_no_record() -> None:
    """A power failure may leave a file longer than what was written to it."""
    assert read_journal("id", JOURNAL + bytes(100), b"") == WHOLE
    assert read_journal("id", bytes(100), b"") == JournalRecords()


@given(data=st.data())
def test_damaged_record_is_not_passed_over(data: st.DataObject) -> None:
    """A byte that differs is found, unless it lies in the last record, which then counts as cut short."""
    place = data.draw(st.integers(0, len(JOURNAL) - 1))
    damaged = bytearray(JOURNAL)
    damaged[place] ^= data.draw(st.integers(1, 255))
    with contextlib.suppress(JournalError):
        found = read_journal("id", bytes(damaged), b"")
        assert not found.prepared
        assert found.images == WHOLE.images


@pytest.mark.parametrize("record", [
    {}, {"version": 2}, {"version": 1, "inode": 1, "store": None, "images": [[1]]},
    {"version": 1, "inode": 1, "store": None, "tree": "x"}, {"version": []},
], ids=["empty", "newer", "an image", "a tree", "no number"])  # fmt: skip
def test_record_of_another_make_is_not_guessed_at(record: dict[str, object], wording: Wording) -> None:
    """Its checksums are right and it makes no sense here: a newer Handrail has written it, or somebody else."""
    with raises(JournalError, wording):
        read_journal("id", made(record), b"")


def test_marks_that_were_cut_short_cost_no_others(folder: int, tmp_path: Path) -> None:
    """A line that makes no sense is left out."""
    written = JournalFile("id", folder, Disk(), synced=False)
    written.record_images({"a": FILE, "c": NO_BEFORE_IMAGE}, HEADER)
    written.mark([("a", FileIdentity("file", 1, 2, 3)), ("a", FileIdentity("nothing"))])
    written.close()
    with (tmp_path / "marks-id").open("ab") as file:
        file.write(b'\n["b", "fi')
    again = JournalFile("id", folder, Disk(), synced=False, records=JournalRecords())
    again.mark([("c", FileIdentity("folder"))])
    again.close()
    marks = read_journal("id", (tmp_path / "journal-id").read_bytes(), (tmp_path / "marks-id").read_bytes()).marks
    assert marks == {"a": {FileIdentity("file", 1, 2, 3), FileIdentity("nothing")}, "c": {FileIdentity("folder")}}


def test_mark_without_an_image_proves_that_a_record_is_lost(wording: Wording) -> None:
    """Paths are marked after their images have been recorded, so what was cut off was more than the crash could."""
    marks = b'\n["c", "file", 1, 2, 3]'
    assert read_journal("id", JOURNAL[:-1], marks).images == WHOLE.images
    for journal in (JOURNAL[:40], b""):
        with raises(JournalError, wording):
            read_journal("id", journal, marks)


def test_record_that_could_not_be_written_does_not_spoil_the_next(folder: int, tmp_path: Path) -> None:
    """What the disk has got of it is cut off first."""
    disk = WatchedDisk()
    written = JournalFile("id", folder, disk, synced=True)
    written.record_images({"a": FILE, "b␛E9": NO_BEFORE_IMAGE}, HEADER)
    disk.fail(errno.EIO, "sync", at=2, on=True)
    with pytest.raises(OSError, match="Input/output"):
        written.record_images({"x": FILE, "y": NO_BEFORE_IMAGE}, HEADER)
    disk.heal()
    written.record_images({"c": LINK}, HEADER)
    written.prepare()
    written.discard(keep_record=True)
    assert read_journal("id", (tmp_path / "settled-id").read_bytes(), b"") == WHOLE


class Anew(WatchedDisk):
    """A disk on which the folder that was made last has the inode of the one before it."""

    number: int | None = None

    def generation(self, descriptor: int) -> int | None:
        return self.number


@pytest.mark.parametrize("before, now", [(7, 8), (7, 7), (None, 8), (7, None)])
def test_new_folder_is_another_one(before: int | None, now: int | None, tree: PlantedTree, wording: Wording) -> None:
    """Its files are not replaced by those of the former one; where the disk does not say, the inode decides."""
    tree.disk = disk = Anew()
    tree.reopen()
    folder = os.open(tree.journal, os.O_RDONLY)
    journal = JournalFile("abc", folder, Disk(), synced=False)
    journal.record_images({"twin": NO_BEFORE_IMAGE}, JournalHeader(tree.root.stat().st_ino, None, before))
    journal.close()
    os.close(folder)
    disk.number, is_other = now, (before, now) == (7, 8)
    with raises(JournalError, wording) if is_other else contextlib.nullcontext():
        tree.reopen()
    assert (tree.root / "twin").exists() is is_other


def test_damaged_journal_keeps_the_tree_from_being_opened(tree: PlantedTree, wording: Wording) -> None:
    """Nothing is undone by half; the message says what to look at and what to remove."""
    tree.reopen()
    journal = tree.journal / "journal-abc"
    journal.write_bytes(b"\x01" + JOURNAL[1:])
    with pytest.raises(JournalError, match="journal-abc"):
        tree.open()
    journal.write_bytes(JOURNAL)
    with raises(JournalError, wording):
        tree.open()
    journal.write_bytes(b"")
    tree.reopen()
    assert tree.leftovers == []
