"""Sections that open in the middle of a PydanticAI run: the next request has their text and tools, in every way in."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent, ModelMessage, ModelResponse, TextPart, ToolCallPart, UserError
from pydantic_ai.messages import ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.toolsets import FunctionToolset

from handrail import tool
from handrail.adapters.pydantic_ai import HandrailCapability, HandrailToolset, PipelineCapability, PydanticAIAdapter
from handrail.adapters.tool_executor import ToolExecutor
from handrail.errors import ToolConflictError, VisibilityExpansionRequired
from handrail.prompt import MarkdownSection, Prompt, PromptTemplate
from handrail.runtime import Session, ToolInvoked
from handrail.store import SqliteStore
from tests.adapters.kit import evaluate
from tests.wording import Wording

pytestmark = pytest.mark.anyio


@tool
def charge(order: str) -> str:
    """Charge an order."""
    return f"charged {order}"


def prompt() -> Prompt[str]:
    """A prompt with one closed section."""
    sections = [
        MarkdownSection(title="Desk", template="Work."),
        MarkdownSection(title="Billing", template="All about money.", summary="Charges cards.", tools=[charge]),
    ]
    return Prompt(PromptTemplate[str](ns="t", key="shop", sections=sections))


def executor(session: Session | None = None) -> ToolExecutor:
    """An executor of that prompt."""
    return ToolExecutor(prompt=prompt(), session=Session() if session is None else session)


CHARGE = ToolCallPart("charge", {"order": "A-1"}, "c")
OPEN = ToolCallPart("open_sections", {"paths": ["billing"], "reason": "to charge"}, "o")


class Clerk:
    """A model that plays replies, and notes what each request has."""

    def __init__(self, *replies: list[ToolCallPart]) -> None:
        self.replies = list(replies)
        self.tools: list[set[str]] = []
        self.instructions: list[str] = []
        self.returned: list[dict[str, tuple[bool, str]]] = []

    @property
    def model(self) -> FunctionModel:
        """The model."""
        return FunctionModel(self.reply)

    def reply(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        """The next reply."""
        self.tools.append({item.name for item in info.function_tools})
        self.instructions.append(info.instructions or "")
        parts = [part for part in messages[-1].parts if isinstance(part, ToolReturnPart)]
        self.returned.append({part.tool_call_id: (part.outcome == "success", str(part.content)) for part in parts})
        return ModelResponse(self.replies.pop(0) if self.replies else [TextPart("Done.")])


WAYS_IN: dict[str, Callable[[Clerk, ToolExecutor], Any]] = {
    "capability": lambda clerk, door: Agent(clerk.model, capabilities=[HandrailCapability(door)]).run("Go."),
    "pipeline": lambda clerk, door: Agent(clerk.model, capabilities=[PipelineCapability(door)]).run("Go."),
    "evaluate": lambda clerk, door: evaluate(clerk.model, door),
}


@pytest.mark.parametrize("run", WAYS_IN.values(), ids=WAYS_IN)
@pytest.mark.parametrize("first", [[OPEN, CHARGE], [CHARGE, OPEN]])
async def test_the_run_goes_on_with_the_opened_section(
    run: Callable[[Clerk, ToolExecutor], Any], first: list[ToolCallPart], wording: Wording
) -> None:
    """A call of its tool in the reply that opens it is told to wait, whichever comes first."""
    clerk, door = Clerk(first, [ToolCallPart("charge", {"order": "A-2"}, "late")]), executor()
    await run(clerk, door)
    assert clerk.tools == [{"open_sections"}, *[{"open_sections", "charge"}] * 2]
    assert ["All about money." in text for text in clerk.instructions] == [False, True, True]
    assert ["Charges cards." in text for text in clerk.instructions] == [True, False, False]
    assert clerk.returned[1]["o"] == (True, wording)
    assert clerk.returned[1]["c"] == (False, wording)
    assert clerk.returned[2]["late"] == (True, "charged A-2")


@pytest.mark.parametrize("capability", [HandrailCapability, PipelineCapability])
async def test_no_tool_of_the_agent_hides_one_that_opens_sections(capability: Any, wording: Wording) -> None:
    """Its calls would go elsewhere, and no section could be opened."""

    def open_sections(page: str) -> str:
        """Open a newspaper."""
        return page

    clerk = Clerk()
    with pytest.raises(ToolConflictError) as failure:
        await Agent(clerk.model, tools=[open_sections], capabilities=[capability(executor())]).run("Go.")
    assert (failure.value.tools, str(failure.value)) == (("open_sections",), wording)
    assert not clerk.tools


async def test_a_bare_toolset_shows_the_opened_section_too() -> None:
    """PydanticAI asks it for text and tools at each step, and takes no second one of that kind."""
    clerk, door = Clerk([OPEN], [CHARGE]), executor()
    agent = Agent(clerk.model, toolsets=[HandrailToolset(door)])
    await agent.run("Go.")
    with pytest.raises(UserError, match="open_sections"):
        await agent.run("Go.", toolsets=[HandrailToolset(executor(), id="other")])
    assert ["charge" in names for names in clerk.tools] == [False, True, True]
    assert clerk.returned[2]["c"] == (True, "charged A-1")


async def test_a_function_of_the_agent_may_open_sections(wording: Wording) -> None:
    """In the pipeline: its call was undone, and the next request has the section."""
    clerk, door, others = Clerk([ToolCallPart("ask", {}, "a")]), executor(), FunctionToolset[Any]()

    @others.tool_plain
    def ask() -> str:
        raise VisibilityExpansionRequired("needs to charge", section_keys=["billing"])

    await Agent(clerk.model, toolsets=[others], capabilities=[PipelineCapability(door)]).run("Go.")
    assert clerk.returned[1]["a"] == (False, wording)
    assert "charge" in clerk.tools[1]


async def test_an_interrupted_evaluation_is_resumed_with_what_was_opened(tmp_path: Path) -> None:
    """The process ended between the record of the call and the next request."""

    def stop(_messages: list[ModelMessage], _info: AgentInfo) -> ModelResponse:
        raise KeyboardInterrupt

    first = Clerk([OPEN, CHARGE])
    requests = iter([first.reply, stop])

    def reply(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return next(requests)(messages, info)

    model = FunctionModel(reply)
    with SqliteStore(tmp_path / "s.db") as store:
        with Session.open(store, "s") as session, pytest.raises(KeyboardInterrupt):
            await PydanticAIAdapter(model).evaluate_async(prompt(), session=session)
        with Session.open(store, "s") as session:
            second = Clerk([ToolCallPart("charge", {"order": "A-2"}, "late")])
            await PydanticAIAdapter(second.model).evaluate_async(prompt(), session=session)
            records = [(event.call.id, event.success) for event in session[ToolInvoked]]
    assert "charge" in second.tools[0]
    assert "All about money." in second.instructions[0]
    assert second.returned[0]["o"][0]
    assert not second.returned[0]["c"][0]
    assert second.returned[1]["late"] == (True, "charged A-2")
    assert ("late", True) in records
