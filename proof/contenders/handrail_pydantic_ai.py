"""Handrail in PydanticAI: a capability runs the calls and stores the conversation; approvals are deferred calls."""

from __future__ import annotations

from pydantic_ai import Agent, DeferredToolRequests
from pydantic_ai.models.function import FunctionModel

from handrail import ToolExecutor, store
from handrail.adapters.pydantic_ai import HandrailCapability, StoredHistory
from proof.contenders.handrail_office import answer_questions, leave_open
from proof.contenders.handrail_tools import open_prompt, read_shop
from proof.contenders.pydantic_model import reply
from proof.desk import Desk


def run(desk: Desk) -> None:
    """Brings the conversation to its end; while a person thinks, the session is closed."""
    while not work(desk):
        answer_questions(desk)


def work(desk: Desk) -> bool:
    """Runs the agent until it ends, or waits for a person; whether it has ended."""
    with (
        store.open(f"sqlite:///{desk.folder / 'desk.db'}") as opened,
        opened.session("run") as session,
        open_prompt(desk, opened) as prompt,
    ):
        history = StoredHistory(session, "payments")
        executor = ToolExecutor(prompt=prompt, session=session, approver=leave_open)
        capability = HandrailCapability(executor, conversation=history)
        model = FunctionModel(lambda messages, _: reply(desk, messages))
        agent = Agent(model, capabilities=[capability], output_type=[str, DeferredToolRequests])
        if waiting := history.deferred_results:
            result = agent.run_sync(message_history=history.history, deferred_tool_results=waiting)
        elif history.unfinished:
            result = agent.run_sync(message_history=history.history)
        else:
            result = agent.run_sync("Work.", message_history=history.history)
        if isinstance(result.output, DeferredToolRequests):
            return False
        desk.finish(read_shop(session))
    return True
