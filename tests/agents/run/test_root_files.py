"""The files of the folder of a run, and paths that agent files exclude."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from handrail import store as stores
from handrail import tool
from handrail.agents import ApprovalRules, LoadedAgent, Rule, RunOptions, files_toolset
from handrail.contrib.tools import VfsToolsSection
from handrail.errors import FilesystemError
from handrail.filesystem import Filesystem, HostFilesystem, InMemoryFilesystem
from handrail.prompt import Section, ToolContext
from handrail.resources import Binding
from handrail.session import Session
from handrail.testing import Call, Reply
from tests.agents.kit import DONE, CallLog, answers, desk, inside, play, read, write
from tests.wording import Wording

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


async def test_root_is_a_path_or_a_text(tmp_path: Path, root: Path) -> None:
    """As the command has it."""
    assert RunOptions(root=str(root)).root == root


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
    with (
        stores.open(f"sqlite:///{tmp_path}/desk.db") as store,
        Session.open(store, "s") if is_stored else Session() as session,
    ):
        result = await play(agent, [calls, DONE], root=root, session=session)
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
    calls = [Call("note", {"text": "milk"}), read("notes.txt"), Call("look", {"name": "secret.txt"})]
    noted, found, looked = await answers(agent, *calls, rules=rules, root=root)
    assert (noted, "milk" in found, looked) == ("milk", True, "nothing there")


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


FILES = {".env": "KEY=hunter2\n", "plan.md": "buy milk\n", ".git/config": "hunter2\n", "secrets/a": "hunter2\n"}


GREP = Call("grep_files", {"pattern": "KEY|hunter|milk"})
READ, READ_GIT = read(".env"), read(".git/config")


async def among_secrets(agent: LoadedAgent, folder: Path, *calls: Call, **options: Any) -> list[str]:
    """What the model reads after each call; the run works on a folder with secrets."""
    return await answers(agent, *calls, root=write(folder / "work", FILES), **options)


@pytest.mark.parametrize("toolset", ["files", "files_ro", "project_files", "project_files_ro"])
async def test_what_an_agent_file_excludes_does_not_exist_for_the_built_in_tools(
    toolset: str, tmp_path: Path, wording: Wording
) -> None:
    """Nor does `.git`, of which it says nothing."""
    agent = desk(tmp_path / "project", also=[toolset], front="exclude: [.env, 'secrets/**']")
    write(tmp_path / "project", FILES)
    found, *others = await among_secrets(agent, tmp_path, GREP, READ, READ_GIT)
    assert [found, *others] == [wording] * 3
    assert "hunter" not in found.partition("\n")[2]


async def test_without_a_word_only_git_is_excluded(tmp_path: Path, wording: Wording) -> None:
    """And with `show_git` not even that."""
    agent = desk(tmp_path / "a" / "project", also=["files"])
    env, git = await among_secrets(agent, tmp_path / "a", READ, READ_GIT)
    assert ("hunter2" in env, git) == (True, wording)
    agent = desk(tmp_path / "b" / "project", also=["files"], front="show_git: true")
    assert "hunter2" in (await among_secrets(agent, tmp_path / "b", READ_GIT))[0]


async def test_a_toolset_and_the_file_exclude_together(tmp_path: Path, wording: Wording) -> None:
    """What either names does not exist."""
    toolset = files_toolset(tmp_path / "work", exclude=["secrets"])
    agent = desk(tmp_path / "project", toolsets={"mine": toolset}, front="exclude: [.env]")
    assert await among_secrets(agent, tmp_path, GREP, READ) == [wording, wording]


async def test_a_toolset_may_show_git(tmp_path: Path) -> None:
    """Whoever makes it in Python asks for it there."""
    agent = desk(tmp_path / "project", toolsets={"mine": files_toolset(tmp_path / "work", show_git=True)})
    assert "hunter2" in (await among_secrets(agent, tmp_path, READ_GIT))[0]


@pytest.mark.parametrize("bound", ["in the section", "by the program", "by a provider", "by a provider for each call"])
async def test_what_the_file_excludes_holds_for_every_filesystem_of_the_run(
    bound: str, tmp_path: Path, wording: Wording
) -> None:
    """A section of the program's brings files of its own, or finds those that the program binds."""
    files = InMemoryFilesystem(FILES)
    by_program: dict[str, object] = {
        "by the program": files,
        "by a provider": Binding(Filesystem, lambda _: files),
        "by a provider for each call": Binding(Filesystem, lambda _: InMemoryFilesystem(FILES)),
    }
    resources = {Filesystem: by_program[bound]} if bound in by_program else {}
    section = VfsToolsSection(files if bound == "in the section" else None)
    agent = desk(tmp_path / "project", toolsets={"notes": section}, front="exclude: [.env, secrets]")
    assert await among_secrets(agent, tmp_path, GREP, READ, resources=resources) == [wording, wording]


async def test_an_agent_that_is_made_sees_no_more_than_its_maker(tmp_path: Path, wording: Wording) -> None:
    """Nor does one that that one makes; else making one would be a way out."""
    agent = desk(tmp_path / "project", also=["files_ro", "dynamic_agents"], front="exclude: [.env]")
    write(tmp_path / "work", FILES)
    arguments = {"name": "helper", "instructions": "Work.", "tools": [], "toolsets": ["files_ro"]}
    log = CallLog()
    script = [
        Reply(calls=[Call("agent_create", arguments, id="c1"),
            Call("agent_call", {"agent": "helper", "input": "Go."}, id="c2")]),
        *inside("c2", [Reply(calls=[Call("read_file", {"path": ".env"}, id="n1")]), Reply(text="none")]),
        Reply(text="Done."),
    ]  # fmt: skip
    await play(agent, script, root=tmp_path / "work", listener=log)
    told = [event.content for event in log.ended]
    assert told == wording
    assert not any("hunter2" in each for each in told)
