"""The toolsets that every project has: their names, over what they work, and that nothing of them leads out."""

from __future__ import annotations

import os
from collections.abc import Coroutine, Generator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any, cast

import pytest
from pydantic_ai import RunContext, ToolFailed
from pydantic_ai.messages import InstructionPart
from pydantic_ai.models.test import TestModel
from pydantic_ai.toolsets import AbstractToolset
from pydantic_ai.usage import RunUsage

from handrail.adapters.pydantic_ai import HandrailToolset
from handrail.adapters.tool_executor import ToolExecutor
from handrail.agents.active_run import CurrentRun, as_current_run
from handrail.agents.agent_file import AgentFile
from handrail.agents.exports.entries import BUILT_IN, ToolsetFactory
from handrail.agents.project_config import ShellConfig
from handrail.agents.toolsets.builtin import built_ins, files_toolset, shell_toolset
from handrail.contrib.tools import Plan, ShellRule
from handrail.errors import AgentError, PromptValidationError
from handrail.filesystem import HostFilesystem, PathFilter
from handrail.prompt import Prompt, PromptTemplate, Section, Tool
from handrail.session import Session
from handrail.waiting import run_blocking
from tests.wording import Wording

LOOKING = {"list_files", "glob_files", "grep_files", "read_file"}
NUMBERS = count(1)
CHANGING = {"write_file", "edit_file", "remove_file", "move_file"}


@dataclass
class Run:
    """A run of an agent, with nothing around it."""

    root: Path
    project_folder: Path
    journals: Path
    session: Session = field(default_factory=Session)
    path: tuple[str, ...] = ("desk",)
    tool_names: tuple[str, ...] = ()
    toolset_names: tuple[str, ...] = ()
    agents: Mapping[str, AgentFile] = field(default_factory=dict[str, AgentFile])
    path_filter: PathFilter = field(default_factory=PathFilter)
    show_git: bool = False
    shell: ShellConfig = field(default_factory=ShellConfig)
    stack: ExitStack = field(default_factory=ExitStack)
    opened: dict[Path, HostFilesystem] = field(default_factory=dict[Path, HostFilesystem])

    def filesystem(self, folder: Path) -> HostFilesystem:
        where = folder.resolve()
        if where not in self.opened:
            files = HostFilesystem(where, journal=self.journals / str(len(self.opened)))
            self.opened[where] = self.stack.enter_context(files)
        return self.opened[where]

    async def open_filesystem(self, folder: Path) -> HostFilesystem:
        return self.filesystem(folder)

    def section_toolset(self, section: Section[Any], *, id: str, prefix: str = "") -> AbstractToolset[Any]:
        template = PromptTemplate(ns="tests", key="run", sections=[section])
        return HandrailToolset(ToolExecutor(prompt=Prompt(template), session=self.session), id=id)

    def tool_toolset(self, tool: Tool[Any, Any], *, id: str) -> AbstractToolset[Any]:
        return self.section_toolset(Section(title="Tool", tools=[tool]), id=id)

    async def call_agent(self, name: str, input: str, ctx: RunContext[Any]) -> str:
        raise AssertionError(name)

    def made(self, factory: object) -> AbstractToolset[Any]:
        """What a factory makes in this run, as a toolset."""
        assert isinstance(factory, ToolsetFactory)
        with as_current_run(cast("CurrentRun", self)):
            made = cast("Section[Any] | AbstractToolset[Any]", product(factory))
        return self.section_toolset(made, id="made") if isinstance(made, Section) else made


def product(factory: ToolsetFactory) -> Any:
    """What a factory makes; none of those that are built in waits for anything in this run."""
    made = factory.function(context())
    return run_blocking(cast("Coroutine[Any, Any, object]", made)) if isinstance(made, Coroutine) else made


def context() -> RunContext[None]:
    """PydanticAI's context of a step."""
    return RunContext(deps=None, model=TestModel(), usage=RunUsage(), tool_call_id=f"call-{next(NUMBERS)}")


@pytest.fixture
def run(tmp_path: Path) -> Generator[Run]:
    """A run over a folder, of a project in another one."""
    for name in ("work", "project/notes"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "work/here.txt").write_text("here\n")
    (tmp_path / "project/there.txt").write_text("there\n")
    (tmp_path / "work/out").symlink_to(tmp_path)
    run = Run(tmp_path / "work", tmp_path / "project", tmp_path / "journals")
    with run.stack:
        yield run


async def names(toolset: AbstractToolset[Any]) -> set[str]:
    """What a toolset offers."""
    return set(await toolset.get_tools(context()))


async def told(toolset: AbstractToolset[Any], tool: str, /, **arguments: object) -> str:
    """What the model reads of a call."""
    tools = await toolset.get_tools(context())
    returned = await toolset.call_tool(tool, dict(arguments), context(), tools[tool])
    return str(returned.return_value)


async def refused(toolset: AbstractToolset[Any], tool: str, /, **arguments: object) -> str:
    """What the model reads of a call that must fail."""
    with pytest.raises(ToolFailed) as caught:
        await told(toolset, tool, **arguments)
    return str(caught.value)


async def instructions(toolset: AbstractToolset[Any]) -> str:
    """What the model is told of a toolset."""
    found = await toolset.get_instructions(context())
    parts = found if isinstance(found, list) else [found]
    return "\n".join(part.content for part in parts if isinstance(part, InstructionPart))


def factory(name: str) -> object:
    """What stands behind a name."""
    return {entry.name: entry.value for entry in built_ins()}[name]


@pytest.mark.requirement("A-36")
def test_built_ins_are_factories_with_names_and_an_origin(wording: Wording) -> None:
    """Each is called once for each run."""
    for entry in built_ins():
        assert (entry.kind, entry.origin) == ("toolset", BUILT_IN)
        assert isinstance(entry.value, ToolsetFactory)
        assert not entry.value.per_run_step
    assert [entry.label for entry in built_ins()][:2] == [wording, wording]
    assert {"files", "files_ro", "project_files", "project_files_ro", "planning", "shell"} <= {
        entry.name for entry in built_ins()
    }


@pytest.mark.requirement("A-36")
@pytest.mark.anyio
async def test_each_run_gets_a_toolset_of_its_own(run: Run) -> None:
    """Two runs that share folder and filesystem share nothing else."""
    for name in ("files", "files_ro", "project_files", "project_files_ro", "planning", "shell"):
        value = cast("ToolsetFactory", factory(name))
        with as_current_run(cast("CurrentRun", run)):
            first, second = product(value), product(value)
        assert first is not second


@pytest.mark.requirement("A-36")
@pytest.mark.anyio
async def test_files_are_those_of_the_run_or_of_the_project(run: Run) -> None:
    """The read-only ones have no tool that writes."""
    for name, there in (("files", "here"), ("project_files", "there")):
        for suffix, tools in (("", LOOKING | CHANGING), ("_ro", LOOKING)):
            toolset = run.made(factory(name + suffix))
            assert await names(toolset) == tools
            assert (await told(toolset, "read_file", path=f"{there}.txt")).endswith(there)
    await told(run.made(factory("files")), "write_file", path="new.txt", content="new")
    assert (run.root / "new.txt").read_text() == "new"
    assert len(run.opened) == 2


@pytest.mark.requirement("A-36")
@pytest.mark.anyio
@pytest.mark.parametrize("path", ["../project/there.txt", "/etc/passwd", "out/project/there.txt"])
async def test_nothing_leads_out_of_the_folder_where_it_is_executed(path: str, run: Run, wording: Wording) -> None:
    """No approval has been asked here, and none would help."""
    for name in ("files", "files_ro"):
        toolset = run.made(factory(name))
        assert await refused(toolset, "read_file", path=path) == wording
    assert await refused(run.made(factory("files")), "write_file", path=path, content="x")
    assert await refused(run.made(factory("shell")), "shell_run", command=["cat", path]) == wording
    assert (run.project_folder / "there.txt").read_text() == "there\n"


@pytest.mark.anyio
async def test_shell_only_looks(run: Run) -> None:
    """At the folder that the run works on."""
    toolset = run.made(factory("shell"))
    assert await told(toolset, "shell_run", command=["cat", "here.txt"]) == "here\n"
    for command in (["touch", "x"], ["find", ".", "-delete"], ["git", "status"], ["sh", "-c", "ls"]):
        assert await refused(toolset, "shell_run", command=command)
    assert (run.root / "here.txt").exists()


@pytest.mark.anyio
async def test_shell_runs_what_the_project_allows(run: Run, tmp_path: Path, wording: Wording) -> None:
    """Programs are searched for in its folders first."""
    own = tmp_path / "bin"
    own.mkdir()
    (own / "build").write_text('#!/bin/sh\necho built > here.txt\nexec sleep "$1"\n')
    (own / "build").chmod(0o755)
    run.shell = ShellConfig(allow=(ShellRule(("build",)),), path=(os.fspath(own),), timeout=timedelta(seconds=1.5))
    shell = run.made(factory("shell"))
    assert "1.5 s" in await instructions(shell)
    assert await told(shell, "shell_run", command=["build", "0"]) == wording
    assert (run.root / "here.txt").read_text() == "built\n"
    assert "1.5 s" in await refused(shell, "shell_run", command=["build", "60"])
    await refused(shell, "shell_run", command=["ls"])


@pytest.mark.anyio
async def test_plan_is_kept_in_the_session_of_the_run(run: Run) -> None:
    """So that it rolls back with the calls."""
    toolset = run.made(factory("planning"))
    await told(toolset, "planning_setup_plan", objective="Publish", initial_steps=["Write"])
    plan = run.session[Plan].latest()
    assert plan is not None
    assert plan.objective == "Publish"


@pytest.mark.anyio
async def test_two_folders_serve_one_agent_under_prefixes(run: Run, wording: Wording) -> None:
    """The text of each tells the model of the prefix, which the text itself does not use."""
    notes = run.made(files_toolset("notes", prefix="notes"))
    whole = run.made(files_toolset(os.fspath(run.root), read_only=True, prefix="work-1"))
    assert await names(notes) == {f"notes_{name}" for name in LOOKING | CHANGING}
    assert await names(whole) == {f"work-1_{name}" for name in LOOKING}
    await told(notes, "notes_write_file", path="a.md", content="a")
    assert (run.project_folder / "notes/a.md").read_text() == "a"
    assert (await told(whole, "work-1_read_file", path="here.txt")).endswith("here")
    text = await instructions(notes)
    assert [text.splitlines()[0], text.splitlines()[-1]] == wording


@pytest.mark.anyio
async def test_files_without_a_prefix_have_their_names(run: Run) -> None:
    """One folder needs none."""
    assert await names(run.made(files_toolset(Path("notes"), read_only=True))) == LOOKING


@pytest.mark.anyio
async def test_shell_with_rules_of_its_own(run: Run, wording: Wording) -> None:
    """In the folder of the project, or one below it; what a failing program has changed is undone."""
    allow = [("sh", "-c"), ("pwd",)]
    shell = run.made(shell_toolset(allow=allow, environment={"NAME": "value"}, timeout=timedelta(seconds=30)))
    assert await told(shell, "shell_run", command=["sh", "-c", "echo $NAME > made; cat made"]) == "value\n"
    assert await refused(shell, "shell_run", command=["sh", "-c", "rm made; exit 1"]) == wording
    assert (run.project_folder / "made").exists()
    prefixed = run.made(shell_toolset(run.root, allow=allow, prefix="work"))
    assert await told(prefixed, "work_shell_run", command=["pwd"]) == f"{run.root.resolve()}\n"


@pytest.mark.parametrize("prefix", ["A", "a b", "é", "_a", "a" * 25, 5, None])
def test_prefix_that_cannot_begin_a_name_is_refused(prefix: Any, wording: Wording) -> None:
    """Where it is written."""
    with pytest.raises(AgentError) as raised:
        files_toolset("notes", prefix=prefix)
    assert str(raised.value) == wording
    with pytest.raises(AgentError) as raised:
        shell_toolset(allow=[], prefix=prefix)
    assert str(raised.value) == wording


def test_folder_or_rule_that_is_none_is_refused(wording: Wording) -> None:
    """Where it is written."""
    wrong: Any = 5
    with pytest.raises(AgentError) as raised:
        files_toolset(wrong)
    assert str(raised.value) == wording
    with pytest.raises(AgentError) as raised:
        shell_toolset(wrong, allow=[])
    assert str(raised.value) == wording
    with pytest.raises(PromptValidationError) as another:
        shell_toolset(allow=["ls"])
    assert str(another.value) == wording


def test_outside_of_a_run_there_is_nothing_to_work_on(wording: Wording) -> None:
    """A factory is for runs."""
    for entry in built_ins():
        if entry.name != "dynamic_agents":
            with pytest.raises(AgentError) as raised:
                product(cast("ToolsetFactory", entry.value))
            assert str(raised.value) == wording
