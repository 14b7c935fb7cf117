"""Runs that are gone on with: after a kill, an interruption, a question left open, in a fork; settled effects first."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Generator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import ModelMessage, ModelRequestPart, ModelResponse, ModelResponsePart
from pydantic_ai.models.function import AgentInfo

from handrail import store
from handrail.adapters.hooks import SentBack
from handrail.adapters.pydantic_ai.conversation import StoredHistory
from handrail.agents import Answer, GatedCall, RunEnded, RunEvent, RunOptions, RunResult, RunStarted, TextDelta
from handrail.crash_points import POINTS
from handrail.errors import AgentError, StoreClosedError
from handrail.prompt import CompletionContext
from handrail.runtime import EffectLedger, ToolInvoked
from handrail.runtime.ledger.effects import EffectResult
from handrail.session import Session
from handrail.session.conversation import ConversationPart
from tests.agents.kit import agent, refusal, write
from tests.agents.stored_desks import IN_CHECK, UNKNOWN, Asked, Clerk, Desk, Doomed, Reader, Replies, desk_in
from tests.extent import step
from tests.store.postgres_server import fresh_url
from tests.wording import Wording

pytestmark = pytest.mark.anyio

OWN_WORK = [
    Asked("d1", "note", {"text": "a"}),
    Asked("d2", "charge", {"order": "tea"}),
    Asked("d3", "bill", {"order": "bun"}),
]


HELP = [Asked("d4", "helper", {"input": "Help."}), Asked("d5", "note", {"text": "b"})]


REPLIES: Replies = {
    "desk": [OWN_WORK, HELP, "Done."],
    "helper": [[Asked("h1", "note", {"text": "c"}), Asked("h2", "charge", {"order": "egg"})], "Helped."],
}


OUTSIDE = {"d2": "tea", "d3": "bun", "h2": "egg"}
"""The calls that change the world, and what they leave there."""


TOLD = {
    "d1": "noted a", "d2": "charged tea", "d3": "billed bun", "d4": "Helped.", "d5": "noted b", "h1": "noted c",
    "h2": "charged egg",
}  # fmt: skip
"""What the model is told where nothing went wrong."""


CALL_POINTS = [
    point for point in POINTS if not point.startswith(("unit-", "journal-", "participant-", "undo-", "after-apply"))
]
"""The points that each call comes to."""


@pytest.fixture(scope="session")
def doomed() -> Doomed:
    """Where the processes that die come from."""
    return Doomed()


def told(reader: Reader) -> dict[str, str]:
    """What models were told of each call in the end."""
    found: dict[str, str] = {}
    for speaker, replies in REPLIES.items():
        texts = [texts for name, texts in reader.seen if name == speaker and texts]
        asked = [[call.id for call in reply] for reply in replies if not isinstance(reply, str)]
        for ids, its in zip(reversed(asked), reversed(texts), strict=False):
            found |= dict(zip(ids, its, strict=True))
    return found


def assert_whole(desk: Desk, reader: Reader, before: list[str]) -> None:
    """The run has come to its end, with each call done once, or told to be unknown."""
    assert sorted(desk.notes()) == ["a", "b"]
    assert desk.notes(desk.child("d4")) == ["c"]
    assert len(desk.world) == len(set(desk.world))
    for id_, text in told(reader).items():
        if UNKNOWN in text:
            assert (OUTSIDE[id_] in desk.world) == (OUTSIDE[id_] in before)
        else:
            assert text == TOLD[id_]
            assert id_ not in OUTSIDE or OUTSIDE[id_] in desk.world
    for session_id, wanted in (("s", {"d1", "d2", "d3", "d4", "d5"}), (desk.child("d4"), {"h1", "h2"})):
        recorded = [call_id for call_id, _ in desk.calls(session_id)]
        assert sorted(recorded) == sorted(wanted)


@pytest.mark.parametrize("point", CALL_POINTS)
@pytest.mark.short(1)
def test_a_run_that_was_killed_in_a_call_is_finished_by_another_process(
    point: str, doomed: Doomed, tmp_path: Path
) -> None:
    """Whichever call it is, nested ones too: what was recorded is not done again, and the model gets every answer."""
    for nth in count(1, step(3)):
        desk = desk_in(tmp_path / str(nth))
        if not doomed.run(desk, REPLIES, "Do it.", point, nth):
            assert nth > 1
            assert sorted(desk.world) == sorted(OUTSIDE.values())
            break
        before = desk.world
        reader = Reader(REPLIES)
        assert desk.run(reader).output == "Done."
        assert_whole(desk, reader, before)


@pytest.mark.parametrize("point", ["unit-before-commit", "unit-after-commit"])
@pytest.mark.short(1)
def test_a_run_that_was_killed_in_a_unit_of_work_is_finished_by_another_process(
    point: str, doomed: Doomed, tmp_path: Path
) -> None:
    """Replies, calls and ledger rows are there as a whole, or not at all."""
    for nth in count(1, step(4)):
        desk = desk_in(tmp_path / str(nth))
        if not doomed.run(desk, REPLIES, "Do it.", point, nth):
            assert nth > 10
            break
        before = desk.world
        reader = Reader(REPLIES)
        said = desk.values(ConversationPart)
        assert said or not before
        if said and "Done." in json.dumps(said[-1].messages):
            continue  # it was killed with nothing left to do
        assert desk.run(reader, None if said else "Do it.").output == "Done."
        assert_whole(desk, reader, before)


@pytest.mark.short(0)
def test_a_run_that_was_killed_twice_is_finished_by_a_third_process(doomed: Doomed, tmp_path: Path) -> None:
    """A resumed run can be resumed as well."""
    desk = desk_in(tmp_path)
    assert doomed.run(desk, REPLIES, "Do it.", "after-record", 2)
    assert doomed.run(desk, REPLIES, None, "after-record", 2)
    before = desk.world
    reader = Reader(REPLIES)
    assert desk.run(reader).output == "Done."
    assert_whole(desk, reader, before)


def test_a_kill_between_the_end_of_an_agent_and_its_record_asks_that_agent_nothing_again(
    doomed: Doomed, tmp_path: Path
) -> None:
    """Its answer is in its own session; no model of it is asked a second time."""
    desk = desk_in(tmp_path)
    replies: Replies = {"desk": [HELP[:1], "Done."], "helper": ["Helped."]}
    assert doomed.run(desk, replies, "Do it.", "after-handler")
    assert desk.calls() == []
    reader = Reader({"desk": replies["desk"], "helper": []})
    assert desk.run(reader).output == "Done."
    assert reader.seen == [("desk", ["Helped."])]
    assert desk.calls() == [("d4", True)]


@pytest.mark.short(0)
def test_a_kill_in_postgresql_is_as_harmless(doomed: Doomed, tmp_path: Path) -> None:
    """The other store keeps the same promise."""
    with fresh_url() as url:
        for number, point in enumerate(("after-handler", "after-commit")):
            desk = desk_in(tmp_path / str(number), url)
            assert doomed.run(desk, REPLIES, "Do it.", point, 5, session_id=f"s{number}")
            before = desk.world
            reader = Reader(REPLIES)
            assert desk.run(reader, session_id=f"s{number}").output == "Done."
            assert sorted(desk.notes(f"s{number}")) == ["a", "b"]
            assert len(set(desk.world)) == len(desk.world)
            assert set(desk.world) >= set(before)


def test_what_a_person_said_before_the_kill_is_not_asked_again(doomed: Doomed, tmp_path: Path) -> None:
    """Neither for the call that was recorded, nor for those that were only approved."""
    desk = desk_in(tmp_path)
    asked = [Asked("d1", "sign", {"text": "a"}), Asked("d2", "stamp", {"text": "b"})]
    asked.append(Asked("d3", "pay", {"order": "tea"}))
    replies: Replies = {"desk": [asked, "Done."]}
    assert doomed.run(desk, replies, "Do it.", "after-record")
    assert desk.calls() == [("d1", True)]
    clerk = Clerk({"stamp": Answer("yes")})
    reader = Reader(replies)
    assert desk.run(reader, asker=clerk).output == "Done."
    assert clerk.ids == ["d2"]
    assert reader.seen == [("desk", ["noted a", "noted b", "charged tea"])]
    assert (sorted(desk.notes()), desk.world) == (["a", "b"], ["tea"])


def test_an_answer_whose_check_was_killed_is_checked_by_another_process(
    doomed: Doomed, tmp_path: Path, wording: Wording
) -> None:
    """The model is sent back, or it is not asked again; then the run has ended, also for a run without a check."""
    replies: Replies = {"desk": ["Done.", "Done now."]}
    given: list[object] = []

    def check(context: CompletionContext) -> str | None:
        given.append(context.answer)
        return "The note is missing." if context.answer == "Done." else None

    def accept(context: CompletionContext) -> None:
        given.append(context.answer)

    sent_back, accepted, unchecked = (desk_in(tmp_path / name) for name in ("a", "b", "c"))
    for desk in (sent_back, accepted, unchecked):
        assert doomed.run(desk, replies, "Do it.", IN_CHECK)
        with refusal(AgentError, wording):
            desk.run(Reader(replies), "Something else.")
    assert sent_back.run(Reader(replies), completion=check).output == "Done now."
    assert [each.missing for each in sent_back.values(SentBack)] == [("The note is missing.",), ()]
    never = Reader(replies, breaks=("desk", 1))
    assert accepted.run(never, completion=accept).output == "Done."
    assert unchecked.run(never).output == "Done."
    assert (given, accepted.values(SentBack)) == (["Done.", "Done now.", "Done."], [])
    for desk in (sent_back, accepted, unchecked):
        with refusal(AgentError, wording):
            desk.run(Reader(replies))


_TOOLS = """
from pathlib import Path
from handrail import tool
from handrail.prompt import External, ToolContext, ToolResult
BOOKED = Path(__file__).parent / "world"
def book(params, result: ToolResult[str], *, context: ToolContext) -> None:
    BOOKED.write_text(f"{params.order}-{result.value}")
@tool(effect=External(apply=book))
def pay(order: str) -> str:
    "Pays."
    raise TimeoutError
TOOLS = [pay]
"""


class _Watching(Reader):
    """A reader that notes what had been booked when it was asked."""

    def __init__(self, replies: Replies, desk: Desk) -> None:
        super().__init__(replies)
        self.desk = desk
        self.booked: list[list[str]] = []

    def _reply(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        self.booked.append(self.desk.world)
        return super()._reply(messages, info)


@pytest.mark.parametrize("listens", [False, True])
def test_a_result_that_a_person_has_found_is_applied_before_the_model_is_asked(tmp_path: Path, listens: bool) -> None:
    """The next run of the session has it; nothing is left open, and the tool does not run again."""
    desk = desk_in(tmp_path)
    rules = "allow: [pay]\n"
    write(tmp_path, {"tools.py": _TOOLS, "desk.agent": agent("desk", tools="[pay]"), "approval.yaml": rules})
    replies: Replies = {"desk": [[Asked("p1", "pay", {"order": "lamp"})], "One.", "Two."]}
    events: list[RunEvent] = []
    options: dict[str, Any] = {"listener": events.append} if listens else {}
    assert desk.run(Reader(replies), "Pay.", **options).output == "One."
    with store.open(desk.url) as kept:
        (row,) = kept.rows()
        assert EffectLedger(kept).resolve(row, EffectResult("paid", b'"receipt"'))
    assert desk.world == []
    watching = _Watching(replies, desk)
    assert desk.run(watching, "And now?", **options).output == "Two."
    assert (desk.world, watching.booked) == (["lamp-receipt"], [["lamp-receipt"]])
    with store.open(desk.url) as kept, Session.open(kept, "s") as session:
        assert session.open_calls == ()


AT_ONCE = timedelta(0)
NOTE = Asked("d1", "note", {"text": "a"})
ASK_HELP = Asked("d1", "helper", {"input": "Help."})
NESTED: Replies = {"desk": [[ASK_HELP], "Done."], "helper": [[Asked("h1", "note", {"text": "b"})], "Helped."]}


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


def test_an_input_is_refused_while_a_run_is_unfinished(desk: Desk, wording: Wording) -> None:
    """It would come between calls and their answers; nothing is run, and the run can still be gone on with."""
    replies: Replies = {"desk": [[Asked("d1", "pay", {"order": "tea"})], "Done."]}
    desk.run(Reader(replies), "Do it.", asker=Clerk({"pay": Answer("later")}))
    reader = Reader(replies)
    with refusal(AgentError, wording):
        desk.run(reader, "And that.")
    assert reader.seen == []
    assert desk.run(reader, asker=Clerk({"pay": Answer("yes")})).output == "Done."


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
    """It can be opened at once; the run goes on, and so does the nested one, where it was."""
    with pytest.raises(KeyboardInterrupt):
        desk.run(Reader(NESTED, breaks=("helper", 1), error=KeyboardInterrupt()), "Do it.")
    with opened(desk, desk.child("d1")) as session:
        assert StoredHistory(session, "helper").unfinished
    reader = Reader(NESTED)
    assert desk.run(reader).output == "Done."
    assert reader.seen == [("helper", ["noted b"]), ("desk", ["Helped."])]
    assert desk.notes(desk.child("d1")) == ["b"]


async def test_nobody_holds_a_nested_session_after_a_cancellation(desk: Desk) -> None:
    """Also when a person was being asked: nothing has run, and the run that goes on asks again."""
    replies: Replies = {"desk": [[ASK_HELP], "Done."], "helper": [[Asked("h1", "pay", {"order": "tea"})], "Helped."]}
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


def test_a_fork_repeats_no_effect_of_its_origin(desk: Desk) -> None:
    """A key that the origin has used since is a hit, also under another call, and of an agent that it calls again."""
    asked = [NOTE, Asked("d2", "bill", {"order": "tea"}), Asked("d3", "helper", {"input": "Bill cake."})]
    helper: list[Sequence[Asked] | str] = [[Asked("h1", "bill", {"order": "cake"})], "Billed."]
    desk.run(Reader({"desk": [asked, "Done."], "helper": helper}), "Do it.")
    assert desk.world == ["tea", "cake"]
    with opened(desk) as session:
        reply = next(record.reply for record in session[ToolInvoked] if record.call_id == "d1")
        session.fork(session_id="fork", at=(reply, "d1")).close()
    again: Replies = {"desk": [asked, [Asked("e1", "bill", {"order": "tea"})], "Done."], "helper": helper}
    assert desk.run(Reader(again), session_id="fork").output == "Done."
    assert desk.world == ["tea", "cake"]
    assert [call_id for call_id, _ in desk.calls("fork")] == ["d1", "d2", "d3", "e1"]


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
    first, *_ = heard
    assert isinstance(first, RunStarted)
    assert first.resumed
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

    then = [Asked("d2", "pay", {"order": "tea"}), Asked("d3", "note", {"text": "b"})]
    replies: Replies = {"desk": [[NOTE], then, "Done."]}
    reader = Reader(replies)
    heard: list[object] = []
    session = Session.open(kept_in, "s")
    options = RunOptions(session=session, model=reader.model(), asker=leave, listener=heard.append)
    with pytest.raises(StoreClosedError):
        desk.agent().run("Do it.", options)
    assert [event.status for event in heard[-1:] if isinstance(event, RunEnded)] == ["failed"]
    assert (desk.world, desk.notes()) == ([], ["a"])
    assert desk.run(Reader(replies), asker=Clerk({"pay": Answer("yes")})).output == "Done."
    assert (desk.world, desk.notes()) == (["tea"], ["a", "b"])
