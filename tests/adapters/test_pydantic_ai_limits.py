"""Deadlines and budgets of a PydanticAI run: what they end, and what the error says."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from pydantic_ai import Agent, ModelMessage, ModelResponse, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from handrail.adapters.pydantic_ai import HandrailCapability, PydanticAIAdapter
from handrail.adapters.tool_executor import ToolExecutor
from handrail.errors import BudgetExceededError, PromptEvaluationError
from handrail.limits import Budget, BudgetTracker, Deadline, TokenUsage
from handrail.runtime import Session, ToolInvoked
from handrail.testing import Call, FakeClock, Reply, ScriptedModel
from tests.adapters.notes import Note, notes_prompt
from tests.kit import soon
from tests.wording import Wording

ONE_NOTE = Reply(calls=[Call("add_note", {"text": "milk"})])
DONE = Reply(text="Done.")
MINUTE = timedelta(minutes=1)


@pytest.mark.anyio
async def test_no_request_is_made_past_the_deadline(wording: Wording) -> None:
    """The error says where the evaluation stopped."""
    deadline = Deadline.after(-MINUTE, clock=FakeClock())
    model = ScriptedModel([DONE])
    with pytest.raises(PromptEvaluationError) as caught:
        await PydanticAIAdapter(model).evaluate_async(notes_prompt(), session=Session(), deadline=deadline)
    assert str(caught.value) == wording
    assert caught.value.phase == "request"
    assert model.playback.played == 0


@pytest.mark.anyio
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
    with pytest.raises(PromptEvaluationError) as caught:
        await adapter.evaluate_async(notes_prompt(), session=Session(), deadline=soon())
    assert str(caught.value) == wording
    assert caught.value.phase == "request"
    assert isinstance(caught.value.__cause__, TimeoutError)
    assert cancelled == ["request"]


@pytest.mark.anyio
async def test_an_answer_that_comes_past_the_deadline_is_not_taken(wording: Wording) -> None:
    """The run was to have ended by then, and none of the calls that it asks for is run."""
    clock = FakeClock()

    async def late(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        clock.advance(2 * MINUTE)
        return ModelResponse([ToolCallPart("add_note", {"text": "milk"})])

    session = Session()
    adapter = PydanticAIAdapter(FunctionModel(late))
    with pytest.raises(PromptEvaluationError) as raised:
        await adapter.evaluate_async(notes_prompt(), session=session, deadline=Deadline.after(MINUTE, clock=clock))
    assert str(raised.value) == wording
    assert session[ToolInvoked].all() == ()


@pytest.mark.anyio
async def test_a_timeout_of_the_model_itself_is_not_taken_for_the_deadline() -> None:
    """What the provider's client raises passes as it is."""

    async def impatient(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        raise TimeoutError("the socket")

    adapter = PydanticAIAdapter(FunctionModel(impatient))
    with pytest.raises(TimeoutError, match="the socket"):
        await adapter.evaluate_async(notes_prompt(), session=Session(), deadline=Deadline.after(MINUTE))


@pytest.mark.anyio
async def test_the_earlier_of_two_deadlines_counts() -> None:
    """A budget has one of its own."""
    clock = FakeClock()
    past, future = Deadline.after(-MINUTE, clock=clock), Deadline.after(MINUTE, clock=clock)
    for deadline, own in ((past, future), (future, past), (None, past), (past, None)):
        with pytest.raises(PromptEvaluationError) as caught:
            await PydanticAIAdapter(ScriptedModel([DONE])).evaluate_async(
                notes_prompt(), session=Session(), deadline=deadline, budget=Budget(deadline=own)
            )
        assert caught.value.phase == "request"


BUDGETS: dict[str, tuple[Budget, tuple[str, int, int]]] = {
    "total": (Budget(max_total_tokens=12), ("total tokens", 13, 12)),
    "input": (Budget(max_input_tokens=9), ("input tokens", 10, 9)),
    "output": (Budget(max_output_tokens=2), ("output tokens", 3, 2)),
    "calls": (Budget(max_tool_calls=1), ("tool calls", 2, 1)),
}


@pytest.mark.anyio
@pytest.mark.parametrize("budget, limit", BUDGETS.values(), ids=BUDGETS)
async def test_a_reply_that_exceeds_the_budget_ends_the_run_before_its_calls_run(
    budget: Budget, limit: tuple[str, int, int], wording: Wording
) -> None:
    """The error is of phase budget, and its cause says which limit."""
    session = Session()
    reply = Reply(calls=[Call("add_note", {"text": "milk"}), Call("nothing")], usage=TokenUsage(10, 3))
    with pytest.raises(PromptEvaluationError) as caught:
        await PydanticAIAdapter(ScriptedModel([reply])).evaluate_async(notes_prompt(), session=session, budget=budget)
    assert (caught.value.phase, str(caught.value)) == ("budget", wording)
    cause = caught.value.__cause__
    assert isinstance(cause, BudgetExceededError)
    assert (cause.dimension, cause.usage, cause.limit) == limit
    assert session[ToolInvoked].all() == ()


@pytest.mark.anyio
async def test_tokens_add_up_over_the_replies_of_a_run() -> None:
    """Using a budget up to the last token is within it; the tracker knows what was used."""
    usage = TokenUsage(10, 3, 4)
    replies = [Reply(calls=ONE_NOTE.calls, usage=usage), Reply(text="Done.", usage=usage)]
    tracker = BudgetTracker(Budget(max_total_tokens=26, max_tool_calls=1))
    executor = ToolExecutor(prompt=notes_prompt(), session=Session(), budget_tracker=tracker)
    response = await PydanticAIAdapter(ScriptedModel(replies)).run_async(executor)
    assert tracker.consumed == response.usage == TokenUsage(20, 6, 8)
    assert tracker.calls == 1


@pytest.mark.anyio
async def test_runs_that_share_a_tracker_share_its_budget() -> None:
    """The second run finds it used up before it asks the model."""
    tracker = BudgetTracker(Budget(max_total_tokens=12))
    models = [ScriptedModel([Reply(text="Done.", usage=TokenUsage(10, 3))]), ScriptedModel([DONE])]
    for model in models:
        executor = ToolExecutor(prompt=notes_prompt(), session=Session(), budget_tracker=tracker)
        with pytest.raises(PromptEvaluationError) as caught:
            await PydanticAIAdapter(model).run_async(executor)
        assert caught.value.phase == "budget"
    assert [model.playback.played for model in models] == [1, 0]


@pytest.mark.anyio
async def test_the_deadline_of_a_tracked_budget_is_looked_at_too(wording: Wording) -> None:
    """An agent of one's own has only the tracker to go by."""
    tracker = BudgetTracker(Budget(deadline=Deadline.after(-MINUTE, clock=FakeClock())))
    executor = ToolExecutor(prompt=notes_prompt(), session=Session(), budget_tracker=tracker)
    with pytest.raises(PromptEvaluationError) as caught:
        await Agent(ScriptedModel([DONE]), capabilities=[HandrailCapability(executor)]).run("Go.")
    assert str(caught.value) == wording
    assert caught.value.phase == "request"


@pytest.mark.anyio
async def test_a_structured_answer_counts_as_no_tool_call() -> None:
    """PydanticAI asks for it as a tool, the prompt does not."""
    tracker = BudgetTracker(Budget(max_tool_calls=1))
    executor = ToolExecutor(prompt=notes_prompt(), session=Session(), budget_tracker=tracker)
    model = ScriptedModel([Reply(output={"text": "milk"})])
    agent = Agent(model, output_type=Note, capabilities=[HandrailCapability(executor)])
    assert (await agent.run("What?")).output == Note("milk")
    assert tracker.calls == 0


@pytest.mark.anyio
@pytest.mark.parametrize("budget", [None, Budget(max_tool_calls=1000)])
async def test_without_a_budget_fifty_requests_are_the_limit(budget: Budget | None) -> None:
    """A model that goes round in circles is stopped by PydanticAI, unless a budget says what it may use."""
    replies = [Reply(calls=[Call("read_notes")])] * 60
    model = ScriptedModel([*replies, DONE])
    if budget is None:
        with pytest.raises(PromptEvaluationError) as caught:
            await PydanticAIAdapter(model).evaluate_async(notes_prompt(), session=Session())
        assert (caught.value.phase, model.playback.played) == ("budget", 50)
    else:
        response = await PydanticAIAdapter(model).evaluate_async(notes_prompt(), session=Session(), budget=budget)
        assert response.text == "Done."
