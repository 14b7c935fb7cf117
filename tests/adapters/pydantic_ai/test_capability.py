"""`HandrailCapability`: unknown names, the order asked, and the limits of a run."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, cast

import pytest
from pydantic_ai import Agent
from pydantic_ai.capabilities import AbstractCapability, ValidatedToolArgs
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.tools import RunContext, ToolDefinition

from handrail.adapters.pydantic_ai import HandrailCapability, PydanticAIAdapter
from handrail.adapters.tool_executor import ToolExecutor
from handrail.errors import BudgetExceededError, PromptEvaluationError
from handrail.limits import Budget, BudgetTracker, Deadline, TokenUsage
from handrail.prompt import Tool, ToolContext, ToolResult
from handrail.runtime import Session, ToolInvoked
from handrail.testing import Call, Expect, FakeClock, Outcome, Reply, ScriptedModel
from tests.adapters.kit import (
    ADD_NOTE,
    READ_NOTES,
    Note,
    World,
    noted,
    notes_prompt,
)
from tests.kit import raises, soon
from tests.wording import Wording

pytestmark = pytest.mark.anyio


def desk(session: Session, tracker: BudgetTracker | None = None) -> HandrailCapability:
    """Two tools as a capability."""
    prompt = notes_prompt(tools=(ADD_NOTE, READ_NOTES))
    return HandrailCapability(ToolExecutor(prompt=prompt, session=session, budget_tracker=tracker))


def list_calls(session: Session) -> list[tuple[str, bool]]:
    """Id and success of every call, in the order in which they ended."""
    return [(event.call_id, event.success) for event in session[ToolInvoked].all()]


@pytest.mark.requirement("M-06c")
async def test_unknown_names_are_answered_by_the_pipeline_any_number_of_times(wording: Wording) -> None:
    """A failed return lists the known names, one event is recorded for each, no retry is spent, and the run goes on."""
    session = Session()
    failure = Outcome.failed("add_note, read_notes")
    replies = [
        Reply(calls=[Call("add_notes", {"text": "milk"})]),
        Reply(calls=[Call("add_notes", "{")], expect=Expect(messages={"call-1": failure})),
        Reply(
            calls=[Call("add_notes"), Call("add_note", {"text": "milk"})], expect=Expect(messages={"call-2": failure})
        ),
        Reply(text="Done.", expect=Expect(messages={"call-3": failure, "call-4": Outcome.ok("noted")})),
    ]
    with ScriptedModel(replies) as model:
        await Agent(model, capabilities=[desk(session)], retries=0).run("Note milk.")
    assert list_calls(session) == [("call-1", False), ("call-2", False), ("call-3", False), ("call-4", True)]
    first, second, *_ = session[ToolInvoked].all()
    assert [first.result.message, second.result.message] == [wording, wording]
    assert second.call.arguments == "{"


async def test_an_unknown_name_is_never_offered_to_the_model() -> None:
    """It is a tool for one reply, and only for its calls."""
    offered: list[list[str]] = []

    async def reply(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        offered.append([tool.name for tool in info.function_tools])
        return ModelResponse([TextPart("No.") if len(offered) > 1 else ToolCallPart("search")])

    await Agent(FunctionModel(reply), capabilities=[desk(Session())]).run("Search.")
    assert offered == [["add_note", "read_notes"]] * 2


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
    assert list_calls(session) == [("call-1", True), ("call-2", True), ("call-3", False), ("call-4", True)]
    assert noted(session) == ["0", "1", "2"]


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
    assert list_calls(session) == [("call-2", True)]


def test_effects_are_remembered_from_run_to_run_of_one_adapter() -> None:
    """Without a ledger of its own, an adapter has one for all its runs."""
    session, world = Session(), World()
    replies = [Reply(calls=[Call("charge", {"text": "fee"})]), DONE]
    adapter = PydanticAIAdapter(ScriptedModel([*replies, Reply(calls=[Call("charge", {"text": "fee"})]), DONE]))
    adapter.evaluate(notes_prompt(world), session=session)
    adapter.evaluate(notes_prompt(world), session=session)
    assert [event.replayed for event in session[ToolInvoked].all()] == [False, True]
    assert world.charged == ["fee"]


@pytest.mark.parametrize("is_async", [True, False])
def test_a_person_can_interrupt_a_run(is_async: bool) -> None:
    """The call is rolled back and recorded, and the interrupt leaves `evaluate`."""
    session = Session()

    def interrupt(params: None, *, context: ToolContext) -> ToolResult[None]:
        context.session[Note].append(Note("never kept"))
        raise KeyboardInterrupt

    async def interrupt_async(params: None, *, context: ToolContext) -> ToolResult[None]:
        return interrupt(params, context=context)

    handler = cast("Any", interrupt_async if is_async else interrupt)  # one tool is made of either
    tool = Tool[None, None](name="interrupt", description="Stop.", handler=handler)
    model = ScriptedModel([Reply(calls=[Call("interrupt")])])
    with pytest.raises(KeyboardInterrupt):
        PydanticAIAdapter(model).evaluate(notes_prompt(tools=(tool,)), session=session)
    assert noted(session) == []
    assert [event.success for event in session[ToolInvoked].all()] == [False]


@pytest.mark.parametrize("is_async", [True, False])
def test_an_agent_can_be_a_tool(is_async: bool) -> None:
    """Two of them run side by side, each on a session of its own."""
    session = Session()
    children: dict[str, Session] = {}

    def make_child(context: ToolContext) -> tuple[PydanticAIAdapter, Session]:
        model = ScriptedModel([Reply(calls=[Call("add_note", {"text": context.call_id})]), Reply(text="I noted it.")])
        children[context.call_id] = child = context.session.child()
        return PydanticAIAdapter(model), child

    def delegate(params: None, *, context: ToolContext) -> ToolResult[None]:
        adapter, child = make_child(context)
        response = adapter.evaluate(notes_prompt(tools=(ADD_NOTE,)), session=child)
        return ToolResult.ok(None, message=response.text)

    async def delegate_async(params: None, *, context: ToolContext) -> ToolResult[None]:
        adapter, child = make_child(context)
        response = await adapter.evaluate_async(notes_prompt(tools=(ADD_NOTE,)), session=child)
        return ToolResult.ok(None, message=response.text)

    handler = cast("Any", delegate_async if is_async else delegate)  # one tool is made of either
    tool = Tool[None, None](name="delegate", description="Ask another.", handler=handler, concurrent=True)
    came = Expect(messages={"call-1": Outcome.ok("I noted it."), "call-2": Outcome.ok("I noted it.")})
    with ScriptedModel([Reply(calls=[Call("delegate")] * 2), Reply(text="Done.", expect=came)]) as model:
        PydanticAIAdapter(model).evaluate(notes_prompt(tools=(tool, READ_NOTES)), session=session)
    assert {call_id: noted(child) for call_id, child in children.items()} == {
        "call-1": ["call-1"],
        "call-2": ["call-2"],
    }
    assert noted(session) == []
    assert [event.success for event in session[ToolInvoked].all()] == [True, True]


DONE = Reply(text="Done.")
MINUTE = timedelta(minutes=1)


async def test_no_request_is_made_past_the_deadline(wording: Wording) -> None:
    """The error says where it stopped. A budget has a deadline of its own: the earlier of the two counts."""
    clock = FakeClock()
    past, future = Deadline.after(-MINUTE, clock=clock), Deadline.after(MINUTE, clock=clock)
    for deadline, own in ((past, future), (future, past), (None, past), (past, None)):
        model, budget = ScriptedModel([DONE]), Budget(deadline=own)
        options: dict[str, Any] = {"session": Session(), "deadline": deadline, "budget": budget}
        with raises(PromptEvaluationError, wording) as failure:
            await PydanticAIAdapter(model).evaluate_async(notes_prompt(), **options)
        assert (failure.value.phase, model.playback.played) == ("request", 0)


async def test_a_request_is_cut_off_at_the_deadline(wording: Wording) -> None:
    """A provider that does not answer holds nobody up."""
    cancelled: list[str] = []

    async def silence(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.append("request")
        return ModelResponse([])

    adapter = PydanticAIAdapter(FunctionModel(silence))
    with raises(PromptEvaluationError, wording) as failure:
        await adapter.evaluate_async(notes_prompt(), session=Session(), deadline=soon())
    assert failure.value.phase == "request"
    assert isinstance(failure.value.__cause__, TimeoutError)
    assert cancelled == ["request"]


async def test_an_answer_that_comes_past_the_deadline_is_not_taken(wording: Wording) -> None:
    """The run was to have ended by then, and none of the calls that it asks for is run."""
    clock = FakeClock()

    async def late(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        clock.advance(2 * MINUTE)
        return ModelResponse([ToolCallPart("add_note", {"text": "milk"})])

    session = Session()
    adapter = PydanticAIAdapter(FunctionModel(late))
    with raises(PromptEvaluationError, wording):
        await adapter.evaluate_async(notes_prompt(), session=session, deadline=Deadline.after(MINUTE, clock=clock))
    assert session[ToolInvoked].all() == ()


async def test_a_timeout_of_the_model_itself_is_not_taken_for_the_deadline() -> None:
    """What the provider's client raises passes as it is."""

    async def impatient(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        raise TimeoutError("the socket")

    adapter = PydanticAIAdapter(FunctionModel(impatient))
    with pytest.raises(TimeoutError, match="the socket"):
        await adapter.evaluate_async(notes_prompt(), session=Session(), deadline=Deadline.after(MINUTE))


BUDGETS: dict[str, tuple[Budget, tuple[str, int, int]]] = {
    "total": (Budget(max_total_tokens=12), ("total tokens", 13, 12)),
    "input": (Budget(max_input_tokens=9), ("input tokens", 10, 9)),
    "output": (Budget(max_output_tokens=2), ("output tokens", 3, 2)),
    "calls": (Budget(max_tool_calls=1), ("tool calls", 2, 1)),
}


@pytest.mark.parametrize("budget, limit", BUDGETS.values(), ids=BUDGETS)
async def test_a_reply_that_exceeds_the_budget_ends_the_run_before_its_calls_run(
    budget: Budget, limit: tuple[str, int, int], wording: Wording
) -> None:
    """The error is of phase budget, and its cause says which limit."""
    session = Session()
    reply = Reply(calls=[Call("add_note", {"text": "milk"}), Call("nothing")], usage=TokenUsage(10, 3))
    with pytest.raises(PromptEvaluationError) as failure:
        await PydanticAIAdapter(ScriptedModel([reply])).evaluate_async(notes_prompt(), session=session, budget=budget)
    assert (failure.value.phase, str(failure.value)) == ("budget", wording)
    cause = failure.value.__cause__
    assert isinstance(cause, BudgetExceededError)
    assert (cause.dimension, cause.usage, cause.limit) == limit
    assert session[ToolInvoked].all() == ()


async def test_runs_that_share_a_tracker_share_its_budget() -> None:
    """The second run finds it used up before it asks the model."""
    tracker = BudgetTracker(Budget(max_total_tokens=12))
    models = [ScriptedModel([Reply(text="Done.", usage=TokenUsage(10, 3))]), ScriptedModel([DONE])]
    for model in models:
        executor = ToolExecutor(prompt=notes_prompt(), session=Session(), budget_tracker=tracker)
        with pytest.raises(PromptEvaluationError) as failure:
            await Agent(model, capabilities=[HandrailCapability(executor)]).run("Go.")
        assert failure.value.phase == "budget"
    assert [model.playback.played for model in models] == [1, 0]


async def test_the_deadline_of_a_tracked_budget_is_looked_at_too(wording: Wording) -> None:
    """An agent of one's own has only the tracker to go by."""
    tracker = BudgetTracker(Budget(deadline=Deadline.after(-MINUTE, clock=FakeClock())))
    executor = ToolExecutor(prompt=notes_prompt(), session=Session(), budget_tracker=tracker)
    with raises(PromptEvaluationError, wording) as failure:
        await Agent(ScriptedModel([DONE]), capabilities=[HandrailCapability(executor)]).run("Go.")
    assert failure.value.phase == "request"


@pytest.mark.parametrize("budget", [None, Budget(max_tool_calls=1000)])
async def test_without_a_budget_fifty_requests_are_the_limit(budget: Budget | None) -> None:
    """A model that goes round in circles is stopped by PydanticAI, unless a budget says what it may use."""
    replies = [Reply(calls=[Call("read_notes")])] * 60
    model = ScriptedModel([*replies, DONE])
    if budget is None:
        with pytest.raises(PromptEvaluationError) as failure:
            await PydanticAIAdapter(model).evaluate_async(notes_prompt(), session=Session())
        assert (failure.value.phase, model.playback.played) == ("budget", 50)
    else:
        response = await PydanticAIAdapter(model).evaluate_async(notes_prompt(), session=Session(), budget=budget)
        assert response.text == "Done."
