"""`handrail approvals list` and `show`: which questions a store holds, and how they are named."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from handrail import store as stores
from handrail.adapters.tool_executor import ToolExecutor
from handrail.agents.approval.decisions import ApprovalRecord, Decision, GatedCall, approval_record
from handrail.cli import agents
from handrail.cli.questions import QuestionFilter, StoredQuestion, find_question, session_items, stored_questions
from handrail.errors import CallPostponed, SessionError, SessionNotFoundError
from handrail.prompt import PolicyDecision, Tool, ToolContext, ToolResult
from handrail.runtime import Session
from handrail.session.calls import CallRef
from handrail.session.open_calls import GivenAnswer, PostponedCall, RecordedAnswer
from handrail.session.persistence.loading import append_to_logs, held_session
from handrail.session.persistence.protocol import SessionEntry, SessionRow
from handrail.store import MemoryStore
from handrail.testing import FakeClock
from tests.cli.approvals.loops import Loop
from tests.cli.desk import Command
from tests.kit import Decides, Note, call, echo, executor, raises, tool
from tests.store.kit import append
from tests.wording import Wording

HOUR = timedelta(hours=1)


ASKS_ABOUT_PAY = Decides(lambda tool, _: PolicyDecision.ask("sure?") if tool.name == "pay" else PolicyDecision.allow())


def left_open(_request: object) -> bool:
    """Leave every question open."""
    raise CallPostponed("tomorrow")


@pytest.fixture
def clock() -> FakeClock:
    """The time of the memory."""
    return FakeClock()


@pytest.fixture
def memory(clock: FakeClock) -> MemoryStore:
    """A memory that the command could not open; what it reads of one is the same."""
    return MemoryStore(clock=clock)


def paying_desk(session: Session, *more: Tool[Any, Any]) -> ToolExecutor:
    """A desk whose payments wait."""
    return executor(tool("pay"), *more, policies=[ASKS_ABOUT_PAY], session=session, approver=left_open)


def calls(found: list[StoredQuestion]) -> list[str]:
    """The calls that are asked about."""
    return [str(each.call) for each in found]


def test_age_counts_from_the_question(memory: MemoryStore, clock: FakeClock) -> None:
    """And not from the last use of the session."""
    with Session.open(memory, "s") as session:
        append = session[PostponedCall].append
        append(PostponedCall("s", "r1", "c1", "pay", clock.now()))
        clock.advance(HOUR)
        append(PostponedCall("s", "r2", "c2", "pay", clock.now()))
    assert calls(QuestionFilter(older_than=HOUR).select(memory, {})) == ["r1/c1"]
    assert calls(QuestionFilter().select(memory, {})) == ["r1/c1", "r2/c2"]
    with pytest.raises(SessionNotFoundError):
        QuestionFilter(session="nobody").select(memory, {})


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
    answer(memory, found)
    with Session.open(memory, "s") as session:
        assert paying_desk(session, outer).execute(call("order", id="c1"), reply="r1").success
        assert session.open_calls == ()
    assert stored_questions(memory) == []


def answer(memory: MemoryStore, question: StoredQuestion) -> None:
    """Answer a question with yes."""
    given = RecordedAnswer(given=GivenAnswer(approved=True, at=memory.now()), digest="")
    with held_session(memory, question.session_id, wait=timedelta(0)) as lock:
        append_to_logs(memory, lock, session_items(question, given))


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
    monkeypatch.setattr(agents, "find_spec", lambda _name: None)  # pyright: ignore[reportUnknownArgumentType, reportUnknownLambdaType]
    with Session.open(memory, "loop") as session, pytest.raises(CallPostponed):
        executor(tool("pay", echo), policies=[ASKS_ABOUT_PAY], session=session, approver=left_open).execute(
            call("pay"), reply="r1"
        )
    assert calls(stored_questions(memory)) == ["r1/call-1"]
    asked = GatedCall(path=("a",), session_id="s", call_id="c1", tool="pay", effect="state", arguments={}, digest="d")
    with Session.open(memory, "s") as session:
        session[ApprovalRecord].append(approval_record(asked, Decision("later", "d")))
    with raises(ImportError, wording):
        stored_questions(memory)


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A store in a file alone: the tests of `answer` read those of each kind."""
    url = f"sqlite:///{tmp_path / 'desk.db'}"
    with stores.open(url):
        return url


def test_calls_of_one_id_are_named_with_their_replies(handrail: Command, url: str, wording: Wording) -> None:
    """As servers number them that count from 0; the error has the names of all."""
    for reply in ("resp_1", "resp_2"):
        loop = Loop(url, reply=reply, session_id="loop")
        with stores.open(url) as store, Session.open(store, "loop") as session:
            loop.ask(session)
    listed = [line.split()[1] for line in handrail("approvals", "list").out.splitlines()[1:]]
    assert listed == ["resp_1/c1", "resp_2/c1"]
    ran = handrail("approvals", "answer", "loop", "c1", "yes")
    assert (ran.code, ran.out, ran.err) == (1, "", wording)
    assert handrail("approvals", "answer", "loop", "resp_2/c1", "no").code == 0
    answer = handrail.document("approvals", "show", "loop", "resp_2/c1")["answer"]
    assert answer["reason"] == wording
    assert handrail("approvals", "show", "loop", "resp_2/c1").out.count(answer["reason"]) == 1
    listed = [row["reply"] for row in handrail.rows("approvals", "list")]
    assert listed == ["resp_1"]


def test_call_without_a_reply_is_named_by_a_slash(handrail: Command, url: str) -> None:
    """Where a reply has a call of the same id, too."""
    loop = Loop(url)
    with stores.open(url) as store, Session.open(store, "loop") as session:
        loop.ask(session, reply=None)
        loop.ask(session, reply="resp_1")
    assert [line.split()[1] for line in handrail("approvals", "list").out.splitlines()[1:]] == ["/c1", "resp_1/c1"]
    shown = handrail.document("approvals", "show", "loop", "/c1")
    assert shown["reply"] is None
    assert handrail("approvals", "show", "loop", "c9").code == 1


def test_session_that_cannot_be_read_does_not_hide_the_others(handrail: Command, loop: Loop, wording: Wording) -> None:
    """It is reported, in each form; a question of it that is named is an error."""
    loop.waits()
    with stores.open(loop.url) as store:
        store.create(SessionRow("broken", {}, None, store.now()))
        lock = store.acquire("broken", wait=timedelta(0))
        entry = SessionEntry(1, "", "", "log", "handrail.postponed_call", 1, 0, 0, 1, b'[{"session_id":7}]')
        append(store, lock, 0, [entry], None)
        store.release(lock)
    for form in ("json", "table"):
        ran = handrail("approvals", "list", "--format", form)
        assert (ran.code, "loop" in ran.out) == (1, True)
        assert ran.err.partition(": values")[0] == wording
    assert handrail("approvals", "show", "broken", "c1").code == 1
    ran = handrail("approvals", "answer", "--all", "yes", "--yes")
    assert (ran.code, "loop: " in ran.out) == (1, True)


WRONG_LINES = [
    *("s d2", "yes", "s d2 maybe", "--all s d2 yes", "--all maybe", "--all yes", "s d2 yes --tool pay"),
    "--all yes --yes --older-than 0s",
]


@pytest.mark.parametrize("words", WRONG_LINES)
def test_wrong_command_line_records_nothing(words: str, handrail: Command, wording: Wording) -> None:
    """Before the store is opened."""
    ran = handrail("approvals", "answer", *words.split(), "--store", "sqlite:///nowhere.db")
    assert (ran.code, ran.out, ran.err) == (2, "", wording)
