"""The LOG of postponed calls: one item for each question, the last one of a call holds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from handrail.session import Session
from handrail.session.calls import CallRef
from handrail.session.open_calls import (
    CallQuestion,
    GivenAnswer,
    PostponedCall,
    describe_answer,
    postponed_call,
    record_postponed,
)
from handrail.store import MemoryStore
from handrail.testing import FakeClock
from tests.wording import Wording

CALL = CallRef("r1", "c1")
QUESTION = CallQuestion(arguments="{}", digest="d", asks=("ask: sure?",), effect="state", reason="tomorrow")


@pytest.fixture
def session() -> Session:
    """A session in a store whose time stands still."""
    return Session.open(MemoryStore(clock=FakeClock()), "s")


def note(session: Session, question: CallQuestion | None = QUESTION, call: CallRef = CALL) -> None:
    """Have a call postponed."""
    store = session.store
    assert store is not None
    record_postponed(session[PostponedCall], call, "pay", store.now(), question)


def answered(session: Session) -> None:
    """Answer the question about the call."""
    last = postponed_call(session[PostponedCall], CALL)
    assert last is not None
    answer = GivenAnswer(approved=True, reason="a person said yes", by="ada", at=last.at)
    session[PostponedCall].append(replace(last, answer=answer))


def states(session: Session) -> list[str]:
    """The states of the open calls."""
    return [call.state for call in session.open_calls]


def test_question_is_noted_once(session: Session) -> None:
    """However often it is asked, and in whatever words the approver puts it off."""
    for question in (QUESTION, QUESTION, replace(QUESTION, reason="next week"), None):
        note(session, question)
    assert [item.question for item in session[PostponedCall]] == [QUESTION]
    assert states(session) == ["postponed"]


@pytest.mark.parametrize("other", [replace(QUESTION, digest="e"), replace(QUESTION, asks=("ask: really?",))])
def test_other_question_takes_its_place(session: Session, other: CallQuestion) -> None:
    """About other arguments, or with another policy."""
    note(session)
    note(session, other)
    last = postponed_call(session[PostponedCall], CALL)
    assert last is not None
    assert last.question == other
    assert len(session.open_calls) == 1


def test_question_is_noted_for_a_call_that_a_version_before_has_postponed(session: Session) -> None:
    """So that it can be answered."""
    note(session, None)
    note(session)
    assert [item.question for item in session[PostponedCall]] == [None, QUESTION]


def test_answered_call_waits_for_its_program_alone(session: Session) -> None:
    """Asked again, it is open again."""
    note(session)
    answered(session)
    assert states(session) == ["unrecorded"]
    note(session)
    assert states(session) == ["postponed"]


def test_item_of_another_session_holds_for_no_call_of_this_one(session: Session) -> None:
    """A fork has copies of them."""
    note(session)
    with session.fork(session_id="branch") as fork:
        assert postponed_call(fork[PostponedCall], CALL) is None
        assert len(fork[PostponedCall]) == 1


def test_call_without_a_name_is_not_noted(session: Session) -> None:
    """No record of it could be found."""
    note(session, call=CallRef(None, ""))
    assert session[PostponedCall].all() == ()


@pytest.mark.parametrize(
    "call, record", [(CALL, CALL), (CallRef.nested(CallRef.nested(CALL, "a"), "b"), CALL), (CallRef(None, "c1"),) * 2]
)
def test_nested_call_is_recorded_with_the_outermost(call: CallRef, record: CallRef) -> None:
    """That one alone is made again."""
    assert call.outermost == record


@pytest.mark.parametrize(
    "approved, reason", [(True, ""), (False, " too dear "), (False, " ")], ids=["yes", "no with a reason", "no"]
)
def test_answer_is_worded_once(approved: bool, reason: str, wording: Wording) -> None:
    """For agents and for other programs."""
    assert describe_answer(approved, reason) == wording
