"""A process is killed in the middle of a run, and another one resumes it; a run applies settled effects first."""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import ModelMessage, ModelResponse
from pydantic_ai.models.function import AgentInfo

from handrail import store
from handrail.adapters.hooks import SentBack
from handrail.agents import Answer, RunEvent
from handrail.crash_points import POINTS
from handrail.errors import AgentError
from handrail.prompt import CompletionContext
from handrail.runtime import EffectLedger
from handrail.runtime.ledger.effects import EffectResult
from handrail.session import Session
from handrail.session.conversation import ConversationPart
from tests.agents.kit import refusal, write
from tests.agents.stored_desks import IN_CHECK, UNKNOWN, Asked, Clerk, Desk, Doomed, Reader, Replies, desk_in
from tests.extent import step
from tests.store.postgres_server import fresh_url
from tests.wording import Wording

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
    "d1": "noted a",
    "d2": "charged tea",
    "d3": "billed bun",
    "d4": "Helped.",
    "d5": "noted b",
    "h1": "noted c",
    "h2": "charged egg",
}
"""What the model is told where nothing went wrong."""


CALL_POINTS = [point for point in POINTS if not point.startswith(("unit-", "journal-", "participant-", "after-apply"))]
"""The points that each call comes to."""


@pytest.fixture(scope="session")
def doomed() -> Doomed:
    """Where the processes that die come from."""
    return Doomed()


def told(reader: Reader) -> dict[str, str]:
    """What models were told of each call in the end."""
    found: dict[str, str] = {}
    for agent, replies in REPLIES.items():
        texts = [texts for name, texts in reader.seen if name == agent and texts]
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
    asked = [
        Asked("d1", "sign", {"text": "a"}),
        Asked("d2", "stamp", {"text": "b"}),
        Asked("d3", "pay", {"order": "tea"}),
    ]
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


_AGENT = """---
name: desk
description: The desk.
tools: [pay]
---
I am desk
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
    desk = Desk(
        write(
            tmp_path,
            {
                "tools.py": _TOOLS,
                "desk.agent": _AGENT,
                "approval.yaml": "allow: [pay]\n",
                "pyproject.toml": '[tool.handrail]\napproval = "approval.yaml"\n',
            },
        ),
        f"sqlite:///{tmp_path / 'desk.db'}",
    )
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
