"""Questions of a gate to a person."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Any, cast

import pytest

from handrail.agents import Answer, ApprovalRules, Decision, GatedCall
from handrail.agents.approval.gate import ApprovalGate
from handrail.errors import BudgetExceededError
from handrail.session.calls import CallRef
from handrail.session.open_calls import GivenAnswer
from tests.agents.approval.calls import Thinker, gated
from tests.agents.kit import Person
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


@pytest.mark.parametrize("answer", [
    pytest.param(None, id="nothing"), pytest.param(True, id="truth"),
    pytest.param(Answer(cast("Any", "maybe")), id="verdict"),
    pytest.param(Answer("yes", cast("Any", "forever")), id="remember"),
    pytest.param(Answer("yes", cast("Any", [])), id="remember list"),
    pytest.param(Answer("no", reason=cast("Any", 3)), id="reason"),
])  # fmt: skip
async def test_what_is_no_answer_denies(answer: Any, caplog: pytest.LogCaptureFixture, wording: Wording) -> None:
    """Only a plain yes lets a call run."""
    decision = await gate(Person(answer)).decide(gated())
    assert (decision.verdict, decision.by) == ("deny", "nobody")
    assert decision.reason == wording
    assert caplog.messages == wording


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
