"""Which questions a store holds: open, answered, settled, and calls that wait for other calls."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from handrail.adapters.tool_executor import ToolExecutor
from handrail.agents.approval.decisions import ApprovalRecord, Decision, GatedCall, approval_record
from handrail.cli import questions
from handrail.cli.questions import (
    QuestionFilter,
    StoredQuestion,
    find_question,
    session_items,
    stored_questions,
)
from handrail.errors import CallPostponed, SessionError, SessionNotFoundError
from handrail.prompt import PolicyDecision, Tool, ToolContext, ToolResult
from handrail.runtime import Session
from handrail.session.calls import CallRef
from handrail.session.open_calls import GivenAnswer, PostponedCall, RecordedAnswer
from handrail.session.persistence.loading import append_to_logs, held_session
from handrail.session.persistence.protocol import SessionRow
from handrail.store import MemoryStore
from handrail.testing import FakeClock
from tests.kit import Decides, Note, call, echo, executor, tool
from tests.wording import Wording

HOUR = timedelta(hours=1)
ASKS_ABOUT_PAY = Decides(lambda tool, _: PolicyDecision.ask("sure?") if tool.name == "pay" else PolicyDecision.allow())


def later(_request: object) -> bool:
    """Leave every question open."""
    raise CallPostponed("tomorrow")


@pytest.fixture
def clock() -> FakeClock:
    """The time of the store."""
    return FakeClock()


@pytest.fixture
def store(clock: FakeClock) -> MemoryStore:
    """A store that the command could not open; what it reads of one is the same."""
    return MemoryStore(clock=clock)


def desk(session: Session, *more: Tool[Any, Any]) -> ToolExecutor:
    """A desk whose payments wait."""
    return executor(tool("pay"), *more, policies=[ASKS_ABOUT_PAY], session=session, approver=later)


def calls(found: list[StoredQuestion]) -> list[str]:
    """The calls that are asked about."""
    return [str(each.call) for each in found]


def test_age_counts_from_the_question(store: MemoryStore, clock: FakeClock) -> None:
    """And not from the last use of the session."""
    with Session.open(store, "s") as session:
        append = session[PostponedCall].append
        append(PostponedCall("s", "r1", "c1", "pay", clock.now()))
        clock.advance(HOUR)
        append(PostponedCall("s", "r2", "c2", "pay", clock.now()))
    assert calls(QuestionFilter(older_than=HOUR).select(store, {})) == ["r1/c1"]
    assert calls(QuestionFilter().select(store, {})) == ["r1/c1", "r2/c2"]
    with pytest.raises(SessionNotFoundError):
        QuestionFilter(session="nobody").select(store, {})


def test_nested_call_is_asked_about_and_not_the_one_that_it_is_nested_in(store: MemoryStore) -> None:
    """Both are listed among the open calls of the session."""

    def order(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        pay = desk(context.session).execute(call("pay", params.text, id="p1"))
        return ToolResult.ok(params) if pay.success else ToolResult.error(pay.content)

    outer = tool("order", order)
    with Session.open(store, "s") as session:
        with pytest.raises(CallPostponed):
            desk(session, outer).execute(call("order", id="c1"), reply="r1")
        assert {each.state for each in session.open_calls} == {"postponed"}
    (found,) = stored_questions(store)
    assert (found.tool, found.call.parent) == ("pay", CallRef("r1", "c1"))
    assert found.arguments == {"text": "hello"}
    answer(store, found)
    with Session.open(store, "s") as session:
        assert desk(session, outer).execute(call("order", id="c1"), reply="r1").success
        assert session.open_calls == ()
    assert stored_questions(store) == []


def answer(store: MemoryStore, question: StoredQuestion) -> None:
    """Answer a question with yes."""
    with held_session(store, question.session_id, wait=timedelta(0)) as lock:
        append_to_logs(
            store,
            lock,
            session_items(question, RecordedAnswer(given=GivenAnswer(approved=True, at=store.now()), digest="")),
        )


def test_call_that_waits_for_an_agent_is_not_a_question(store: MemoryStore) -> None:
    """The session of that agent is named after it."""
    with Session.open(store, "s") as session:
        for call_id in ("c1", "c2"):
            session[PostponedCall].append(PostponedCall("s", "r1", call_id, "ask_helper", store.now()))
    store.create(SessionRow("s/r1/c1", {}, "s", store.now()))
    assert calls(stored_questions(store)) == ["r1/c2"]


def test_call_with_a_final_record_is_no_question(store: MemoryStore, wording: Wording) -> None:
    """It was carried out with an approver that the program has got since."""
    with Session.open(store, "s") as session:
        with pytest.raises(CallPostponed):
            desk(session).execute(call("pay"), reply="r1")
        assert calls(stored_questions(store)) == ["r1/call-1"]
        executor(tool("pay"), session=session).execute(call("pay"), reply="r1")
    assert stored_questions(store) == []
    with pytest.raises(SessionError) as raised:
        find_question(store, "s", "call-1")
    assert str(raised.value) == wording


def test_questions_of_agents_need_their_extra(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch, wording: Wording
) -> None:
    """A list without them would look complete; a store that holds none is listed."""
    monkeypatch.setattr(questions, "find_spec", lambda _name: None)  # pyright: ignore[reportUnknownArgumentType, reportUnknownLambdaType]
    with Session.open(store, "loop") as session, pytest.raises(CallPostponed):
        executor(tool("pay", echo), policies=[ASKS_ABOUT_PAY], session=session, approver=later).execute(
            call("pay"), reply="r1"
        )
    assert calls(stored_questions(store)) == ["r1/call-1"]
    asked = GatedCall(path=("a",), session_id="s", call_id="c1", tool="pay", effect="state", arguments={}, digest="d")
    with Session.open(store, "s") as session:
        session[ApprovalRecord].append(approval_record(asked, Decision("later", "d")))
    with pytest.raises(ImportError) as caught:
        stored_questions(store)
    assert str(caught.value) == wording
