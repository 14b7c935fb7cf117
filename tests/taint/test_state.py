"""`handrail.taint`: what taints a session, and what does not clear it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import handrail.store
from handrail import tool
from handrail.errors import InvalidArgumentError, PromptValidationError, SessionUseError
from handrail.prompt import ApprovalRequest, PromptTemplate, Section, ToolsSection
from handrail.runtime import IdempotencyConfig, Session
from handrail.session.calls import CallRef
from handrail.taint import Provenance, Tainted, TaintPolicy, list_taints, taint_by_answer
from tests.crash.forks import fork_to_crash
from tests.kit import raises
from tests.taint.desk import MAIL, call, desk, known_account, read_mail
from tests.wording import Wording


def sources(session: Session) -> list[str]:
    """The calls that have tainted a session."""
    return [each.provenance.call_id for each in session[Tainted]]


def test_only_an_untrusted_tool_taints_the_session() -> None:
    """The item names tool, call and arguments."""
    session = Session()
    executor = desk(session)
    call(executor, "list_orders")
    assert list_taints(session) == ()
    call(executor, "read_mail", "c", "r", number=1)
    (item,) = list_taints(session)
    assert item.provenance == Provenance("read_mail", "r", "c", '{"number":1}')
    assert str(item.provenance) == 'read_mail {"number":1} (call r/c)'


def test_a_failure_taints_as_a_success_does() -> None:
    """Its message has been written by the same people. A call whose handler was not entered has read nothing."""
    session = Session()
    executor = desk(session)
    assert not call(executor, "read_mail", number="one").success
    assert sources(session) == []
    assert not call(executor, "read_mail", "c", number=-1).success
    assert sources(session) == ["c"]


def test_the_tools_of_an_untrusted_section_and_below_are_untrusted() -> None:
    """A tool beside it is not."""

    def returning(name: str) -> Any:
        def function() -> str:
            """Return a text."""
            return name

        return tool(effect="read", name=name)(function)

    below = ToolsSection(title="Below", tools=[returning("below")])
    web = Section(title="Web", tools=[returning("web")], children=[below], untrusted=True)
    session = Session()
    executor = desk(session, sections=[web, ToolsSection(title="Beside", tools=[returning("beside")])])
    for name in ("beside", "below", "web"):
        call(executor, name, name)
    assert sources(session) == ["below", "web"]


def test_marks_are_booleans_and_exclude_each_other(wording: Wording) -> None:
    """`untrusted="no"` would count as true."""
    faults: list[str] = []
    wrong: list[dict[str, Any]] = [{"untrusted": "no"}, {"untrusted": True, "sanitizes": True}]
    for options in wrong:
        with pytest.raises(PromptValidationError) as raised:
            tool(**options)(read_mail.function)
        faults.append(str(raised.value))
    with pytest.raises(PromptValidationError) as raised:
        Section(title="Web", untrusted="no")  # type: ignore[arg-type]
    faults.append(str(raised.value))
    web = Section(title="Web", untrusted=True, children=[ToolsSection(title="Books", tools=[known_account])])
    with pytest.raises(PromptValidationError) as raised:
        PromptTemplate(ns="tests", key="web", sections=[web])
    assert "\n".join([*faults, str(raised.value)]) == wording


def test_nothing_removes_the_taint_but_a_fork_at_an_earlier_call(tmp_path: Path) -> None:
    """A reset does not, nor does a clear; another process that opens the session finds it."""
    with handrail.store.open(f"sqlite:///{tmp_path}/s.db") as store:
        with Session.open(store, "s") as session:
            executor = desk(session)
            call(executor, "list_orders", "before", "r1")
            call(executor, "read_mail", "read", "r2", number=1)
            call(executor, "list_orders", "after", "r3")
            with pytest.raises(SessionUseError):
                session[Tainted].clear()
            forks = [session.fork(at=("r1", "before")), session.fork(at=("r2", "read")), session.fork()]
            assert [sources(fork) for fork in forks] == [[], ["read"], ["read"]]
            for fork in forks:
                fork.close()
            session.reset()
        with Session.open(store, "s") as session:
            assert sources(session) == ["read"]


def kill_after_record(folder: str) -> None:
    """Make a call, to be killed before its message has left."""
    with handrail.store.open(f"sqlite:///{folder}/s.db") as store, Session.open(store, "s") as session:
        call(desk(session), "read_mail", "c", "r", number=1)


@pytest.mark.parametrize("point", ["after-commit", "after-record"])
def test_the_taint_is_stored_with_the_call(tmp_path: Path, point: str) -> None:
    """A process that is killed when the call is committed has stored it, so the message cannot leave without."""
    fork_to_crash(kill_after_record, str(tmp_path), at=point)
    with handrail.store.open(f"sqlite:///{tmp_path}/s.db") as store, Session.open(store, "s") as session:
        assert sources(session) == ["c"]


def test_content_whose_taint_cannot_be_recorded_does_not_leave(tmp_path: Path) -> None:
    """The session is closed while the handler runs: the call fails, and its message has nothing of the content."""
    with handrail.store.open(f"sqlite:///{tmp_path}/s.db") as store:
        session = Session.open(store, "s")

        @tool(effect="read", untrusted=True)
        def page() -> str:
            """Read a page."""
            session.close()
            return MAIL

        with pytest.raises(SessionUseError) as raised:
            call(desk(session, sections=[ToolsSection(title="Web", tools=[page])]), "page", "c", "r")
        assert MAIL not in str(raised.value)


def test_the_answer_of_a_tainted_child_taints_the_parent() -> None:
    """The parent's item names what the child has read; a child that has read nothing passes nothing."""
    parent = Session()
    child, ref = parent.child(), CallRef("r", "c")
    taint_by_answer(parent, child, tool="research", ref=ref, arguments="{}")
    assert list_taints(parent) == ()
    call(desk(child), "read_mail", "inner", "r", number=1)
    for _ in range(2):  # idempotent
        taint_by_answer(parent, child, tool="research", ref=ref, arguments="{}")
    (item,) = parent[Tainted]
    assert item.provenance == Provenance("research", "r", "c", "{}", ('read_mail {"number":1} (call r/inner)',))


def test_the_call_of_an_answer_is_an_identity(wording: Wording) -> None:
    """Also where the child has read nothing: the mistake is the program's."""
    parent = Session()
    with raises(InvalidArgumentError, wording):
        taint_by_answer(parent, parent.child(), tool="research", ref=("r", "c"), arguments="{}")  # type: ignore[arg-type]


def test_a_refusal_that_quotes_a_failure_from_the_ledger_taints(tmp_path: Path) -> None:
    """Of a repeat, also in a session that has not made the call itself; its message is delimited."""

    @tool(effect="external", untrusted=True, idempotency=IdempotencyConfig(scope="web"))
    def fetch(url: str) -> str:
        """Fetch a page."""
        raise ConnectionError(f"lost {url}: {MAIL}")

    with handrail.store.open(f"sqlite:///{tmp_path}/s.db") as store:
        for name in ("first", "second"):
            with Session.open(store, name) as session:
                executor = desk(session, tools=[fetch])
                for each in ("c", "again"):
                    message = call(executor, "fetch", each, url="x")
                    assert (message.success, message.is_untrusted) == (False, True)
                assert sources(session) == ["c", "again"]


def test_a_child_that_is_opened_alone_has_the_taint_of_its_parent(tmp_path: Path) -> None:
    """Its row names the parent. A fork of it has it too, one of the parent at an earlier call does not."""
    with handrail.store.open(f"sqlite:///{tmp_path}/s.db") as store:
        with Session.open(store, "parent") as parent:
            executor = desk(parent)
            call(executor, "list_orders", "before", "r1")
            parent.fork(at=("r1", "before"), session_id="early").close()
            parent.child(session_id="child").close()
            with parent.child(session_id="other") as child:
                child.fork(session_id="fork").close()
            # Also what is read when the child is there already.
            call(executor, "read_mail", "read", "r2", number=1)
        for name, found in (("child", ["read"]), ("fork", ["read"]), ("early", [])):
            with Session.open(store, name) as session:
                assert [each.provenance.call_id for each in list_taints(session)] == found
                assert sources(session) == []
        with Session.open(store, "child") as child, child.child() as below, child.fork() as fork:
            assert [len(list_taints(each)) for each in (below, fork)] == [1, 1]


def test_a_question_of_a_child_that_is_opened_alone_names_the_same_arguments(tmp_path: Path, wording: Wording) -> None:
    """So an answer that was given to it holds."""
    questions: list[str] = []
    iban = "DE89370400440532013000"

    def approver(request: ApprovalRequest) -> bool:
        questions.extend(each.text for each in request.questions)
        return False

    with handrail.store.open(f"sqlite:///{tmp_path}/s.db") as store:
        with Session.open(store, "parent") as parent:
            call(desk(parent), "read_mail", "read", "r", number=1)
            with parent.child(session_id="child") as child:
                call(desk(child, TaintPolicy(), approver=approver), "pay", iban=iban, cents=5)
        with Session.open(store, "child") as child:
            call(desk(child, TaintPolicy(), approver=approver), "pay", iban=iban, cents=5)
    first, second = questions
    assert first == second
    assert first == wording
