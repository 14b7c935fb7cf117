"""Calls through the PydanticAI door: every outcome, a reply of twenty, calls in calls, and runs in calls."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, cast

import pytest

from handrail.adapters.pydantic_ai import PydanticAIAdapter
from handrail.adapters.tool_executor import ToolExecutor
from handrail.errors import VisibilityExpansionRequired
from handrail.prompt import Approval, ApprovalRequest, PolicyDecision, Tool, ToolContext, ToolPolicy, ToolResult
from handrail.runtime import Session, Step, ToolCall, ToolInvoked
from handrail.testing import Call, Expect, Outcome, Reply, ScriptedModel
from tests.adapters.notes import ADD_NOTE, EXPAND, READ_NOTES, Note, World, noted, notes_prompt
from tests.wording import Wording

DONE = Reply(text="Done.")


def outcomes(session: Session) -> list[tuple[str, bool, Step | None, bool]]:
    """What became of each call, in the order in which they ended."""
    events = session[ToolInvoked].all()
    return [(event.call_id, event.success, event.refused_at, event.replayed) for event in events]


def test_every_outcome_goes_back_to_the_model_and_the_run_goes_on(wording: Wording) -> None:
    """Success, invalid, denied, failed, replayed, unknown: one message and one event each, state as it should be."""
    session, world = Session(), World()
    calls = [
        Call("add_note", {"text": "milk"}),
        Call("add_note", {"text": 7}),
        Call("add_note", {"text": "secret"}),
        Call("half_note", {"text": "half"}),
        Call("charge", {"text": "fee"}),
        Call("charge", {"text": "fee"}),
        Call("chrage", {"text": "fee"}),
        Call("read_notes"),
    ]
    came = {
        "call-1": Outcome.ok("noted: milk"),
        "call-2": Outcome.failed("$.text"),
        "call-3": Outcome.failed("no-secrets", "secrets are not noted"),
        "call-4": Outcome.failed("the pen broke"),
        "call-5": Outcome.ok("noted: fee"),
        "call-6": Outcome.ok("noted: fee"),
        "call-7": Outcome.failed("charge"),
        "call-8": Outcome.ok("milk, fee"),
    }
    with ScriptedModel([Reply(calls=calls), Reply(text="Done.", expect=Expect(messages=came))]) as model:
        PydanticAIAdapter(model).evaluate(notes_prompt(world), session=session)
    assert outcomes(session) == [
        ("call-1", True, None, False),
        ("call-2", False, Step.PARSE, False),
        ("call-3", False, Step.POLICY, False),
        ("call-4", False, Step.HANDLER, False),
        ("call-5", True, None, False),
        ("call-6", True, None, True),
        ("call-7", False, Step.LOOK_UP, False),
        ("call-8", True, None, False),
    ]
    events = session[ToolInvoked].all()
    assert [event.result.message for event in events if not event.success] == [wording] * 4
    assert noted(session) == ["milk", "fee"]
    assert world.charged == ["fee"]


def test_effects_are_remembered_from_run_to_run_of_one_adapter() -> None:
    """Without a ledger of its own, an adapter has one for all its runs."""
    session, world = Session(), World()
    replies = [Reply(calls=[Call("charge", {"text": "fee"})]), DONE]
    adapter = PydanticAIAdapter(ScriptedModel([*replies, Reply(calls=[Call("charge", {"text": "fee"})]), DONE]))
    adapter.evaluate(notes_prompt(world), session=session)
    adapter.evaluate(notes_prompt(world), session=session)
    assert [event.replayed for event in session[ToolInvoked].all()] == [False, True]
    assert world.charged == ["fee"]


def test_a_timeout_is_a_failed_return() -> None:
    """The handler is cut off, its writes are undone, and the run goes on."""
    session, world = Session(), World()

    async def slow(params: None, *, context: ToolContext) -> ToolResult[None]:
        context.session[Note].append(Note("never kept"))
        await asyncio.Event().wait()
        return ToolResult.ok(None)

    tool = Tool[None, None](name="slow", description="Never end.", handler=slow, timeout=timedelta(milliseconds=20))
    came = Expect(messages={"call-1": Outcome.failed("timeout")})
    with ScriptedModel([Reply(calls=[Call("slow")]), Reply(text="Done.", expect=came)]) as model:
        PydanticAIAdapter(model).evaluate(notes_prompt(world, tools=(tool,)), session=session)
    assert noted(session) == []


@dataclass(frozen=True)
class Ask:
    """Wants every call to be approved."""

    name: str = "ask"

    def check(self, tool: Tool[Any, Any], params: object, *, context: ToolContext) -> PolicyDecision:
        return PolicyDecision.ask("may it?")

    def on_result(self, tool: Tool[Any, Any], params: object, result: ToolResult[Any], *, context: ToolContext) -> None:
        pass


@pytest.mark.parametrize("approved", [True, False])
def test_an_approver_of_the_adapter_is_asked(approved: bool) -> None:
    """As in the own loop; without one, such calls are refused."""
    asked: list[str] = []

    async def approver(request: ApprovalRequest) -> Approval:
        asked.append(request.call_id)
        return Approval(approved, "because")

    policy: ToolPolicy = Ask()
    prompt = notes_prompt(tools=(ADD_NOTE,), policies=(policy,))
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
    assert [(event.call_id, event.success) for event in session[ToolInvoked].all()] == [
        ("call-1", True),
        ("call-2", False),
    ]


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


@pytest.mark.anyio
async def test_a_cancelled_run_rolls_its_calls_back() -> None:
    """The handler is cancelled, nothing of it is kept, and the event says so."""
    session, world = Session(), World()
    model = ScriptedModel([Reply(calls=[Call("add_note", {"text": "milk"}), Call("wait"), Call("read_notes")])])
    run = asyncio.create_task(PydanticAIAdapter(model).evaluate_async(notes_prompt(world), session=session))
    await world.started.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert noted(session) == ["milk"]
    assert world.stopped == ["wait_for_ever"]
    events = {event.call_id: event.success for event in session[ToolInvoked].all()}
    assert events == {"call-1": True, "call-2": False, "call-3": False}
    assert session.turn.queue == []


def test_twenty_calls_of_one_reply_have_the_outcome_of_running_them_one_by_one() -> None:
    """Writers one at a time in the order asked; each read sees what was written before it, and nothing else."""
    session = Session()
    calls: list[Call] = []
    came: dict[str, Outcome] = {}
    written: list[str] = []
    for number in range(20):
        name = f"call-{number + 1}"
        if number % 4 == 3:
            calls.append(Call("half_note", {"text": str(number)}))
            came[name] = Outcome.failed("pen")
        elif number % 2:
            calls.append(Call("read_notes"))
            came[name] = Outcome.ok(", ".join(written))
        else:
            calls.append(Call("add_note", {"text": str(number)}))
            written.append(str(number))
            came[name] = Outcome.ok(f"noted: {number}")
    with ScriptedModel([Reply(calls=calls), Reply(text="Done.", expect=Expect(messages=came))]) as model:
        PydanticAIAdapter(model).evaluate(notes_prompt(), session=session)
    assert [event.call_id for event in session[ToolInvoked].all()] == [f"call-{number}" for number in range(1, 21)]
    assert noted(session) == written


@pytest.mark.parametrize("is_async", [True, False])
def test_reads_of_one_reply_run_beside_each_other(is_async: bool) -> None:
    """Each of three waits until all three are there."""
    here = threading.Barrier(3)
    all_here = asyncio.Event()
    arrived: list[str] = []

    def meet(params: None, *, context: ToolContext) -> ToolResult[None]:
        here.wait()
        return ToolResult.ok(None)

    async def meet_async(params: None, *, context: ToolContext) -> ToolResult[None]:
        arrived.append(context.call_id)
        if len(arrived) == 3:
            all_here.set()
        await all_here.wait()
        return ToolResult.ok(None)

    handler = cast("Any", meet_async if is_async else meet)  # one tool is made of either
    tool = Tool[None, None](name="meet", description="Meet.", handler=handler, effect="read")
    with ScriptedModel([Reply(calls=[Call("meet")] * 3), DONE]) as model:
        PydanticAIAdapter(model).evaluate(notes_prompt(tools=(tool,)), session=Session())


def test_a_call_made_inside_a_call_is_a_savepoint_of_it() -> None:
    """The inner call is answered and recorded; what it wrote goes when the outer one fails."""
    session = Session()
    executors: list[ToolExecutor] = []

    def nest(params: Note, *, context: ToolContext) -> ToolResult[None]:
        message = executors[0].execute(ToolCall(f"{context.call_id}/inner", "add_note", {"text": params.text}))
        return ToolResult.ok(None, message=message.content) if params.text == "kept" else ToolResult.error("no")

    tool = Tool[Note, None](name="nest", description="Make a call.", handler=nest)
    prompt = notes_prompt(tools=(tool, ADD_NOTE))
    executors.append(ToolExecutor(prompt=prompt, session=session))
    came = Expect(messages={"call-1": Outcome.ok("noted: kept"), "call-2": Outcome.failed("no")})
    calls = [Call("nest", {"text": "kept"}), Call("nest", {"text": "lost"})]
    with ScriptedModel([Reply(calls=calls), Reply(text="Done.", expect=came)]) as model:
        PydanticAIAdapter(model).run(executors[0])
    assert noted(session) == ["kept"]
    assert [(event.call_id, event.success) for event in session[ToolInvoked].all()] == [
        ("call-1/inner", True),
        ("call-1", True),
        ("call-2/inner", True),
        ("call-2", False),
    ]


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
