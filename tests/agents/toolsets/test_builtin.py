"""The built-in toolsets, and those with settings of one's own."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from handrail.agents import (
    LoadedAgent,
    PythonOptions,
    RunOptions,
    SandboxOptions,
    files_toolset,
    python_toolset,
    sandbox_toolset,
    shell_toolset,
)
from handrail.agents.registry import BUILT_IN, ToolsetFactory
from handrail.agents.toolsets.builtin import DynamicAgent, built_ins, session_agents
from handrail.contrib.tools import Podman
from handrail.errors import AgentError, PathEscapeError, PromptValidationError
from handrail.session import Session
from handrail.testing import Call, Expect, Outcome, Reply
from tests.agents.kit import (
    CallLog,
    agent,
    answers,
    called,
    desk,
    inside,
    outcomes,
    play,
    read,
    refusal,
    ruled,
    running,
    texts,
    write,
)
from tests.agents.toolsets.traced import named
from tests.contrib.tools.sandbox.podman_store import IMAGE, containers, podman_command
from tests.wording import Wording

pytestmark = pytest.mark.anyio

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
@pytest.mark.parametrize("name, there", [("files", "here"), ("project_files", "there")])
async def test_files_are_those_of_the_run_or_of_the_project(name: str, there: str, root: Path, tmp_path: Path) -> None:
    """The read-only ones have no tool that writes."""
    for suffix, tools in (("", LOOKING | CHANGING), ("_ro", LOOKING)):
        agent = desk(tmp_path / "project", also=[name + suffix])
        assert await names(agent, root) == tools
        (told,) = await answers(agent, read(f"{there}.txt"), root=root)
        assert told.endswith(there)


@pytest.mark.requirement("A-36")
@pytest.mark.parametrize("path", ["../project/there.txt", "/etc/passwd", "out/project/there.txt"])
async def test_nothing_leads_out_of_the_folder_where_it_is_executed(
    path: str, root: Path, tmp_path: Path, wording: Wording
) -> None:
    """Everything is approved here; what the tools of `files` write, `test_factory_toolset.py` shows."""
    agent = desk(tmp_path / "project", also=["files_ro", "shell"])
    assert await answers(agent, read(path), *running(["cat", path]), root=root) == wording


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


async def test_two_folders_serve_one_agent_under_prefixes(root: Path, tmp_path: Path) -> None:
    """The text of each tells the model of the prefix, which the text itself does not use."""
    whole = files_toolset(os.fspath(root), read_only=True, prefix="work-1")
    agent = desk(tmp_path / "project", toolsets={"notes": files_toolset("notes", prefix="notes"), "whole": whole})
    all_names = {f"notes_{name}" for name in LOOKING | CHANGING} | {f"work-1_{name}" for name in LOOKING}
    assert await names(agent, root) == all_names
    calls = [Call("notes_write_file", {"path": "a.md", "content": "a"}, id="w")]
    calls.append(Call("work-1_read_file", {"path": "here.txt"}, id="r"))
    told = Expect(instructions=["`notes_`", "`work-1_`"])
    (first, last) = called(*calls, w=Outcome.ok(), r=Outcome.ok("here"))
    await play(agent, [replace(first, expect=told), last], root=root)
    assert (tmp_path / "project/notes/a.md").read_text() == "a"


@pytest.mark.parametrize("prefix", ["A", "a b", "é", "_a", "a" * 25])
def test_prefix_that_cannot_begin_a_name_is_refused(prefix: Any, wording: Wording) -> None:
    """Where it is written."""
    with refusal(AgentError, wording):
        files_toolset("notes", prefix=prefix)
    with refusal(AgentError, wording):
        shell_toolset(allow=[], prefix=prefix)


def test_pattern_that_leads_out_or_rule_that_is_none_is_refused(wording: Wording) -> None:
    """Where it is written."""
    with pytest.raises(PathEscapeError):
        files_toolset("notes", exclude=["../a"])
    with refusal(PromptValidationError, wording):
        shell_toolset(allow=["ls"])


def create(name: str, *, tools: Iterable[str] = (), toolsets: Iterable[str] = (), id: str = "") -> Call:
    """A call that makes an agent."""
    arguments = {"name": name, "instructions": "Work.", "tools": list(tools), "toolsets": list(toolsets)}
    return Call("agent_create", arguments, id=id)


def task(name: str, id: str = "") -> Call:
    """A call that gives an agent a task."""
    return Call("agent_call", {"agent": name, "input": "Go."}, id=id)


@pytest.mark.requirement("A-38")
async def test_an_agent_is_made_and_called_in_one_reply(tmp_path: Path, wording: Wording) -> None:
    """In the order asked; it has what it was given, and the model of its maker."""
    session = Session()
    loaded = desk(tmp_path, tools=[named("ping"), named("pong")], also=["dynamic_agents"])
    first, last = called(
        create("helper", tools=["ping", "ping"]), task("helper"), c1=Outcome.ok(), c2=Outcome.ok("found")
    )
    inner = Reply(calls=[Call("ping", id="n1"), Call("pong", id="n2")], within="c2")
    told = {"n1": Outcome.ok("ping"), "n2": Outcome.failed()}
    answer = called(**told)[1]
    script = [first, inner, Reply(text="found", within="c2", expect=answer.expect), last]
    await play(loaded, script, session=session, listener=(log := CallLog()))
    assert [log.told["c1"], log.told["n2"]] == wording
    assert session[DynamicAgent].all() == (DynamicAgent("helper", "Work.", "", ("ping",), ()),)
    assert outcomes(session) == [("c1", True), ("c2", True)]
    assert list(texts(tmp_path)) == ["desk.agent"]


@pytest.mark.requirement("A-38")
async def test_an_agent_cannot_be_given_what_its_maker_does_not_have(tmp_path: Path, wording: Wording) -> None:
    """Neither what is registered for others, nor what there is not; all is told at once, and nothing is made."""
    session = Session()
    others = {"other.agent": agent("other", toolsets="[shell]")}
    loaded = desk(tmp_path, tools=[named("ping")], also=["dynamic_agents"], others=others)
    calls = [create("helper", tools=["nope", "ping", "pong", "nope"], toolsets=["shell", "other"]), task("helper")]
    script = called(*calls, c1=Outcome.failed(), c2=Outcome.failed())
    await play(loaded, script, session=session, listener=(log := CallLog()))
    assert [log.told["c1"], log.told["c2"]] == wording
    assert session_agents(session) == {}


@pytest.mark.requirement("A-38")
async def test_a_name_that_is_taken_or_none_is_refused(tmp_path: Path, wording: Wording) -> None:
    """By an agent of the project, also one out of reach, or by one that was made before."""
    session = Session()
    loaded = desk(tmp_path, also=["dynamic_agents"], others={"other.agent": agent("other")})
    calls = [create("desk"), create("other"), create("new"), create("new"), create("a b/../c"), create("")]
    failed = Outcome.failed()
    script = called(*calls, c1=failed, c2=failed, c3=Outcome.ok(), c4=failed, c5=failed, c6=failed)
    await play(loaded, script, session=session, listener=(log := CallLog()))
    assert [log.told[f"c{number}"] for number in range(1, 7)] == wording
    assert list(session_agents(session)) == ["new"]


@pytest.mark.requirement("A-38")
async def test_only_agents_within_reach_are_called(tmp_path: Path, wording: Wording) -> None:
    """Those that were made, and those among the toolsets of the agent; an unknown name is told with all of them."""
    others = {"child.agent": agent("child"), "other.agent": agent("other")}
    loaded = desk(tmp_path, also=["dynamic_agents", "child"], others=others)
    calls = [create("helper"), task("other"), task("helpr"), task("child")]
    came = {"c2": Outcome.failed(), "c3": Outcome.failed(), "c4": Outcome.ok("found")}
    first, last = called(*calls, c1=Outcome.ok(), **came)
    await play(loaded, [first, Reply(text="found", within="c4"), last], listener=(log := CallLog()))
    assert [log.told["c2"], log.told["c3"]] == wording


@pytest.mark.requirement("A-38")
async def test_an_agent_that_was_made_may_make_agents_if_its_maker_lets_it(tmp_path: Path, wording: Wording) -> None:
    """Its own are its own, may have no more than it has itself, and are as deep as any."""
    session = Session()
    loaded = desk(tmp_path, tools=[named("ping")], also=["dynamic_agents"])
    first, last = called(
        create("helper", toolsets=["dynamic_agents"]), task("helper"), c1=Outcome.ok(), c2=Outcome.ok()
    )
    calls = [create("inner", tools=["ping"], id="n1"), create("inner", id="n2"), task("inner", "n3")]
    calls.append(task("helper", "n4"))
    told = {"n1": Outcome.failed(), "n2": Outcome.ok(), "n3": Outcome.failed(), "n4": Outcome.failed()}
    inner = inside("c2", called(*calls, **told))
    await play(loaded, [first, *inner, last], session=session, max_depth=2, listener=(log := CallLog()))
    assert [log.told[call] for call in ("n1", "n3", "n4")] == wording
    assert list(session_agents(session)) == ["helper"]


@pytest.mark.requirement("A-38")
async def test_in_deny_all_no_agent_is_made_or_called(tmp_path: Path) -> None:
    """They are tools like others."""
    session = Session()
    loaded = desk(tmp_path, also=["dynamic_agents"])
    script = called(create("helper"), task("helper"), c1=Outcome.failed("deny-all"), c2=Outcome.failed("deny-all"))
    await play(loaded, script, session=session, mode="deny-all")
    assert session_agents(session) == {}


def evaluating(*codes: str, tool: str = "evaluate_python") -> list[Call]:
    """Calls that evaluate code."""
    return [Call(tool, {"code": code}) for code in codes]


async def test_python_toolset_takes_options_and_prefix(tmp_path: Path, wording: Wording) -> None:
    """Two of them serve one agent."""
    options = PythonOptions(timeout=timedelta(milliseconds=200))
    toolsets = {"data": python_toolset(prefix="data"), "sums": python_toolset(options=options)}
    agent = desk(tmp_path / "project", toolsets=toolsets)
    assert await answers(agent, *evaluating("1 + 1", tool="data_evaluate_python")) == wording
    assert await answers(agent, *evaluating("2 ** 0.5 > 1", "while True: pass")) == wording
    with pytest.raises(AgentError):
        python_toolset(prefix="A")


async def test_agent_runs_commands_over_the_folder_of_its_run(tmp_path: Path, wording: Wording) -> None:
    """What a command that fails has changed there is undone."""
    write(tmp_path / "work", {"a.txt": "one"})
    agent = desk(tmp_path / "project", also=["sandbox"])
    commands = running("cat a.txt", "echo two > b.txt", "echo lost > c.txt; exit 1", tool="shell_execute")
    said = await answers(agent, *commands, root=tmp_path / "work")
    assert said[0] == "one"
    assert said[2] == wording
    assert {path.name for path in (tmp_path / "work").iterdir()} == {".git", "a.txt", "b.txt"}


async def test_toolset_takes_engine_and_prefix(tmp_path: Path, wording: Wording) -> None:
    """Two of them serve one agent, each with a sandbox of its own, which ends with the run."""
    write(tmp_path / "project", {"data/a.txt": "one", "other/a.txt": "two"})
    options = SandboxOptions(engine=Podman(image=IMAGE, command=podman_command()))
    toolsets = {"data": sandbox_toolset("data", options=options, prefix="data"), "other": sandbox_toolset("other")}
    agent = desk(tmp_path / "project", toolsets=toolsets)
    assert await answers(agent, *running("cat a.txt; (exit 3) || true", tool="data_shell_execute")) == wording
    assert not containers(tmp_path / "project" / "data")
    assert await answers(agent, *running("cat a.txt", tool="shell_execute")) == ["two"]
    with pytest.raises(AgentError):
        sandbox_toolset(prefix="A")


async def test_command_is_refused_where_the_run_keeps_files_from_its_tools(tmp_path: Path, wording: Wording) -> None:
    """It would read them; the options may allow that."""
    write(tmp_path / "work", {"a.key": "one"})
    rules = ruled('allow: [shell_execute]\ndeny: [{tool: read_file, arguments: {path: "*.key"}}]')
    look, options = running("cat *.key", tool="shell_execute"), {"root": tmp_path / "work", "rules": rules}
    agent = desk(tmp_path / "project", also=["sandbox"])
    assert await answers(agent, *look, **options) == [wording]
    toolset = sandbox_toolset(tmp_path / "work", options=SandboxOptions(reads_everything=True))
    agent = desk(tmp_path / "another", toolsets={"work": toolset})
    assert await answers(agent, *look, **options) == ["one"]
