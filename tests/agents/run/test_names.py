"""Tool names of a run: those that are taken twice are told with every origin, and files stay below the root."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import RunContext, Tool, UserError
from pydantic_ai.toolsets import AbstractToolset, FunctionToolset

from handrail.agents import LoadedAgent, toolset_factory
from handrail.errors import ToolConflictError
from handrail.testing import Call, Outcome, Reply
from tests.agents.desks import DONE, called, desk, play, returns
from tests.agents.folders import agent
from tests.agents.toolsets.traced import named
from tests.wording import Wording

pytestmark = pytest.mark.anyio


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
    with pytest.raises(UserError) as raised:
        await play(loaded, [DONE], check_names=False)
    assert str(raised.value) == wording


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
