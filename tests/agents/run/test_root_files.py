"""Tools that ask for a `Filesystem` get that of the folder that the run works on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from handrail import store as stores
from handrail import tool
from handrail.agents import ApprovalRules, Rule
from handrail.contrib.tools import VfsToolsSection
from handrail.errors import FilesystemError
from handrail.filesystem import Filesystem, HostFilesystem, InMemoryFilesystem
from handrail.prompt import Section, ToolContext
from handrail.runtime import Session
from handrail.testing import Call, Reply
from tests.agents.desks import DONE, answers, desk, play

pytestmark = pytest.mark.anyio


def note_in(files: Filesystem | None, text: str) -> str:
    """Write a note, and fail after that for one text."""
    assert files is not None
    files.write_text("notes.txt", text)
    if text == "boom":
        raise ValueError("the pen is broken")
    return files.read_text("notes.txt")


def note_by_parameter(text: str, files: Filesystem) -> str:
    """Note."""
    return note_in(files, text)


def note_by_context(text: str, context: ToolContext) -> str:
    """Note."""
    return note_in(context.filesystem, text)


async def note_async(text: str, context: ToolContext) -> str:
    """Note."""
    return await asyncio.to_thread(note_in, context.filesystem, text)


WAYS = [note_by_parameter, note_by_context, note_async]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The folder that the run works on."""
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


@pytest.mark.parametrize("function", WAYS, ids=lambda each: each.__name__)
@pytest.mark.parametrize("in_section", [False, True], ids=["alone", "in a section"])
@pytest.mark.parametrize("is_stored", [False, True], ids=["memory", "stored"])
async def test_run_binds_filesystem_to_its_root(
    tmp_path: Path, root: Path, function: Callable[..., object], *, in_section: bool, is_stored: bool
) -> None:
    """By parameter and by context; a failed call is rolled back, and files and session are in one store."""
    made = tool(name="note")(function)
    calls = Reply(calls=[Call("note", {"text": text}) for text in ("milk", "boom")])
    section = Section[None](title="Notes", tools=[made])
    own, sections = ((), {"notes": section}) if in_section else ([made], {})
    agent = desk(tmp_path / "project", tools=own, toolsets=sections)
    if is_stored:
        with stores.open(f"sqlite:///{tmp_path}/desk.db") as store, Session.open(store, "s") as session:
            result = await play(agent, [calls, DONE], root=root, session=session)
    else:
        result = await play(agent, [calls, DONE], root=root)
    assert result.status == "done"
    assert (root / "notes.txt").read_text() == "milk"


async def test_tool_shares_the_files_of_the_toolsets_of_its_run(tmp_path: Path, root: Path) -> None:
    """One filesystem over a folder; rules on paths hold for what any tool finds."""
    (root / "secret.txt").write_text("hunter2")

    def look(name: str, context: ToolContext) -> str:
        """Look."""
        files = context.filesystem
        return files.read_text(name) if files is not None and files.exists(name) else "nothing there"

    agent = desk(tmp_path / "project", tools=[tool(name="note")(note_by_context), tool(look)], also=["files"])
    rules = ApprovalRules(deny=(Rule("read_file", {"path": "secret.txt"}),))
    calls = [
        Call("note", {"text": "milk"}),
        Call("read_file", {"path": "notes.txt"}),
        Call("look", {"name": "secret.txt"}),
    ]
    noted, read, looked = await answers(agent, *calls, rules=rules, root=root)
    assert noted == "milk"
    assert "milk" in read
    assert looked == "nothing there"


async def test_filesystem_of_the_program_precedes_the_root(tmp_path: Path, root: Path) -> None:
    """Bound by the options of the run, or by the section of the tool."""
    own = InMemoryFilesystem()
    agent = desk(tmp_path / "project", tools=[tool(name="note")(note_by_parameter)])
    await play(agent, [Reply(calls=[Call("note", {"text": "a"})]), DONE], root=root, resources={Filesystem: own})
    section = Section[None](title="Notes", tools=[tool(name="note")(note_by_parameter)], resources={Filesystem: own})
    agent = desk(tmp_path / "other", toolsets={"notes": section})
    await play(agent, [Reply(calls=[Call("note", {"text": "b"})]), DONE], root=root)
    assert own.read_text("notes.txt") == "b"
    assert not (root / "notes.txt").exists()


@pytest.mark.parametrize("binds", [False, True], ids=["suite alone", "suite with files"])
async def test_root_precedes_the_files_that_the_suite_brings_by_default(
    tmp_path: Path, root: Path, *, binds: bool
) -> None:
    """`VfsToolsSection()` in memory is for who binds nothing; what it is given is the user's choice."""
    own = InMemoryFilesystem()
    suite = VfsToolsSection(own) if binds else VfsToolsSection()
    section = Section[None](title="Desk", tools=[tool(name="note")(note_by_parameter)], children=[suite])
    agent = desk(tmp_path / "project", toolsets={"notes": section})
    calls = [Call("write_file", {"path": "a.txt", "content": "a"}), Call("note", {"text": "b"})]
    await play(agent, [Reply(calls=calls), DONE], root=root)
    assert [own.exists("a.txt"), (root / "a.txt").exists()] == [binds, not binds]
    assert (root / "notes.txt").exists() is not binds


async def test_folder_is_locked_only_by_runs_that_need_it(tmp_path: Path, root: Path) -> None:
    """A tool with a `Filesystem` as its parameter needs it before the model is asked; another one when it asks."""
    with HostFilesystem(root, journal=tmp_path / "journal"):
        agent = desk(tmp_path / "project", tools=[tool(name="note")(note_by_context)])
        assert (await play(agent, [DONE], root=root)).status == "done"
        agent = desk(tmp_path / "other", tools=[tool(name="note")(note_by_parameter)])
        with pytest.raises(FilesystemError):
            await play(agent, [], root=root)
