"""The toolsets that every project has: their names, over what they work, and that nothing of them leads out."""

from __future__ import annotations

import os
from collections.abc import Coroutine
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest
from pydantic_ai import RunContext
from pydantic_ai.models.test import TestModel
from pydantic_ai.usage import RunUsage

from handrail.agents import LoadedAgent, RunOptions
from handrail.agents.registry import BUILT_IN, Entry, ToolsetFactory
from handrail.agents.toolsets.builtin import built_ins, files_toolset, shell_toolset
from handrail.contrib.tools import Plan
from handrail.errors import AgentError, PromptValidationError
from handrail.session import Session
from handrail.testing import Call, Expect, Outcome
from handrail.waiting import run_blocking
from tests.agents.desks import answers, called, desk, events, play
from tests.agents.folders import write
from tests.wording import Wording

LOOKING = {"list_files", "glob_files", "grep_files", "read_file"}
CHANGING = {"write_file", "edit_file", "remove_file", "move_file"}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The folder that runs work on, beside that of the project."""
    write(tmp_path, {"work/here.txt": "here\n", "project/there.txt": "there\n", "project/notes/b.md": "b\n"})
    (tmp_path / "work/out").symlink_to(tmp_path)
    return tmp_path / "work"


async def names(agent: LoadedAgent, root: Path) -> set[str]:
    """The tools of an agent."""
    return {report.name for report in await agent.inspect(RunOptions(root=root))}


def running(*commands: list[str], tool: str = "shell_run") -> list[Call]:
    """Calls that run these programs."""
    return [Call(tool, {"command": command}) for command in commands]


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
@pytest.mark.parametrize("name, there", [("files", "here"), ("project_files", "there")])
async def test_files_are_those_of_the_run_or_of_the_project(name: str, there: str, root: Path, tmp_path: Path) -> None:
    """The read-only ones have no tool that writes."""
    for suffix, tools in (("", LOOKING | CHANGING), ("_ro", LOOKING)):
        agent = desk(tmp_path / "project", also=[name + suffix])
        assert await names(agent, root) == tools
        (told,) = await answers(agent, Call("read_file", {"path": f"{there}.txt"}), root=root)
        assert told.endswith(there)


@pytest.mark.requirement("A-36")
@pytest.mark.anyio
@pytest.mark.parametrize("path", ["../project/there.txt", "/etc/passwd", "out/project/there.txt"])
async def test_nothing_leads_out_of_the_folder_where_it_is_executed(
    path: str, root: Path, tmp_path: Path, wording: Wording
) -> None:
    """Everything is approved here; what the tools of `files` write, `test_names.py` shows."""
    agent = desk(tmp_path / "project", also=["files_ro", "shell"])
    assert await answers(agent, Call("read_file", {"path": path}), *running(["cat", path]), root=root) == wording


@pytest.mark.anyio
async def test_shell_only_looks(root: Path, tmp_path: Path) -> None:
    """At the folder that the run works on."""
    changing = (["touch", "x"], ["find", ".", "-delete"], ["git", "status"], ["sh", "-c", "ls"])
    agent, session = desk(tmp_path / "project", also=["shell"]), Session()
    first, *_ = await answers(agent, *running(["cat", "here.txt"], *changing), root=root, session=session)
    assert first == "here\n"
    assert [event.success for event in events(session)] == [True, False, False, False, False]
    assert (root / "here.txt").exists()


@pytest.mark.anyio
async def test_shell_runs_what_the_project_allows(root: Path, tmp_path: Path, wording: Wording) -> None:
    """Programs are searched for in its folders first."""
    write(tmp_path, {"bin/build": '#!/bin/sh\necho built > here.txt\nexec sleep "$1"\n'})
    (tmp_path / "bin/build").chmod(0o755)
    shell = f"[tool.handrail.shell]\nallow = [['build']]\npath = ['{tmp_path}/bin']\ntimeout = 1.5\n"
    agent = desk(tmp_path / "project", also=["shell"], others={"pyproject.toml": shell})
    told = await answers(agent, *running(["build", "0"], ["build", "60"], ["ls"]), root=root)
    assert told[0] == wording
    assert (root / "here.txt").read_text() == "built\n"
    assert ["1.5 s" in text for text in told] == [False, True, False]


@pytest.mark.anyio
async def test_plan_is_kept_in_the_session_of_the_run(tmp_path: Path) -> None:
    """So that it rolls back with the calls."""
    session = Session()
    plan = Call("planning_setup_plan", {"objective": "Publish", "initial_steps": ["Write"]})
    await play(desk(tmp_path, also=["planning"]), called(plan), session=session)
    assert [each.objective for each in session[Plan].all()] == ["Publish"]


@pytest.mark.anyio
async def test_two_folders_serve_one_agent_under_prefixes(root: Path, tmp_path: Path) -> None:
    """The text of each tells the model of the prefix, which the text itself does not use."""
    whole = files_toolset(os.fspath(root), read_only=True, prefix="work-1")
    agent = desk(tmp_path / "project", toolsets={"notes": files_toolset("notes", prefix="notes"), "whole": whole})
    assert await names(agent, root) == {
        *(f"notes_{name}" for name in LOOKING | CHANGING),
        *(f"work-1_{name}" for name in LOOKING),
    }
    calls = [
        Call("notes_write_file", {"path": "a.md", "content": "a"}, id="w"),
        Call("work-1_read_file", {"path": "here.txt"}, id="r"),
    ]
    told = Expect(instructions=["`notes_`", "`work-1_`"])
    (first, last) = called(*calls, w=Outcome.ok(), r=Outcome.ok("here"))
    await play(agent, [replace(first, expect=told), last], root=root)
    assert (tmp_path / "project/notes/a.md").read_text() == "a"


@pytest.mark.anyio
async def test_shell_with_rules_of_its_own(root: Path, tmp_path: Path, wording: Wording) -> None:
    """In the folder of the project, or one below it; what a failing program has changed is undone."""
    allow = [("sh", "-c"), ("pwd",)]
    own = shell_toolset(allow=allow, environment={"NAME": "value"}, timeout=timedelta(seconds=30))
    toolsets = {"own": own, "work": shell_toolset(root, allow=allow, prefix="work")}
    agent = desk(tmp_path / "project", toolsets=toolsets)
    programs = running(["sh", "-c", "echo $NAME > made; cat made"], ["sh", "-c", "rm made; exit 1"])
    made, failed, place = await answers(agent, *programs, *running(["pwd"], tool="work_shell_run"))
    assert (made, failed, place) == ("value\n", wording, f"{root}\n")
    assert (tmp_path / "project/made").exists()


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
        files_toolset("notes", exclude=["../a"])
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
                _made(entry)
            assert str(raised.value) == wording


def _made(entry: Entry) -> Any:
    """What a factory makes where no agent runs."""
    context: RunContext[None] = RunContext(deps=None, model=TestModel(), usage=RunUsage())
    made = cast("ToolsetFactory", entry.value).function(context)
    return run_blocking(cast("Coroutine[Any, Any, object]", made)) if isinstance(made, Coroutine) else made
