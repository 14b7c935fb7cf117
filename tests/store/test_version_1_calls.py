"""Calls and runs of agents over stores that were written while the tables had version 1.

The files are in `tests/store/version_1/`; `write.py` beside them says what they contain.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Literal

import pytest

import handrail.store
from handrail.agents import Answer
from handrail.agents.approval.records import ApprovalRecord, load_decisions, load_grants, open_questions
from handrail.errors import CallIdReusedError
from handrail.runtime import Session, ToolCall
from handrail.store import Store
from tests.agents.stored_desks import Asked, Clerk, Desk, Reader, Replies
from tests.store.conftest import VERSION_1
from tests.store.version_1.desk import Note, Receipt, desk_tools, executor
from tests.wording import Wording

RICH = {"number": "A-1", "cents": 500, "day": "2024-03-04", "extras": ["ribbon", "card"]}
PAID = {"number": "A-1", "cents": 500}
LOST = {"number": "A-3", "cents": 900}
SHIPPED = {"number": "A-7", "cents": 100}
KILLED = {"number": "A-8", "cents": 100}


@pytest.fixture
def agents(version_1_url: str, tmp_path: Path) -> Desk:
    """The agents whose runs are in the store, with a world in which nothing has been done yet."""
    return Desk(Path(shutil.copytree(VERSION_1 / "agents", tmp_path / "agents")), version_1_url)


@pytest.mark.parametrize(
    "session_id, call, expected",
    [
        pytest.param("desk", ToolCall("call-30", "mail", PAID), "replayed", id="key, done"),
        pytest.param("desk-b", ToolCall("call-30", "mail", PAID), "run", id="key of another session, done"),
        pytest.param("desk-b", ToolCall("call-30", "refund", PAID), "replayed", id="shared key, done"),
        pytest.param("desk", ToolCall("call-22", "mail", KILLED), "refused", id="key, running"),
        pytest.param("desk", ToolCall("call-23", "refund", KILLED), "run", id="shared key, running, retry"),
    ],
)
def test_an_external_call_is_answered_from_its_effect(
    session_id: str,
    call: ToolCall,
    expected: Literal["replayed", "refused", "run"],
    version_1: Store,
    wording: Wording,
) -> None:
    """The handler runs only for an effect that is not there, or whose tool says that it may run again."""
    world: list[str] = []
    with Session.open(version_1, session_id) as session:
        message = executor(session, *desk_tools(world)).execute(call, reply="again")
    assert (message.success, message.replayed) == (expected != "refused", expected == "replayed")
    assert len(world) == (expected == "run")
    if message.success:
        assert isinstance(message.result.value, Receipt)
    else:
        assert message.content == wording


@pytest.mark.parametrize(
    "session_id, expected",
    [
        (
            "desk",
            {
                ("call-20", "unapplied"),
                ("call-6", "unknown"),
                ("call-9", "unknown"),
                *((f"call-{number}", "running") for number in (21, 22, 23)),
            },
        ),
        ("monday", {("call-5", "postponed"), ("call-6", "unrecorded")}),
        ("monday/call-6", {("call-7", "unrecorded")}),
        ("tuesday", {("call-2", "running")}),
        ("sunday", set[tuple[str, str]]()),
        ("desk-b", set[tuple[str, str]]()),
    ],
)
def test_open_calls_are_listed_once(session_id: str, expected: set[tuple[str, str]], version_1: Store) -> None:
    """Claims, approvals and conversations of version 1 name calls without a reply, and are brought together."""
    with Session.open(version_1, session_id) as session:
        found = [(each.call.call_id, each.state) for each in session.open_calls]
    assert (set(found), len(found)) == (expected, len(expected))


def test_a_call_without_a_reply_cannot_be_told_from_a_recorded_one(version_1: Store) -> None:
    """Its id has a final record."""
    with Session.open(version_1, "desk") as session, pytest.raises(CallIdReusedError) as refused:
        executor(session, *desk_tools([])).execute(ToolCall("call-4", "charge", PAID))
    assert (refused.value.call_id, refused.value.tool) == ("call-4", "charge")


def test_open_questions_and_answers_stay(version_1: Store) -> None:
    """Those of an agent that was called are in the session of its caller."""
    with Session.open(version_1, "monday", create=False) as session:
        assert [record.verdict for record in session[ApprovalRecord]] == ["allow", "deny", "later", "later"]
        own, nested = open_questions(session)
        yes, no = load_decisions(session).values()
        (grant,) = load_grants(session)
    assert (own.session_id, own.call_id, own.path) == ("monday", "call-5", ("desk",))
    assert (nested.session_id, nested.call_id, nested.path) == ("monday/call-6", "call-7", ("desk", "helper"))
    assert (own.tool, own.effect, own.arguments) == ("pay", "external", {"order": "A-2"})
    assert (nested.tool, nested.effect, nested.arguments) == ("pay", "external", {"order": "A-3"})
    assert (yes.verdict, no.verdict, no.reason) == ("allow", "deny", "a person said no: too blurred")
    assert (grant.tool, grant.verdict, grant.digest) == ("stamp", "allow", yes.digest)


def test_a_waiting_run_is_resumed_by_a_yes(agents: Desk, wording: Wording) -> None:
    """What was open is done once, what was done is not done again, and what was granted is not asked about."""
    again = Asked("call-9", "stamp", {"text": "b"})
    replies: Replies = {"desk": [[], [again], "Done."], "helper": [[], "Helped."]}
    clerk, reader = Clerk({"pay": Answer("yes")}), Reader(replies)
    result = agents.run(reader, session_id="monday", asker=clerk)
    assert (result.status, result.output) == ("done", "Done.")
    assert clerk.ids == ["call-5", "call-7"]
    assert sorted(agents.world) == ["A-2", "A-3"]
    assert reader.seen == [
        ("helper", ["charged A-3", "noted d"]),
        ("desk", ["noted a", "charged A-1", "noted b", reader.seen[1][1][3], "charged A-2", "Helped."]),
        ("desk", ["noted b"]),
    ]
    assert reader.seen[1][1][3] == wording
    with handrail.store.open(agents.url) as store, Session.open(store, "monday") as session:
        assert session[Note].all() == (Note("a"), Note("b"), Note("b"))


def test_a_run_that_has_ended_is_followed_by_another(agents: Desk) -> None:
    """The model reads what was said before."""
    result = agents.run(Reader({"desk": [[], "One.", "Two."]}), "And that.", session_id="sunday")
    assert result.output == "Two."
    prompts = [part.content for said in result.messages for part in said.parts if part.part_kind == "user-prompt"]
    assert prompts == ["Do it.", "And that."]
