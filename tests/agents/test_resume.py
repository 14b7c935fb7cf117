"""Going on: with a finished conversation, with an interrupted run, in a fork; and when that cannot be done."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from pydantic_ai import ModelRequestPart, ModelResponsePart, Tool

from handrail import store
from handrail.adapters.pydantic_ai.conversation import StoredHistory
from handrail.agents import Answer, GatedCall, RunEnded, RunEvent, RunOptions, RunResult, RunStarted, TextDelta
from handrail.errors import AgentError, PromptEvaluationError, StoreClosedError
from handrail.runtime import ToolInvoked
from handrail.session import Session
from handrail.testing import Call, Reply
from tests.agents.kit import DONE, play, refusal
from tests.agents.kit import desk as desk_of
from tests.agents.stored_desks import Asked, Clerk, Desk, Reader, Replies, desk_in
from tests.architecture.sources import ROOT
from tests.wording import Wording

pytestmark = pytest.mark.anyio

AT_ONCE = timedelta(0)
NOTE = Asked("d1", "note", {"text": "a"})
HELP = Asked("d1", "helper", {"input": "Help."})
NESTED: Replies = {"desk": [[HELP], "Done."], "helper": [[Asked("h1", "note", {"text": "b"})], "Helped."]}


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """A desk with a store of its own."""
    return desk_in(tmp_path)


@contextmanager
def opened(desk: Desk, session_id: str = "s") -> Generator[Session]:
    """A session of a desk, which must not be held by anybody."""
    with store.open(desk.url) as kept_in, Session.open(kept_in, session_id, wait=AT_ONCE) as session:
        yield session


def parts_of(result: RunResult) -> list[ModelRequestPart | ModelResponsePart]:
    """All parts of the conversation of a run."""
    return [part for message in result.messages for part in message.parts]


def elsewhere(desk: Desk, session_id: str) -> str:
    """What another process says that opens a session at once."""
    code = (
        "import sys; from datetime import timedelta; from handrail import agents, store\n"
        "from handrail.runtime import Session; from tests.agents.stored_desks import Note\n"
        "with store.open(sys.argv[1]) as kept_in, Session.open(kept_in, sys.argv[2], create=False, "
        "types=[Note], wait=timedelta(0)): print('opened')"
    )
    command = [sys.executable, "-c", code, desk.url, session_id]
    return subprocess.run(command, check=False, capture_output=True, text=True, cwd=ROOT).stdout.strip()


def test_an_input_is_refused_while_a_run_is_unfinished(desk: Desk, wording: Wording) -> None:
    """It would come between calls and their answers; nothing is run, and the run can still be gone on with."""
    replies: Replies = {"desk": [[Asked("d1", "pay", {"order": "tea"})], "Done."]}
    desk.run(Reader(replies), "Do it.", asker=Clerk({"pay": Answer("later")}))
    reader = Reader(replies)
    with refusal(AgentError, wording):
        desk.run(reader, "And that.")
    assert reader.seen == []
    assert desk.run(reader, asker=Clerk({"pay": Answer("yes")})).output == "Done."


@pytest.mark.parametrize("finished", [True, False])
def test_no_input_is_refused_where_there_is_nothing_to_go_on_with(finished: bool, desk: Desk, wording: Wording) -> None:
    """Neither in a new session, nor after the end of a run."""
    replies: Replies = {"desk": ["Done."]}
    if finished:
        desk.run(Reader(replies), "Do it.")
    with refusal(AgentError, wording):
        desk.run(Reader(replies))


def test_a_session_of_another_agent_is_refused(desk: Desk, wording: Wording) -> None:
    """Each agent has a session of its own."""
    desk.run(Reader({"desk": ["Done."]}), "Do it.")
    with refusal(AgentError, wording):
        desk.run(Reader({"helper": ["Done."]}), "Do it.", agent="helper")


def test_a_nested_session_that_is_open_elsewhere_is_told_to_the_model(desk: Desk) -> None:
    """The call fails, and nothing of the nested agent has run."""
    with pytest.raises(KeyboardInterrupt):
        desk.run(Reader(NESTED, breaks=("helper", 0), error=KeyboardInterrupt()), "Do it.")
    reader = Reader(NESTED)
    with opened(desk, desk.child("d1")), opened(desk) as session:
        assert desk.agent().run(options=RunOptions(session=session, model=reader.model())).output == "Done."
    assert "SessionLockedError" in reader.seen[-1][1][0]
    assert (desk.calls(), desk.notes(desk.child("d1"))) == ([("d1", False)] * 2, [])


@pytest.mark.parametrize("replied", [0, 1])
def test_a_run_whose_provider_failed_is_gone_on_with(replied: int, desk: Desk, wording: Wording) -> None:
    """The calls before are answered from the record; before the first reply the question is sent again."""
    replies: Replies = {"desk": [[NOTE], "Done."]}
    with refusal(RuntimeError, wording):
        desk.run(Reader(replies, breaks=("desk", replied)), "Do it.")
    reader = Reader(replies)
    assert desk.run(reader).output == "Done."
    assert (desk.notes(), desk.calls(), reader.seen[-1]) == (["a"], [("d1", True)], ("desk", ["noted a"]))


def test_a_nested_agent_whose_provider_failed_is_told_to_the_model(desk: Desk, wording: Wording) -> None:
    """The caller's model goes on; the session of the nested agent is free at once, and says how far it came."""
    reader = Reader(NESTED, breaks=("helper", 1))
    assert desk.run(reader, "Do it.").output == "Done."
    assert reader.seen[-1][1][0] == wording
    assert desk.calls() == [("d1", False)]
    with opened(desk, desk.child("d1")) as session:
        assert StoredHistory(session, "helper").unfinished


@pytest.mark.short(0)
def test_nobody_holds_a_nested_session_after_an_interruption(desk: Desk) -> None:
    """It can be opened at once, here and elsewhere; the run goes on, and so does the nested one, where it was."""
    with pytest.raises(KeyboardInterrupt):
        desk.run(Reader(NESTED, breaks=("helper", 1), error=KeyboardInterrupt()), "Do it.")
    with opened(desk, desk.child("d1")) as session:
        assert StoredHistory(session, "helper").unfinished
    assert elsewhere(desk, desk.child("d1")) == "opened"
    reader = Reader(NESTED)
    assert desk.run(reader).output == "Done."
    assert reader.seen == [("helper", ["noted b"]), ("desk", ["Helped."])]
    assert desk.notes(desk.child("d1")) == ["b"]


async def test_nobody_holds_a_nested_session_after_a_cancellation(desk: Desk) -> None:
    """Also when a person was being asked: nothing has run, and the run that goes on asks again."""
    replies: Replies = {"desk": [[HELP], "Done."], "helper": [[Asked("h1", "pay", {"order": "tea"})], "Helped."]}
    asked = asyncio.Event()

    async def think(_call: GatedCall) -> Answer:
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError  # pragma: no cover - nobody sets the event

    with opened(desk) as session:
        options = RunOptions(session=session, model=Reader(replies).model(), asker=think)
        run = asyncio.create_task(desk.agent().run_async("Do it.", options))
        await asked.wait()
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        with opened(desk, desk.child("d1")):
            pass
        reader, clerk = Reader(replies), Clerk({"pay": Answer("no")})
        options = RunOptions(session=session, model=reader.model(), asker=clerk)
        assert (await desk.agent().run_async(None, options)).output == "Done."
    assert clerk.ids == ["h1"]
    assert reader.seen[-1] == ("desk", ["Helped."])
    assert desk.world == []


@pytest.mark.parametrize("stored", [True, False])
@pytest.mark.parametrize("other", ["desk", "helper"])
@pytest.mark.short(1)
async def test_a_run_beside_another_on_one_session_is_refused(
    desk: Desk, other: str, stored: bool, wording: Wording
) -> None:
    """Nothing would distinguish their messages. The first one ends as if it were alone, and then the next may begin."""
    begun, end = asyncio.Event(), asyncio.Event()

    async def wait(_call: GatedCall) -> Answer:
        begun.set()
        await end.wait()
        return Answer("yes")

    replies: Replies = {"desk": [[Asked("call_0", "pay", {"order": "tea"})], "Paid.", "Two."]}
    with opened(desk) if stored else nullcontext(Session(session_id="s")) as session:
        options = RunOptions(session=session, model=Reader(replies).model(), asker=wait)
        first = asyncio.create_task(desk.agent().run_async("Tea.", options))
        await begun.wait()
        second = Reader({other: ["Refused."]})
        with refusal(AgentError, wording):
            await desk.agent(other).run_async("Coffee.", replace(options, model=second.model()))
        end.set()
        assert (await first).output == "Paid."
        result = await desk.agent().run_async("More.", options)
    assert second.seen == []
    assert [part.content for part in parts_of(result) if part.part_kind == "user-prompt"] == ["Tea.", "More."]
    assert desk.world == ["tea"]


def test_a_fork_goes_on_from_the_call_that_it_was_made_at(desk: Desk) -> None:
    """That call is answered from the record, those after it are carried out anew; the first session is as it was."""
    both = [NOTE, Asked("d2", "note", {"text": "b"})]
    replies: Replies = {"desk": [both, "Done."]}
    desk.run(Reader(replies), "Do it.")
    with opened(desk) as session:
        reply = next(record.reply for record in session[ToolInvoked] if record.call_id == "d1")
        session.fork(session_id="fork", at=(reply, "d1")).close()
    assert desk.notes("fork") == ["a"]
    reader = Reader(replies)
    assert desk.run(reader, session_id="fork").output == "Done."
    assert reader.seen == [("desk", ["noted a", "noted b"])]
    assert (desk.notes("fork"), desk.calls("fork")) == (["a", "b"], [("d1", True), ("d2", True)])
    assert desk.calls() == [("d1", True), ("d2", True)]


def test_a_resumed_run_says_so(desk: Desk) -> None:
    """In its first event; nested runs too."""
    replies: Replies = {"desk": [[HELP], "Done."], "helper": [[Asked("h1", "pay", {"order": "tea"})], "Helped."]}
    desk.run(Reader(replies), "Do it.", asker=Clerk({"pay": Answer("later")}))
    heard: list[RunEvent] = []
    desk.run(Reader(replies), asker=Clerk({"pay": Answer("yes")}), listener=heard.append)
    started = [(event.path, event.resumed) for event in heard if isinstance(event, RunStarted)]
    assert started == [(("desk",), True), (("desk", "helper"), True)]


@pytest.mark.parametrize("tool", ["sign", "stamp", "guard"])
@pytest.mark.short(1)
def test_a_call_that_is_recorded_is_not_asked_about(tool: str, desk: Desk, wording: Wording) -> None:
    """What was carried out in the mode `approve-all` is answered from the record, whoever is there when it goes on."""
    replies: Replies = {"desk": [[Asked("d1", tool, {"text": "a"})], "Done."]}
    with refusal(RuntimeError, wording):
        desk.run(Reader(replies, breaks=("desk", 1)), "Do it.", mode="approve-all")
    heard: list[RunEvent] = []
    reader = Reader(replies)
    assert desk.run(reader, listener=heard.append).output == "Done."
    assert reader.seen == [("desk", ["noted a"])]
    assert [type(event) for event in heard if not isinstance(event, TextDelta)] == [RunStarted, RunEnded]


def test_calls_that_were_refused_before_are_answered_from_the_record(desk: Desk, wording: Wording) -> None:
    """An unknown name and wrong arguments; the record has one of each."""
    replies: Replies = {"desk": [[Asked("d1", "nothing", {}), Asked("d2", "note", {"txt": 1})], "Done."]}
    with refusal(RuntimeError, wording):
        desk.run(Reader(replies, breaks=("desk", 1)), "Do it.")
    assert sorted(desk.calls()) == [("d1", False), ("d2", False)]
    reader = Reader(replies)
    assert desk.run(reader).output == "Done."
    unknown, misfit = reader.seen[0][1]
    assert "nothing" in unknown
    assert "text" in misfit
    assert sorted(desk.calls()) == [("d1", False), ("d2", False)]


def test_no_call_is_carried_out_once_the_store_has_gone(desk: Desk) -> None:
    """The program that closed it is told so, and what was kept before can be gone on with."""
    kept_in = store.open(desk.url)

    def leave(_call: GatedCall) -> Answer:
        kept_in.close()
        return Answer("yes")

    replies: Replies = {
        "desk": [[NOTE], [Asked("d2", "pay", {"order": "tea"}), Asked("d3", "note", {"text": "b"})], "Done."]
    }
    reader = Reader(replies)
    heard: list[object] = []
    session = Session.open(kept_in, "s")
    options = RunOptions(session=session, model=reader.model(), asker=leave, listener=heard.append)
    with pytest.raises(StoreClosedError):
        desk.agent().run("Do it.", options)
    assert [(type(event), event.status) for event in heard[-1:] if isinstance(event, RunEnded)] == [
        (RunEnded, "failed")
    ]
    assert (desk.world, desk.notes()) == ([], ["a"])
    assert desk.run(Reader(replies), asker=Clerk({"pay": Answer("yes")})).output == "Done."
    assert (desk.world, desk.notes()) == (["tea"], ["a", "b"])


async def test_a_run_in_memory_is_gone_on_with_in_the_same_process(tmp_path: Path) -> None:
    """As long as the session lives."""
    session = Session()
    ran: list[str] = []

    def jot(text: str) -> str:
        ran.append(text)
        return "jotted"

    agent = desk_of(tmp_path, tools=[Tool(jot)])
    with pytest.raises(PromptEvaluationError):
        await play(agent, [Reply(calls=[Call("jot", {"text": "a"}, id="c1")])], session=session, request_limit=1)
    result = await agent.run_async(None, RunOptions(session=session, model=Reader({"desk": [[], "Done."]}).model()))
    assert (result.output, ran) == ("Done.", ["a"])
    assert (await play(agent, [DONE], "Again.", session=session)).output == "Done."
