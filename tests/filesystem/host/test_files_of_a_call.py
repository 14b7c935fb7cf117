"""Files on disk that a call of a stored session writes to are committed by the store of the session, or are refused."""

from __future__ import annotations

from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

from handrail import tool
from handrail.adapters.tool_executor import ToolExecutor
from handrail.errors import SecondStoreError
from handrail.filesystem import Filesystem, HostFilesystem, InMemoryFilesystem
from handrail.prompt import Prompt, PromptTemplate, Tool, ToolsSection
from handrail.runtime import ToolCall, ToolInvoked
from handrail.session import Session
from handrail.store import MemoryStore, SqliteStore
from tests.wording import Wording

CALL = ToolCall("c1", "edit", {})


@tool(effect="read")
def look(*, files: Filesystem) -> str:
    """Looks."""
    return files.read_text("a.txt")


@tool
def edit(*, files: Filesystem) -> str:
    """Edits."""
    files.write_text("a.txt", "new")
    return "edited"


@tool
def program(*, files: HostFilesystem) -> str:
    """Is about to start a program."""
    files.keep_tree()
    return "kept"


def executor(session: Session, files: Filesystem) -> ToolExecutor:
    """An executor with the three tools."""
    tools: list[Tool[Any, Any]] = [look, edit]
    bound: dict[type[object], object] = {Filesystem: files}
    if isinstance(files, HostFilesystem):
        tools.append(program)
        bound[HostFilesystem] = files
    template = PromptTemplate(ns="tests", key="files", sections=[ToolsSection(title="T", tools=tools)])
    return ToolExecutor(prompt=Prompt(template).bind(resources=bound), session=session)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder with a file."""
    (root := tmp_path / "root").mkdir()
    (root / "a.txt").write_text("old")
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
        desk = executor(session, files)
        assert desk.execute(ToolCall("c0", "look", {}), reply="r1").content == "old"
        with pytest.raises(SecondStoreError) as raised:
            desk.execute(ToolCall("c1", writer, {}), reply="r1")
        assert (raised.value.store, raised.value.second) == (store, second if other else None)
        assert str(raised.value) == wording
        assert [event.success for event in session[ToolInvoked]] == [True, False]
        assert (root / "a.txt").read_text() == "old"
        files.write_text("a.txt", "outside of calls")
    assert not [*(root.parent / "journal").glob("journal-*")]


def stored(store: SqliteStore) -> Session:
    """A session in a store."""
    return Session.open(store, "desk")


def in_memory(_: SqliteStore) -> Session:
    """A session in no store."""
    return Session()


def in_memory_store(_: SqliteStore) -> Session:
    """A session in a store that ends with the process."""
    return Session.open(MemoryStore(), "desk")


@pytest.mark.parametrize(
    "session_of, with_store",
    [(stored, True), (in_memory, False), (in_memory_store, False)],
    ids=["the store of both", "a session in memory", "a store in memory"],
)
def test_files_of_the_same_store_and_sessions_in_memory_are_free(
    store: SqliteStore, root: Path, tmp_path: Path, session_of: Callable[[SqliteStore], Session], *, with_store: bool
) -> None:
    """What ends with its process needs no store to decide about it."""
    given = store if with_store else None
    with HostFilesystem(root, journal=tmp_path / "journal", store=given) as files, session_of(store) as session:
        assert executor(session, files).execute(CALL, reply="r1").success
    assert (root / "a.txt").read_text() == "new"


def test_files_in_memory_are_free(store: SqliteStore) -> None:
    """They end with the process."""
    files = InMemoryFilesystem({"a.txt": "old"})
    with stored(store) as session:
        assert executor(session, files).execute(CALL, reply="r1").success
    assert files.read_text("a.txt") == "new"
