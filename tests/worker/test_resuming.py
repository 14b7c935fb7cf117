"""`resume`: the outcome of each state of a session, what is counted, and what survives a takeover."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import anthropic
import httpx2
import openai
import pytest
from pydantic_ai.exceptions import FallbackExceptionGroup, ModelAPIError, ModelHTTPError

from handrail import errors
from handrail import store as stores
from handrail.errors import PromptEvaluationError, SessionLostError, StoreUnavailableError
from handrail.operations.runs import HIGHEST_PRIORITY, LONGEST_QUEUE, cancel_run, retry_run, write_run
from handrail.process import own_name
from handrail.prompt import ToolContext
from handrail.session import Session
from handrail.store import MemoryStore
from handrail.testing import FakeClock
from handrail.worker import Again, AgentFunction, Failed, Finished, RunOutcome, RunTask, Waiting, resume, submit
from handrail.worker.resuming import HEARTBEAT, MOST_ATTEMPTS, ResumeOptions
from tests.kit import refusal
from tests.session.faulty_stores import FaultyStore
from tests.store.kit import NOW
from tests.wording import Wording
from tests.worker.desks import Desk, answer_all, later, run_now

pytestmark = pytest.mark.anyio


CLOCK = FakeClock()
REQUEST = httpx2.Request("POST", "https://models.example")


@pytest.fixture
def store() -> MemoryStore:
    """A store with the run `s1` of an agent `desk`, and with the clock."""
    store = MemoryStore(clock=CLOCK)
    submit(store, "s1", agent="desk", input="Pay.")
    return store


class Killed(BaseException):
    """What ends an attempt as a kill does: nothing is written after it."""


async def attempt(store: MemoryStore, desk: Desk, **options: Any) -> None:
    """Begin the run in a worker that is killed, in a handler or elsewhere; in time, it is taken for dead."""
    with suppress(Killed):
        assert isinstance(await resume(store, "s1", desk.desk, options=ResumeOptions(**options)), Again)
    CLOCK.advance(HEARTBEAT)


def dies(store: MemoryStore) -> Callable[[object], Any]:
    """Has another process take the session, so that what comes after writes nothing, as after a kill."""

    def die(_: object) -> None:
        store.release(store.acquire("s1", wait=NOW, evict=True))
        raise Killed

    return die


def does(body: Callable[[RunTask], object]) -> AgentFunction:
    """An agent that is one function."""

    async def desk(task: RunTask) -> object:
        return body(task)

    return desk


def fails(error: BaseException) -> AgentFunction:
    """An agent that raises an error."""

    async def desk(_: RunTask) -> None:
        raise error

    return desk


def error_in(outcome: RunOutcome) -> Exception:
    """The error of a run that has failed."""
    assert isinstance(outcome, Failed)
    return outcome.error


# -------------------------------------------------------------------------------------------------- finished, waiting


async def test_run_is_carried_out_to_its_answer_once(store: MemoryStore) -> None:
    """Resumed after its end, it is finished, and nothing of it runs again."""
    desk = Desk()
    for _ in range(2):
        assert await resume(store, "s1", desk.desk) == Finished("2 paid")
    assert (run_now(store).row.status, run_now(store).data.text) == ("finished", "2 paid")
    assert (desk.paid, desk.requests, desk.tasks[0].input) == (["s1-0", "s1-1"], 3, "Pay.")


async def test_session_without_a_run_is_continued(store: MemoryStore) -> None:
    """`resume` needs no `submit`; a session that does not exist is not made."""
    store.session("own").close()
    assert await resume(store, "own", Desk().desk) == Finished("2 paid")
    assert isinstance(error_in(await resume(store, "none", Desk().desk)), errors.SessionNotFoundError)
    assert (store.find("none"), store.run("own")) == (None, None)


async def test_run_that_waits_goes_on_with_the_answer(store: MemoryStore) -> None:
    """Resumed before, it waits on, and the agent is not started; each answer opens it again."""
    desk = Desk(approver=later)
    for _ in range(2):
        outcome = await resume(store, "s1", desk.desk)
        assert isinstance(outcome, Waiting)
        assert ([one.tool for one in outcome.questions], run_now(store).row.status) == (["pay"], "waiting")
    assert len(desk.tasks) == 1
    for number in (1, 2):
        answer_all(store)
        assert (run_now(store).row.status, len([*store.due_runs("handrail", store.now(), limit=9)])) == ("open", 1)
        outcome = await resume(store, "s1", desk.desk)
        assert len(desk.paid) == number
    assert outcome == Finished("2 paid")


async def test_run_that_waits_holds_nothing(database_url: str) -> None:
    """Another process can open its session, and neither a task nor the session is left."""
    tasks, session_id = asyncio.all_tasks(), f"of {database_url}"  # other tests leave sessions behind
    with stores.open(database_url) as store, stores.open(database_url) as other:
        submit(store, session_id, agent="desk", input="Pay.")
        assert isinstance(await resume(store, session_id, Desk(approver=later).desk), Waiting)
        Session.open(other, session_id, wait=NOW).close()
        assert other.held_sessions() == frozenset()
    assert asyncio.all_tasks() == tasks
    gc.collect()
    assert not [one for one in gc.get_objects() if isinstance(one, Session) and one.session_id == session_id]


async def test_question_that_is_open_makes_the_run_wait_whatever_is_returned(store: MemoryStore) -> None:
    """Also if it is answered when the row is about to say that the run waits; and nothing else makes it wait."""
    faulty, loop = FaultyStore(store), Desk(approver=later)

    async def desk(task: RunTask) -> str:
        await loop.desk(task)
        faulty.at("begin", lambda: answer_all(store))  # before the row is written
        return "I have asked."

    assert isinstance(await resume(faulty, "s1", desk), Waiting)
    assert run_now(store).row.status == "open"
    assert isinstance(await resume(store, "s1", loop.desk), Waiting)
    assert loop.paid == ["s1-0"]
    answer = SimpleNamespace(status="waiting")
    submit(store, "own", agent="desk", input="Pay.")
    assert await resume(store, "own", does(lambda _: answer)) == Finished(answer)


# -------------------------------------------------------------------------------------------------------- again, failed


async def test_session_that_is_held_is_left_alone() -> None:
    """`Again`, and nothing is counted; with `evict` it is taken from its holder, whose next write is refused."""
    store, desk = MemoryStore(), Desk()
    submit(store, "s1", agent="desk", input="Pay.")
    holder = store.session("s1")
    assert isinstance(await resume(store, "s1", desk.desk), Again)
    assert (run_now(store).data.attempts, desk.tasks) == (0, [])
    assert await resume(store, "s1", desk.desk, evict=True) == Finished("2 paid")
    with pytest.raises(SessionLostError):
        holder.conversation.append({"role": "user", "content": "late"})


async def test_run_that_a_worker_has_is_left_to_it_until_it_shows_no_life(store: MemoryStore) -> None:
    """Until the time in its row; or until its process, of this machine, has ended."""
    for name in ("another host - 1 0", str(own_name())):
        assert write_run(store, run_now(store).change("open", worker=name, due_at=CLOCK.now() + HEARTBEAT))
        outcome = await resume(store, "s1", Desk().desk)
        assert isinstance(outcome, Again)
        assert (outcome.after, run_now(store).row.worker) == (HEARTBEAT, name)
    ended = str(own_name()._replace(start="1"))
    assert write_run(store, run_now(store).change("open", worker=ended, due_at=CLOCK.now() + HEARTBEAT))
    assert await resume(store, "s1", Desk().desk) == Finished("2 paid")


async def test_evicted_worker_changes_nothing(store: MemoryStore) -> None:
    """It goes on after another one has finished the run: its outcome is `Again`, and the row stays."""
    other, hung = Desk(), Desk()

    async def desk(task: RunTask) -> object:
        assert await resume(store, "s1", other.desk, evict=True) == Finished("2 paid")
        return await hung.desk(task)

    assert isinstance(await resume(store, "s1", desk), Again)
    assert (run_now(store).data.text, hung.paid, other.paid) == ("2 paid", [], ["s1-0", "s1-1"])


@pytest.mark.parametrize(
    "error, kind",
    [
        (StoreUnavailableError("away", store="db"), Again),
        (SessionLostError("lost"), Again),
        (errors.CommitInDoubtError("in doubt"), Again),
        (PromptEvaluationError("overloaded", phase="request"), Again),
        (PromptEvaluationError("cut off", phase="response"), Again),
        (PromptEvaluationError("spent", phase="budget"), Failed),
        (ModelHTTPError(529, "clerk"), Again),
        (ModelHTTPError(401, "clerk"), Failed),
        (ModelAPIError("clerk", "no connection"), Again),
        (FallbackExceptionGroup("all", [ModelHTTPError(400, "clerk"), ModelHTTPError(503, "desk")]), Again),
        (httpx2.ConnectTimeout("late"), Again),
        (httpx2.HTTPStatusError("busy", request=REQUEST, response=httpx2.Response(429)), Again),
        (openai.APIConnectionError(request=REQUEST), Again),
        (openai.NotFoundError("no model", response=httpx2.Response(404, request=REQUEST), body=None), Failed),
        (anthropic.InternalServerError("broken", response=httpx2.Response(500, request=REQUEST), body=None), Again),
        (ValueError("no such order"), Failed),
        (ExceptionGroup("two", [OSError()]), Failed),
        (SystemExit(3), Failed),
        (asyncio.CancelledError("a task of its own"), Failed),
    ],
    ids=lambda value: str(value) if isinstance(value, BaseException) else value.__name__,
)
@pytest.mark.short(10)
async def test_error_of_an_agent_ends_its_attempt_or_its_run(
    store: MemoryStore, error: BaseException, kind: type[RunOutcome]
) -> None:
    """What may pass is tried again; what has failed stays so, and a retry goes on from where it stopped."""
    assert isinstance(await resume(store, "s1", fails(error)), kind)
    if kind is Failed:
        assert run_now(store).row.status == "failed"
        assert isinstance(error_in(await resume(store, "s1", Desk().desk)), errors.AgentError)
        retry_run(store, "s1")
    assert await resume(store, "s1", Desk().desk) == Finished("2 paid")


async def test_store_that_is_away_when_the_run_begins_is_awaited(store: MemoryStore) -> None:
    """Nothing was counted."""
    faulty = FaultyStore(store)
    faulty.go_down("begin")
    assert isinstance(await resume(faulty, "s1", Desk().desk), Again)
    assert run_now(store).data.attempts == 0


async def test_store_that_this_process_has_closed_is_not_awaited(database_url: str) -> None:
    """Before an attempt, or while the agent works: it will not come back, and the run is left as it is."""
    with stores.open(database_url) as store, stores.open(database_url) as other:
        name = f"closed {database_url}"
        submit(store, name, agent="desk", input="Pay.")
        for agent in (does(lambda _: store.close()), Desk().desk):
            assert isinstance(error_in(await resume(store, name, agent)), errors.StoreClosedError)
        assert run_now(other, name).row.status == "open"


async def test_model_that_does_not_answer_is_asked_again_later_each_time(store: MemoryStore) -> None:
    """After a second first, after five minutes at the longest; then the run has failed, with the last error."""
    pauses: list[float] = []
    for _ in range(MOST_ATTEMPTS):
        outcome = await resume(store, "s1", fails(PromptEvaluationError("the model is overloaded", phase="request")))
        assert isinstance(outcome, Again)
        assert run_now(store).row.due_at == store.now() + outcome.after
        pauses.append(outcome.after.total_seconds())
    assert pauses == [1, 8, 64] + [300] * (MOST_ATTEMPTS - 3)
    assert "the model is overloaded" in str(error_in(await resume(store, "s1", Desk().desk)))


async def test_poisoned_run_fails_and_says_why(store: MemoryStore, wording: Wording) -> None:
    """After attempts whose process ended before the session had anything more; a retry counts anew."""
    desk = Desk(before=dies(store))
    for number in range(1, MOST_ATTEMPTS + 1):
        await attempt(store, desk)
        assert run_now(store).data.attempts == number
    assert str(error_in(await resume(store, "s1", desk.desk))) == wording
    assert (run_now(store).row.status, len(desk.tasks)) == ("failed", MOST_ATTEMPTS)
    retry_run(store, "s1")
    await attempt(store, desk)
    assert run_now(store).data.attempts == 1


async def test_last_reason_of_a_poisoned_run_is_that_of_its_last_attempt(store: MemoryStore, wording: Wording) -> None:
    """Not that of an attempt before, and not why a worker of another version has left it."""
    overloaded = fails(PromptEvaluationError("the model is overloaded", phase="request"))
    for _ in range(MOST_ATTEMPTS - 1):
        await resume(store, "s1", overloaded, options=ResumeOptions(version="1"))
    await attempt(store, Desk(before=dies(store)), version="1")
    await resume(store, "s1", Desk().desk, options=ResumeOptions(on_change="refuse", version="2"))
    assert run_now(store).data.text == wording
    assert str(error_in(await resume(store, "s1", Desk().desk))) == wording


async def test_attempt_that_comes_further_counts_anew(store: MemoryStore) -> None:
    """A run that dies twice in each step does not fail, however many steps it has; nothing is paid twice."""
    desk, kill = Desk(replies=4 * MOST_ATTEMPTS), dies(store)
    for _ in range(MOST_ATTEMPTS + 1):
        await attempt(store, Desk(before=kill))
        seen = len(desk.paid)

        async def inside(context: ToolContext, seen: int = seen) -> None:
            if len(desk.paid) > seen:
                kill(context)

        desk.inside = inside
        await attempt(store, desk)
        assert run_now(store).data.attempts <= 2
    desk.inside = Desk().inside
    assert isinstance(await resume(store, "s1", desk.desk), Finished)
    assert len(desk.paid) == len({*desk.paid}) > MOST_ATTEMPTS


# ----------------------------------------------------------------------------------------- limits, versions, cancelling


async def test_limits_of_a_run_hold_for_each_attempt(store: MemoryStore) -> None:
    """The deadline is a time, not a span that begins anew; when it has passed, nothing runs, and the run fails."""
    moment = store.now() + timedelta(days=9_000)
    submit(store, "s2", agent="desk", input="Pay.", deadline=moment, request_limit=7)
    desk = Desk(replies=0)
    for begins in (fails(SessionLostError("lost")), desk.desk):
        await resume(store, "s2", begins)
    assert [(task.deadline and task.deadline.expires_at, task.request_limit) for task in desk.tasks] == [(moment, 7)]


async def test_run_whose_deadline_has_passed_has_failed_and_is_not_begun_again() -> None:
    """In its attempt, before it, and while it waits for an answer; nothing is asked then."""
    clock, span = FakeClock(), timedelta(days=36_000)  # the deadline of a call is of the clock of the machine
    store = MemoryStore(clock=clock)
    for name in ("late", "waits"):
        submit(store, name, agent="desk", input="Pay.", deadline=store.now() + span)

    def is_late(_: object) -> None:
        clock.advance(span)
        raise PromptEvaluationError("the deadline passed while the model was asked", phase="request")

    waits, desk = Desk(approver=later), Desk()
    assert isinstance(await resume(store, "waits", waits.desk), Waiting)
    error_in(await resume(store, "late", does(is_late)))
    assert run_now(store, "late").row.status == "failed"
    retry_run(store, "late")
    for name in ("late", "waits"):
        assert isinstance(error_in(await resume(store, name, desk.desk)), errors.AgentError)
        assert (desk.tasks, run_now(store, name).row.status) == ([], "failed")


@pytest.mark.parametrize("on_change", ["warn", "refuse"])
async def test_run_of_another_version_of_its_agent(
    store: MemoryStore, on_change: Any, caplog: pytest.LogCaptureFixture, wording: Wording
) -> None:
    """It is continued with a warning, or left to a worker that has the version which has begun it."""
    await attempt(store, Desk(before=dies(store)), version="1")
    outcome = await resume(store, "s1", Desk().desk, options=ResumeOptions(on_change=on_change, version="2"))
    if isinstance(outcome, Again):
        assert (outcome.why, on_change) == (wording, "refuse")
        assert (run_now(store).data.attempts, run_now(store).row.due_at) == (1, store.now() + outcome.after)
    else:
        assert outcome == Finished("2 paid")
        assert caplog.messages == wording


async def test_worker_that_is_stopped_gives_its_attempt_back(store: MemoryStore) -> None:
    """However often: it was not the run that came no further. The session is free at once."""
    begun = asyncio.Semaphore(0)

    async def desk(_: RunTask) -> None:
        begun.release()
        await asyncio.Event().wait()

    for _ in range(MOST_ATTEMPTS + 1):
        task = asyncio.create_task(resume(store, "s1", desk))
        await begun.acquire()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (run_now(store).row.status, run_now(store).data.attempts) == ("open", 0)
    assert await resume(store, "s1", Desk().desk) == Finished("2 paid")


async def test_run_that_a_person_cancels_meanwhile_stays_cancelled(store: MemoryStore) -> None:
    """Its answer is not recorded over what the person wants; resumed, it is cancelled."""
    desk = Desk(before=lambda _: cancel_run(store, "s1", by="Ada"))
    for _ in range(2):
        outcome = await resume(store, "s1", desk.desk)
        assert (isinstance(outcome, Failed) and outcome.is_cancelled, len(desk.tasks)) == (True, 1)
    assert (run_now(store).row.status, run_now(store).data.text) == ("cancelled", "cancelled by Ada")


NAIVE = CLOCK.now().replace(tzinfo=None)
PAST = CLOCK.now() - timedelta(days=2)


@pytest.mark.parametrize(
    "field, value",
    [
        *(("session", value) for value in ("", 7)),
        *(("agent", value) for value in (" ", None)),
        ("input", 7),
        *(("at", value) for value in (NAIVE, "soon", PAST)),
        *(("deadline", value) for value in (NAIVE, "soon", CLOCK.now())),
        *(("priority", value) for value in (True, 1.5, "9", HIGHEST_PRIORITY + 1)),
        *(("queue", value) for value in (None, "", "q" * (LONGEST_QUEUE + 1))),
        *(("request_limit", value) for value in (0, -5, 2.5, "7", True)),
        *(("tags", value) for value in ({"customer": 7}, {7: "customer"}, "customer")),
    ],
    ids=str,
)
@pytest.mark.short(12)
def test_what_no_run_can_have_is_refused_when_it_is_submitted(store: MemoryStore, field: str, value: Any) -> None:
    """And not by a worker far away; nothing is written."""
    arguments: dict[str, Any] = {"session": "s2", "agent": "desk", "input": "Pay.", field: value}
    with pytest.raises(errors.InvalidArgumentError):
        submit(store, **arguments)
    assert [row.session_id for row in store.sessions()] == ["s1"]


def test_time_that_has_passed_meanwhile_does_not_refuse_a_run_that_is_submitted_again(store: MemoryStore) -> None:
    """It is the same run; and one that is to begin now is a little late always."""
    now = CLOCK.now()
    times: dict[str, Any] = {"at": now - HEARTBEAT, "deadline": now + HEARTBEAT}
    run = submit(store, "s2", agent="desk", input="Pay.", **times)
    CLOCK.advance(timedelta(days=2))
    assert submit(store, "s2", agent="desk", input="Pay.", **times) == run


# --------------------------------------------------------------------------------------------------- what is not begun


async def test_run_is_carried_out_by_its_agent_alone(store: MemoryStore, wording: Wording) -> None:
    """Another one, or what is not an agent, leaves it as it is."""
    before = run_now(store)

    async def clerk(_: RunTask) -> None:
        raise AssertionError

    assert str(error_in(await resume(store, "s1", clerk))) == wording
    name: Any = "desk"
    with pytest.raises(errors.InvalidArgumentError):
        await resume(store, "s1", name)
    assert run_now(store) == before


async def test_run_is_not_begun_before_its_time(store: MemoryStore) -> None:
    """`Again`, with the time that is left; also with `evict`."""
    submit(store, "s2", agent="desk", input="Pay.", at=store.now() + HEARTBEAT)
    for evict in (False, True):
        outcome = await resume(store, "s2", Desk().desk, evict=evict)
        assert isinstance(outcome, Again)
        assert outcome.after == HEARTBEAT
    CLOCK.advance(HEARTBEAT)
    assert await resume(store, "s2", Desk().desk) == Finished("2 paid")


@pytest.mark.parametrize("field, value", [("on_change", "continue"), ("heartbeat", timedelta(0))])
def test_options_are_checked_when_they_are_made(field: str, value: Any) -> None:
    """Not in a worker that never beats."""
    assert refusal(errors.InvalidArgumentError, ResumeOptions, **{field: value}).argument == field


async def test_worker_whose_loop_is_blocked_loses_the_run(caplog: pytest.LogCaptureFixture, wording: Wording) -> None:
    """It is given `MOST_UNANSWERED` heartbeats; what it writes then is refused."""
    store, other, answers = MemoryStore(), Desk(), list[RunOutcome]()
    options = ResumeOptions(heartbeat=timedelta(seconds=0.03))
    submit(store, "s1", agent="desk", input="Pay.")

    def block(_: object) -> None:
        while not caplog.messages or run_now(store).row.due_at > store.now():
            threading.Event().wait(0.01)
        taking = threading.Thread(target=lambda: answers.append(asyncio.run(resume(store, "s1", other.desk))))
        taking.start()
        taking.join()

    assert isinstance(await resume(store, "s1", does(block), options=options), Again)
    assert (answers, run_now(store).data.text) == ([Finished("2 paid")], "2 paid")
    assert caplog.messages == wording
