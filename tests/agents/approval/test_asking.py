"""Questions of a gate to a person; those that are left open, and answers that hold in a later process."""

from __future__ import annotations

import asyncio
import logging
import threading
from pathlib import Path
from typing import Any, Literal, cast

import pytest

from handrail import store
from handrail.agents import Answer, ApprovalRules, Decision, GatedCall, RunOptions
from handrail.agents.approval.decisions import ApprovalRecord
from handrail.agents.approval.gate import ApprovalGate
from handrail.errors import BudgetExceededError
from handrail.session import Session
from handrail.session.calls import CallRef
from handrail.session.open_calls import GivenAnswer, PostponedCall
from tests.agents.approval.calls import Thinker, gated
from tests.agents.kit import Person
from tests.agents.stored_desks import PATIENCE, Asked, Clerk, Desk, Reader, Replies, change_conversation, desk_in
from tests.wording import Wording

pytestmark = pytest.mark.anyio

NO_RULES = ApprovalRules()


def gate(asker: Any) -> ApprovalGate:
    """A gate of a run that is not stored."""
    return ApprovalGate(NO_RULES, "ask", asker)


async def waiting(door: ApprovalGate, *calls: GatedCall) -> list[asyncio.Task[Decision]]:
    """Tasks that decide about calls, begun in this order, and each as far as it gets alone."""
    tasks: list[asyncio.Task[Decision]] = []
    for call in calls:
        tasks.append(asyncio.create_task(door.decide(call)))
        for _ in range(3):
            await asyncio.sleep(0)
    return tasks


@pytest.mark.requirement("A-33")
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 2, 0)])
async def test_questions_stand_one_at_a_time_in_the_order_asked(order: tuple[int, ...]) -> None:
    """However many calls wait; none is decided before its own answer."""
    person = Thinker()
    calls = [gated(id=f"call-{number}", arguments={"path": f"{number}"}) for number in order]
    tasks = await waiting(gate(person), *calls)
    for number in range(3):
        assert await person.question() == calls[number]
        assert [task.done() for task in tasks] == [done < number for done in range(3)]
        person.say(Answer("yes" if number else "no"))
    decisions = [await task for task in tasks]
    assert [decision.verdict for decision in decisions] == ["deny", "allow", "allow"]
    assert person.most_at_once == 1


@pytest.mark.requirement("A-33")
@pytest.mark.parametrize("verdict", ["yes", "no"])
async def test_identical_calls_ask_once_if_the_answer_is_remembered(verdict: Any) -> None:
    """Those that waited for the question are answered by it."""
    person = Thinker()
    door = gate(person)
    tasks = await waiting(door, gated(id="a"), gated(id="b"), gated(id="c", arguments={"path": "x"}))
    await person.question()
    person.say(Answer(verdict, remember="arguments"))
    assert (await person.question()).call_id == "c"
    person.say(Answer("no"))
    decisions = [await task for task in tasks]
    assert [decision.by for decision in decisions] == ["person", "remembered", "person"]
    assert decisions[0].verdict == decisions[1].verdict
    assert [call.call_id for call in person.asked] == ["a", "c"]


async def test_the_same_call_decided_twice_at_once_is_asked_about_once() -> None:
    """Its second task gets the answer to the first one's question."""
    person = Thinker()
    first, second = await waiting(gate(person), gated(), gated())
    await person.question()
    person.say(Answer("yes"))
    assert await first is await second
    assert len(person.asked) == 1


async def test_cancelling_while_a_person_thinks_leaves_the_gate_free() -> None:
    """Nothing is decided about the call, and the next question is asked; one may be cancelled that waits, too."""
    person = Thinker()
    door = gate(person)
    thinking, waiter, last = await waiting(door, gated(id="a"), gated(id="b"), gated(id="c"))
    waiter.cancel()
    thinking.cancel()
    await asyncio.gather(thinking, waiter, return_exceptions=True)
    assert thinking.cancelled()
    assert waiter.cancelled()
    assert (await person.question()).call_id == "a"
    assert (await person.question()).call_id == "c"
    person.say(Answer("yes"))
    assert (await last).verdict == "allow"
    assert list(door.decisions) == [("s", CallRef("r", "c"))]


async def test_cancelling_leaves_a_thinking_thread_behind() -> None:
    """Its late answer counts for nothing, and the next question does not wait for it."""
    may_answer, asked, loop = threading.Event(), asyncio.Event(), asyncio.get_running_loop()
    answers = [Answer("no"), Answer("yes")]

    def ask(call: GatedCall) -> Answer:
        if call.call_id == "a":
            loop.call_soon_threadsafe(asked.set)
            may_answer.wait(10)
        return answers.pop()

    door = gate(ask)
    (task,) = await waiting(door, gated(id="a"))
    await asked.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert (await door.decide(gated(id="b"))).verdict == "allow"
    may_answer.set()
    assert list(door.decisions) == [("s", CallRef("r", "b"))]


class Silence(BaseException):
    """Not an `Exception`: somebody wants out."""


@pytest.mark.parametrize("error", [OSError("no terminal"), StopIteration(), ValueError("?")])
async def test_an_asker_that_raises_denies_and_is_logged(
    error: Exception, caplog: pytest.LogCaptureFixture, wording: Wording
) -> None:
    """Nobody has said yes."""

    def ask(call: GatedCall) -> Answer:
        raise error

    with caplog.at_level(logging.ERROR, "handrail.agents"):
        decision = await gate(ask).decide(gated())
    assert (decision.verdict, decision.by) == ("deny", "nobody")
    assert decision.reason == wording
    assert caplog.messages == wording


@pytest.mark.parametrize("error", [BudgetExceededError(dimension="input", usage=2, limit=1), Silence()])
async def test_an_asker_may_end_the_run(error: BaseException) -> None:
    """The call is not decided, and the gate is free."""
    raising = [error]

    async def ask(call: GatedCall) -> Answer:
        if raising:
            raise raising.pop()
        return Answer("yes")

    door = gate(ask)
    with pytest.raises(type(error)):
        await door.decide(gated())
    assert door.decisions == {}
    assert (await door.decide(gated())).verdict == "allow"


@pytest.mark.parametrize(
    "answer", [None, True, Answer(cast("Any", "maybe")), Answer("yes", cast("Any", "forever"))], ids=str
)
async def test_what_is_no_answer_denies(answer: Any) -> None:
    """Only a plain yes lets a call run."""
    decision = await gate(Person(answer)).decide(gated())
    assert (decision.verdict, decision.by) == ("deny", "nobody")


async def test_an_answer_that_is_given_elsewhere_while_a_person_is_asked_stands() -> None:
    """It was the first; that of the person is dropped."""
    elsewhere: list[GivenAnswer] = []

    def asker(_call: GatedCall) -> Answer:
        elsewhere.append(GivenAnswer(approved=False, reason="too dear", by="ada"))
        return Answer("yes")

    async def find(_call: GatedCall) -> GivenAnswer | None:
        return elsewhere[-1] if elsewhere else None

    decision = await ApprovalGate(NO_RULES, "ask", asker, find_elsewhere=find).decide(gated())
    assert (decision.verdict, decision.answered_by) == ("deny", "ada")


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
    first, *then = (
        Asked(f"d{number}", "pay", {"order": order}) for number, order in enumerate(("tea", "tea", "bun"), 1)
    )
    replies: Replies = {"desk": [[first], "One.", then, "Two."]}
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
