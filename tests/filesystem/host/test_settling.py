"""How files are committed with a call: the store decides, and a crash is settled at the next opening."""

from __future__ import annotations

import contextvars
import errno
import re
import threading
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path

import pytest

from handrail import errors
from handrail.adapters.tool_executor import ToolExecutor
from handrail.filesystem import Filesystem, HostFilesystem
from handrail.prompt import ToolContext, ToolResult
from handrail.runtime import ToolInvoked
from handrail.session import Session
from handrail.store import MemoryStore, SqliteStore
from handrail.transaction import UnitOfWork
from handrail.transaction.unit_of_work import Refusal
from tests.filesystem.kit import Decisions, PlantedTree, WatchedDisk, armed, call, leave_half_done
from tests.kit import Note, executor, raises, scribble, tool
from tests.kit import call as tool_call
from tests.wording import Wording

HEXADECIMAL = re.compile("[0-9a-f]{32}")


def leave_in_doubt(fs: HostFilesystem, store: Decisions, *, lost: str) -> None:
    """Commit a call whose store is lost in the moment of the commit."""
    store.lost = lost
    with pytest.raises(errors.CommitInDoubtError), call(fs, commits=True):
        fs.write_text("data.bin", "changed")
    store.lost = None


def test_store_knows_a_journal_only_as_long_as_there_is_one(tree: PlantedTree) -> None:
    """It takes note of it in its unit, and forgets it when the journal has been discarded."""
    store, seen = Decisions(), list[tuple[str, int, list[str]]]()

    def watch(point: str) -> None:
        if not point.endswith(("image", "change")):
            seen.append((point, len(store.committed), tree.leftovers))

    with tree.open(store=store) as fs:
        with armed(watch), call(fs, commits=True):
            fs.write_text("new", "x")
        assert seen == [
            ("journal-prepared", 0, ["journal", "marks"]),
            ("journal-before-discard", 1, ["journal", "marks"]),
            ("journal-after-discard", 1, ["settled"]),
        ]
        assert (store.committed, tree.leftovers) == (set(), [])


@pytest.mark.parametrize("lost", ["before", "after"])
def test_store_decides_about_files_that_are_in_doubt(tree: PlantedTree, lost: str, wording: Wording) -> None:
    """Whether the commit took place is asked at the next opening; until then the files are not changed any more."""
    store = Decisions()
    with tree.open(store=store) as fs:
        leave_in_doubt(fs, store, lost=lost)
        with raises(errors.JournalError, wording):
            fs.write_text("other", "x")
        assert fs.read_text("data.bin") == "changed"
    tree.reopen(store=store)
    assert (tree.now == tree.before) is (lost == "before")
    assert ((tree.root / "data.bin").read_bytes() == b"changed") is (lost == "after")
    assert (store.committed, tree.leftovers) == (set(), [])


@pytest.mark.parametrize("other", [None, Decisions("fake:two")], ids=["no store", "another store"])
def test_files_in_doubt_wait_for_their_own_store(tree: PlantedTree, other: Decisions | None, wording: Wording) -> None:
    """Without it, or with another one, nothing is undone and nothing discarded; the message names the store."""
    store = Decisions()
    with tree.open(store=store) as fs:
        leave_in_doubt(fs, store, lost="before")
    changed = tree.now
    with pytest.raises(errors.JournalError) as raised:
        tree.open(store=other)
    assert HEXADECIMAL.sub("<journal>", str(raised.value)) == wording
    store.down = True
    with pytest.raises(errors.StoreUnavailableError):
        tree.open(store=store)
    assert tree.now == changed
    store.down = False
    tree.reopen(store=store)
    assert tree.now == tree.before


def test_unit_that_is_tried_again_is_committed_once(tree: PlantedTree) -> None:
    """A store that fails at the first attempt does no harm."""

    class Shaky(Decisions):
        def apply(self, unit: UnitOfWork) -> Refusal | None:
            attempts.append(unit)
            if len(attempts) == 1:
                raise errors.StoreUnavailableError("busy", store=self.url)
            return super().apply(unit)

    attempts: list[UnitOfWork] = []
    with tree.open(store=Shaky()) as fs, call(fs, commits=True):
        fs.write_text("data.bin", "changed")
    assert attempts[0] == attempts[1]
    assert (tree.root / "data.bin").read_text() == "changed"


def test_call_whose_store_is_down_is_undone(tree: PlantedTree) -> None:
    """Nothing was decided, so nothing is kept."""
    store = Decisions()
    with tree.open(store=store) as fs:
        with pytest.raises(errors.StoreUnavailableError), call(fs, commits=True):  # noqa: PT012 - leaving it raises
            fs.write_text("data.bin", "changed")
            store.down = True
        assert tree.now == tree.before
        assert "journal" not in tree.leftovers
        store.down = False
        fs.write_text("data.bin", "works again")
    tree.reopen(store=store)
    assert tree.leftovers == []


def test_note_that_stays_is_removed(tree: PlantedTree, caplog: pytest.LogCaptureFixture, wording: Wording) -> None:
    """The call has been committed; the note is waste, and is not lost sight of, also when no store is given."""
    store = Decisions()
    with tree.open(store=store) as fs, call(fs, commits=True):
        fs.write_text("data.bin", "changed")
        store.forgets = False
    assert len(store.committed) == 1
    assert [HEXADECIMAL.sub("<journal>", message) for message in caplog.messages] == wording
    tree.reopen()
    assert tree.leftovers == ["settled"]
    store.forgets = True
    tree.reopen(store=store)
    assert (store.committed, tree.leftovers) == (set(), [])
    assert (tree.root / "data.bin").read_text() == "changed"


def test_call_that_changed_nothing_needs_no_decision(tree: PlantedTree, wording: Wording) -> None:
    """A call that only read has no journal; one whose only change could not be noted has an empty one."""
    store = Decisions()
    with tree.open(store=store) as fs:
        with call(fs, commits=True):
            fs.read_bytes("data.bin")
        store.down = True
        fs.write_text("outside of calls", "needs no store either")
        store.down = False
        with call(fs, commits=True):
            tree.disk.fail(errno.ENOSPC, "write")
            with raises(errors.FilesystemError, wording):
                fs.write_text("new", "x")
            tree.disk.heal()
        assert tree.leftovers == []
    assert store.seen == set()


def test_writes_beside_a_call_are_undone_with_it(tree: PlantedTree, wording: Wording) -> None:
    """There is one journal at a time; also where the call itself has changed nothing in the end."""
    outside = contextvars.Context()
    with tree.open() as fs:
        for number in (None, errno.EACCES):
            with call(fs):
                if number is not None:
                    tree.disk.fail(number, "append_file")
                with raises(errors.FilesystemError, wording) if number else nullcontext():
                    fs.write_text("new", "x")
                tree.disk.heal()
                outside.run(fs.write_text, "other", "x")
            assert tree.now == tree.before
    tree.reopen()


def empty(fs: HostFilesystem) -> None:
    """Remove a folder."""
    fs.remove("notes", recursive=True)


def test_changes_that_were_not_prepared_are_undone_without_the_store(tree: PlantedTree) -> None:
    """Nobody can have decided about them."""
    leave_half_done(tree, empty, "rename", store=Decisions())
    tree.reopen()
    assert tree.now == tree.before


def test_prepared_call_that_no_store_decides_about_is_undone(tree: PlantedTree) -> None:
    """Without a store, a call is committed by the removal of its journal and nothing else."""

    def refuse(point: str) -> None:
        if point == "journal-before-discard":
            raise OSError(errno.EIO, "as if the process had died")

    with tree.open() as fs, armed(refuse), call(fs, commits=True):
        fs.write_text("data.bin", "changed")
    assert tree.now != tree.before
    tree.reopen()
    assert tree.now == tree.before


def test_tree_that_cannot_be_put_back_at_the_opening_is_tried_again(tree: PlantedTree, wording: Wording) -> None:
    """The message says what is in the way; when it has been fixed, the next opening does it."""
    leave_half_done(tree, empty, "make_folder")
    (tree.root / "notes").write_text("in the way, and not ours")
    tree.disk.fail(errno.EACCES, "rename")
    with pytest.raises(errors.JournalError) as raised:
        tree.open()
    assert HEXADECIMAL.sub("<journal>", str(raised.value)) == wording
    tree.disk.heal()
    tree.reopen()
    assert tree.now == tree.before


def test_call_of_a_forked_process_is_neither_committed_nor_undone_there(tmp_path: Path, wording: Wording) -> None:
    """The files are those of the process that opened them; the other one is told, and leaves the journal alone."""

    class Forked(WatchedDisk):
        pid = 1

        def process(self) -> int:
            return self.pid

    disk = Forked()
    tree = PlantedTree(tmp_path, disk)
    with tree.open() as fs:
        with pytest.raises(errors.RollbackError), call(fs) as transaction:  # noqa: PT012 - leaving it raises
            fs.write_text("data.bin", "x")
            disk.pid = 2
            with raises(errors.FilesystemError, wording):
                transaction.commit()
        disk.pid = 1
    tree.reopen()
    assert tree.now == tree.before


def test_call_that_ends_while_its_first_change_begins_leaves_the_next_one_its_own_journal(tree: PlantedTree) -> None:
    """A handler that was left behind is in the middle of a write; what the next call changes is settled with that."""
    with tree.open(store=Decisions()) as fs, ThreadPoolExecutor(1) as pool:
        rollbacks = list[Future[None]]()

        def end(point: str) -> None:
            if point == "journal-before-image" and not rollbacks:
                rollbacks.append(pool.submit(first.rollback))
                while first.is_open():
                    threading.Event().wait(0)

        with call(fs) as first, armed(end), pytest.raises(errors.TransactionClosedError):
            fs.write_text("late", "x")
        rollbacks[0].result()
        with call(fs, commits=True):
            fs.write_text("new", "x")
        assert tree.leftovers == []
        assert (fs.exists("late"), fs.exists("new")) == (False, True)


def look(params: Note, *, context: ToolContext) -> ToolResult[Note]:
    """Look at the file."""
    return ToolResult.ok(Note(context.resources.get(Filesystem).read_text("note.txt")))


def program(params: Note, *, context: ToolContext) -> ToolResult[Note]:
    """Be about to start a program."""
    files = context.resources.get(Filesystem)
    assert isinstance(files, HostFilesystem)
    files.keep_tree()
    return ToolResult.ok(params)


def desk(session: Session, files: Filesystem) -> ToolExecutor:
    """An executor with the three tools."""
    tools = [tool("look", look, effect="read"), tool("edit", scribble), tool("program", program)]
    return executor(*tools, resources={Filesystem: files}, session=session)


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    """A folder with a file."""
    (notes := tmp_path / "root").mkdir()
    (notes / "note.txt").write_text("old")
    return notes


@pytest.fixture
def store(tmp_path: Path) -> Generator[SqliteStore]:
    """The store of the session."""
    with SqliteStore(tmp_path / "desk.db") as store:
        yield store


@pytest.mark.parametrize("other", [False, True])
@pytest.mark.parametrize("writer", ["edit", "program"])
def test_files_that_the_store_of_the_session_does_not_commit_are_not_written_to(
    store: SqliteStore, notes: Path, wording: Wording, *, other: bool, writer: str
) -> None:
    """Those of another store, or of none: the mistake is raised at the first write, and reading is free."""
    with (
        SqliteStore(notes.parent / "other.db") as second,
        HostFilesystem(notes, journal=notes.parent / "journal", store=second if other else None) as files,
        Session.open(store, "desk") as session,
    ):
        door = desk(session, files)
        assert door.execute(tool_call("look", id="c0"), reply="r1").content == "old"
        with raises(errors.SecondStoreError, wording) as raised:
            door.execute(tool_call(writer), reply="r1")
        assert (raised.value.store, raised.value.second) == (store, second if other else None)
        assert [event.success for event in session[ToolInvoked]] == [True, False]
        assert (notes / "note.txt").read_text() == "old"
        files.write_text("note.txt", "outside of calls")
    assert not [*(notes.parent / "journal").glob("journal-*")]


SESSIONS: dict[str, Callable[[SqliteStore], Session]] = {
    "the store of both": lambda store: Session.open(store, "desk"),
    "a session in memory": lambda _: Session(),
    "a store in memory": lambda _: Session.open(MemoryStore(), "desk"),
}


@pytest.mark.parametrize("where", SESSIONS)
def test_files_of_the_same_store_and_sessions_in_memory_are_free(store: SqliteStore, notes: Path, where: str) -> None:
    """What ends with its process needs no store to decide about it."""
    own = store if where == "the store of both" else None
    with HostFilesystem(notes, journal=notes.parent / "journal", store=own) as files, SESSIONS[where](store) as session:
        assert desk(session, files).execute(tool_call("edit"), reply="r1").success
    assert (notes / "note.txt").read_text() == "hello"
