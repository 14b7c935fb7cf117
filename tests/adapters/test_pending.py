"""Questions that an approver leaves open, through `execute_all` and `execute_all_async`: what waits, and what runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from pydantic_ai import ApprovalRequired

from handrail.adapters.tool_executor import ToolExecutor
from handrail.errors import CallIdReusedError, CallPostponed, InvalidArgumentError
from handrail.prompt import Approval, ApprovalRequest, PolicyDecision, ToolContext, ToolResult
from handrail.runtime import Session, ToolCall, ToolInvoked, ToolMessage
from handrail.store import MemoryStore
from handrail.testing import FakeClock
from tests.kit import Decides, Note, call, executor, tool
from tests.wording import Wording

ASKS_ABOUT_PAY = Decides(lambda tool, _: PolicyDecision.ask("sure?") if tool.name == "pay" else PolicyDecision.allow())
REPLY = [call("note", "a", id="1"), call("pay", "b", id="2"), call("note", "c", id="3")]

Run = Callable[[ToolExecutor, Sequence[ToolCall]], tuple[ToolMessage, ...]]


def blocking(run: ToolExecutor, calls: Sequence[ToolCall]) -> tuple[ToolMessage, ...]:
    """One after the other."""
    return run.execute_all(calls, reply="r1")


def on_loop(run: ToolExecutor, calls: Sequence[ToolCall]) -> tuple[ToolMessage, ...]:
    """On an event loop."""
    return asyncio.run(run.execute_all_async(calls, reply="r1"))


BOTH = pytest.mark.parametrize("run", [blocking, on_loop])


def returns_later(request: ApprovalRequest) -> Approval:
    """Leave the question open."""
    return Approval.later("the desk is asked")


def raises_postponed(request: ApprovalRequest) -> bool:
    """Leave the question open by an exception."""
    raise CallPostponed("the desk is asked")


async def returns_later_async(request: ApprovalRequest) -> Approval:
    """Leave the question open on the event loop."""
    return Approval.later("the desk is asked")


def yes(request: ApprovalRequest) -> bool:
    """Approve."""
    return True


def desk(approver: Any, session: Session | None = None) -> ToolExecutor:
    """An executor that asks about payments."""
    return executor(tool("note"), tool("pay"), policies=[ASKS_ABOUT_PAY], approver=approver, session=session)


def recorded(session: Session) -> list[tuple[str, bool]]:
    """The calls that have a record."""
    return [(event.call_id, event.success) for event in session[ToolInvoked]]


@pytest.mark.requirement("S-05c", "S-12a")
@BOTH
@pytest.mark.parametrize("approver", [returns_later, raises_postponed, returns_later_async])
def test_the_message_of_a_call_whose_question_is_left_open_is_pending(
    run: Run, approver: Any, wording: Wording
) -> None:
    """It stands in its place and says that it waits; the others run, and the same reply answers it later."""
    session = Session()
    messages = run(desk(approver, session), REPLY)
    assert [(each.call_id, each.pending, each.success) for each in messages] == [
        ("1", False, True),
        ("2", True, False),
        ("3", False, True),
    ]
    assert messages[1].content == wording
    assert recorded(session) == [("1", True), ("3", True)]
    again = run(desk(yes, session), REPLY)
    assert [(each.pending, each.replayed) for each in again] == [(False, True), (False, False), (False, True)]
    assert recorded(session) == [("1", True), ("3", True), ("2", True)]


def test_the_message_says_what_is_waited_for(wording: Wording) -> None:
    """For an approval without a reason, or for what its handler waits for, whose changes were undone."""

    def raises(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        raise ApprovalRequired

    def gives_no_reason(request: ApprovalRequest) -> Approval:
        return Approval.later()

    (message,) = desk(gives_no_reason).execute_all([call("pay", "b", id="2")], reply="r1")
    assert message.content == wording
    (message,) = executor(tool("pay", raises)).execute_all([call("pay", "b", id="2")], reply="r1")
    assert message.content == wording


@pytest.mark.parametrize("name", ["execute_all", "execute_all_async"])
def test_a_reply_without_a_name_is_not_repeated_while_a_call_waits(name: str) -> None:
    """The calls that have run could not be answered, and the message of the one that waits would be lost."""

    def run(desk: ToolExecutor) -> tuple[ToolMessage, ...]:
        return desk.execute_all(REPLY) if name == "execute_all" else asyncio.run(desk.execute_all_async(REPLY))

    with Session.open(MemoryStore(clock=FakeClock()), "s") as session:
        assert [message.pending for message in run(desk(returns_later, session))] == [False, True, False]
        with pytest.raises(CallIdReusedError) as refused:
            run(desk(yes, session))
        assert refused.value.call_id == "1"
        assert recorded(session) == [("1", True), ("3", True)]


class InterruptError(BaseException):
    """What a program may end everything with, as Ctrl-C does."""


@pytest.mark.requirement("S-12b")
def test_a_reply_that_is_cancelled_while_its_approver_is_asked_leaves_its_calls_open() -> None:
    """Neither the call that is asked about nor those that wait behind it are recorded as failed."""

    async def cancelled(session: Session) -> None:
        asked = asyncio.Event()

        async def thinks(request: ApprovalRequest) -> bool:
            asked.set()
            await asyncio.Event().wait()
            return True

        reply = asyncio.ensure_future(desk(thinks, session).execute_all_async(REPLY, reply="r1"))
        await asked.wait()
        reply.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reply

    session = Session()
    asyncio.run(cancelled(session))
    assert recorded(session) == [("1", True)]
    assert session.turn.queue == []


@pytest.mark.requirement("S-12b")
@pytest.mark.parametrize("replies", [("r1", "r2"), (None, None)], ids=["named", "unnamed"])
def test_an_interrupt_ends_its_own_reply_alone(replies: tuple[str | None, str | None]) -> None:
    """Another reply that waits for its turn on the same executor runs."""

    async def both(session: Session) -> tuple[tuple[ToolMessage, ...] | BaseException, ...]:
        asked, queued = asyncio.Event(), asyncio.Event()

        async def is_interrupted(request: ApprovalRequest) -> bool:
            asked.set()
            await queued.wait()
            raise InterruptError

        run = desk(is_interrupted, session)
        first = asyncio.ensure_future(run.execute_all_async(REPLY, reply=replies[0]))
        await asked.wait()
        second = asyncio.ensure_future(run.execute_all_async([call("note", "d", id="4")], reply=replies[1]))
        for _ in range(5):
            await asyncio.sleep(0)
        assert len(session.turn.queue) == 3
        queued.set()
        return await asyncio.gather(first, second, return_exceptions=True)

    session = Session()
    ended, others = asyncio.run(both(session))
    assert isinstance(ended, InterruptError)
    assert not isinstance(others, BaseException)
    assert [message.success for message in others] == [True]
    assert recorded(session) == [("1", True), ("4", True)]


def test_an_approval_cannot_be_given_and_left_open() -> None:
    """The mistake is refused where it is made."""
    with pytest.raises(InvalidArgumentError) as refused:
        Approval(approved=True, left_open=True)
    assert refused.value.argument == "approved"
    assert Approval.later("x") == Approval(approved=False, reason="x", final=False, left_open=True)
