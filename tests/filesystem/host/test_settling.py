"""How files are committed with a call: the store decides, and what a crash leaves is settled at the next opening."""

from __future__ import annotations

import contextvars
import errno
import re
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

import pytest

from handrail.crash_points import arm
from handrail.errors import (
    CommitInDoubtError,
    FilesystemError,
    JournalError,
    RollbackError,
    StoreUnavailableError,
    TransactionClosedError,
)
from handrail.filesystem import HostFilesystem
from handrail.filesystem.disk import Disk
from handrail.transaction import UnitOfWork
from handrail.transaction.unit_of_work import Refusal
from tests.filesystem.calls import call
from tests.filesystem.decisions import Decisions
from tests.filesystem.disks import Nth, WatchedDisk, fail, picture, quiet
from tests.kit import raises
from tests.wording import Wording


class Open(Protocol):
    """Opens the tree of a test, with the same journal each time."""

    def __call__(self, *, store: Decisions | None = None, disk: Disk | None = None) -> HostFilesystem: ...


@pytest.fixture
def open_root(root: Path, tmp_path: Path) -> Open:
    """Open the tree, with the same journal each time."""

    def open_it(*, store: Decisions | None = None, disk: Disk | None = None) -> HostFilesystem:
        return HostFilesystem(root, journal=tmp_path / "journal", store=store, disk=disk)

    return open_it


def left_in(journal: Path) -> list[str]:
    """What is in the journal's folder beside what always is, without ids."""
    return sorted(each.name.partition("-")[0] for each in journal.iterdir() if each.name not in {"lock", "root"})


def in_doubt(fs: HostFilesystem, store: Decisions, *, lost: str) -> None:
    """Commit a call whose store is lost in the moment of the commit."""
    store.lost = lost
    with pytest.raises(CommitInDoubtError), call(fs) as transaction:  # noqa: PT012 - leaving it raises
        fs.write_text("data.bin", "changed")
        transaction.commit()
    store.lost = None


def test_store_knows_a_journal_only_as_long_as_there_is_one(open_root: Open, tmp_path: Path) -> None:
    """It takes note of it in its unit, and forgets it when the journal has been discarded."""
    store, told = Decisions(), list[tuple[str, int, list[str]]]()

    def watch(point: str) -> None:
        if not point.endswith(("image", "change")):
            told.append((point, len(store.kept), left_in(tmp_path / "journal")))

    with open_root(store=store) as fs:
        arm(watch)
        try:
            with call(fs) as transaction:
                fs.write_text("new", "x")
                transaction.commit()
        finally:
            arm(None)
        assert told == [
            ("journal-prepared", 0, ["journal", "marks"]),
            ("journal-before-discard", 1, ["journal", "marks"]),
            ("journal-after-discard", 1, ["settled"]),
        ]
        assert store.kept == set()
        assert left_in(tmp_path / "journal") == []


@pytest.mark.parametrize("lost", ["before", "after"])
def test_store_decides_about_files_that_are_in_doubt(open_root: Open, root: Path, tmp_path: Path, lost: str) -> None:
    """Whether the commit took place is asked at the next opening; then the files are as the store says."""
    store, before = Decisions(), picture(root)
    with open_root(store=store) as fs:
        in_doubt(fs, store, lost=lost)
    open_root(store=store).close()
    assert (picture(root) == before) is (lost == "before")
    assert ((root / "data.bin").read_text() if lost == "after" else "changed") == "changed"
    assert store.kept == set()
    assert left_in(tmp_path / "journal") == []


def test_files_in_doubt_are_not_changed_any_more(open_root: Open, root: Path, wording: Wording) -> None:
    """What is written on top of them might be undone with them."""
    store = Decisions()
    with open_root(store=store) as fs:
        in_doubt(fs, store, lost="after")
        with raises(JournalError, wording):
            fs.write_text("other", "x")
    assert (root / "data.bin").read_text() == "changed"


@pytest.mark.parametrize("given", [None, Decisions("fake:two")], ids=["no store", "another store"])
def test_files_in_doubt_wait_for_their_own_store(
    open_root: Open, root: Path, given: Decisions | None, wording: Wording
) -> None:
    """Without it, or with another one, nothing is undone and nothing discarded; the message names the store."""
    store, before = Decisions(), picture(root)
    with open_root(store=store) as fs:
        in_doubt(fs, store, lost="before")
    changed = picture(root)
    with pytest.raises(JournalError) as raised:
        open_root(store=given)
    assert re.sub("[0-9a-f]{32}", "<journal>", str(raised.value)) == wording
    assert picture(root) == changed
    store.down = True
    with pytest.raises(StoreUnavailableError):
        open_root(store=store)
    assert picture(root) == changed
    store.down = False
    open_root(store=store).close()
    assert picture(root) == before


def test_unit_that_is_tried_again_is_committed_once(open_root: Open, root: Path) -> None:
    """A store that fails at the first attempt does no harm."""

    class Shaky(Decisions):
        def apply(self, unit: UnitOfWork) -> Refusal | None:
            attempts.append(unit)
            if len(attempts) == 1:
                raise StoreUnavailableError("busy", store=self.url)
            return super().apply(unit)

    attempts: list[UnitOfWork] = []
    with open_root(store=Shaky()) as fs, call(fs) as transaction:
        fs.write_text("data.bin", "changed")
        transaction.commit()
    assert attempts[0] == attempts[1]
    assert (root / "data.bin").read_text() == "changed"


def test_call_whose_store_is_down_is_undone(open_root: Open, root: Path, tmp_path: Path) -> None:
    """Nothing was decided, so nothing is kept."""
    store, before = Decisions(), picture(root)
    with open_root(store=store) as fs:
        with pytest.raises(StoreUnavailableError), call(fs) as transaction:  # noqa: PT012 - leaving it raises
            fs.write_text("data.bin", "changed")
            store.down = True
            transaction.commit()
        assert picture(root) == before
        assert "journal" not in left_in(tmp_path / "journal")
        store.down = False
        fs.write_text("data.bin", "works again")
    open_root(store=store).close()
    assert left_in(tmp_path / "journal") == []


def test_store_that_does_not_forget_is_asked_again_at_the_next_opening(
    open_root: Open, root: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, wording: Wording
) -> None:
    """The call has been committed; the note is waste, and is not lost sight of, also when no store is given."""

    class Shaky(Decisions):
        def delete_commit_record(self, journal_id: str) -> None:
            if not forgets:
                raise StoreUnavailableError("down", store=self.url)
            super().delete_commit_record(journal_id)

    forgets: list[bool] = []
    store = Shaky()
    with open_root(store=store) as fs, call(fs) as transaction:
        fs.write_text("data.bin", "changed")
        transaction.commit()
    assert len(store.kept) == 1
    assert [re.sub("[0-9a-f]{32}", "<journal>", said) for said in caplog.messages] == wording
    open_root().close()
    assert left_in(tmp_path / "journal") == ["settled"]
    forgets.append(True)
    open_root(store=store).close()
    assert store.kept == set()
    assert left_in(tmp_path / "journal") == []
    assert (root / "data.bin").read_text() == "changed"


def test_call_that_changed_nothing_needs_no_decision(open_root: Open, tmp_path: Path, wording: Wording) -> None:
    """A call that only read has no journal; one whose only change could not be noted has an empty one."""
    store, disk = Decisions(), WatchedDisk()
    with open_root(store=store, disk=disk) as fs:
        with call(fs) as transaction:
            fs.read_bytes("data.bin")
            transaction.commit()
        store.down = True
        fs.write_text("outside of calls", "needs no store either")
        store.down = False
        with call(fs) as transaction:
            disk.before = Nth(1, fail(errno.ENOSPC), among=frozenset({"write"}))
            with raises(FilesystemError, wording):
                fs.write_text("new", "x")
            disk.before = quiet
            transaction.commit()
        assert left_in(tmp_path / "journal") == []
    assert store.seen == set()


def test_writes_beside_a_call_are_undone_with_it(open_root: Open, root: Path, wording: Wording) -> None:
    """There is one journal at a time; also where the call itself has changed nothing in the end."""
    before, beside, disk = picture(root), contextvars.Context(), WatchedDisk()
    with open_root(disk=disk) as fs:
        with call(fs):
            fs.write_text("new", "x")
            beside.run(fs.write_text, "other", "x")
        assert picture(root) == before
        with call(fs):
            disk.before = Nth(1, fail(errno.EACCES), among=frozenset({"append_file"}))
            with raises(FilesystemError, wording):
                fs.write_text("new", "x")
            disk.before = quiet
            beside.run(fs.write_text, "other", "x")
        assert picture(root) == before
    open_root().close()


def test_changes_that_were_not_prepared_are_undone_without_the_store(open_root: Open, root: Path) -> None:
    """Nobody can have decided about them."""
    before, disk = picture(root), WatchedDisk()
    with open_root(store=Decisions(), disk=disk) as fs:
        with pytest.raises(RollbackError), call(fs):  # noqa: PT012 - leaving it raises
            fs.remove("notes", recursive=True)
            disk.before = Nth(1, fail(errno.EIO), among=frozenset({"rename"}))
        disk.before = quiet
    assert picture(root) != before
    open_root().close()
    assert picture(root) == before


def test_prepared_call_that_no_store_decides_about_is_undone(open_root: Open, root: Path) -> None:
    """Without a store, a call is committed by the removal of its journal and nothing else."""
    before = picture(root)

    def refuse(point: str) -> None:
        if point == "journal-before-discard":
            raise OSError(errno.EIO, "as if the process had died")

    with open_root() as fs:
        arm(refuse)
        try:
            with call(fs) as transaction:
                fs.write_text("data.bin", "changed")
                transaction.commit()
        finally:
            arm(None)
    assert picture(root) != before
    open_root().close()
    assert picture(root) == before


def test_tree_that_cannot_be_put_back_at_the_opening_is_tried_again(
    open_root: Open, root: Path, wording: Wording
) -> None:
    """The message says what is in the way; when it has been mended, the next opening does it."""
    before, disk = picture(root), WatchedDisk()
    with open_root(disk=disk) as fs:
        with pytest.raises(RollbackError), call(fs):  # noqa: PT012 - leaving it raises
            fs.remove("notes", recursive=True)
            disk.before = Nth(1, fail(errno.EIO), among=frozenset({"make_folder"}))
        disk.before = quiet
    (root / "notes").write_text("in the way, and not ours")
    with pytest.raises(JournalError) as raised:
        open_root(disk=WatchedDisk(Nth(1, fail(errno.EACCES), among=frozenset({"rename"}))))
    assert re.sub("[0-9a-f]{32}", "<journal>", str(raised.value)) == wording
    open_root().close()
    assert picture(root) == before


def test_call_of_a_forked_process_is_neither_committed_nor_undone_there(
    open_root: Open, root: Path, wording: Wording
) -> None:
    """The files are those of the process that opened them; the other one is told, and leaves the journal alone."""

    class Forked(WatchedDisk):
        pid = 1

        def process(self) -> int:
            return self.pid

    before, disk = picture(root), Forked()
    with open_root(disk=disk) as fs:
        with pytest.raises(RollbackError), call(fs) as transaction:  # noqa: PT012 - leaving it raises
            fs.write_text("data.bin", "x")
            disk.pid = 2
            with raises(FilesystemError, wording):
                transaction.commit()
        disk.pid = 1
    open_root().close()
    assert picture(root) == before


def test_call_that_ends_while_its_first_change_begins_leaves_the_next_one_its_own_journal(
    open_root: Open, tmp_path: Path
) -> None:
    """A handler that was left behind is in the middle of a write; what the next call changes is settled with that."""
    store = Decisions()
    with open_root(store=store) as fs, ThreadPoolExecutor(1) as pool:
        undone = list[Future[None]]()

        def end(point: str) -> None:
            if point == "journal-before-image" and not undone:
                undone.append(pool.submit(first.rollback))
                while first.is_open():
                    threading.Event().wait(0)

        with call(fs) as first:
            arm(end)
            try:
                with pytest.raises(TransactionClosedError):
                    fs.write_text("late", "x")
            finally:
                arm(None)
        undone[0].result()
        with call(fs) as second:
            fs.write_text("new", "x")
            second.commit()
        assert left_in(tmp_path / "journal") == []
        assert (fs.exists("late"), fs.exists("new")) == (False, True)
