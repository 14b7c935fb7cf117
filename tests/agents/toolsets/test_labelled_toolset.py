"""The toolsets of an agent as one, and conflicts of names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, InstructionPart, RunContext, Tool, ToolDefinition, UserError
from pydantic_ai.toolsets import AbstractToolset, FunctionToolset

from handrail.agents import LoadedAgent, toolset_factory
from handrail.agents.toolsets.labelled_toolset import LabelledSource, LabelledToolset
from handrail.agents.toolsets.lifetimes import FactoryToolset
from handrail.errors import AgentError, FactoryError, PromptValidationError, ToolConflictError
from handrail.testing import Call, Outcome, Reply
from tests.agents.kit import DONE, agent, called, desk, play, refusal, returns
from tests.agents.toolsets.traced import CONTEXT, Caller, Traced, made, named, run
from tests.wording import Wording

pytestmark = pytest.mark.anyio


def tool_source(name: str, where: str = "tools.py") -> LabelledSource:
    """A tool in a toolset of its own."""
    return LabelledSource(f"tool {name} ({where})", FunctionToolset([named(name)]), instructs=False)


def of(*toolsets: AbstractToolset[Any]) -> LabelledToolset:
    """Toolsets under the names `a`, `b` and so on, from `tools.py`."""
    labels = (f"toolset {letter} (tools.py)" for letter in "abcdefgh")
    return LabelledToolset([LabelledSource(label, toolset) for label, toolset in zip(labels, toolsets, strict=False)])


async def conflict_of(toolset: AbstractToolset[Any], *calls: str) -> ToolConflictError:
    """The error that ends a run of this toolset."""
    with pytest.raises(ToolConflictError) as caught:
        await run(toolset, *calls)
    return caught.value


@pytest.mark.requirement("A-34")
async def test_a_tool_that_is_prepared_conflicts_only_where_it_is_shown(wording: Wording) -> None:
    """What `prepare` hides at a step has no name there; what it renames has another one."""

    def later(ctx: RunContext[Any], definition: ToolDefinition) -> ToolDefinition | None:
        return definition if ctx.run_step > 1 else None

    hidden = FunctionToolset([Tool(named("ping"), prepare=later)])
    toolset = LabelledToolset([tool_source("ping"), LabelledSource("toolset desk (tools.py)", hidden)])
    assert str(await conflict_of(toolset, "ping")) == wording
    caller = await run(toolset)
    assert caller.seen == [["ping"]]


async def test_instructions_keep_the_order_of_the_members_and_their_ids(wording: Wording) -> None:
    """Members without any are passed over, and each part is known by the id of its member."""
    desk = FunctionToolset(id="desk", instructions=InstructionPart("Keep notes.", name="how"))
    bell = FunctionToolset(id="bell", instructions="Ring twice.")
    toolset = LabelledToolset(
        [tool_source("ping"), LabelledSource("toolset desk", desk), LabelledSource("toolset bell", bell)]
    )
    caller = await run(toolset, "ping")
    assert caller.instructions == [wording] * 2
    given = await toolset.get_instructions(CONTEXT)
    assert isinstance(given, list)
    assert [str(part.id) for part in given if isinstance(part, InstructionPart)] == ["toolset:desk:how", "toolset:bell"]


async def test_several_toolsets_that_cannot_be_made_are_told_together(wording: Wording) -> None:
    """One alone is raised as it is; nothing is entered in either case."""
    ping = Traced("ping")
    wrong = made(lambda _: "tools", name="a")  # type: ignore[arg-type,return-value] # wrong on purpose
    worse = made(lambda _: 7, name="b")  # type: ignore[arg-type,return-value] # wrong on purpose
    with pytest.raises(FactoryError) as alone:
        await run(of(ping, wrong))
    assert alone.value.toolset == "a"

    def raising(error: Exception) -> FactoryToolset:
        def fails(_ctx: RunContext[Any]) -> None:
            raise error

        return made(fails)

    other, absent = KeyError("no such shelf"), PromptValidationError("no such program", section_path=("x",))
    with pytest.raises(KeyError):
        await run(of(ping, raising(other)))
    with pytest.raises(AgentError) as caught:
        await run(of(wrong, raising(other), ping, worse, raising(absent)))
    assert str(caught.value) == wording
    kinds = [type(problem) for problem in caught.value.problems]
    assert kinds == [FactoryError, AgentError, FactoryError, AgentError]
    assert [problem.__cause__ for problem in caught.value.problems] == [None, other, None, absent]
    assert ping.entries == 0


async def test_two_runs_of_one_agent_have_copies_of_their_own() -> None:
    """What one run enters, the other does not leave."""
    ping = Traced("ping")
    agent = Agent(Caller().agent_model, toolsets=[of(ping)])
    async with agent:
        assert ping.depth == 1
        await agent.run("go")
        assert (ping.depth, ping.deepest) == (1, 2)
    assert ping.depth == 0


class Note(BaseModel):
    """An answer with a shape."""

    text: str


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that runs work on; the journal of its files is kept beside it."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


async def conflict(loaded: LoadedAgent, *before: Reply, **options: Any) -> ToolConflictError:
    """What is said of the names of an agent's tools, after these replies."""
    with pytest.raises(ToolConflictError) as caught:
        await play(loaded, [*before, DONE], **options)
    return caught.value


@pytest.mark.requirement("A-34")
async def test_all_names_that_are_certainly_taken_twice_are_told_with_every_origin(
    tmp_path: Path, wording: Wording
) -> None:
    """A tool and a static toolset, and an agent and a tool, in one message, before the model is asked."""
    loaded = desk(
        tmp_path,
        tools=[named("ping")],
        toolsets={"static": FunctionToolset([named("ping"), named("child")])},
        also=["child"],
        others={"child.agent": agent("child")},
    )
    error = await conflict(loaded)
    assert error.tools == ("ping", "child")
    assert str(error) == wording


@pytest.mark.requirement("A-34")
async def test_all_names_that_factories_take_twice_are_told_with_every_origin(
    tmp_path: Path, root: Path, wording: Wording
) -> None:
    """Two toolsets that are built in, and a tool beside them."""
    loaded = desk(tmp_path / "project", tools=[named("list_files")], also=["files", "files_ro"])
    error = await conflict(loaded, root=root)
    assert {"list_files", "read_file"} <= set(error.tools)
    told = str(error)
    assert told == wording


@pytest.mark.requirement("A-34")
async def test_a_tool_may_not_be_called_as_the_tool_of_the_answer(tmp_path: Path, wording: Wording) -> None:
    """PydanticAI takes structured answers as calls of a tool."""
    loaded = desk(tmp_path, tools=[named("final_result")])
    error = await conflict(loaded, output_type=Note)
    assert str(error) == wording
    await play(loaded, called(Call("final_result"), c1=Outcome.ok("final_result")))


@pytest.mark.requirement("A-34")
async def test_a_factory_for_each_step_that_collides_at_the_second_is_told_then(
    tmp_path: Path, wording: Wording
) -> None:
    """What the first step has called was carried out."""

    def make(ctx: RunContext[Any]) -> AbstractToolset[Any]:
        return FunctionToolset([named("late" if ctx.run_step == 1 else "ping")])

    loaded = desk(tmp_path, tools=[named("ping")], toolsets={"steps": toolset_factory(make, per_run_step=True)})
    error = await conflict(loaded, Reply(calls=[Call("ping")]))
    assert str(error) == wording


@pytest.mark.requirement("A-35")
async def test_without_our_check_that_of_pydantic_ai_ends_the_run(tmp_path: Path, wording: Wording) -> None:
    """It tells one name, and where it is."""
    loaded = desk(tmp_path, tools=[Tool(named("ping"))], toolsets={"static": FunctionToolset([named("ping")])})
    with refusal(UserError, wording):
        await play(loaded, [DONE], check_names=False)


@pytest.mark.requirement("A-35")
@pytest.mark.parametrize("check", [True, False])
async def test_a_prefix_resolves_a_conflict(tmp_path: Path, check: bool) -> None:
    """With either check."""
    prefixed = FunctionToolset([named("ping")]).prefixed("my")
    loaded = desk(tmp_path, tools=[named("ping")], toolsets={"static": prefixed})
    script = called(Call("ping"), Call("my_ping"), c1=Outcome.ok("ping"), c2=Outcome.ok("ping"))
    await play(loaded, script, check_names=check)


@pytest.mark.requirement("A-36")
async def test_no_path_leads_out_of_the_root_although_everything_is_approved(
    tmp_path: Path, root: Path, wording: Wording
) -> None:
    """Neither `..`, nor a path from the top of the disk, nor a link."""
    secret = tmp_path / "secret.txt"
    secret.write_text("secret", encoding="utf-8")
    (root / "link.txt").symlink_to(secret)
    loaded = desk(tmp_path / "project", also=["files"])
    paths = ["../secret.txt", str(secret), "link.txt", "a/../../secret.txt"]
    calls = [Call("read_file", {"path": path}, id=f"r{number}") for number, path in enumerate(paths)]
    calls += [Call("write_file", {"path": path, "content": "x"}, id=f"w{number}") for number, path in enumerate(paths)]
    came = {call.id: Outcome.failed() for call in calls}
    result = await play(loaded, called(*calls, **came), root=root)
    told = [str(part.content) for part in returns(result.messages)]
    assert [text.replace(str(tmp_path)[1:], "FOLDER") for text in told] == wording
    assert secret.read_text("utf-8") == "secret"
