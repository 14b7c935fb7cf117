"""One script of calls with each answer to its question, through every entry point: the records are the same."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent, DeferredToolRequests, ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from handrail import tool
from handrail.adapters.pydantic_ai import HandrailCapability, PydanticAIAdapter, StoredHistory
from handrail.adapters.tool_executor import ToolExecutor
from handrail.agents import Answer, GatedCall, RunOptions, load_agent
from handrail.errors import CallPostponed
from handrail.prompt import Approval, ApprovalRequest, PolicyDecision, Prompt, PromptTemplate, ToolsSection
from handrail.runtime import Session, ToolCall, ToolInvoked
from handrail.runtime.calls import Step
from handrail.store import MemoryStore
from handrail.testing import FakeClock
from tests.agents.kit import write
from tests.kit import Decides

CALLS = [("c1", "pay", "tea"), ("c2", "note", "a"), ("c3", "send", "b")]
"""The first one is asked about."""

Reply = Callable[[], Approval]
"""What a person answers, or how asking ends."""


def fails() -> Approval:
    """Asking fails."""
    raise ConnectionError("no line")


def exits() -> Approval:
    """The process is to end."""
    raise SystemExit


def cancelled() -> Approval:
    """What the approver waits for is cancelled by another party."""
    raise asyncio.CancelledError


YES: Reply = lambda: Approval(approved=True)  # noqa: E731 - a value of the table
Record = tuple[str, bool, bool]
OTHERS: list[Record] = [("note", True, True), ("send", True, True)]
ANSWERS: dict[str, tuple[Reply, list[Record], list[Record]]] = {
    "yes": (YES, [("pay", True, True), *OTHERS], []),
    "no": (lambda: Approval(approved=False, reason="too dear"), [("pay", False, True), *OTHERS], []),
    "later": (Approval.later, OTHERS, [("pay", True, True)]),
    "exception": (fails, [("pay", False, False), *OTHERS], []),
    "exit": (exits, [], [("pay", True, True), *OTHERS]),
    "cancelled": (cancelled, [("pay", False, False), *OTHERS], []),
}
"""How a question is answered; the records of the run: tool, success, final; and those that a resumed run adds by a yes.

A run that was not left open has ended, and is not resumed.
"""


@tool
def pay(text: str) -> str:
    """Pay."""
    return f"paid {text}"


@tool
def note(text: str) -> str:
    """Note."""
    return f"noted {text}"


@tool(effect="external")
def send(text: str) -> str:
    """Send."""
    return f"sent {text}"


ASKS_ABOUT_PAY = Decides(lambda tool, _: PolicyDecision.ask("sure?") if tool.name == "pay" else PolicyDecision.allow())
DESK = ToolsSection(title="Desk", tools=[pay, note, send], policies=[ASKS_ABOUT_PAY])
PROMPT: Prompt[Any] = Prompt(PromptTemplate(ns="tests", key="desk", sections=[DESK]))
AGENT = "---\nname: desk\ntools: [pay, note, send]\n---\nYou work.\n"
TOOLS = f"from {__name__} import note, pay, send\n\nTOOLS = [pay, note, send]\n"


def says(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Ask for the calls first, and be done then."""
    if any(isinstance(message, ModelResponse) for message in messages):
        return ModelResponse([TextPart("Done.")])
    return ModelResponse([ToolCallPart(name, {"text": text}, tool_call_id=call_id) for call_id, name, text in CALLS])


def executor_of(session: Session, reply: Reply) -> ToolExecutor:
    """An executor whose approver answers so."""

    def approver(_request: ApprovalRequest) -> Approval:
        return reply()

    return ToolExecutor(prompt=PROMPT, session=session, approver=approver)


def begun(session: Session) -> None:
    """Have the conversation hold the reply."""
    if not session.conversation:
        calls = [ToolCall(call_id, name, {"text": text}) for call_id, name, text in CALLS]
        session.conversation.append({"role": "assistant"}, calls=calls, reply="r1")


def own_loop(session: Session, reply: Reply, _folder: Path) -> None:
    """A loop of the program."""
    begun(session)
    executor_of(session, reply).answer()


def own_loop_in_asyncio(session: Session, reply: Reply, _folder: Path) -> None:
    """The same on an event loop."""
    begun(session)
    asyncio.run(executor_of(session, reply).answer_async())


def capability(session: Session, reply: Reply, _folder: Path) -> None:
    """An agent of the program."""
    stored = StoredHistory(session, "desk")
    output_type: Any = [str, DeferredToolRequests]
    tools = HandrailCapability(executor_of(session, reply), conversation=stored)
    agent = Agent(FunctionModel(says), capabilities=[tools], output_type=output_type)
    given = None if stored.unfinished else "Work."
    history, results = stored.history or None, stored.deferred_results
    asyncio.run(agent.run(given, message_history=history, deferred_tool_results=results))


def adapter(session: Session, reply: Reply, _folder: Path) -> None:
    """A whole prompt."""
    evaluating = PydanticAIAdapter(FunctionModel(says), approver=lambda _: reply())
    with suppress(CallPostponed):
        evaluating.evaluate(PROMPT, session=session, user_prompt="Work.")


def agent_file(session: Session, reply: Reply, folder: Path) -> None:
    """An agent file, whose gate asks ahead."""

    def asker(_call: GatedCall) -> Answer:
        given = reply()
        return Answer("later") if given.left_open else Answer("yes" if given.approved else "no", reason=given.reason)

    files = {"desk.agent": AGENT, "tools.py": TOOLS, "approval.yaml": "ask: [pay]\nallow: [note, send]\n"}
    files["pyproject.toml"] = '[tool.handrail]\napproval = "approval.yaml"\n'
    desk = load_agent(write(folder, files) / "desk.agent")
    text = None if session[ToolInvoked].all() or session.open_calls else "Work."
    desk.run(text, RunOptions(session=session, model=FunctionModel(says), asker=asker))


@pytest.mark.requirement("S-05c", "S-12b")
@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.parametrize("entry", [own_loop, own_loop_in_asyncio, capability, adapter, agent_file])
def test_the_records_are_the_same_whatever_the_entry_point(
    entry: Callable[[Session, Reply, Path], None], answer: str, tmp_path: Path
) -> None:
    """Also of a run that is resumed after its question was left open."""
    reply, first, resumed = ANSWERS[answer]
    store = MemoryStore(clock=FakeClock())
    with Session.open(store, "s") as session:
        if reply is exits:
            with pytest.raises(SystemExit):
                entry(session, reply, tmp_path)
            # So that it can be answered from elsewhere.
            assert ("pay", "postponed") in {(call.tool, call.state) for call in session.open_calls}
        else:
            entry(session, reply, tmp_path)
        assert recorded(session) == first
    if resumed:
        with Session.open(store, "s") as session:
            entry(session, YES, tmp_path)
            assert recorded(session) == first + resumed


def recorded(session: Session) -> list[tuple[str, bool, bool]]:
    """The calls that have a record; each that failed was refused at its approval."""
    assert {event.refused_at for event in session[ToolInvoked] if not event.success} <= {Step.APPROVAL}
    return [(event.name, event.success, event.final) for event in session[ToolInvoked]]
