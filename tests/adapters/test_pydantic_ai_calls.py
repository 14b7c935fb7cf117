"""Calls through the PydanticAI door: every outcome, a reply of twenty, calls in calls, and runs in calls."""

from __future__ import annotations

from typing import Any, cast

import pytest

from handrail.adapters.pydantic_ai import PydanticAIAdapter
from handrail.errors import VisibilityExpansionRequired
from handrail.prompt import Approval, ApprovalRequest, Tool, ToolContext, ToolResult
from handrail.runtime import Session, ToolInvoked
from handrail.testing import Call, Expect, Outcome, Reply, ScriptedModel
from tests.adapters.notes import ADD_NOTE, EXPAND, READ_NOTES, Note, World, noted, notes_prompt
from tests.kit import ASKS

DONE = Reply(text="Done.")


def test_effects_are_remembered_from_run_to_run_of_one_adapter() -> None:
    """Without a ledger of its own, an adapter has one for all its runs."""
    session, world = Session(), World()
    replies = [Reply(calls=[Call("charge", {"text": "fee"})]), DONE]
    adapter = PydanticAIAdapter(ScriptedModel([*replies, Reply(calls=[Call("charge", {"text": "fee"})]), DONE]))
    adapter.evaluate(notes_prompt(world), session=session)
    adapter.evaluate(notes_prompt(world), session=session)
    assert [event.replayed for event in session[ToolInvoked].all()] == [False, True]
    assert world.charged == ["fee"]


@pytest.mark.parametrize("approved", [True, False])
def test_an_approver_of_the_adapter_is_asked(approved: bool) -> None:
    """As in the own loop; without one, such calls are refused."""
    asked: list[str] = []

    async def approver(request: ApprovalRequest) -> Approval:
        asked.append(request.call_id)
        return Approval(approved, "because")

    prompt = notes_prompt(tools=(ADD_NOTE,), policies=(ASKS,))
    session = Session()
    model = ScriptedModel([Reply(calls=[Call("add_note", {"text": "milk"})]), DONE])
    PydanticAIAdapter(model, approver=approver).evaluate(prompt, session=session)
    assert asked == ["call-1"]
    assert noted(session) == (["milk"] if approved else [])


def test_what_ends_a_run_leaves_evaluate() -> None:
    """The call is rolled back and recorded; its neighbours are committed, or rolled back."""
    session = Session()
    model = ScriptedModel([Reply(calls=[Call("add_note", {"text": "milk"}), Call("expand")])])
    with pytest.raises(VisibilityExpansionRequired) as caught:
        PydanticAIAdapter(model).evaluate(notes_prompt(tools=(ADD_NOTE, EXPAND)), session=session)
    assert caught.value.section_keys == ("guide",)
    assert [event.success for event in session[ToolInvoked].all()] == [True, False]


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

    def child_of(context: ToolContext) -> tuple[PydanticAIAdapter, Session]:
        model = ScriptedModel([Reply(calls=[Call("add_note", {"text": context.call_id})]), Reply(text="I noted it.")])
        children[context.call_id] = child = context.session.child()
        return PydanticAIAdapter(model), child

    def delegate(params: None, *, context: ToolContext) -> ToolResult[None]:
        adapter, child = child_of(context)
        response = adapter.evaluate(notes_prompt(tools=(ADD_NOTE,)), session=child)
        return ToolResult.ok(None, message=response.text)

    async def delegate_async(params: None, *, context: ToolContext) -> ToolResult[None]:
        adapter, child = child_of(context)
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
