"""Foreign calls that are put off: undone, not recorded, and recorded once when they are carried out in the end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from pydantic_ai import (
    Agent,
    ApprovalRequired,
    CallDeferred,
    DeferredToolRequests,
    DeferredToolResults,
    RunContext,
    Tool,
    ToolApproved,
    ToolCallPart,
    ToolDefinition,
    ToolDenied,
)
from pydantic_ai.capabilities import AbstractCapability, HandleDeferredToolCalls, ValidatedToolArgs
from pydantic_ai.toolsets import FunctionToolset

from handrail.errors import CallPostponed
from handrail.filesystem import Filesystem, InMemoryFilesystem
from handrail.prompt import Approval, ApprovalRequest
from handrail.runtime import EffectLedger, IdempotencyConfig, Session
from handrail.testing import Call, Outcome, ScriptedModel
from tests.adapters.foreign_desk import DONE, call_by_hand, called, context, events, outcomes, pipeline, play, write
from tests.adapters.notes import ADD_NOTE, noted
from tests.kit import ASKS as ASKS_FIRST

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("S-12a")]


async def asks(ctx: RunContext[Any], text: str) -> str:
    """Write, and want to be approved."""
    write(text)
    if not ctx.tool_call_approved:
        raise ApprovalRequired(metadata={"why": "it costs"})
    return f"asked {text}"


async def guarded(text: str) -> str:
    """Write."""
    write(text)
    return f"asked {text}"


class HoldUp(AbstractCapability[Any]):
    """A gate of somebody else, at the place where arguments have been validated."""

    async def after_tool_validate(
        self, ctx: RunContext[Any], *, call: ToolCallPart, tool_def: ToolDefinition, args: ValidatedToolArgs
    ) -> ValidatedToolArgs:
        if not ctx.tool_call_approved:
            raise ApprovalRequired
        return args


ASKS: dict[str, Callable[[], dict[str, Any]]] = {
    "the tool raises": lambda: {"tools": [Tool(asks, name="ask")]},
    "a hook raises": lambda: {"tools": [Tool(guarded, name="ask")], "capabilities": [HoldUp()]},
    "requires_approval": lambda: {"tools": [Tool(guarded, name="ask", requires_approval=True)]},
    "approval_required()": lambda: {"toolsets": [FunctionToolset([Tool(guarded, name="ask")]).approval_required()]},
    "all at once": lambda: {
        "toolsets": [FunctionToolset([Tool(asks, name="ask", requires_approval=True)]).approval_required()],
        "capabilities": [HoldUp()],
    },
}


@dataclass
class Person:
    """Answers what PydanticAI asks, and keeps what it was asked."""

    answer: ToolApproved | ToolDenied
    asked: list[str]

    async def decide(self, ctx: RunContext[Any], requests: DeferredToolRequests) -> DeferredToolResults:
        """Answer all of it alike."""
        self.asked += [call.tool_call_id for call in requests.approvals]
        return requests.build_results(approvals={call.tool_call_id: self.answer for call in requests.approvals})


@pytest.mark.requirement("A-31")
@pytest.mark.parametrize("agent", ASKS.values(), ids=ASKS)
async def test_an_approval_in_the_run_is_asked_once_and_the_call_recorded_once(agent: Any) -> None:
    """Whatever asks, and however often it would: what it did before is undone, and what it does after is kept."""
    session, person = Session(), Person(ToolApproved(), [])
    options: dict[str, Any] = agent()
    options["capabilities"] = [*options.get("capabilities", ()), HandleDeferredToolCalls(person.decide)]
    script = called(Call("ask", {"text": "milk"}), c1=Outcome.ok("asked milk"))
    await play(pipeline(session), script, **options)
    assert person.asked == ["c1"]
    assert outcomes(session) == [("c1", True, None)]
    assert noted(session) == ["milk"]


@pytest.mark.requirement("A-31")
@pytest.mark.parametrize("agent", ASKS.values(), ids=ASKS)
async def test_a_call_that_is_denied_never_runs_to_its_end(agent: Any) -> None:
    """PydanticAI answers it; it did not happen, and there is nothing to record."""
    session, person = Session(), Person(ToolDenied("too dear"), [])
    options: dict[str, Any] = agent()
    options["capabilities"] = [*options.get("capabilities", ()), HandleDeferredToolCalls(person.decide)]
    await play(pipeline(session), called(Call("ask", {"text": "milk"}), c1=Outcome.failed("too dear")), **options)
    assert person.asked == ["c1"]
    assert (events(session), noted(session)) == ((), [])


@pytest.mark.requirement("A-31")
@pytest.mark.parametrize("agent", ASKS.values(), ids=ASKS)
async def test_a_run_that_ends_with_an_open_question_goes_on_later(agent: Any) -> None:
    """The siblings of the call stand; with the approval, another run carries out what was put off, and only that."""
    session = Session()
    options: dict[str, Any] = {"tools": [], "toolsets": [], "capabilities": [], **agent()}
    options["tools"] = [*options["tools"], Tool(jot)]
    options["output_type"] = [str, DeferredToolRequests]
    options["capabilities"] = [*options["capabilities"], pipeline(session)]
    first, _ = called(Call("ask", {"text": "milk"}), Call("jot", {"text": "bread"}))
    waiting = await Agent(ScriptedModel([first]), **options).run("Do it.")
    assert isinstance(waiting.output, DeferredToolRequests)
    approvals = {call.tool_call_id: True for call in waiting.output.approvals}
    before = [call_id for call_id, *_ in outcomes(session)]
    assert "c1" not in before
    assert "milk" not in noted(session)
    results = DeferredToolResults(approvals={**approvals})
    done = await Agent(ScriptedModel([DONE]), **options).run(
        message_history=waiting.all_messages(), deferred_tool_results=results
    )
    assert done.output == "Done."
    assert sorted(outcomes(session)) == [("c1", True, None), ("c2", True, None)]
    assert sorted(noted(session)) == ["bread", "milk"]


async def jot(ctx: RunContext[Any], text: str) -> str:
    """Write."""
    write(text)
    return text


@pytest.mark.parametrize("kind", [CallDeferred, ApprovalRequired])
async def test_what_a_postponed_call_has_done_is_undone(kind: Callable[[], Exception]) -> None:
    """Session and files are as before, its effect is claimed by nobody, and PydanticAI reads the same exception."""
    session, ledger = Session(), EffectLedger()
    store = InMemoryFilesystem({"note.txt": "before"})
    raised = kind()

    async def later(order_id: str) -> str:
        write("half")
        store.write_text("note.txt", "half")
        keys.append(context().idempotency_key)
        raise raised

    keys: list[str | None] = []
    once = IdempotencyConfig(strategy="params", param_keys=("order_id",))
    toolset = FunctionToolset[Any]([Tool(later, metadata={"effect": "external", "idempotency": once})])
    capability = pipeline(session, resources={Filesystem: store}, effect_ledger=ledger)
    for _ in range(2):
        with pytest.raises(type(raised)) as caught:
            await call_by_hand(capability, toolset, "later", order_id="7")
        assert caught.value is raised
    assert (events(session), noted(session), store.read_text("note.txt")) == ((), [], "before")
    assert session.turn.queue == []
    assert keys[0] == keys[1] is not None


async def later(request: ApprovalRequest) -> Approval:
    """Nobody is there to answer."""
    raise CallPostponed("nobody is there")


async def test_an_approver_may_put_a_foreign_call_off() -> None:
    """PydanticAI is told that it waits for approval; the function has not run."""
    session = Session()
    capability = pipeline(session, policies=[ASKS_FIRST], approver=later)
    with pytest.raises(ApprovalRequired):
        await call_by_hand(capability, FunctionToolset[Any]([guarded]), "guarded", text="milk")
    assert (events(session), noted(session), session.turn.queue) == ((), [], [])


async def test_an_approver_may_put_a_call_of_handrails_own_off() -> None:
    """The run ends with the open question, and not with an error."""
    session = Session()
    asking = pipeline(session, ADD_NOTE, approver=later, own_policies=[ASKS_FIRST])
    reply, _ = called(Call("add_note", {"text": "milk"}))
    agent = Agent(ScriptedModel([reply]), capabilities=[asking], output_type=[str, DeferredToolRequests])
    result = await agent.run("Do it.")
    assert isinstance(result.output, DeferredToolRequests)
    assert [call.tool_call_id for call in result.output.approvals] == ["c1"]
    assert (events(session), noted(session)) == ((), [])
