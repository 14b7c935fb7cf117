"""`ToolExecutor.answer`: the calls of a reply, also of one that was interrupted or waits for a person."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from handrail.adapters.tool_executor import PendingAnswers, ToolExecutor
from handrail.errors import CallIdReusedError, CallPostponed, UnboundResourceError
from handrail.prompt import ApprovalRequest, PolicyDecision, ToolContext, ToolResult
from handrail.runtime import Session, ToolCall, ToolInvoked, ToolMessage
from handrail.session import CallRef
from handrail.store import MemoryStore
from handrail.testing import FakeClock
from tests.kit import Decides, Note, call, echo, executor, tool
from tests.wording import Wording

ASKS_ABOUT_PAY = Decides(lambda tool, _: PolicyDecision.ask("sure?") if tool.name == "pay" else PolicyDecision.allow())

Answer = Callable[..., tuple[ToolMessage, ...] | PendingAnswers]


def inline(door: ToolExecutor, *given: Any, **named: Any) -> tuple[ToolMessage, ...] | PendingAnswers:
    """Through the synchronous entry."""
    return door.answer(*given, **named)


def on_loop(door: ToolExecutor, *given: Any, **named: Any) -> tuple[ToolMessage, ...] | PendingAnswers:
    """Through the asynchronous entry."""
    return asyncio.run(door.answer_async(*given, **named))


@pytest.fixture(params=[inline, on_loop])
def answer(request: pytest.FixtureRequest) -> Answer:
    """Each entry."""
    entry: Answer = request.param
    return entry


@pytest.fixture
def store() -> MemoryStore:
    """A store that outlives the sessions of a test."""
    return MemoryStore(clock=FakeClock())


def later(request: ApprovalRequest) -> bool:
    """Leave every question open."""
    raise CallPostponed(f"ask about {request.params.text} tomorrow")


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


def test_calls_that_are_given_are_answered(answer: Answer) -> None:
    """Without a conversation too; a reply is named as for `execute`."""
    door = executor(tool("note", echo))
    assert texts(answer(door, [call("note", "a", id="1")], reply="r1")) == ["a"]
    assert texts(answer(door, iter([call("note", "a", id="1")]), reply="r1")) == ["a"]
    assert answer(door) == ()
    assert [event.reply for event in door.environment.session[ToolInvoked]] == ["r1"]


@pytest.mark.parametrize(
    "ids, names",
    [
        (("call", "call", "call"), ["call", "call_2", "call_3"]),
        (("", "", "call"), ["call", "call_2", "call_3"]),
        (("call", "call_2", "call"), ["call", "call_2", "call_3"]),
    ],
)
@pytest.mark.parametrize("effect", ["state", "external"])
def test_calls_of_a_reply_that_have_one_id_are_different_calls(
    answer: Answer, store: MemoryStore, ids: Sequence[str], names: list[str], effect: str
) -> None:
    """Each runs once, also after a restart between them and with equal arguments; the messages have the given ids."""
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
        assert [each.call for each in session.open_calls] == [CallRef("r1", name) for name in names]
        with pytest.raises(GeneratorExit):
            answer(executor(*tools, session=session))
    with Session.open(store, "s") as session:
        assert session.conversation.calls == tuple(asked)
        assert [each.call for each in session.open_calls] == [CallRef("r1", name) for name in names[1:]]
        answers = answer(executor(*tools, session=session))
        assert not isinstance(answers, PendingAnswers)
        assert [(each.call_id, each.replayed) for each in answers] == list(zip(ids, (True, False, False), strict=True))
        assert ran == ["a", "killed", "b", "a"]
        session.conversation.append(*({"role": "tool", "id": each.call_id} for each in answers))
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
        assert [(each.call.call_id, each.state) for each in session.open_calls] == [("1", "unknown")]
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
        assert (question.call, question.reason) == (asked[1], "ask about b tomorrow")
        assert question.request is not None
        assert question.request.params == Note("b")
        assert [each.state for each in session.open_calls] == ["postponed"]
    with Session.open(store, "s") as session:
        answers = answer(executor(*tools, policies=[ASKS_ABOUT_PAY], session=session, approver=agree))
        assert texts(answers) == ["a", "b", "c"]
        assert [request.call_id for request in agreed] == ["2"]


def test_a_mistake_is_raised_once_the_other_calls_have_ended(answer: Answer) -> None:
    """As by `execute_all`: the calls after it run, and a question beside it is asked again."""

    def nothing(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        return ToolResult.ok(context.resources.get(Note))

    door = executor(
        tool("nothing", nothing), tool("note", echo), tool("pay", echo), policies=[ASKS_ABOUT_PAY], approver=later
    )
    asked: list[ToolCall] = [call("pay", "p", id="1"), call("nothing", "n", id="2"), call("note", "a", id="3")]
    with pytest.raises(UnboundResourceError):
        answer(door, asked, reply="r1")
    assert [event.call_id for event in door.environment.session[ToolInvoked] if event.success] == ["3"]
