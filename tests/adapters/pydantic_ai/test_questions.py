"""Questions of policies in PydanticAI: denied, or deferred to the caller of the run; and `ModelRetry` of handlers."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent, ModelMessage, ModelRequest, ModelResponse, ModelRetry, TextPart, ToolReturnPart
from pydantic_ai.exceptions import ApprovalRequired, CallDeferred, ToolFailed
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults, RunContext, ToolApproved, ToolDenied

from handrail import tool
from handrail.adapters.pydantic_ai import (
    RUN_CONTEXT,
    HandrailCapability,
    HandrailToolset,
    PydanticAIAdapter,
    StoredHistory,
)
from handrail.adapters.tool_executor import ToolExecutor
from handrail.errors import CallIdReusedError, CallPostponed, UnboundResourceError
from handrail.prompt import (
    Approval,
    ApprovalRequest,
    PolicyDecision,
    Prompt,
    PromptTemplate,
    Section,
    Tool,
    ToolContext,
    ToolResult,
    ToolsSection,
)
from handrail.runtime import Session, ToolInvoked
from handrail.runtime.calls import Step
from handrail.store import MemoryStore
from handrail.store.sqlite.store import SqliteStore
from handrail.testing import Call, FakeClock, Outcome, Reply, ScriptedModel
from handrail.testing.script import Expect
from tests.adapters.kit import Note, asks, context, model
from tests.kit import Decides
from tests.wording import Wording

pytestmark = pytest.mark.anyio


ASKS_ABOUT_PAY = Decides(lambda tool, _: PolicyDecision.ask("sure?") if tool.name == "pay" else PolicyDecision.allow())
ASKED = Reply(calls=[Call("pay", {"text": "a"}), Call("note", {"text": "b"})])


@tool
def pay(text: str) -> str:
    """Pay."""
    return f"paid {text}"


@tool
def note(text: str) -> str:
    """Note."""
    return f"noted {text}"


DESK = ToolsSection(title="Desk", tools=[pay, note], policies=[ASKS_ABOUT_PAY])
PROMPT: Prompt[Any] = Prompt(PromptTemplate(ns="tests", key="desk", sections=[DESK]))
DEFERRED: Any = [str, DeferredToolRequests]


def answered(**messages: Outcome) -> Reply:
    """The last reply, after these answers."""
    return Reply(text="Done.", expect=Expect(messages={name.replace("_", "-"): out for name, out in messages.items()}))


def recorded(session: Session) -> list[tuple[str, bool]]:
    """The calls that have a record."""
    return [(event.name, event.success) for event in session[ToolInvoked]]


async def test_a_question_is_denied_unless_it_is_deferred(wording: Wording) -> None:
    """As it is without an approver everywhere."""
    session = Session()
    capability = HandrailCapability(ToolExecutor(prompt=PROMPT, session=session))
    model = ScriptedModel([ASKED, Reply(text="Done.")])
    await Agent(model, capabilities=[capability]).run("Pay.")
    assert recorded(session) == [("pay", False), ("note", True)]
    assert session[ToolInvoked].all()[0].result.message == wording


async def test_a_deferred_question_is_answered_by_the_caller_of_the_run(wording: Wording) -> None:
    """The other calls run; with its approval the call is carried out, and not before."""
    session = Session()
    capability = HandrailCapability(ToolExecutor(prompt=PROMPT, session=session), on_ask="defer")
    model = ScriptedModel([ASKED, answered(call_1=Outcome.ok("paid a"), call_2=Outcome.ok("noted b"))])
    agent = Agent(model, capabilities=[capability], output_type=DEFERRED)
    first = await agent.run("Pay.")
    assert isinstance(first.output, DeferredToolRequests)
    assert [call.tool_name for call in first.output.approvals] == ["pay"]
    assert first.output.metadata == {"call-1": {"reason": wording}}
    assert recorded(session) == [("note", True)]
    results = DeferredToolResults(approvals={"call-1": ToolApproved()})
    last = await agent.run(message_history=first.all_messages(), deferred_tool_results=results)
    assert last.output == "Done."
    assert recorded(session) == [("note", True), ("pay", True)]


async def test_a_stored_run_is_resumed_without_approving_what_waits() -> None:
    """The results that its history gives make the calls again; they are deferred again until a person has answered."""
    store = MemoryStore(clock=FakeClock())
    model = ScriptedModel([ASKED, answered(call_1=Outcome.ok("paid a"))])
    for approvals in (False, False, True):
        with Session.open(store, "s") as session:
            stored = StoredHistory(session, "desk")
            executor = ToolExecutor(prompt=PROMPT, session=session)
            capability = HandrailCapability(executor, conversation=stored, on_ask="defer")
            agent = Agent(model, capabilities=[capability], output_type=DEFERRED)
            results = DeferredToolResults(approvals={"call-1": True}) if approvals else stored.deferred_results
            question = None if stored.unfinished else "Pay."
            ended = await agent.run(question, message_history=stored.history or None, deferred_tool_results=results)
            assert isinstance(ended.output, DeferredToolRequests) is not approvals
            assert recorded(session) == [("note", True), *([("pay", True)] if approvals else [])]


@pytest.mark.parametrize("leaves_open", [Approval.later("the desk is asked"), CallPostponed("the desk is asked")])
@pytest.mark.parametrize("bare", [False, True])
async def test_a_question_that_an_approver_leaves_open_is_answered_by_the_caller_too(
    leaves_open: Approval | CallPostponed, *, bare: bool
) -> None:
    """With the arguments that the caller gives; the approver is asked first, and its no stands."""
    verdicts: list[Approval] = []

    def approver(_request: ApprovalRequest) -> Approval:
        if verdicts:
            return verdicts.pop()
        if isinstance(leaves_open, CallPostponed):
            raise leaves_open
        return leaves_open

    session = Session()
    executor = ToolExecutor(prompt=PROMPT, session=session, approver=approver)
    tools: dict[str, Any] = (
        {"toolsets": [HandrailToolset(executor)]} if bare else {"capabilities": [HandrailCapability(executor)]}
    )
    model = ScriptedModel([ASKED, Reply(text="Done.")] * 2)
    agent = Agent(model, output_type=DEFERRED, **tools)
    first = await agent.run("Pay.")
    assert isinstance(first.output, DeferredToolRequests)
    results = first.output.build_results(approvals={"call-1": ToolApproved(override_args={"text": "b"})})
    last = await agent.run(message_history=first.all_messages(), deferred_tool_results=results)
    assert last.output == "Done."
    assert [event.result.render() for event in session[ToolInvoked]] == ["noted b", "paid b"]
    other = await agent.run("Pay.")
    verdicts.append(Approval(False, "too dear"))
    assert isinstance(other.output, DeferredToolRequests)
    results = other.output.build_results(approve_all=True)
    await agent.run(message_history=other.all_messages(), deferred_tool_results=results)
    assert recorded(session)[2:] == [("note", True), ("pay", False)]


@pytest.mark.parametrize("stored", [True, False])
async def test_a_yes_is_for_the_arguments_of_the_question(*, stored: bool, wording: Wording) -> None:
    """A call that was edited in the messages meanwhile is deferred again; the next yes is for what it asks then."""
    store = MemoryStore(clock=FakeClock())
    session = Session.open(store, "s") if stored else Session()
    model = ScriptedModel([ASKED, Reply(text="Done.")])

    async def run(*given: Any, **options: Any) -> Any:
        capability = HandrailCapability(ToolExecutor(prompt=PROMPT, session=session), on_ask="defer")
        return await Agent(model, capabilities=[capability], output_type=DEFERRED).run(*given, **options)

    history = (await run("Pay.")).all_messages()
    asked, *others = history[1].parts
    response = replace(history[1], parts=[replace(asked, args={"text": "all of it"}), *others])
    edited = [history[0], response, *history[2:]]
    yes = DeferredToolResults(approvals={"call-1": True})
    again = await run(message_history=edited, deferred_tool_results=yes)
    assert again.output.metadata == {"call-1": {"reason": wording}}
    assert recorded(session) == [("note", True)]
    last = await run(message_history=edited, deferred_tool_results=yes)
    assert last.output == "Done."
    assert session[ToolInvoked].all()[1].result.render() == "paid all of it"
    session.close()


@pytest.mark.parametrize("stored", [True, False])
async def test_a_call_that_the_caller_of_the_run_denies_is_recorded_as_refused(*, stored: bool) -> None:
    """It waits no longer, so the session can be reset."""
    model = ScriptedModel([ASKED, answered(call_1=Outcome.failed("too dear"))])
    with Session.open(MemoryStore(clock=FakeClock()), "s") as session:

        async def run(*given: Any, **options: Any) -> Any:
            conversation = StoredHistory(session, "desk") if stored else None
            executor = ToolExecutor(prompt=PROMPT, session=session)
            capability = HandrailCapability(executor, conversation=conversation, on_ask="defer")
            return await Agent(model, capabilities=[capability], output_type=DEFERRED).run(*given, **options)

        first = await run("Pay.")
        assert [(call.tool, call.state) for call in session.open_calls] == [("pay", "postponed")]
        denied = DeferredToolResults(approvals={"call-1": ToolDenied("too dear")})
        last = await run(message_history=first.all_messages(), deferred_tool_results=denied)
        assert last.output == "Done."
        assert recorded(session) == [("note", True), ("pay", False)]
        noted, event = session[ToolInvoked]
        assert (event.refused_at, event.final, event.reply) == (Step.APPROVAL, True, noted.reply)
        assert event.result.message == "too dear"
        assert session.open_calls == ()
        session.reset()


@pytest.mark.parametrize("result", ["done by hand", ToolFailed("not done")])
async def test_a_call_with_a_result_of_the_program_is_recorded_with_it(result: Any) -> None:
    """Its handler had left it open by `CallDeferred`."""

    @tool
    def send(text: str) -> str:
        """Send."""
        raise CallDeferred

    asked = Reply(calls=[Call("send", {"text": "a"}), Call("note", {"text": "b"})])
    model = ScriptedModel([asked, Reply(text="Done.")])
    with Session.open(MemoryStore(clock=FakeClock()), "s") as session:
        capability = HandrailCapability(ToolExecutor([send, note], session=session))
        agent = Agent(model, capabilities=[capability], output_type=DEFERRED)
        first = await agent.run("Send.")
        results = DeferredToolResults(calls={"call-1": result})
        await agent.run(message_history=first.all_messages(), deferred_tool_results=results)
        succeeds = isinstance(result, str)
        assert recorded(session) == [("note", True), ("send", succeeds)]
        assert session[ToolInvoked].all()[1].result.message == ("done by hand" if succeeds else "not done")
        assert session.open_calls == ()


async def test_a_handler_sees_that_its_call_was_approved() -> None:
    """One that raises `ApprovalRequired` otherwise runs then, and not when the run is only resumed."""

    @tool
    def send(text: str, ctx: RunContext[Any]) -> str:
        """Send."""
        if not ctx.tool_call_approved:
            raise ApprovalRequired
        return f"sent {text}"

    model = ScriptedModel([Reply(calls=[Call("send", {"text": "a"})]), answered(call_1=Outcome.ok("sent a"))])
    with Session.open(MemoryStore(clock=FakeClock()), "s") as session:
        for approved in (None, False, True):
            stored = StoredHistory(session, "desk")
            executor = ToolExecutor([send], session=session, resources=RUN_CONTEXT)
            capability = HandrailCapability(executor, conversation=stored)
            agent = Agent(model, capabilities=[capability], output_type=DEFERRED)
            results = DeferredToolResults(approvals={"call-1": True}) if approved else stored.deferred_results
            question = "Send." if approved is None else None
            ended = await agent.run(question, message_history=stored.history or None, deferred_tool_results=results)
            assert (ended.output == "Done.") is bool(approved)
        assert recorded(session) == [("send", True)]


async def test_the_calls_of_a_discarded_evaluation_wait_no_longer(wording: Wording) -> None:
    """They are refused; no program makes them any more."""
    with Session.open(MemoryStore(clock=FakeClock()), "s") as session:
        first = PydanticAIAdapter(ScriptedModel([ASKED]), approver=lambda _: Approval.later())
        with pytest.raises(CallPostponed):
            await first.evaluate_async(PROMPT, session=session, user_prompt="Pay.")
        other = PydanticAIAdapter(ScriptedModel([Reply(text="Done.")]))
        await other.evaluate_async(PROMPT, session=session, user_prompt="Rest.", unfinished="discard")
        assert recorded(session) == [("note", True), ("pay", False)]
        assert session[ToolInvoked].all()[1].result.message == wording
        assert session.open_calls == ()


async def test_model_retry_of_a_handler_is_one_of_pydantic_ai() -> None:
    """The call is rolled back and recorded as failed, and the model reads the text."""

    @tool
    def guess(text: str) -> str:
        """Guess."""
        if text != "right":
            raise ModelRetry("guess again")
        return text

    wrong, right = (Reply(calls=[Call("guess", {"text": text})]) for text in ("wrong", "right"))
    session = Session()
    capability = HandrailCapability(ToolExecutor([guess], session=session))
    agent = Agent(ScriptedModel([wrong, right, Reply(text="Done.")]), capabilities=[capability])
    messages = (await agent.run("Guess.")).all_messages()
    parts = [part for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]
    assert [part.outcome for part in parts] == ["retried", "success"]
    assert "guess again" in str(parts[0].content)
    assert recorded(session) == [("guess", False), ("guess", True)]


class Client:
    """A resource that nobody binds."""


def wrong(params: Note, *, context: ToolContext) -> ToolResult[Note]:
    """Ask for it."""
    context.resources.get(Client)
    raise AssertionError


def fine(params: Note, *, context: ToolContext) -> ToolResult[Note]:
    """Succeed."""
    return ToolResult.ok(params)


def prompt(*, concurrent: bool = False, **handlers: Any) -> Prompt[str]:
    """A prompt with a tool for each handler."""
    options: dict[str, Any] = {"description": "Does it.", "concurrent": concurrent}
    tools = [Tool[Note, Note](name=name, handler=item, **options) for name, item in handlers.items()]
    return Prompt(PromptTemplate[str](ns="tests", key="mistakes", sections=[Section(title="Desk", tools=tools)]))


def outcomes(session: Session) -> list[tuple[str, bool]]:
    """What was recorded of each call."""
    return [(event.call_id, event.success) for event in session[ToolInvoked].all()]


REPLY = Reply(calls=[Call("fine", {"text": "a"}), Call("wrong", {"text": "b"}), Call("fine", {"text": "c"})])


async def test_a_call_that_has_begun_is_not_cancelled() -> None:
    """PydanticAI cancels the other calls of a reply when one of them raises."""
    has_begun, may_end = asyncio.Event(), asyncio.Event()

    async def slow(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        has_begun.set()
        await may_end.wait()
        return ToolResult.ok(params)

    async def wrong_then(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        may_end.set()
        return wrong(params, context=context)

    session = Session()
    reply = Reply(calls=[Call("slow", {"text": "a"}), Call("wrong", {"text": "b"})])
    desk = prompt(concurrent=True, slow=slow, wrong=wrong_then)
    with pytest.raises(UnboundResourceError), ScriptedModel([reply]) as scripted:
        await PydanticAIAdapter(scripted).evaluate_async(desk, session=session)
    assert sorted(outcomes(session)) == [("call-1", True), ("call-2", False)]


def ask(text: str) -> str:
    """Ask for what nobody binds: a plain function finds our resources by `tool_context`."""
    context().resources.get(Client)
    return text


async def test_a_reused_identity_lets_the_other_calls_of_the_reply_end() -> None:
    """It raised at once before, and the other calls were cancelled."""
    session = Session()
    executor = ToolExecutor(prompt=prompt(send=fine), session=session)
    agent = Agent(model(asks("a", reply_id="r")), capabilities=[HandrailCapability(executor)])
    first = await agent.run("Go.")
    history = [*first.all_messages()[:1], asks("b", "c", reply_id="r")]
    with pytest.raises(CallIdReusedError):
        await Agent(model(), capabilities=[HandrailCapability(executor)]).run(message_history=history)
    assert outcomes(session) == [("call_0", True), ("call_1", True)]


def test_a_resumed_evaluation_tells_the_model_nothing_of_a_mistake(tmp_path: Path) -> None:
    """Once it is fixed, the call runs, and the conversation goes on as if it had run at once."""
    shown_text: list[str] = []

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        last = messages[-1]
        assert isinstance(last, ModelRequest)
        shown_text.extend(str(part.content) for part in last.parts if isinstance(part, ToolReturnPart))
        return ModelResponse([TextPart("Done.")])

    with SqliteStore(tmp_path / "desk.db") as store:
        with Session.open(store, "s") as session, pytest.raises(UnboundResourceError), ScriptedModel([REPLY]) as first:
            PydanticAIAdapter(first).evaluate(prompt(fine=fine, wrong=wrong), session=session)
        with Session.open(store, "s") as session:
            PydanticAIAdapter(FunctionModel(answer)).evaluate(prompt(fine=fine, wrong=fine), session=session)
            assert [(event.call_id, event.success) for event in session[ToolInvoked].all()] == [
                ("call-1", True),
                ("call-2", False),
                ("call-3", True),
                ("call-2", True),
            ]
    assert shown_text == ["noted: a", "noted: b", "noted: c"]
