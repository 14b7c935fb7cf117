"""The answers of people, while a run goes on."""

from __future__ import annotations

from pathlib import Path

from handrail import store as stores
from handrail.operations.answers import give_answer
from handrail.operations.questions import stored_questions
from handrail.session.open_calls import GivenAnswer
from tests.cli.approvals.loops import Loop
from tests.session.faulty_stores import FaultyStore


def test_call_may_be_carried_out_as_soon_as_it_is_answered(tmp_path: Path) -> None:
    """Its program has read the answer before the one who gave it looks at it again."""
    loop = Loop(f"sqlite:///{tmp_path}/desk.db")
    loop.waits()
    with stores.open(loop.url) as behind:
        store = FaultyStore(behind)
        (question,) = stored_questions(store)
        store.at("committed", loop.texts)
        answered = give_answer(store, question, GivenAnswer(approved=True, by="Ada"))
    assert answered.answer is not None
    assert (answered.answer.approved, answered.answer.by) == (True, "Ada")
    assert loop.paid == ["A-1"]
