"""Sessions of versions that did not note the reply of a call: what they recorded, asked and began is found again."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai.messages import ModelRequest, ModelResponse, ToolCallPart, UserPromptPart

from handrail import store
from handrail.adapters.pydantic_ai.conversation import StoredHistory
from handrail.adapters.pydantic_ai.replies import name_in_history
from handrail.agents import Answer
from handrail.agents.approval.records import ApprovalRecord
from handrail.runtime import Session, ToolInvoked
from handrail.session.call_ref import CallRef
from handrail.session.conversation_parts import REPLY_KEY
from tests.agents.stored_desks import Asked, Clerk, Desk, Reader, Replies, desk_in

NOTE = Asked("d1", "note", {"text": "a"})
BOTH: Replies = {"desk": [[NOTE, Asked("d2", "sign", {"text": "b"})], [Asked("d3", "note", {"text": "c"})], "Done."]}
LATER, YES = Answer("later"), Answer("yes")


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """A desk with a store of its own."""
    return desk_in(tmp_path)


def as_before(desk: Desk, *renamed: tuple[str, str]) -> None:
    """Make of the sessions of a desk what a version before would have left; `renamed` are old names of sessions."""
    with closing(sqlite3.connect(desk.url.removeprefix("sqlite:///"))) as database, database:
        rows = database.execute("SELECT session_id, number, type_name, items FROM handrail_entries").fetchall()
        for session_id, number, type_name, items in rows:
            plain: list[dict[str, Any]] = [_plain(type_name, item, dict(renamed)) for item in json.loads(items)]
            database.execute(
                "UPDATE handrail_entries SET items = ?, type_version = 1, reply = ''"
                " WHERE session_id = ? AND number = ?",
                (json.dumps(plain).encode(), session_id, number),
            )
        for old, new in renamed:
            for table in ("sessions", "entries", "checkpoints"):
                database.execute(f"UPDATE handrail_{table} SET session_id = ? WHERE session_id = ?", (new, old))  # noqa: S608


def _plain(type_name: str, item: dict[str, Any], renamed: dict[str, str]) -> dict[str, Any]:
    if type_name == "handrail.said":
        messages: list[dict[str, Any]] = item["messages"]
        for message in messages:
            metadata: dict[str, Any] = message.get("metadata") or {}
            metadata.pop(REPLY_KEY, None)
        return {"agent": item["name"], "messages": json.dumps(messages), "ended": item["ended"]}
    kept = {name: value for name, value in item.items() if name not in {"reply", "final", "written"}}
    if type_name == "handrail.approval":
        kept["written"] = item["written"]
    if "session_id" in kept:
        kept["session_id"] = renamed.get(kept["session_id"], kept["session_id"])
    return kept


def broken_off(desk: Desk, replies: Replies) -> None:
    """A run that ends when its model is asked for the second time."""
    with pytest.raises(RuntimeError, match="out of order"):
        desk.run(Reader(replies, breaks=("desk", 1)), "Do it.", mode="approve-all")


def test_calls_that_were_recorded_are_answered_from_the_record(desk: Desk) -> None:
    """Each is carried out once; a call of a new reply is a new one."""
    broken_off(desk, BOTH)
    as_before(desk)
    assert [event.reply for event in desk.values(ToolInvoked)] == [None, None]
    reader = Reader(BOTH)
    assert desk.run(reader).output == "Done."
    assert reader.seen == [("desk", ["noted a", "noted b"]), ("desk", ["noted c"])]
    assert desk.notes() == ["a", "b", "c"]


def test_only_the_call_that_was_recorded_is_answered(desk: Desk) -> None:
    """The same id with another tool or other words is another call."""
    broken_off(desk, BOTH)
    as_before(desk)
    with store.open(desk.url) as kept_in, Session.open(kept_in, "s") as session:
        found = StoredHistory(session, "desk")
        (ask, reply) = found.history
        assert isinstance(reply, ModelResponse)
        others = [ToolCallPart("guard", {"text": "a"}, "d1"), ToolCallPart("sign", {"of": "b"}, "d2")]
        found.history = [ask, ModelResponse(others, run_id=reply.run_id)]
        found.adopt_records()
        refs = [CallRef(name_in_history(found.history, 1), call_id) for call_id in ("d1", "d2")]
        assert [session.recorded_call(ref) for ref in refs] == [None, None]
        asked = StoredHistory(session, "desk")
        asked.adopt_records()
        refs = [CallRef(name_in_history(asked.history, 1), call_id) for call_id in ("d1", "d2")]
        assert None not in [session.recorded_call(ref) for ref in refs]
        assert session.open_calls == ()


@pytest.mark.parametrize(
    "tool, words, adopted",
    [
        ("note", '{"text": "a"}', True),
        ("note", {"text": "a"}, True),
        ("my_note", '{"text": "a"}', True),
        ("note", '{"text": 7}', True),
        ("note", None, True),
        ("note", '{"txt": "a"}', False),
        ("note", '{"text": "a"', False),
        ("mynote", '{"text": "a"}', False),
        ("not", '{"text": "a"}', False),
    ],
)
def test_a_record_is_of_a_call_with_its_tool_and_its_words(
    tool: str, words: str | dict[str, Any] | None, adopted: bool, desk: Desk
) -> None:
    """Tools are recorded without a prefix; validation may have put other forms, and defaults, for what was written."""
    broken_off(desk, {"desk": [[NOTE], "Done."]})
    as_before(desk)
    with store.open(desk.url) as kept_in, Session.open(kept_in, "s") as session:
        found = StoredHistory(session, "desk")
        found.history = [found.history[0], ModelResponse([ToolCallPart(tool, words, "d1")])]
        found.adopt_records()
        (event,) = session[ToolInvoked]
        record = session.recorded_call(CallRef(name_in_history(found.history, 1), "d1"))
    assert (record is not None) == adopted
    if isinstance(record, ToolInvoked):
        assert (record.result, record.call.arguments) == (event.result, event.call.arguments)
        assert record.call.written == words


def test_an_open_question_is_answered_by_an_answer_for_that_call(desk: Desk) -> None:
    """It is asked once more, and never again."""
    assert desk.run(Reader(BOTH), "Do it.", asker=Clerk({"sign": LATER})).status == "waiting"
    as_before(desk)
    with store.open(desk.url) as kept_in, Session.open(kept_in, "s") as session:
        StoredHistory(session, "desk").adopt_records()
        assert [(call.call.call_id, call.state) for call in session.open_calls] == [("d2", "postponed")]
    clerk = Clerk({"sign": YES})
    assert desk.run(Reader(BOTH), asker=clerk).output == "Done."
    assert clerk.ids == ["d2"]
    assert desk.notes() == ["a", "b", "c"]


def test_an_answer_that_was_given_before_holds(desk: Desk) -> None:
    """A person had said yes, and the process ended before the call was made."""
    desk.run(Reader(BOTH), "Do it.", asker=Clerk({"sign": LATER}))
    with store.open(desk.url) as kept_in, Session.open(kept_in, "s") as session:
        (record,) = session[ApprovalRecord]
        session[ApprovalRecord].append(replace(record, verdict="allow", by="person", reason="a person said yes"))
    as_before(desk)
    clerk = Clerk({})
    assert desk.run(Reader(BOTH), asker=clerk).output == "Done."
    assert (clerk.ids, desk.notes()) == ([], ["a", "b", "c"])


def test_a_record_with_a_reply_takes_the_place_of_one_without(desk: Desk) -> None:
    """The question that was left open is closed by the answer to the same call."""
    desk.run(Reader(BOTH), "Do it.", asker=Clerk({"sign": LATER}))
    with store.open(desk.url) as kept_in, Session.open(kept_in, "s") as session:
        (record,) = session[ApprovalRecord]
    as_before(desk)
    (before,) = desk.values(ApprovalRecord)
    assert (before.reply, record.reply is None) == (None, False)
    assert [call.call for call in ApprovalRecord.listed_calls([before, record])] == [record.call.ref]
    answered = replace(record, verdict="allow")
    assert list(ApprovalRecord.listed_calls([before, answered])) == []


def test_the_session_of_an_agent_that_was_called_is_resumed(desk: Desk) -> None:
    """It was named after the id of the call alone; the agent goes on where it was."""
    help_ = [Asked("d1", "helper", {"input": "Help."})]
    inner: list[Any] = [[Asked("h1", "note", {"text": "b"}), Asked("h2", "sign", {"text": "c"})], "Helped."]
    replies: Replies = {"desk": [help_, "Done."], "helper": inner}
    assert desk.run(Reader(replies), "Do it.", asker=Clerk({"sign": LATER})).status == "waiting"
    as_before(desk, (desk.child("d1"), "s/d1"))
    reader = Reader(replies)
    assert desk.run(reader, asker=Clerk({"sign": YES})).output == "Done."
    assert reader.seen == [("helper", ["noted b", "noted c"]), ("desk", ["Helped."])]
    assert desk.notes("s/d1") == ["b", "c"]
    with store.open(desk.url) as kept_in:
        assert sorted(row.session_id for row in kept_in.sessions()) == ["s", "s/d1"]


def test_a_session_with_another_task_is_passed_over(desk: Desk) -> None:
    """It belonged to another call of that id."""
    with (
        store.open(desk.url) as kept_in,
        Session.open(kept_in, "s") as session,
        session.child(session_id="s/d1") as child,
    ):
        StoredHistory(child, "helper").save([ModelRequest([UserPromptPart("Another.")])])
    replies: Replies = {"desk": [[Asked("d1", "helper", {"input": "Help."})], "Done."], "helper": ["Helped."]}
    assert desk.run(Reader(replies), "Do it.").output == "Done."
    with store.open(desk.url) as kept_in:
        names = [row.session_id for row in kept_in.sessions()]
    assert len(names) == 3
    assert "s/d1_2" not in names
