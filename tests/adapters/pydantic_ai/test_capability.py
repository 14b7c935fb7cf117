"""`handrail.adapters.pydantic_ai.capability`: unknown names, the order asked, and the limits of a run."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from pydantic_ai import (
    Agent,
    ModelMessage,
    ModelResponse,
    RunContext,
    TextPart,
    ToolCallPart,
    ToolDefinition,
    ToolFailed,
)
from pydantic_ai.capabilities import AbstractCapability, ValidatedToolArgs
from pydantic_ai.models.function import AgentInfo, FunctionModel

from handrail.adapters.pydantic_ai import HandrailCapability
from handrail.adapters.tool_executor import ToolExecutor
from handrail.limits import BudgetTracker
from handrail.prompt import Tool, ToolContext, ToolResult
from handrail.runtime import Session, ToolInvoked
from handrail.testing import Call, Expect, Outcome, Reply, ScriptedModel
from tests.adapters.notes import ADD_NOTE, HALF_NOTE, READ_NOTES, noted, notes_prompt
from tests.wording import Wording


def desk(session: Session, tracker: BudgetTracker | None = None) -> HandrailCapability:
    """Three tools as a capability."""
    prompt = notes_prompt(tools=(ADD_NOTE, READ_NOTES, HALF_NOTE))
    return HandrailCapability(ToolExecutor(prompt=prompt, session=session, budget_tracker=tracker))


def calls_of(session: Session) -> list[tuple[str, bool]]:
    """Id and success of every call, in the order in which they ended."""
    return [(event.call_id, event.success) for event in session[ToolInvoked].all()]


@pytest.mark.anyio
@pytest.mark.requirement("M-06c")
async def test_unknown_names_are_answered_by_the_pipeline_any_number_of_times(wording: Wording) -> None:
    """A failed return lists the known names, one event is recorded for each, no retry is spent, and the run goes on."""
    session = Session()
    refused = Outcome.failed("add_note, read_notes, half_note")
    replies = [
        Reply(calls=[Call("add_notes", {"text": "milk"})]),
        Reply(calls=[Call("add_notes", "{")], expect=Expect(messages={"call-1": refused})),
        Reply(
            calls=[Call("add_notes"), Call("add_note", {"text": "milk"})], expect=Expect(messages={"call-2": refused})
        ),
        Reply(text="Done.", expect=Expect(messages={"call-3": refused, "call-4": Outcome.ok("noted")})),
    ]
    with ScriptedModel(replies) as model:
        await Agent(model, capabilities=[desk(session)], retries=0).run("Note milk.")
    assert calls_of(session) == [("call-1", False), ("call-2", False), ("call-3", False), ("call-4", True)]
    first, second, *_ = session[ToolInvoked].all()
    assert [first.result.message, second.result.message] == [wording, wording]
    assert second.call.arguments == "{"


@pytest.mark.anyio
async def test_an_unknown_name_is_never_offered_to_the_model() -> None:
    """It is a tool for one reply, and only for its calls."""
    offered: list[list[str]] = []

    async def reply(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        offered.append([tool.name for tool in info.function_tools])
        return ModelResponse([TextPart("No.") if len(offered) > 1 else ToolCallPart("search")])

    await Agent(FunctionModel(reply), capabilities=[desk(Session())]).run("Search.")
    assert offered == [["add_note", "read_notes", "half_note"]] * 2


class Gate(AbstractCapability[Any]):
    """Somebody else's hooks around calls: what they see, and whatever `before` does."""

    def __init__(self, before: Callable[[str], Awaitable[None]]) -> None:
        self.before = before
        self.seen: list[str] = []

    async def after_tool_validate(
        self, ctx: RunContext[Any], *, call: ToolCallPart, tool_def: ToolDefinition, args: ValidatedToolArgs
    ) -> ValidatedToolArgs:
        self.seen.append(call.tool_name)
        return args

    async def before_tool_execute(
        self, ctx: RunContext[Any], *, call: ToolCallPart, tool_def: ToolDefinition, args: ValidatedToolArgs
    ) -> ValidatedToolArgs:
        await self.before(call.tool_call_id)
        return args


async def nothing(call_id: str) -> None:
    """Hold nothing up."""


@pytest.mark.anyio
async def test_hooks_of_others_are_not_asked_about_unknown_names() -> None:
    """There is nothing that an approval could approve."""
    gate = Gate(nothing)
    model = ScriptedModel([Reply(calls=[Call("search"), Call("read_notes")]), Reply(text="No.")])
    await Agent(model, capabilities=[gate, desk(Session())]).run("Search.")
    assert gate.seen == ["read_notes"]


@pytest.mark.anyio
async def test_a_call_held_up_by_a_hook_still_comes_before_those_asked_after_it() -> None:
    """Calls draw their places in the order asked, whatever others do before they get there."""
    session = Session()
    later = asyncio.Event()

    async def hold_up_the_first(call_id: str) -> None:
        if call_id == "call-1":
            await later.wait()
        if call_id == "call-4":
            later.set()

    calls = [Call("add_note", {"text": str(number)}) for number in range(3)]
    replies = [Reply(calls=[*calls[:2], Call("search"), calls[2]]), Reply(text="Done.")]
    with ScriptedModel(replies) as model:
        await Agent(model, capabilities=[Gate(hold_up_the_first), desk(session)]).run("Note.")
    assert calls_of(session) == [("call-1", True), ("call-2", True), ("call-3", False), ("call-4", True)]
    assert noted(session) == ["0", "1", "2"]


@pytest.mark.anyio
async def test_a_call_that_a_hook_refuses_holds_nobody_up() -> None:
    """It leaves the line without having reached the pipeline."""
    session = Session()

    async def refuse_the_first(call_id: str) -> None:
        if call_id == "call-1":
            raise ToolFailed("not today")

    calls = [Call("add_note", {"text": str(number)}) for number in range(3)]
    outcomes = {"call-1": Outcome.failed("not today"), "call-2": Outcome.ok()}
    replies = [Reply(calls=calls), Reply(text="Done.", expect=Expect(messages=outcomes))]
    with ScriptedModel(replies) as model:
        await Agent(model, capabilities=[Gate(refuse_the_first), desk(session)]).run("Note.")
    assert calls_of(session) == [("call-2", True), ("call-3", True)]


@pytest.mark.anyio
async def test_tools_of_others_are_not_in_the_line() -> None:
    """A call of a prompt's tool waits for no foreign tool, however long that takes."""
    session = Session()
    done = asyncio.Event()

    async def slow() -> str:
        await done.wait()
        return "slow"

    async def signal(params: None, *, context: ToolContext) -> ToolResult[None]:
        done.set()
        return ToolResult.ok(None)

    tool = Tool[None, None](name="signal", description="Go on.", handler=signal)
    capability = HandrailCapability(ToolExecutor(prompt=notes_prompt(tools=(tool,)), session=session))
    with ScriptedModel([Reply(calls=[Call("slow"), Call("signal")]), Reply(text="Done.")]) as model:
        await Agent(model, tools=[slow], capabilities=[capability]).run("Go.")
    assert calls_of(session) == [("call-2", True)]
