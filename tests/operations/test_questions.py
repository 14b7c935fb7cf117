"""Which questions a store holds."""

from __future__ import annotations

from typing import Any

import pytest

from handrail.adapters.tool_executor import ToolExecutor
from handrail.agents.approval.decisions import ApprovalRecord, Decision, GatedCall, approval_record
from handrail.errors import CallPostponed, SessionError
from handrail.operations.answers import give_answer
from handrail.operations.questions import StoredQuestion, find_question, stored_questions
from handrail.prompt import PolicyDecision, Tool, ToolContext, ToolResult
from handrail.runtime import Session
from handrail.session.calls import CallRef
from handrail.session.open_calls import GivenAnswer, PostponedCall
from handrail.session.persistence.protocol import SessionRow
from handrail.store import MemoryStore
from handrail.testing import FakeClock
from tests.kit import Decides, Note, call, echo, executor, hide_agents, raises, tool
from tests.wording import Wording

ASKS_ABOUT_PAY = Decides(lambda tool, _: PolicyDecision.ask("sure?") if tool.name == "pay" else PolicyDecision.allow())


def left_open(_request: object) -> bool:
    """Leave every question open."""
    raise CallPostponed("tomorrow")


@pytest.fixture
def memory() -> MemoryStore:
    """A store without a file."""
    return MemoryStore(clock=FakeClock())


def paying_desk(session: Session, *more: Tool[Any, Any]) -> ToolExecutor:
    """A desk whose payments wait."""
    return executor(tool("pay"), *more, policies=[ASKS_ABOUT_PAY], session=session, approver=left_open)


def calls(found: list[StoredQuestion]) -> list[str]:
    """The calls that are asked about."""
    return [str(each.call) for each in found]


def test_nested_call_is_asked_about_and_not_the_one_that_it_is_nested_in(memory: MemoryStore) -> None:
    """Both are listed among the open calls of the session."""

    def order(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        pay = paying_desk(context.session).execute(call("pay", params.text, id="p1"))
        return ToolResult.ok(params) if pay.success else ToolResult.error(pay.content)

    outer = tool("order", order)
    with Session.open(memory, "s") as session:
        with pytest.raises(CallPostponed):
            paying_desk(session, outer).execute(call("order", id="c1"), reply="r1")
        assert {each.state for each in session.open_calls} == {"postponed"}
    (found,) = stored_questions(memory)
    assert (found.tool, found.call.parent) == ("pay", CallRef("r1", "c1"))
    assert found.arguments == {"text": "hello"}
    give_answer(memory, found, GivenAnswer(approved=True))
    with Session.open(memory, "s") as session:
        assert paying_desk(session, outer).execute(call("order", id="c1"), reply="r1").success
        assert session.open_calls == ()
    assert stored_questions(memory) == []


def test_call_that_waits_for_an_agent_is_not_a_question(memory: MemoryStore) -> None:
    """The session of that agent is named after it."""
    with Session.open(memory, "s") as session:
        for call_id in ("c1", "c2"):
            session[PostponedCall].append(PostponedCall("s", "r1", call_id, "ask_helper", memory.now()))
    memory.create(SessionRow("s/r1/c1", {}, "s", memory.now()))
    assert calls(stored_questions(memory)) == ["r1/c2"]


def test_call_with_a_final_record_is_no_question(memory: MemoryStore, wording: Wording) -> None:
    """It was carried out with an approver that the program has got since."""
    with Session.open(memory, "s") as session:
        with pytest.raises(CallPostponed):
            paying_desk(session).execute(call("pay"), reply="r1")
        assert calls(stored_questions(memory)) == ["r1/call-1"]
        executor(tool("pay"), session=session).execute(call("pay"), reply="r1")
    assert stored_questions(memory) == []
    with raises(SessionError, wording):
        find_question(memory, "s", "call-1")


def test_questions_of_agents_need_their_extra(
    memory: MemoryStore, monkeypatch: pytest.MonkeyPatch, wording: Wording
) -> None:
    """A list without them would look complete; a memory that holds none is listed."""
    with Session.open(memory, "loop") as session, pytest.raises(CallPostponed):
        executor(tool("pay", echo), policies=[ASKS_ABOUT_PAY], session=session, approver=left_open).execute(
            call("pay"), reply="r1"
        )
    assert calls(stored_questions(memory)) == ["r1/call-1"]
    asked = GatedCall(path=("a",), session_id="s", call_id="c1", tool="pay", effect="state", arguments={}, digest="d")
    with Session.open(memory, "s") as session:
        session[ApprovalRecord].append(approval_record(asked, Decision("later", "d")))
    hide_agents(monkeypatch)
    with raises(ImportError, wording):
        stored_questions(memory)
