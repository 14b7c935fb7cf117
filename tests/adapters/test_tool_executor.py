"""`ToolExecutor`: tools or a prompt, `answer`, and questions that an approver leaves open."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from pydantic_ai import ApprovalRequired

from handrail import tool as function_tool
from handrail.adapters.tool_executor import PendingAnswers, ToolExecutor
from handrail.errors import CallIdReusedError, CallPostponed, InvalidArgumentError, UnboundResourceError
from handrail.filesystem import Filesystem
from handrail.prompt import (
    Approval,
    ApprovalRequest,
    PolicyDecision,
    Prompt,
    ToolContext,
    ToolResult,
)
from handrail.runtime import Session, ToolCall, ToolInvoked, ToolMessage
from handrail.session import CallRef
from handrail.store import MemoryStore
from handrail.testing import FakeClock
from tests.kit import Decides, Note, call, echo, executor, tool
from tests.wording import Wording


@function_tool(effect="external")
def pay(order: str) -> str:
    """Pay an order."""
    return f"{order} is paid"


@function_tool
def note(order: str, files: Filesystem) -> str:
    """Note an order."""
    files.write_text("orders.txt", order)
    return "noted"


@pytest.mark.parametrize(
    "given",
    [{}, {"tools": [pay], "prompt": Prompt.from_tools([pay])}, {"tools": pay}],
    ids=["neither", "both", "a tool that is in no list"],
)
def test_an_executor_has_tools_or_a_prompt(given: dict[str, object], wording: Wording) -> None:
    """The message says how each is given."""
    with pytest.raises(InvalidArgumentError) as failure:
        ToolExecutor(session=Session(), **given)  # type: ignore[arg-type]  # what is refused
    assert str(failure.value) == wording


ASKS_ABOUT_PAY = Decides(lambda tool, _: PolicyDecision.ask("sure?") if tool.name == "pay" else PolicyDecision.allow())

Answer = Callable[..., tuple[ToolMessage, ...] | PendingAnswers]


def on_loop(door: ToolExecutor, *given: Any, **named: Any) -> tuple[ToolMessage, ...] | PendingAnswers:
    """Through the asynchronous entry."""
    return asyncio.run(door.answer_async(*given, **named))


@pytest.fixture(params=[ToolExecutor.answer, on_loop], ids=["answer", "answer_async"])
def answer(request: pytest.FixtureRequest) -> Any:
    """Each entry."""
    return request.param


@pytest.fixture
def store() -> MemoryStore:
    """A store that outlives the sessions of a test."""
    return MemoryStore(clock=FakeClock())


def later(request: ApprovalRequest) -> bool:
    """Leave every question open."""
    raise CallPostponed("the desk is asked")


def texts(answers: tuple[ToolMessage, ...] | PendingAnswers) -> list[str]:
    """What the messages say."""
    assert not isinstance(answers, PendingAnswers)
    return [message.content for message in answers]


def test_the_open_reply_of_the_conversation_is_answered(answer: Answer, store: MemoryStore) -> None:
    """Calls with a record are answered from it, and the others run."""
    ran: list[str] = []

    def note(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        ran.append(params.text)
        return ToolResult.ok(params)

    asked = [call("note", text, id=text) for text in "abc"]
    with Session.open(store, "s") as session:
        door = executor(tool("note", note), session=session)
        session.conversation.append({}, calls=asked, reply="r1")
        door.execute(asked[1], reply="r1")
    with Session.open(store, "s") as session:
        answers = answer(executor(tool("note", note), session=session))
        assert texts(answers) == ["a", "b", "c"]
        assert not isinstance(answers, PendingAnswers)
        assert [message.replayed for message in answers] == [False, True, False]
        assert ran == ["b", "a", "c"]


@pytest.mark.parametrize("ids", [("call", "call", "call"), ("", "", "call"), ("call", "call_2", "call")])
@pytest.mark.parametrize("effect", ["state", "external"])
def test_calls_of_a_reply_that_have_one_id_are_different_calls(
    answer: Answer, store: MemoryStore, ids: Sequence[str], effect: str
) -> None:
    """Each runs once, also after a restart between them and with equal arguments; the messages have the given ids."""
    names = ["call", "call_2", "call_3"]
    ran: list[str] = []

    def pay(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        if ran == ["a"]:
            ran.append("killed")
            raise GeneratorExit
        ran.append(params.text)
        return ToolResult.ok(params)

    tools = tool("pay", pay, effect=effect), tool("note", pay)
    asked = [call("pay", "a", id=ids[0]), call("note", "b", id=ids[1]), call("pay", "a", id=ids[2])]
    with Session.open(store, "s") as session:
        session.conversation.append({}, calls=asked, reply="r1")
        assert [item.call for item in session.open_calls] == [CallRef("r1", name) for name in names]
        with pytest.raises(GeneratorExit):
            answer(executor(*tools, session=session))
    with Session.open(store, "s") as session:
        assert session.conversation.calls == tuple(asked)
        assert [item.call for item in session.open_calls] == [CallRef("r1", name) for name in names[1:]]
        answers = answer(executor(*tools, session=session))
        assert not isinstance(answers, PendingAnswers)
        assert [(item.call_id, item.replayed) for item in answers] == list(zip(ids, (True, False, False), strict=True))
        assert ran == ["a", "killed", "b", "a"]
        session.conversation.append(*({"role": "tool", "id": item.call_id} for item in answers))
        assert (session.conversation.calls, session.open_calls) == ((), ())
        with session.fork(session_id="f", at=("r1", names[1])) as fork:
            assert len(fork[Note].all()) == 2


def test_an_interrupted_call_whose_tool_is_missing_stays_unknown(
    answer: Answer, store: MemoryStore, wording: Wording
) -> None:
    """It may have run, so that there is no such tool now is not its outcome; a call that was not begun is refused."""

    def stop(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        raise GeneratorExit

    asked = [call("pay", "a", id="1"), call("pay", "b", id="2")]
    with Session.open(store, "s") as session:
        session.conversation.append({}, calls=asked, reply="r1")
        with pytest.raises(GeneratorExit):
            answer(executor(tool("pay", stop, effect="external"), session=session))
    with Session.open(store, "s") as session:
        assert texts(answer(executor(tool("note", echo), session=session))) == wording
        assert [(item.call.call_id, item.state) for item in session.open_calls] == [("1", "unknown")]
        finals = {event.call_id: event.final for event in session[ToolInvoked]}
        assert finals == {"1": False, "2": True}


def test_calls_of_one_id_without_a_reply_are_told_apart_by_nothing(store: MemoryStore) -> None:
    """There an id names a call of the session."""
    with Session.open(store, "s") as session:
        door = executor(tool("note", echo), session=session)
        with pytest.raises(CallIdReusedError):
            door.execute_all([call("note", "a", id="1"), call("note", "b", id="1")])
        answers = door.execute_all([call("note", "a", id="1"), call("note", "b", id="1")], reply="r1")
        assert [message.content for message in answers] == ["a", "b"]


def test_a_call_that_is_postponed_leaves_a_question(answer: Answer, store: MemoryStore) -> None:
    """The calls after it run; answered again, only what waits is asked about and run."""
    asked = [call("note", "a", id="1"), call("pay", "b", id="2"), call("note", "c", id="3")]
    agreed: list[ApprovalRequest] = []

    def agree(request: ApprovalRequest) -> bool:
        agreed.append(request)
        return True

    with Session.open(store, "s") as session:
        session.conversation.append({}, calls=asked, reply="r1")
        tools = (tool("note", echo), tool("pay", echo, effect="external"))
        waiting = answer(executor(*tools, policies=[ASKS_ABOUT_PAY], session=session, approver=later))
        assert isinstance(waiting, PendingAnswers)
        assert [message.content for message in waiting.messages] == ["a", "c"]
        (question,) = waiting.questions
        assert (question.call, question.reason) == (asked[1], "the desk is asked")
        assert question.request is not None
        assert question.request.params == Note("b")
        assert [item.state for item in session.open_calls] == ["postponed"]
    with Session.open(store, "s") as session:
        answers = answer(executor(*tools, policies=[ASKS_ABOUT_PAY], session=session, approver=agree))
        assert texts(answers) == ["a", "b", "c"]
        assert [request.call_id for request in agreed] == ["2"]


def test_a_mistake_is_raised_once_the_other_calls_have_ended(answer: Answer) -> None:
    """As by `execute_all`: the calls after it run, and a question beside it is asked again."""

    def nothing(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        return ToolResult.ok(context.resources.get(Note))

    tools = tool("nothing", nothing), tool("note", echo), tool("pay", echo)
    door = executor(*tools, policies=[ASKS_ABOUT_PAY], approver=later)
    asked = [call("pay", "p", id="1"), call("nothing", "n", id="2"), call("note", "a", id="3")]
    with pytest.raises(UnboundResourceError):
        answer(door, asked, reply="r1")
    assert [event.call_id for event in door.environment.session[ToolInvoked] if event.success] == ["3"]


REPLY = [call("note", "a", id="1"), call("pay", "b", id="2"), call("note", "c", id="3")]

Run = Callable[..., tuple[ToolMessage, ...]]


def all_on_loop(run: ToolExecutor, calls: Sequence[ToolCall], **options: Any) -> tuple[ToolMessage, ...]:
    """On an event loop."""
    return asyncio.run(run.execute_all_async(calls, **options))


BOTH = pytest.mark.parametrize("run", [ToolExecutor.execute_all, all_on_loop])


async def returns_later_async(request: ApprovalRequest) -> Approval:
    """Leave the question open on the event loop."""
    return returns_later(request)


def returns_later(request: ApprovalRequest) -> Approval:
    """Leave the question open."""
    return Approval.later("the desk is asked")


def yes(request: ApprovalRequest) -> bool:
    """Approve."""
    return True


def desk(approver: Any, session: Session | None = None) -> ToolExecutor:
    """An executor that asks about payments."""
    return executor(tool("note"), tool("pay"), policies=[ASKS_ABOUT_PAY], approver=approver, session=session)


def outcomes(session: Session) -> list[tuple[str, bool]]:
    """The calls that have a record."""
    return [(event.call_id, event.success) for event in session[ToolInvoked]]


@pytest.mark.requirement("S-05c", "S-12a")
@BOTH
@pytest.mark.parametrize("approver", [returns_later, later, returns_later_async])
def test_the_message_of_a_call_whose_question_is_left_open_is_pending(
    run: Run, approver: Any, wording: Wording
) -> None:
    """It stands in its place and says that it waits; the others run, and the same reply answers it later."""
    session = Session()
    messages = run(desk(approver, session), REPLY, reply="r1")
    assert [item.call_id for item in messages] == ["1", "2", "3"]
    assert [(item.pending, item.success) for item in messages] == [(False, True), (True, False), (False, True)]
    assert messages[1].content == wording
    assert outcomes(session) == [("1", True), ("3", True)]
    again = run(desk(yes, session), REPLY, reply="r1")
    assert [(item.pending, item.replayed) for item in again] == [(False, True), (False, False), (False, True)]
    assert outcomes(session) == [("1", True), ("3", True), ("2", True)]


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


@BOTH
def test_a_reply_without_a_name_is_not_repeated_while_a_call_waits(run: Run) -> None:
    """The calls that have run could not be answered, and the message of the one that waits would be lost."""
    with Session.open(MemoryStore(clock=FakeClock()), "s") as session:
        assert [message.pending for message in run(desk(returns_later, session), REPLY)] == [False, True, False]
        with pytest.raises(CallIdReusedError) as failure:
            run(desk(yes, session), REPLY)
        assert failure.value.call_id == "1"
        assert outcomes(session) == [("1", True), ("3", True)]


class InterruptError(BaseException):
    """What a program may end everything with, as Ctrl-C does."""


@pytest.mark.requirement("S-12b")
def test_a_reply_that_is_cancelled_while_its_approver_is_asked_leaves_its_calls_open() -> None:
    """Neither the call that is asked about nor those that wait behind it are outcomes as failed."""

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
    assert outcomes(session) == [("1", True)]
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
    assert outcomes(session) == [("1", True), ("4", True)]


def test_an_approval_cannot_be_given_and_left_open() -> None:
    """The mistake is refused where it is made."""
    with pytest.raises(InvalidArgumentError) as failure:
        Approval(approved=True, left_open=True)
    assert failure.value.argument == "approved"
    assert Approval.later("x") == Approval(approved=False, reason="x", final=False, left_open=True)
