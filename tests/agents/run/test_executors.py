"""What toolsets of a run are given, and how its calls are seen."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
from pydantic_ai import Agent, RunContext
from pydantic_ai.models import Model
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool, WrapperToolset

from handrail.agents import ApprovalRules, Rule, RunOptions, current_run, load_agent, shell_toolset
from handrail.errors import AgentError
from handrail.prompt import MarkdownSection, ToolContext, ToolResult
from handrail.prompt import Tool as HandrailTool
from handrail.testing import Call, Outcome
from tests.agents.desks import DONE, called, desk, play
from tests.agents.folders import agent, write
from tests.wording import Wording

pytestmark = pytest.mark.anyio


def section(*names: str, done: list[str]) -> MarkdownSection[None]:
    """A section with tools of these names, which note that they were called."""

    def tool(name: str) -> HandrailTool[None, None]:
        def carry_out(params: None, *, context: ToolContext) -> ToolResult[None]:
            done.append(name)
            return ToolResult.ok(None, message=name)

        return HandrailTool[None, None](name=name, description="Do it.", handler=carry_out)

    return MarkdownSection(title=names[0], template="T.", tools=[tool(name) for name in names])


async def test_toolsets_of_one_id_are_kept_apart(tmp_path: Path) -> None:
    """Each call reaches the section that brings its tool."""

    def one(ctx: RunContext[Any]) -> AbstractToolset[Any]:
        return current_run().section_toolset(section("one", done=[]), id="same")

    def two(ctx: RunContext[Any]) -> AbstractToolset[Any]:
        return current_run().section_toolset(section("two", done=[]), id="same")

    loaded = desk(tmp_path, toolsets={"one": one, "two": two})
    await play(loaded, called(Call("one"), Call("two"), c1=Outcome.ok("one"), c2=Outcome.ok("two")))


async def test_folders_that_lie_in_each_other_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wording: Wording
) -> None:
    """Whichever is opened first; the same folder is the same filesystem."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "root" / "below").mkdir(parents=True)

    def make(ctx: RunContext[Any]) -> AbstractToolset[Any] | None:
        run = current_run()
        folders = [run.root, run.root / "below"][:: ctx.deps]
        assert run.filesystem(folders[0]) is run.filesystem(folders[0] / ".")
        run.filesystem(folders[1])
        return None

    loaded = desk(tmp_path / "project", toolsets={"make": make})
    for order in (1, -1):
        with pytest.raises(AgentError) as raised:
            await play(loaded, [DONE], root=tmp_path / "root", deps=order)
        assert str(raised.value) == wording


async def test_a_factory_that_asks_the_model_is_refused_by_an_inspection(tmp_path: Path, wording: Wording) -> None:
    """Nothing is asked while somebody only looks."""

    async def make(ctx: RunContext[Any]) -> AbstractToolset[Any] | None:
        await Agent(cast("Model[Any]", ctx.model)).run("Which tools?")
        return None

    with pytest.raises(AgentError) as raised:
        await desk(tmp_path, toolsets={"make": make}).inspect()
    assert str(raised.value) == wording


async def test_a_shell_that_only_looks_is_allowed_and_one_that_does_more_is_asked_about(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wording: Wording
) -> None:
    """Where no rule speaks."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    more = shell_toolset(allow=[("make", "test")], prefix="more")
    loaded = desk(tmp_path / "project", toolsets={"more": more}, also=["shell"])
    reports = await loaded.inspect(RunOptions(root=tmp_path / "project"))
    assert [(report.source, report.approval.verdict) for report in reports] == [(wording, "ask"), (wording, "allow")]


async def test_a_call_that_a_toolset_makes_by_itself_is_held_to_the_rules(tmp_path: Path) -> None:
    """Also of a tool that the model has not called; a toolset of the program may stand between."""
    done: list[str] = []

    class Other(WrapperToolset[Any]):
        async def call_tool(
            self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
        ) -> Any:
            return await super().call_tool("stamp", tool_args, ctx, tool)

    def make(ctx: RunContext[Any]) -> AbstractToolset[Any]:
        assert current_run().path_filter.unreadable(".env") is not None
        return Other(current_run().section_toolset(section("look", "stamp", done=done), id="desk"))

    loaded = desk(tmp_path, toolsets={"own": make}, front="exclude: [.env]")
    await play(loaded, called(Call("look")), rules=ApprovalRules(deny=(Rule("stamp"),)))
    assert done == []
    await play(loaded, called(Call("look")))
    assert done == ["stamp"]


def test_a_file_that_its_project_leaves_out_for_another_of_its_name_is_refused(
    tmp_path: Path, wording: Wording
) -> None:
    """It is not clear which of the two is meant."""
    files = {
        "desk.agent": agent("desk"),
        "in/desk.agent": agent("desk"),
        "pyproject.toml": '[tool.handrail]\nagents = ["in/*.agent"]\n',
    }
    write(tmp_path, files)
    with pytest.raises(AgentError) as raised:
        load_agent(tmp_path / "desk.agent")
    assert str(raised.value) == wording
    front = "input_model_ref: desk.py:Order"
    write(tmp_path, {"other.agent": agent("other", front=front), "desk.py": "class Order:\n    pass\n"})
    with pytest.raises(AgentError) as raised:
        load_agent(tmp_path / "other.agent")
    assert str(raised.value) == wording
