"""Answers that are recorded: of a person, for one attempt of the same call and questions; and of the program itself."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
from pydantic import SecretStr
from typing_extensions import override

from handrail.adapters.tool_executor import PendingAnswers
from handrail.errors import CallPostponed, DispatchError, RecordingError, StoreUnavailableError
from handrail.prompt import PolicyDecision, Tool, ToolContext, ToolResult
from handrail.runtime import Session, ToolCall, ToolInvoked
from handrail.runtime.approval import record_outside_answer
from handrail.runtime.execution import BLOCKING, run_to_completion
from handrail.session.calls import CallRef
from handrail.session.open_calls import GivenAnswer, PostponedCall, RecordedAnswer, answer_row, postponed_call
from handrail.session.persistence.protocol import AnswerChange, SessionEntry
from handrail.store import MemoryStore
from handrail.testing import FakeClock
from handrail.transaction import UnitOfWork
from tests.kit import ASKS, Decides, Note, Run, both_ways, call, echo, executor, tool
from tests.runtime.kit import Shop, later, present
from tests.wording import Wording

CALL = CallRef("r1", "call-1")


@pytest.fixture
def session() -> Session:
    """A stored session."""
    return Session.open(MemoryStore(clock=FakeClock()), "s")


def postpone(session: Session, request: ToolCall | None = None, **options: Any) -> None:
    """Have a call postponed."""
    desk = executor(
        options.pop("of", tool("pay")), policies=[options.pop("policy", ASKS)], session=session, approver=later
    )
    with pytest.raises(CallPostponed):
        desk.execute(request or call("pay"), reply="r1")


def answer(session: Session, *, approved: bool = True, call: CallRef = CALL, **changed: Any) -> None:
    """Record an answer to the question about a call."""
    last = present(postponed_call(session[PostponedCall], call))
    given = GivenAnswer(approved=approved, reason="a person said so", by="ada", at=last.at)
    session[PostponedCall].append(replace(last, answer=given, **changed))


@dataclass(frozen=True)
class Access:
    """Parameters with a secret."""

    password: SecretStr


def sign_in(params: Access, *, context: ToolContext) -> ToolResult[None]:
    """Sign in; it needs an answer before."""
    return ToolResult.ok(None, f"signed in with {params.password.get_secret_value()}")


LOGIN = Tool[Access, None](name="login", description="Signs in.", handler=sign_in)


@both_ways
def test_approved_call_runs_without_an_approver(way: Run, session: Session) -> None:
    """In each mode; the approver is not asked."""
    postpone(session, ToolCall("call-1", "pay", '{"text": "hello"}'))
    answer(session)
    desk = executor(tool("pay"), policies=[ASKS], session=session)
    assert way(_With("r1", desk), call("pay")).content == "hello"


@dataclass
class _With:
    """An executor that states a reply."""

    reply: str
    desk: Any

    def execute(self, request: ToolCall) -> Any:
        return self.desk.execute(request, reply=self.reply)

    async def execute_async(self, request: ToolCall) -> Any:
        return await self.desk.execute_async(request, reply=self.reply)


def test_denied_call_is_refused_for_good(session: Session) -> None:
    """It is recorded as final."""
    postpone(session)
    answer(session, approved=False)
    desk = executor(tool("pay"), policies=[ASKS], session=session)
    message = desk.execute(call("pay"), reply="r1")
    assert not message.success
    assert "a person said so" in message.content
    (event,) = session[ToolInvoked]
    assert event.final


@pytest.mark.short(6)
@pytest.mark.parametrize(
    "request_, reply",
    [
        (call("pay", "other"), "r1"),
        (call("mail"), "r1"),
        (ToolCall("call-1", "pay", {"text": "hello"}, {"text": "written otherwise"}), "r1"),
        (ToolCall("call-1", "pay", {"text": "hello"}, "\ud800"), "r1"),
        (call("pay", id="call-2"), "r1"),
        (call("pay"), "r2"),
    ],
    ids=["arguments", "tool", "words", "words that are not JSON", "id", "reply"],
)
def test_answer_is_for_the_same_call(request_: ToolCall, reply: str, session: Session) -> None:
    """With the same tool, arguments and reply: some servers count from 0 in each. Another one is asked about."""
    postpone(session)
    answer(session)
    desk = executor(tool("pay"), tool("mail"), policies=[ASKS], session=session, approver=later)
    with pytest.raises(CallPostponed):
        desk.execute(request_, reply=reply)


def test_secret_is_part_of_the_arguments(session: Session) -> None:
    """It is recorded as asterisks, and an answer does not cover another one."""
    asked = ToolCall("call-1", "login", {"password": "first"})
    postpone(session, asked, of=LOGIN)
    item = present(postponed_call(session[PostponedCall], CALL))
    assert item.question is not None
    assert "first" not in item.question.arguments
    answer(session)
    with pytest.raises(CallPostponed):
        executor(LOGIN, policies=[ASKS], session=session, approver=later).execute(
            ToolCall("call-1", "login", {"password": "second"}), reply="r1"
        )


@both_ways
@pytest.mark.parametrize("first", [True, False])
def test_answer_that_is_recorded_while_the_approver_is_asked_stands(way: Run, session: Session, *, first: bool) -> None:
    """It was the first; the approver has answered when it returns."""
    postpone(session)

    def thinks(_request: object) -> bool:
        answer(session, approved=first)
        return not first

    desk = executor(tool("pay"), policies=[ASKS], session=session, approver=thinks)
    assert way(_With("r1", desk), call("pay")).success is first


def test_answer_covers_what_was_shown_with_it(session: Session) -> None:
    """A policy that asks less is covered, and one that asks something else is not."""
    both = Decides(lambda _tool, _params: PolicyDecision.ask("really?"), name="other")

    def desk(*policies: Any) -> Any:
        return executor(tool("pay"), policies=policies, session=session, approver=later)

    with pytest.raises(CallPostponed):
        desk(ASKS, both).execute(call("pay"), reply="r1")
    answer(session)
    with pytest.raises(CallPostponed):
        desk(replace(both, name="third")).execute(call("pay"), reply="r1")
    answer(session)
    assert desk(replace(both, name="third")).execute(call("pay"), reply="r1").success


def test_answer_is_for_one_attempt(session: Session) -> None:
    """One that was given after an attempt is for the next one."""
    attempts: list[str] = []

    def fail_once(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        attempts.append(params.text)
        if len(attempts) == 1:
            raise OSError("closed")
        return ToolResult.ok(params)

    desk = executor(tool("pay", fail_once), policies=[ASKS], session=session, approver=later, clock=FakeClock())
    postpone(session)
    answer(session)
    assert not desk.execute(call("pay"), reply="r1").success
    with pytest.raises(CallPostponed):
        desk.execute(call("pay"), reply="r1")
    (event,) = session[ToolInvoked]
    answer(session, last_attempt=event.at)
    assert desk.execute(call("pay"), reply="r1").success
    assert len(attempts) == 2


def test_nested_call_is_answered(session: Session) -> None:
    """It is made again with the call that it is nested in, and recorded with that one."""

    def order(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        inner = executor(tool("pay"), policies=[ASKS], session=session, approver=later)
        return ToolResult.ok(Note(inner.execute(call("pay", id="p1")).content))

    desk = executor(tool("order", order), session=session)
    with pytest.raises(CallPostponed):
        desk.execute(call("order"), reply="r1")
    answer(session, call=CallRef.nested(CALL, "p1"))
    assert desk.execute(call("order"), reply="r1").content == "hello"
    assert session.open_calls == ()


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("as_row", [False, True], ids=["taken in", "row"])
def test_a_no_to_a_call_whose_secrets_are_gone_is_told(
    shop: Shop, is_async: bool, as_row: bool, wording: Wording
) -> None:
    """The process that asked has ended. The model reads the no, for good, and not that it has to ask again."""
    asked = [ToolCall(f"call-{number}", "login", {"password": "hunter2-canary"}) for number in (1, 2, 3)]
    with shop.session() as session:
        session.conversation.append({"role": "assistant"}, calls=asked, reply="r1")
        assert isinstance(shop.door(session, LOGIN, policies=[ASKS], approver=later).answer(), PendingAnswers)
        item = present(postponed_call(session[PostponedCall], CALL))
        assert item.question is not None
        if as_row:
            given = GivenAnswer(approved=False, reason="It is late.", by="ada")
            said = RecordedAnswer(given=given, digest=item.question.digest, asks=item.question.asks)
            row = answer_row("till", CALL, said, shop.clock.now())
            assert shop.store.apply(UnitOfWork((AnswerChange(None, row),))) is None
        else:
            no = GivenAnswer(approved=False, reason="a person said no: It is late.", by="ada", at=item.at)
            session[PostponedCall].append(replace(item, answer=no))
        answer(session, call=CallRef("r1", "call-2"))
    with shop.session() as session:
        door = shop.door(session, LOGIN, policies=[ASKS], approver=later)
        answered = asyncio.run(door.answer_async()) if is_async else door.answer()
        assert not isinstance(answered, PendingAnswers)
        assert [each.content for each in answered] == wording
        assert (session.open_calls, [each.final for each in session[ToolInvoked]]) == ((), [True] * 3)


class Unreadable(MemoryStore):
    """A store whose entries cannot be read while it is down."""

    is_down = False

    @override
    def entries(self, *args: Any, **options: Any) -> Iterator[SessionEntry]:
        if self.is_down:
            raise StoreUnavailableError("no answer", store=self.url)
        return super().entries(*args, **options)


@both_ways
def test_store_that_cannot_be_read_ends_the_run(way: Run) -> None:
    """The approver is not asked: the answer may be there."""
    store = Unreadable(clock=FakeClock())
    with Session.open(store, "s") as session:
        postpone(session)
    with Session.open(store, "s") as session:
        store.is_down = True
        desk = executor(tool("pay", echo), policies=[ASKS], session=session, approver=later)
        with pytest.raises(RecordingError):
            way(_With("r1", desk), call("pay"))
        store.is_down = False
        with pytest.raises(CallPostponed):
            way(_With("r1", desk), call("pay"))


WAITED = ToolCall("call-1", "pay", {"order": "A-1"})
REF = CallRef("reply-1", "call-1")
ANSWER = ToolResult[None].error("not today")


def record(session: Session) -> None:
    """Record the answer outside of any call."""
    environment = executor(session=session).environment
    run_to_completion(record_outside_answer(environment, BLOCKING, REF, WAITED, ANSWER))


def test_who_listens_is_notified_of_the_answer(caplog: pytest.LogCaptureFixture) -> None:
    """As of the record of any other call; a subscriber that fails is logged, because the call is over."""
    session, heard = Session(), list[ToolInvoked]()

    def refuse(_: ToolInvoked) -> None:
        raise OSError("the screen is gone")

    with session.dispatcher.subscribe(ToolInvoked, refuse), session.dispatcher.subscribe(ToolInvoked, heard.append):
        record(session)
    assert [type(logged.exc_info[1]) for logged in caplog.records if logged.exc_info] == [DispatchError]
    assert heard == list(session[ToolInvoked])
    assert [(event.ref, event.result.message, event.final) for event in heard] == [(REF, "not today", True)]


def test_nothing_is_recorded_within_a_call() -> None:
    """It may be undone, and the record of an answer would stay."""
    session = Session()

    def pay(_: None, *, context: ToolContext) -> ToolResult[None]:
        record(session)
        assert not session[ToolInvoked]
        return ToolResult.ok(None)

    handler = Tool[None, None](name="outer", description="Records within.", handler=pay)
    assert executor(handler, session=session).execute(ToolCall("call-2", "outer", {})).success
    assert [event.call_id for event in session[ToolInvoked]] == ["call-2"]
