"""Overrides of the texts of an agent: its instructions, and what the model reads of its tools."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import ToolDefinition
from pydantic_ai.toolsets import FunctionToolset

from handrail import tool
from handrail.agents import LoadedAgent, Project, Registry, RunOptions, load_agent
from handrail.agents.run.agent_texts import INSTRUCTIONS, OverridesPlace
from handrail.agents.run.inspection import Inspection
from handrail.agents.toolsets.builtin import built_ins
from handrail.errors import AgentFileError, OverridesError
from handrail.prompt import MarkdownSection, Tool, ToolContext, ToolExample, ToolResult
from handrail.prompt.overrides import Override, OverrideFiles, PromptOverrides, TextKey
from handrail.runtime import Session
from handrail.testing import Call, Expect, Outcome, Reply, ScriptedModel
from tests.agents.desks import called, outcomes
from tests.agents.folders import write
from tests.wording import Wording

pytestmark = pytest.mark.anyio

SENT = TextKey("tool", "send", "description")
PLACE = TextKey("tool", "send", "parameter", "$.place")
EXAMPLE = TextKey("tool", "send", "example", "1")
PRICE = TextKey("tool", "price", "description")
ORDER = TextKey("tool", "price", "parameter", "$.order")
READ = TextKey("tool", "read_file", "description")
LAW = TextKey("tool", "law", "description")


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


def loaded(folder: Path, head: str = "overrides: stable", settings: str = "") -> LoadedAgent:
    """An agent with tools of each kind."""
    registry = Registry.of_python(tools=[SEND, law], toolsets={"money": money()})
    text = f"---\nname: clerk\ntools: [send, law]\ntoolsets: [money, files_ro]\n{head}\n---\nWork for ${{nothing}}.\n"
    write(folder, {"clerk.agent": text, "pyproject.toml": settings})
    project = Project.load(folder, built_ins=built_ins(), entries=registry.entries, packages=False)
    return LoadedAgent(project, project.resolve("clerk"))


async def inspected(agent: LoadedAgent) -> Inspection:
    """What the agent is offered in a folder of the test, which no other process works on."""
    return await agent.inspection(RunOptions(root=agent.project.folder))


async def tune(agent: LoadedAgent, *changes: tuple[TextKey, str], tag: str = "stable", stale: bool = False) -> None:
    """Write overrides of these texts, each with the hash of what the agent has."""
    untuned = LoadedAgent(agent.project, replace(agent.agent, file=replace(agent.file, path=None)))
    texts = (await inspected(untuned)).texts
    hashes = {key: "1" * 64 if stale else texts[key].sha256 for key, _ in changes if key in texts}
    found = tuple(Override(key, hashes.get(key, "0" * 64), text) for key, text in changes)
    place = OverridesPlace.of(agent.project, agent.file)
    place.files.write(PromptOverrides(ns="agents", key=agent.name, tag=tag, overrides=found))


class Watched(ScriptedModel):
    """Notes the tools and the instructions of the last request."""

    tools: Sequence[ToolDefinition] = ()
    instructions: str = ""

    async def _reply(self, messages: Any, info: Any) -> Any:
        self.tools, self.instructions = info.function_tools, info.instructions or ""
        return await super()._reply(messages, info)


async def watched(agent: LoadedAgent, replies: Sequence[Reply] = (Reply(text="Done."),), **options: Any) -> Watched:
    """Play a script, with everything approved."""
    with Watched(list(replies)) as model:
        chosen = RunOptions(model=model, mode="approve-all", root=agent.project.folder, **options)
        await agent.run_async("Do it.", chosen)
    return model


async def test_every_text_of_an_agent_can_be_replaced(tmp_path: Path, wording: Wording) -> None:
    """Whoever brings the tool; a placeholder in the instructions is text, and calls run as before."""
    agent, session = loaded(tmp_path), Session()
    keys = (INSTRUCTIONS, SENT, PLACE, EXAMPLE, PRICE, ORDER, READ)
    await tune(agent, *((key, f"New ${{x}} {key}.") for key in keys))
    replies = called(
        Call("send", {"place": "Ulm"}),
        Call("price", {"order": "A-1"}),
        c1=Outcome.ok("sent to Ulm"),
        c2=Outcome.ok("A-1 costs 64"),
    )
    model = await watched(agent, replies, session=session)
    assert model.instructions.startswith("New ${x} section instructions, body.")
    tools = {each.name: each for each in model.tools}
    shown = [f"{name}: {tools[name].description}" for name in ("send", "price", "read_file")]
    shown += [str(tools[name].parameters_json_schema["properties"]) for name in ("send", "price")]
    assert "\n".join(shown) == wording
    assert outcomes(session) == [("c1", True), ("c2", True)]
    report = (await inspected(agent)).overrides
    assert report is not None
    assert (report.is_current, set(report.applied)) == (True, set(keys))


async def test_what_is_not_applied_is_reported_once(
    tmp_path: Path, wording: Wording, caplog: pytest.LogCaptureFixture
) -> None:
    """Stale overrides, and those of texts that the agent does not have; the texts of the code stay."""
    agent = loaded(tmp_path)
    await tune(agent, (SENT, "New."), (TextKey("tool", "gone", "description"), "New."), stale=True)
    model = await watched(agent, called(Call("law", {})))
    assert "Sends a parcel." in {(each.description or "").partition("\n")[0] for each in model.tools}
    assert "\n".join(caplog.messages) == wording
    report = (await inspected(agent)).overrides
    assert report is not None
    assert (report.stale, report.unknown) == ((SENT,), (TextKey("tool", "gone", "description"),))


async def test_a_tool_that_accepts_no_overrides_ends_the_run(tmp_path: Path, wording: Wording) -> None:
    """Before the model is asked; so does a text that a tool cannot have."""
    agent = loaded(tmp_path)
    await tune(agent, (LAW, "New."))
    with pytest.raises(OverridesError) as caught:
        await watched(agent)
    assert str(caught.value).replace(str(agent.project.folder), "PROJECT") == wording
    await tune(agent, (SENT, "x" * 9000))
    with pytest.raises(OverridesError) as caught:
        await watched(agent)
    assert str(caught.value).replace(str(agent.project.folder), "PROJECT") == wording


async def test_the_project_says_which_overrides_and_the_file_another_tag(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, wording: Wording
) -> None:
    """Without either, and for agents without a file, nothing is read; a tag without a file is reported once."""
    settings = "[tool.handrail.overrides]\nfolder = 'texts'\n"
    usual, other = loaded(tmp_path, "", settings), loaded(tmp_path, "overrides: next", settings)
    await tune(other, (INSTRUCTIONS, "Work fast."))
    assert (await watched(usual)).instructions.startswith("Work fast.")
    caplog.clear()
    assert (await watched(other, called(Call("law", {})))).instructions.startswith("Work for ${nothing}.")
    assert ["'next'" in message for message in caplog.messages] == [True]
    assert not OverridesPlace.of(usual.project, replace(usual.file, path=None)).is_used
    assert not OverridesPlace.of(loaded(tmp_path, "").project, loaded(tmp_path, "").file).is_used
    with pytest.raises(AgentFileError) as raised:
        loaded(tmp_path, "overrides: a/b")
    assert str(raised.value) == wording


async def test_overrides_hold_for_called_agents_and_the_tools_of_closed_toolsets(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Each agent has its own; an agent that is called is a tool of the one that calls it."""
    clerk = "---\nname: clerk\ndescription: Clerk.\n---\nServe.\n"
    head = "toolsets: [clerk, planning]\ndisclose: {planning: Plans.}"
    write(
        tmp_path,
        {
            "clerk.agent": clerk,
            "boss.agent": f"---\nname: boss\n{head}\n---\nLead.\n",
            "pyproject.toml": "[tool.handrail.overrides]\n",
        },
    )
    boss, clerk_agent = load_agent(tmp_path / "boss.agent"), load_agent(tmp_path / "clerk.agent")
    plan = TextKey("tool", "planning_read_plan", "description")
    await tune(boss, (TextKey("tool", "clerk", "description"), "Asks the clerk."), (plan, "Shows the plan."))
    await tune(clerk_agent, (INSTRUCTIONS, "Serve with a smile."))
    opening = Call("open_sections", {"paths": ["planning"], "reason": "a plan"}, id="o")
    replies = [
        Reply(calls=[opening]),
        Reply(calls=[Call("clerk", {"input": "Serve."}, id="c")]),
        Reply(text="Served.", within="c", expect=Expect(instructions=["Serve with a smile."])),
        Reply(text="Done."),
    ]
    model = await watched(boss, replies)
    descriptions = {each.name: each.description or "" for each in model.tools}
    assert descriptions["clerk"] == "Asks the clerk."
    assert descriptions["planning_read_plan"].startswith("Shows the plan.")
    assert not caplog.messages


async def test_a_file_that_cannot_be_read_ends_the_run_of_the_caller(tmp_path: Path) -> None:
    """The model that called the agent reads nothing of it."""
    write(
        tmp_path,
        {
            "clerk.agent": "---\nname: clerk\noverrides: stable\n---\nServe.\n",
            "boss.agent": "---\nname: boss\ntoolsets: [clerk]\n---\nLead.\n",
            "overrides/agents/clerk/stable.json": "{",
        },
    )
    boss, session = load_agent(tmp_path / "boss.agent"), Session()
    with pytest.raises(OverridesError, match="clerk/stable"):
        await watched(boss, called(Call("clerk", {"input": "Serve."})), session=session)
    assert outcomes(session) == [("c1", False)]


async def test_a_section_of_the_program_has_its_own_text(tmp_path: Path) -> None:
    """An override of it is unknown to the agent, because only its tools belong to the agent."""
    desk = MarkdownSection(title="Desk", template="Be kind.", tools=[law])
    registry = Registry.of_python(tools=[], toolsets={"desk": desk})
    write(tmp_path, {"clerk.agent": "---\nname: clerk\ntoolsets: [desk]\noverrides: stable\n---\nWork.\n"})
    project = Project.load(tmp_path, entries=registry.entries, packages=False)
    agent = LoadedAgent(project, project.resolve("clerk"))
    key = TextKey("section", "desk", "body")
    await tune(agent, (key, "Be quick."))
    report = (await inspected(agent)).overrides
    assert report is not None
    assert report.unknown == (key,)
    assert isinstance(OverridesPlace.of(project, agent.file).files, OverrideFiles)
