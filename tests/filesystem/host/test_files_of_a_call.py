"""Files on disk that a call of a stored session writes to are committed by the store of the session, or are refused."""

from __future__ import annotations

from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from handrail.adapters.tool_executor import ToolExecutor
from handrail.errors import SecondStoreError
from handrail.filesystem import Filesystem, HostFilesystem, InMemoryFilesystem
from handrail.prompt import ToolContext, ToolResult
from handrail.runtime import ToolInvoked
from handrail.session import Session
from handrail.store import MemoryStore, SqliteStore
from tests.kit import Note, call, executor, raises, scribble, tool
from tests.wording import Wording


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
def root(tmp_path: Path) -> Path:
    """A folder with a file."""
    (root := tmp_path / "root").mkdir()
    (root / "note.txt").write_text("old")
    return root


@pytest.fixture
def store(tmp_path: Path) -> Generator[SqliteStore]:
    """The store of the session."""
    with SqliteStore(tmp_path / "desk.db") as store:
        yield store


@pytest.mark.parametrize("other", [False, True])
@pytest.mark.parametrize("writer", ["edit", "program"])
def test_files_that_the_store_of_the_session_does_not_commit_are_not_written_to(
    store: SqliteStore, root: Path, wording: Wording, *, other: bool, writer: str
) -> None:
    """Those of another store, or of none: the mistake is raised at the first write, and reading is free."""
    with (
        SqliteStore(root.parent / "other.db") as second,
        HostFilesystem(root, journal=root.parent / "journal", store=second if other else None) as files,
        Session.open(store, "desk") as session,
    ):
        door = desk(session, files)
        assert door.execute(call("look", id="c0"), reply="r1").content == "old"
        with raises(SecondStoreError, wording) as raised:
            door.execute(call(writer), reply="r1")
        assert (raised.value.store, raised.value.second) == (store, second if other else None)
        assert [event.success for event in session[ToolInvoked]] == [True, False]
        assert (root / "note.txt").read_text() == "old"
        files.write_text("note.txt", "outside of calls")
    assert not [*(root.parent / "journal").glob("journal-*")]


SESSIONS: dict[str, Callable[[SqliteStore], Session]] = {
    "the store of both": lambda store: Session.open(store, "desk"),
    "a session in memory": lambda _: Session(),
    "a store in memory": lambda _: Session.open(MemoryStore(), "desk"),
}


@pytest.mark.parametrize("where", SESSIONS)
def test_files_of_the_same_store_and_sessions_in_memory_are_free(store: SqliteStore, root: Path, where: str) -> None:
    """What ends with its process needs no store to decide about it."""
    own = store if where == "the store of both" else None
    with (
        HostFilesystem(root, journal=root.parent / "journal", store=own) as files,
        SESSIONS[where](store) as session,
    ):
        assert desk(session, files).execute(call("edit"), reply="r1").success
    assert (root / "note.txt").read_text() == "hello"


def test_files_in_memory_are_free(store: SqliteStore) -> None:
    """They end with the process."""
    files = InMemoryFilesystem({"note.txt": "old"})
    with Session.open(store, "desk") as session:
        assert desk(session, files).execute(call("edit"), reply="r1").success
    assert files.read_text("note.txt") == "hello"
