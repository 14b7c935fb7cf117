"""Questions that are left open, and answers that hold, from one process to the next."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest

from handrail import store
from handrail.agents import Answer, GatedCall, RunOptions
from handrail.agents.approval.decisions import ApprovalRecord
from handrail.session import Session
from handrail.session.open_calls import PostponedCall
from tests.agents.stored_desks import PATIENCE, Asked, Clerk, Desk, Reader, Replies, change_conversation, desk_in
from tests.wording import Wording

LATER, YES, NO = Answer("later"), Answer("yes"), Answer("no", reason="too dear")
PAY = Asked("d2", "pay", {"order": "tea"})
BATCH: Replies = {"desk": [[Asked("d1", "note", {"text": "a"}), PAY, Asked("d3", "note", {"text": "b"})], "Done."]}
NESTED: Replies = {
    "desk": [[Asked("d1", "helper", {"input": "Help."}), Asked("d2", "note", {"text": "a"})], "Done."],
    "helper": [[Asked("h1", "pay", {"order": "tea"}), Asked("h2", "note", {"text": "b"})], "Helped."],
}


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """A desk with a store of its own."""
    return desk_in(tmp_path)


def left_open(desk: Desk, replies: Replies = BATCH) -> None:
    """Run a desk, and leave every question open."""
    everything = Clerk(dict.fromkeys(("pay", "sign", "stamp", "guard"), LATER))
    assert desk.run(Reader(replies), "Do it.", asker=everything).status == "waiting"


def test_a_run_whose_question_is_left_open_ends_waiting(desk: Desk) -> None:
    """The other calls of the reply have run; who asked is told what waits, and no model is asked again."""
    reader = Reader(BATCH)
    result = desk.run(reader, "Do it.", asker=Clerk({"pay": LATER}))
    (waiting,) = result.waiting
    assert (result.status, result.output) == ("waiting", "")
    assert (waiting.call_id, waiting.tool, waiting.arguments) == ("d2", "pay", {"order": "tea"})
    assert (desk.notes(), desk.world) == (["a", "b"], [])
    assert desk.calls() == [("d1", True), ("d3", True)]
    assert reader.seen == [("desk", [])]


def test_a_yes_of_another_process_carries_out_exactly_what_was_asked(desk: Desk) -> None:
    """Once; the calls that have run already do not run again, and the model gets every answer."""
    left_open(desk)
    clerk, reader = Clerk({"pay": YES}), Reader(BATCH)
    assert desk.run(reader, asker=clerk).output == "Done."
    assert [(call.call_id, call.arguments) for call in clerk.asked] == [("d2", {"order": "tea"})]
    assert (desk.notes(), desk.world) == (["a", "b"], ["tea"])
    assert reader.seen == [("desk", ["noted a", "charged tea", "noted b"])]


@pytest.mark.parametrize("asker", [Clerk({"pay": NO}), None], ids=["no", "nobody to ask"])
def test_a_no_of_another_process_refuses_the_call_and_is_recorded(
    asker: Clerk | None, desk: Desk, wording: Wording
) -> None:
    """The model reads why, and goes on; a run that is resumed where there is no person does not wait for one."""
    left_open(desk)
    reader = Reader(BATCH)
    assert desk.run(reader, asker=asker).output == "Done."
    assert reader.seen[0][1][1] == wording
    assert desk.world == []
    assert desk.calls() == [("d1", True), ("d3", True), ("d2", False)]


@pytest.mark.requirement("A-31")
@pytest.mark.parametrize("tool", ["sign", "stamp", "guard"])
@pytest.mark.parametrize("alone", [True, False])
def test_every_way_to_ask_can_wait(tool: str, alone: bool, desk: Desk) -> None:
    """A declared approval, PydanticAI's own, and a tool that raises `ApprovalRequired`; alone in its reply or not."""
    ask, note = Asked("d1", tool, {"text": "a"}), Asked("d2", "note", {"text": "b"})
    replies: Replies = {"desk": [[ask] if alone else [ask, note], "Done."]}
    left_open(desk, replies)
    assert desk.notes() == ([] if alone else ["b"])
    clerk, reader = Clerk({tool: YES}), Reader(replies)
    assert desk.run(reader, asker=clerk).output == "Done."
    assert clerk.ids == ["d1"]
    assert sorted(desk.notes()) == (["a"] if alone else ["a", "b"])
    assert reader.seen[0][1][0] == "noted a"


def test_several_open_questions_are_asked_in_their_order_and_none_runs_before_all_are_answered(desk: Desk) -> None:
    """What has been answered is not asked again while the others wait."""
    asked = [PAY, Asked("d1", "sign", {"text": "a"}), Asked("d3", "stamp", {"text": "b"})]
    replies: Replies = {"desk": [asked, "Done."]}
    left_open(desk, replies)
    some = Clerk({"pay": YES, "sign": LATER, "stamp": NO})
    waiting = desk.run(Reader(replies), asker=some)
    assert some.ids == ["d2", "d1", "d3"]
    assert ([call.call_id for call in waiting.waiting], desk.world) == (["d1"], [])
    last, reader = Clerk({"sign": YES}), Reader(replies)
    assert desk.run(reader, asker=last).output == "Done."
    assert last.ids == ["d1"]
    assert reader.seen[0][1][:2] == ["charged tea", "noted a"]
    assert (desk.world, desk.notes()) == (["tea"], ["a"])


def test_a_question_of_a_nested_agent_waits_in_its_caller_and_is_answered_there(desk: Desk) -> None:
    """The question names the chain of agents; the nested agent goes on in its own session, and does nothing twice."""
    waiting = desk.run(Reader(NESTED), "Do it.", asker=Clerk({"pay": LATER}))
    (question,) = waiting.waiting
    assert (question.path, question.session_id) == (("desk", "helper"), desk.child("d1"))
    assert (desk.notes(), desk.notes(desk.child("d1")), desk.calls()) == (["a"], ["b"], [("d2", True)])
    reader = Reader(NESTED)
    assert desk.run(reader, asker=Clerk({"pay": YES})).output == "Done."
    assert reader.seen == [("helper", ["charged tea", "noted b"]), ("desk", ["Helped.", "noted a"])]
    assert (desk.notes(), desk.notes(desk.child("d1")), desk.world) == (["a"], ["b"], ["tea"])


def test_questions_of_caller_and_nested_agent_wait_together(desk: Desk) -> None:
    """One process may leave what another one answers."""
    both = [Asked("d1", "helper", {"input": "Help."}), Asked("d3", "sign", {"text": "c"})]
    replies: Replies = {"desk": [both, "Done."], "helper": NESTED["helper"]}
    left_open(desk, replies)
    clerk = Clerk({"pay": NO, "sign": YES})
    assert desk.run(Reader(replies), asker=clerk).output == "Done."
    assert sorted(clerk.ids) == ["d3", "h1"]
    assert (desk.notes(), desk.notes(desk.child("d1")), desk.world) == (["c"], ["b"], [])


def test_arguments_that_nobody_was_asked_about_are_not_run(desk: Desk, wording: Wording) -> None:
    """A stored conversation that was changed is asked about as it is now; the yes was for something else."""
    left_open(desk)
    change_conversation(desk, "tea", "gin")
    asked: list[object] = []

    def clerk(call: GatedCall) -> Answer:
        asked.append(call.arguments["order"])
        return YES if call.arguments["order"] == "tea" else NO

    reader = Reader(BATCH)
    assert desk.run(reader, asker=clerk).output == "Done."
    assert asked == ["tea", "gin"]
    assert reader.seen[0][1][1] == wording
    assert desk.world == []


@pytest.mark.parametrize("remember", ["arguments", "rule"])
@pytest.mark.parametrize("verdict", ["yes", "no"])
@pytest.mark.short(2)
def test_an_answer_for_later_calls_holds_in_later_runs(
    remember: Literal["arguments", "rule"], verdict: Literal["yes", "no"], desk: Desk, wording: Wording
) -> None:
    """As a yes and as a no, for the same arguments or for all; other arguments are asked about if it was for these."""
    replies: Replies = {
        "desk": [
            [Asked("d1", "pay", {"order": "tea"})],
            "One.",
            [Asked("d2", "pay", {"order": "tea"}), Asked("d3", "pay", {"order": "bun"})],
            "Two.",
        ]
    }
    always = Answer(verdict, remember=remember)
    desk.run(Reader(replies), "Do it.", asker=Clerk({"pay": always}))
    clerk, reader = Clerk({"pay": Answer("no", reason="asked")}), Reader(replies)
    assert desk.run(reader, "Again.", asker=clerk).output == "Two."
    assert clerk.ids == ([] if remember == "rule" else ["d3"])
    same, other = reader.seen[-1][1]
    assert same == ("charged tea" if verdict == "yes" else wording)
    assert ("asked" in other) == (remember == "arguments")
    assert desk.world.count("tea") == (2 if verdict == "yes" else 0)


def test_an_answer_for_later_calls_holds_for_the_open_ones_of_a_resumed_run(desk: Desk) -> None:
    """Two calls with the same arguments are one question."""
    replies: Replies = {"desk": [[PAY, Asked("d3", "pay", {"order": "tea"})], "Done."]}
    left_open(desk, replies)
    clerk = Clerk({"pay": Answer("yes", remember="arguments")})
    assert desk.run(Reader(replies), asker=clerk).output == "Done."
    assert (clerk.ids, desk.world) == (["d2"], ["tea", "tea"])


def test_a_session_in_memory_has_no_later(desk: Desk, wording: Wording) -> None:
    """To put the question off is a denial, which says why."""
    reader = Reader(BATCH)
    session = Session()
    options = RunOptions(session=session, model=reader.model(), asker=Clerk({"pay": LATER}))
    assert desk.agent().run("Do it.", options).status == "done"
    assert reader.seen[-1][1][1] == wording
    assert [record.decision.verdict for record in session[ApprovalRecord]] == ["deny"]


def test_a_fork_asks_for_itself(desk: Desk) -> None:
    """Who lets a call of a session run has not let its fork do the same a second time."""
    left_open(desk)
    with store.open(desk.url) as kept_in, Session.open(kept_in, "s", wait=PATIENCE) as session:
        session.fork(session_id="fork").close()
    assert desk.run(Reader(BATCH), asker=Clerk({"pay": YES})).output == "Done."
    clerk, reader = Clerk({"pay": NO}), Reader(BATCH)
    assert desk.run(reader, session_id="fork", asker=clerk).output == "Done."
    assert [(call.session_id, call.call_id) for call in clerk.asked] == [("fork", "d2")]
    assert (desk.world, desk.notes("fork")) == (["tea"], ["a", "b"])


def test_question_that_is_left_open_is_recorded_with_what_a_person_needs(desk: Desk, wording: Wording) -> None:
    """When it was asked, why, and what the tool does; other decisions note none of it."""
    asked: Replies = {"desk": [[Asked("d1", "bill", {"order": "tea"})], "Done."]}
    (desk.folder / "approval.yaml").write_text("ask: [bill]\n")
    with store.open(desk.url) as kept_in:
        before = kept_in.now()
    assert desk.run(Reader(asked), "Do it.", asker=Clerk({"bill": LATER})).status == "waiting"
    (record,) = desk.values(ApprovalRecord)
    assert (record.call.description, record.decision.reason) == ("Bills.", wording)
    assert record.at is not None
    assert record.at >= before
    desk.run(Reader(asked), asker=Clerk({"bill": YES}))
    _, answered = desk.values(ApprovalRecord)
    assert (answered.at, answered.call.description, answered.decision.answered_by) == (None, "", "")


def test_question_of_an_agent_is_recorded_once(desk: Desk) -> None:
    """Also where the pipeline has asked it: the call is postponed, and waits for what the gate has recorded."""
    left_open(desk, NESTED)
    assert [record.call.call_id for record in desk.values(ApprovalRecord)] == ["h1"]
    assert [item.question for item in desk.values(PostponedCall)] == [None]
