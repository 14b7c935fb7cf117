"""The approvals that calls have waited for, the sessions of the agents that they have called, and old records."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from handrail import store as stores
from handrail.agents import Answer
from handrail.session.calls import CallRef
from handrail.session.persistence.protocol import SessionEntry
from handrail.transcript import ApprovalWait, TranscriptCall
from handrail.transcript.reading import call_report
from tests.agents.stored_desks import Asked, Clerk, Reader, Replies, desk_in
from tests.store.units import append
from tests.transcript.desks import EVENING, HOURS, Desk, desk, items_of, order, shown

Notes = list[tuple[str, str, dict[str, str]]]
"""What a gate notes: the verdict, who has decided, and other fields."""

_NONE: dict[str, str] = {}

RECORD: dict[str, Any] = {
    "id": "a",
    "name": "pay",
    "arguments": '{"order": "A-1", "tokens": ["x", "y"]}',
    "message": "",
    "success": True,
    "exclude_value": False,
    "run_context": None,
    "at": "2026-01-05T20:00:00+00:00",
    "refused_at": None,
    "handler_seconds": 0.1,
    "total_seconds": 0.2,
    "effect_key": None,
    "replayed": False,
    "session_id": "s",
    "final": True,
    "params": None,
    "value": None,
}
"""The record of a call without a reply."""


@pytest.fixture
def at_desk() -> Iterator[Desk]:
    """A desk over a store in memory."""
    with desk() as opened:
        yield opened


# ----------------------------------------------------------------------------------------------------------- approvals


def test_a_postponed_call_waits(at_desk: Desk) -> None:
    """Since it was asked about; the calls beside it are carried out."""
    at_desk.answers = [None]
    at_desk.turn(("approved", order("A-1")), ("pay", order("A-2")))
    waiting, paid = at_desk.calls()
    assert (waiting.outcome, waiting.wait) == ("waiting", ApprovalWait(since=EVENING))
    assert (paid.outcome, paid.wait) == ("ok", None)


@pytest.mark.parametrize("answer, outcome", [(True, "ok"), (False, "refused")])
def test_a_call_that_was_answered_has_waited(answer: bool, outcome: str, at_desk: Desk) -> None:
    """From the question to the attempt that had an answer."""
    at_desk.answers = [None, answer]
    calls = at_desk.request(("approved", order("A-1")))
    at_desk.answer(calls)
    at_desk.clock.advance(HOURS)
    at_desk.answer(calls)
    (call,) = at_desk.calls()
    assert (call.outcome, call.wait) == (outcome, ApprovalWait(duration=HOURS, approved=answer, since=EVENING))


def test_an_answer_that_was_recorded_says_whose_it_is(at_desk: Desk) -> None:
    """And when it was given: the call may be made much later."""
    answered = {"approved": True, "reason": "", "by": "anna", "at": (EVENING + HOURS).isoformat()}
    postponed = {"session_id": "desk", "reply": "r1", "call_id": "c11", "tool": "pay", "at": EVENING.isoformat()}
    at_desk.request(("pay", order("A-1")))
    at_desk.flush()
    _close_and_append(at_desk, "handrail.postponed_call", postponed, postponed | {"answer": answered})
    (call,) = _calls(at_desk)
    assert (call.outcome, call.wait) == (
        "open",
        ApprovalWait(duration=HOURS, by="anna", approved=True, since=EVENING),
    )


@pytest.mark.parametrize(
    "records, wait",
    [
        ([("allow", "rule", _NONE)], None),
        ([("deny", "nobody", _NONE)], None),
        ([("allow", "person", _NONE)], ApprovalWait(approved=True)),
        ([("deny", "person", {"answered_by": "bob"})], ApprovalWait(by="bob", approved=False)),
        ([("later", "person", _NONE)], ApprovalWait(since=EVENING)),
        (
            [
                ("later", "person", _NONE),
                ("allow", "person", {"at": (EVENING + HOURS).isoformat(), "answered_by": "bob"}),
            ],
            ApprovalWait(duration=HOURS, by="bob", approved=True, since=EVENING),
        ),
        ([("later", "person", _NONE), ("allow", "remembered", _NONE)], ApprovalWait(approved=True, since=EVENING)),
    ],
)
def test_the_gate_of_an_agent_notes_what_people_decide(
    records: Notes, wait: ApprovalWait | None, at_desk: Desk
) -> None:
    """What a rule decides is not shown: most calls are decided by one."""
    at_desk.request(("pay", order("A-1")))
    at_desk.flush()
    call = {"session_id": "desk", "reply": "r1", "call_id": "c11"}
    _close_and_append(
        at_desk,
        "handrail.approval",
        *({"call": call, "decision": {"verdict": verdict, "by": by} | more} | more for verdict, by, more in records),
        {"call": call | {"session_id": "desk/other"}, "decision": {"verdict": "later", "by": "person"}},
    )
    assert [each.wait for each in _calls(at_desk)] == [wait]


def test_notes_of_a_nested_call_belong_to_the_outermost(at_desk: Desk) -> None:
    """It is the call that waited."""
    at_desk.request(("outer", order("A-1")))
    at_desk.flush()
    nested = CallRef.nested(CallRef("r1", "c11"), "n1")
    call = {"session_id": "desk", "reply": nested.reply, "call_id": "n1"}
    note = {"call": call, "decision": {"verdict": "later", "by": "person"}}
    _close_and_append(at_desk, "handrail.approval", note)
    assert [call.outcome for call in _calls(at_desk)] == ["waiting"]


# ------------------------------------------------------------------------------------------------------ child sessions


def test_a_call_of_an_agent_names_its_session(tmp_path: Path) -> None:
    """What its calls waited for, which the session of its caller records, is in its own transcript, too."""
    office = desk_in(tmp_path)
    replies: Replies = {
        "desk": [[Asked("d1", "helper", {"input": "Sign."}), Asked("d2", "note", {"text": "a"})], "Done."],
        "helper": [[Asked("h1", "note", {"text": "b"}), Asked("h2", "sign", {"text": "b"})], "Signed."],
    }
    office.run(Reader(replies), "Do it.", mode="ask", asker=Clerk({"sign": Answer("later")}))
    child = office.child("d1")
    with stores.open(office.url, read_only=True) as kept:
        assert shown(items_of(kept, "s")) == ["user: Do it.", "assistant: ", "helper waiting", "note ok"]
        assert shown(items_of(kept, child))[-1] == "sign waiting"
    office.run(Reader(replies), mode="ask", asker=Clerk({"sign": Answer("yes")}))
    with stores.open(office.url, read_only=True) as kept:
        calls = [item for item in items_of(kept, "s") if isinstance(item, TranscriptCall)]
        assert [(call.tool, call.outcome, call.child) for call in calls] == [
            ("helper", "ok", child),
            ("note", "ok", ""),
        ]
        noted, signed = (item for item in items_of(kept, child) if isinstance(item, TranscriptCall))
        assert noted.wait is None
        assert signed.wait is not None
        assert (signed.outcome, signed.wait.approved) == ("ok", True)


# -------------------------------------------------------------------------------------------------------------- records


@pytest.mark.parametrize(
    "changed, expected",
    [
        ({}, {"content": "OK", "at": EVENING, "outcome": "ok", "call": CallRef(None, "a")}),
        ({"reply": "r1"}, {"call": CallRef("r1", "a")}),
        ({"value": {"value": {"cents": 5}}, "message": "paid"}, {"content": 'paid\n{"cents":5}'}),
        ({"value": {"type": "x:Y", "version": 1, "value": {"cents": 5}}}, {"content": '{"cents":5}'}),
        ({"value": {"unavailable": "X"}}, {"content": "OK"}),
        ({"written": '{"order": "B"}'}, {"arguments": {"order": "B"}}),
        ({"success": False, "handler_seconds": None, "refused_at": "approval"}, {"outcome": "refused"}),
    ],
)
def test_a_record_is_read_without_its_classes(changed: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    """From the JSON alone."""
    call = call_report({**RECORD, **changed}).call
    assert {name: getattr(call, name) for name in expected} == expected


def _close_and_append(at_desk: Desk, name: str, *items: Mapping[str, Any]) -> None:
    """Append items to a LOG of the session, which is closed, as another process does."""
    session_id = at_desk.session.session_id
    at_desk.session.close()
    head = at_desk.row.head
    lock = at_desk.store.acquire(session_id, wait=timedelta(0))
    data = json.dumps(items).encode()
    append(at_desk.store, lock, head, [SessionEntry(head + 1, "", "", "log", name, 1, 0, 0, len(items), data)], None)
    at_desk.store.release(lock)


def _calls(at_desk: Desk) -> list[TranscriptCall]:
    return at_desk.calls()
