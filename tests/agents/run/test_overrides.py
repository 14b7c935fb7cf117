"""Overrides of the texts of an agent: its instructions, and what the model reads of its tools."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai.toolsets import FunctionToolset

from handrail import tool
from handrail.agents import LoadedAgent, Project, Registry, RunOptions, load_agent
from handrail.agents.toolsets.builtin import built_ins
from handrail.contrib.tools import PlanningToolsSection
from handrail.errors import OverridesError
from handrail.prompt import PromptText, Tool, ToolContext, ToolExample, ToolResult
from handrail.session import Session
from handrail.testing import Call, Expect, Outcome, Reply
from tests.agents.kit import DONE, Watched, called, outcomes, write
from tests.agents.kit import watched as play_watched
from tests.wording import Wording

pytestmark = pytest.mark.anyio

INSTRUCTIONS = "sections.instructions.body"
BODY = "Work for ${nothing}."
SENT = "tools.send.description"


@dataclass(frozen=True)
class Parcel:
    """What is sent."""

    place: str


def _send(params: Parcel, *, context: ToolContext) -> ToolResult[None]:
    return ToolResult.ok(None, f"sent to {params.place}")


SEND = Tool[Parcel, None](
    name="send",
    description="Sends a parcel.",
    handler=_send,
    examples=[ToolExample(description="To Bonn", input=Parcel("Bonn"), output=None)],
)


@tool(effect="read", accepts_overrides=False)
def law() -> str:
    """Say what the law is."""
    return "the law"


def money() -> FunctionToolset[Any]:
    """A toolset of PydanticAI with one tool."""
    toolset = FunctionToolset[Any]()

    @toolset.tool_plain(metadata={"effect": "read"})
    def price(order: str) -> str:
        """The price of an order.

        Args:
            order: Its number.
        """
        return f"{order} costs 64"

    return toolset


def loaded(folder: Path) -> LoadedAgent:
    """An agent with tools of each kind, and overrides."""
    registry = Registry.of_python(tools=[SEND, law], toolsets={"money": money()})
    head = "name: clerk\ntools: [send, law]\ntoolsets: [money, files_ro]\noverrides: texts/clerk.json"
    write(folder, {"clerk.agent": f"---\n{head}\n---\n{BODY}\n"})
    project = Project.load(folder, built_ins=built_ins(), entries=registry.entries, packages=False)
    return LoadedAgent(project, project.resolve("clerk"))


def tune(folder: Path, *changes: tuple[str, str, str], file: str = "texts/clerk.json") -> None:
    """Write overrides: key, original and text of each."""
    entries = {key: {"sha256": PromptText(key, original).sha256, "text": text} for key, original, text in changes}
    write(folder, {file: json.dumps(entries)})


async def watched(agent: LoadedAgent, replies: Sequence[Reply] = (DONE,), **options: Any) -> Watched:
    """Play a script on the folder of the project."""
    return await play_watched(agent, replies, root=agent.project.folder, **options)


async def warnings(agent: LoadedAgent) -> str:
    """What `handrail check` says of the overrides."""
    inspection = await agent.inspection(RunOptions(root=agent.project.folder))
    return "\n".join(inspection.warnings).replace(str(agent.project.folder), "PROJECT")


async def test_every_text_of_an_agent_can_be_replaced(tmp_path: Path, wording: Wording) -> None:
    """Whoever brings the tool; a placeholder in the instructions is text, and calls run as before."""
    agent, session = loaded(tmp_path), Session()
    tune(
        tmp_path,
        (INSTRUCTIONS, BODY, "New ${x}."),
        (SENT, "Sends a parcel.", "Sends it."),
        ("tools.send.parameters.place", "", "A town."),
        ("tools.price.description", "The price of an order.", "Tells the price."),
        ("tools.price.parameters.order", "Its number.", "A letter and digits."),
    )
    calls = Call("send", {"place": "Ulm"}), Call("price", {"order": "A-1"})
    replies = called(*calls, c1=Outcome.ok("sent to Ulm"), c2=Outcome.ok("A-1 costs 64"))
    assert await warnings(agent) == ""
    model = await watched(agent, replies, session=session)
    assert model.instructions[-1].startswith("New ${x}.")
    tools = {each.name: each for each in model.definitions[-1]}
    shown = [f"{name}: {tools[name].description}" for name in ("send", "price")]
    shown += [str(tools[name].parameters_json_schema["properties"]) for name in ("send", "price")]
    assert "\n".join(shown) == wording
    assert outcomes(session) == [("c1", True), ("c2", True)]


async def test_what_is_not_applied_is_reported_once(
    tmp_path: Path, wording: Wording, caplog: pytest.LogCaptureFixture
) -> None:
    """Stale overrides with the hash of the text, and those of texts that the agent does not have."""
    agent = loaded(tmp_path)
    tune(tmp_path, (SENT, "Sent a parcel.", "New."), ("tools.gone.description", "", "New."))
    model = await watched(agent, called(Call("law", {})))
    assert "Sends a parcel." in {(each.description or "").partition("\n")[0] for each in model.definitions[-1]}
    assert "\n".join(caplog.messages).replace(str(tmp_path), "PROJECT") == wording
    assert await warnings(agent) == wording


async def test_a_missing_file_is_reported(tmp_path: Path, wording: Wording) -> None:
    """The agent runs with the texts of the code."""
    assert await warnings(loaded(tmp_path)) == wording


async def test_a_tool_that_accepts_no_overrides_ends_the_run(tmp_path: Path) -> None:
    """Before the model is asked; so does a text that a tool cannot have."""
    agent = loaded(tmp_path)
    for change in (("tools.law.description", "Say what the law is.", "New."), (SENT, "Sends a parcel.", "x" * 9000)):
        tune(tmp_path, change)
        with pytest.raises(OverridesError, match=change[0]):
            await watched(agent)


async def test_overrides_hold_for_called_agents_and_the_tools_of_closed_toolsets(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Each agent has its own; an agent that is called is a tool of the one that calls it."""
    clerk = "---\nname: clerk\ndescription: Clerk.\noverrides: clerk.json\n---\nServe.\n"
    head = "toolsets: [clerk, planning]\ndisclose: {planning: Plans.}\noverrides: boss.json"
    write(tmp_path, {"clerk.agent": clerk, "boss.agent": f"---\nname: boss\n{head}\n---\nLead.\n"})
    boss = load_agent(tmp_path / "boss.agent")
    plan = next(each for each in PlanningToolsSection(session=Session()).tools if each.name == "planning_read_plan")
    tune(
        tmp_path,
        ("tools.clerk.description", "Clerk.", "Asks the clerk."),
        ("tools.planning_read_plan.description", plan.description, "Shows the plan."),
        file="boss.json",
    )
    tune(tmp_path, (INSTRUCTIONS, "Serve.", "Serve with a smile."), file="clerk.json")
    opening = Call("open_sections", {"paths": ["planning"], "reason": "a plan"}, id="o")
    replies = [
        Reply(calls=[opening]),
        Reply(calls=[Call("clerk", {"input": "Serve."}, id="c")]),
        Reply(text="Served.", within="c", expect=Expect(instructions=["Serve with a smile."])),
        Reply(text="Done."),
    ]
    model = await watched(boss, replies)
    descriptions = {each.name: each.description or "" for each in model.definitions[-1]}
    assert descriptions["clerk"] == "Asks the clerk."
    assert descriptions["planning_read_plan"].startswith("Shows the plan.")
    assert not caplog.messages


async def test_a_file_that_cannot_be_read_ends_the_run_of_the_caller(tmp_path: Path) -> None:
    """The model that called the agent reads nothing of it."""
    clerk = "---\nname: clerk\noverrides: clerk.json\n---\nServe.\n"
    boss_file = "---\nname: boss\ntoolsets: [clerk]\n---\nLead.\n"
    write(tmp_path, {"clerk.agent": clerk, "boss.agent": boss_file, "clerk.json": "{"})
    boss, session = load_agent(tmp_path / "boss.agent"), Session()
    with pytest.raises(OverridesError, match=r"clerk\.json"):
        await watched(boss, called(Call("clerk", {"input": "Serve."})), session=session)
    assert outcomes(session) == [("c1", False)]
