"""A loop of a program's own that workers carry out: it pays one order a reply, and what happens then is up to a test.

Its model is resumed as a real one is: what it says next depends on nothing but what has been said.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import timedelta

from handrail.adapters.tool_executor import PendingAnswers
from handrail.errors import CallPostponed
from handrail.operations.answers import give_answer
from handrail.operations.questions import stored_questions
from handrail.operations.runs import StoredRun, find_run
from handrail.prompt import ApprovalRequest, Approver, External, ToolContext, ToolResult
from handrail.runtime import ToolCall
from handrail.session.open_calls import GivenAnswer
from handrail.store import Store
from handrail.worker import RunTask
from tests.kit import ASKS, Note, call, executor, tool


def later(_: ApprovalRequest) -> bool:
    """Leave every question open."""
    raise CallPostponed("the owner is asked")


async def nothing(_: ToolContext) -> None:
    """Pay at once."""


async def for_ever(_: ToolContext) -> None:
    """Never pay."""
    await asyncio.Event().wait()


@dataclass
class Desk:
    """A loop, and what it has done.

    Attributes:
        replies: how many replies its model gives before the answer.
        approver: answers what is asked about payments; `None` asks nothing.
        lease: how long a payment is waited for whose process does not answer.
        inside: is awaited in the handler, before it pays.
        before: is called with each task, before anything else.
        paid: the orders that were paid, in order.
        tasks: what it was started with, each time.
        requests: how often its model was asked.
    """

    replies: int = 2
    approver: Approver | None = None
    lease: timedelta = timedelta(minutes=1)
    inside: Callable[[ToolContext], Awaitable[object]] = nothing
    before: Callable[[RunTask], object] = lambda _: None
    paid: list[str] = field(default_factory=list[str])
    tasks: list[RunTask] = field(default_factory=list[RunTask])
    requests: int = 0

    async def desk(self, task: RunTask) -> object:
        """Continue what the session has."""
        self.tasks.append(task)
        self.before(task)
        session, policies = task.session, (ASKS,) if self.approver else ()
        pay = tool("pay", self._pay, effect=External(lease=self.lease), idempotency=True)
        loop = executor(pay, session=session, policies=policies, approver=self.approver, deadline=task.deadline)
        if not session.conversation:
            session.conversation.append({"role": "user", "content": task.input})
        while True:
            answers = await loop.answer_async()
            if isinstance(answers, PendingAnswers):
                return answers
            if answers:
                told = [{"role": "tool", "tool_call_id": one.call_id, "content": one.content} for one in answers]
                session.conversation.append(*told)
            number = sum(message["role"] == "assistant" for message in session.conversation.messages)
            self.requests += 1
            if number == self.replies:
                return f"{number} paid"
            order: ToolCall = call("pay", f"{session.session_id}-{number}")
            session.conversation.append({"role": "assistant"}, calls=[order], reply=f"r{number}")

    async def _pay(self, params: Note, *, context: ToolContext) -> ToolResult[Note]:
        """Pay an order."""
        await self.inside(context)
        self.paid.append(params.text)
        if bank := os.environ.get("BANK"):
            with open(bank, "a", encoding="utf-8") as book:  # noqa: ASYNC230, PTH123 - one line
                book.write(f"{params.text}\n")
        return ToolResult.ok(params)


def run_now(store: Store, session_id: str = "s1") -> StoredRun:
    """The run as it is."""
    run = find_run(store, session_id)
    assert run is not None
    return run


def answer_all(store: Store, session_id: str = "s1", *, approved: bool = True) -> None:
    """Answer every open question of a session, as a person does from another process."""
    questions = [one for one in stored_questions(store, session_id) if one.answer is None]
    assert questions
    for question in questions:
        give_answer(store, question, GivenAnswer(approved=approved, by="Ada"))


async def until(condition: Callable[[], object]) -> None:
    """Return when it holds, of what other processes or tasks do; the test has its timeout."""
    while not condition():  # noqa: ASYNC110 - there is no event
        await asyncio.sleep(0.05)
