"""Who said what, and the outcome of each call, as they are read from a store: records, approvals, child sessions."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from operator import methodcaller
from pathlib import Path
from typing import Any

import pytest

from handrail import store as stores
from handrail.adapters.tool_executor import PendingAnswers
from handrail.agents import Answer
from handrail.errors import StoreCorruptError
from handrail.prompt import ToolResult
from handrail.runtime import Session, ToolCall, ToolInvoked
from handrail.session.calls import CallRef
from handrail.session.conversation import Conversation, ConversationPart, RequestedCall
from handrail.session.persistence.protocol import SessionEntry
from handrail.session.persistence.stored_types import stored_type
from handrail.store import EffectStatus, Store
from handrail.store.protocol import ClaimOwner
from handrail.transcript import ApprovalWait, ConversationId, TranscriptCall, TranscriptReader
from handrail.transcript.reading import call_report
from tests.agents.stored_desks import Asked, Clerk, Reader, Replies, desk_in
from tests.cli.desk import effect
from tests.kit import raises
from tests.store.kit import append, insert
from tests.transcript.desks import EVENING, HOURS, Desk, desk, order, read_items, shown
from tests.wording import Wording


@pytest.fixture
def at_desk() -> Iterator[Desk]:
    """A desk over a store in memory."""
    with desk() as opened:
        yield opened


@pytest.mark.parametrize("form", ["named", "not named"])
def test_replies_whose_calls_have_the_same_ids_are_told_apart(at_desk: Desk, form: str) -> None:
    """Also where the messages do not name their calls; within a reply each answer is that of the next call."""
    for number in (1, 2, 3):
        asked = [ToolCall("c0", "pay", order(f"A-{number}{letter}")) for letter in "ab"]
        message: dict[str, Any] = {"role": "assistant", "content": f"I pay {number}."}
        if form == "named":
            message["tool_calls"] = [_function(each.id, each.name, each.arguments) for each in asked]
        at_desk.conversation.append(message, calls=asked, reply=f"r{number}")
        answered = at_desk.executor.answer()
        assert not isinstance(answered, PendingAnswers)
        at_desk.conversation.append(
            *({"role": "tool", "tool_call_id": each.call_id, "content": each.content} for each in answered)
        )
    at_desk.say("Done.")
    expected = [line for number in (1, 2, 3) for line in (f"assistant: I pay {number}.", "pay ok", "pay ok")]
    assert shown(at_desk.items()) == [*expected, "assistant: Done."]
    paid = [f"A-{number}{letter} is paid" for number in (1, 2, 3) for letter in "ab"]
    calls = at_desk.calls()
    assert [(each.arguments["order"], each.content) for each in calls] == [(line.split()[0], line) for line in paid]
    assert [str(each.call) for each in calls][:3] == ["r1/c0", "r1/c0_2", "r2/c0"]


X: tuple[RequestedCall, ...] = (RequestedCall("x", "pay", order("A-1")),)
ASKS_X = {"role": "assistant", "tool_calls": [{"id": "x", "type": "function", "function": {"name": "pay"}}]}
A, B, C = ({"role": "user", "content": text} for text in "abc")


def add(at_desk: Desk, *parts: ConversationPart) -> None:
    """Add parts to the conversation of an agent."""
    agent = Conversation(
        at_desk.session[ConversationPart], at_desk.session.calls, "agent", "clerk", clock=at_desk.clock
    )
    for part in parts:
        agent.add(part)


def answered_elsewhere(at_desk: Desk) -> None:
    """A program may carry out calls by itself."""
    at_desk.conversation.add(_part(ASKS_X, [ToolCall("x", "theirs", "{}")], "r1"))
    at_desk.conversation.add(_part({"role": "tool", "tool_call_id": "x", "content": "done"}))
    at_desk.say("So.")


def unnamed(at_desk: Desk) -> None:
    """A loop need not name its replies."""
    asked = ToolCall("x", "pay", order("A-1"))
    at_desk.conversation.add(_part(ASKS_X, [asked]))
    at_desk.executor.execute(asked)


def restarted(at_desk: Desk) -> None:
    """A history is replaced, once with open calls and once without messages that were there."""
    add(at_desk, ConversationPart((A, B, ASKS_X), "r1", X), ConversationPart((A, ASKS_X, C), "r1", X, restarts=True))
    add(at_desk, ConversationPart((C, A), restarts=True))


PAYS: tuple[tuple[str, str], ...] = (("pay", order("A-1")), ("fail", order("A-2")), ("nope", "{}"), ("pay", "{"))
LOST = {"role": "tool", "tool_call_id": "x", "content": "lost"}
WALKS: dict[str, tuple[list[Callable[[Desk], object]], list[str]]] = {
    "calls after their message, and no answers": (
        [methodcaller("ask", "Pay."), methodcaller("turn", *PAYS, text="I pay."), methodcaller("say", "Done.")],
        [
            *("user: Pay.", "assistant: I pay.", "pay ok", "fail failed", "nope refused", "pay refused"),
            "assistant: Done.",
        ],
    ),
    "a nested call": ([methodcaller("turn", ("outer", order("A")))], ["assistant: ", "outer ok"]),
    "an effect in doubt": ([methodcaller("turn", ("doubt", order("A-1")))], ["assistant: ", "doubt unknown"]),
    "a reply that was not carried out": (
        [methodcaller("ask", "Pay."), methodcaller("request", ("pay", order("A-1"))), methodcaller("flush")],
        ["user: Pay.", "assistant: ", "pay open"],
    ),
    "a call that others have answered": ([answered_elsewhere], ["assistant: ", "pay answered", "assistant: So."]),
    "a call of a reply without a name": ([unnamed], ["assistant: ", "pay ok"]),
    "an answer to no call": ([lambda at: at.conversation.add(_part(LOST))], ["tool: lost"]),
    "calls that the form does not show": (
        [lambda at: at.conversation.add(_part({"said": "x"}, [ToolCall("a", "pay", order("A-1"))], "r1"))],
        ['message: {"said": "x"}', "assistant: ", "pay open"],
    ),
    "a history that was replaced, with open calls": (
        [restarted],
        ["user: a | b", "assistant: ", "pay open", "restarted 2", "user: c", "restarted 2"],
    ),
    "a history that was shortened, with the run that PydanticAI adds to its messages": (
        [lambda at: add(at, ConversationPart((A, B)), ConversationPart(({**B, "run_id": "r"}, C), restarts=True))],
        ["user: a | b", "restarted 1", "user: c"],
    ),
    "a history that was replaced, without them": (
        [lambda at: add(at, ConversationPart((ASKS_X,), "r1", X), ConversationPart((C,), restarts=True))],
        ["assistant: ", "pay open", "restarted 0", "user: c"],
    ),
    "a reset": (
        [methodcaller("ask", "Pay."), lambda at: at.session.reset(), methodcaller("ask", "Anew.")],
        ["user: Pay.", "removed 1", "user: Anew."],
    ),
}
"""Transcripts in short, by what was done at the desk."""


@pytest.mark.parametrize("what", WALKS)
def test_a_transcript_has_messages_and_calls_in_order(at_desk: Desk, what: str) -> None:
    """Nothing that was appended is left out, and nothing is shown twice."""
    acts, lines = WALKS[what]
    for act in acts:
        act(at_desk)
    assert shown(at_desk.items()) == lines


def test_calls_have_their_content(at_desk: Desk) -> None:
    """Nested calls are within theirs, a repeated effect is replayed, and a secret is masked."""
    at_desk.turn(("outer", order("A-1")), ("pay", order("A-1", token="hunter2")))  # noqa: S106 - of nothing
    at_desk.turn(("once", order("A-1")))
    at_desk.turn(("once", order("A-1")))
    outer, pay, first, second = at_desk.calls()
    assert [(inner.tool, inner.outcome, inner.content) for inner in outer.nested] == [("pay", "ok", "A-1 is paid")]
    assert outer.content == "inside: A-1 is paid"
    assert pay.arguments == {"order": "A-1", "token": "**********"}
    assert [(call.outcome, call.replayed) for call in (first, second)] == [("ok", False), ("ok", True)]


def test_a_call_says_what_the_model_reads_and_how_long_it_took(at_desk: Desk) -> None:
    """And its identity, when it ended, and the arguments decoded."""
    at_desk.turn(("pay", order("A-1")))
    (call,) = at_desk.calls()
    assert call.call == ("r1", "c11")
    assert (call.arguments, call.content) == ({"order": "A-1"}, "A-1 is paid")
    assert (call.seconds is not None, call.replayed, call.at) == (True, False, EVENING)
    assert (call.conversation, call.child, call.nested, call.wait) == (ConversationId("loop"), "", (), None)


@pytest.mark.parametrize("status, outcome", [("running", "running"), ("unknown", "unknown"), ("done", "unapplied")])
def test_a_claim_without_a_record_decides(status: EffectStatus, outcome: str, at_desk: Desk) -> None:
    """A process has claimed the effect, and has not recorded the call."""
    at_desk.request(("doubt", order("A-1")))
    at_desk.flush()
    owner = ClaimOwner("desk", "r1", "c11", "desk-host - 4711 0")
    insert(at_desk.store, effect("call:r1/c11", status, EVENING, partition="desk", owner=owner))
    (call,) = at_desk.calls()
    assert (call.outcome, call.seconds) == (outcome, None)
    assert bool(call.owner) == (status == "running")


@pytest.mark.parametrize("is_asked", [True, False], ids=["asked", "no message"])
def test_the_newest_record_of_a_call_counts(is_asked: bool) -> None:
    """Calls are repeated if their record is not final, and the calls within them, too; also if no message asks."""
    asked = ToolCall("a", "outer", order("A-1"))
    inner = CallRef.nested(CallRef("r1", "a"), "n")
    with stores.open("memory:") as store:
        records = [
            _record(ToolCall("n", "pay", order("A-1")), inner.reply or ""),
            _record(ToolCall("n", "pay", order("A-2")), inner.reply or ""),
            replace(_record(asked, "r1"), result=ToolResult.error("no"), final=False),
            _record(asked, "r1"),
        ]
        message = {"role": "assistant", "tool_calls": [_function("a", "outer")]}
        parts = [_part(message, [asked], "r1")] if is_asked else []
        _append(store, "s", _entries(iter([*parts, *records])))
        *others, call = read_items(store, "s")
    assert len(others) == len(parts)
    assert isinstance(call, TranscriptCall)
    assert (call.outcome, [each.arguments for each in call.nested]) == ("ok", [{"order": "A-2"}])


@pytest.mark.parametrize("fails, outcomes", [("a", ["undone", "ok", "undone"]), ("n", ["failed", "ok", "undone"])])
def test_calls_within_one_that_was_rolled_back_were_too(fails: str, outcomes: list[str]) -> None:
    """But for effects, which stay; a call in the middle takes those within it alone."""
    top = CallRef("r1", "a")
    inner, paid = (CallRef.nested(top, name) for name in "np")
    records = {
        ref: _record(ToolCall(ref.call_id, "outer"), ref.reply or "")
        for ref in (inner, paid, CallRef.nested(inner, "m"), top)
    }
    records[paid] = replace(records[paid], effect_key="call:p")
    failed = inner if fails == "n" else top
    records[failed] = replace(records[failed], result=ToolResult.error("no"))
    with stores.open("memory:") as store:
        _append(store, "s", _entries(iter(records.values())))
        (call,) = read_items(store, "s")
    assert isinstance(call, TranscriptCall)
    assert [each.outcome for each in call.nested] == outcomes


def test_calls_of_a_reply_are_yielded_together(at_desk: Desk) -> None:
    """In the order asked; their answers are not shown again, and a session that was deleted adds nothing."""
    calls = at_desk.request(("pay", order("A-1")), ("doubt", order("A-2")), ("pay", order("A-3")), text="I pay.")
    at_desk.flush()
    reader = TranscriptReader(at_desk.store, "desk")
    assert shown(reader.read()) == ["assistant: I pay."]
    at_desk.executor.execute(calls[0], reply="r1")
    at_desk.executor.execute(calls[2], reply="r1")
    assert shown(reader.read()) == []
    at_desk.answer(calls)
    at_desk.say("Done.")
    at_desk.request(("pay", order("A-4")))
    at_desk.session.close()
    paid = ["pay ok", "doubt unknown", "pay ok"]
    assert shown(reader.read()) == [*paid, "assistant: Done.", "assistant: "]
    lock = at_desk.store.acquire("desk", wait=timedelta(0))
    at_desk.store.delete_session(lock)
    assert shown(reader.read()) == []
    assert shown(reader.unfinished()) == ["pay open"]


def test_what_may_still_change_is_shown_as_it_stands(at_desk: Desk) -> None:
    """It is yielded again when it has changed, and once when nothing will change it."""
    calls = at_desk.request(("pay", order("A-1")), ("pay", order("A-2")))
    at_desk.flush()
    reader = TranscriptReader(at_desk.store, "desk")
    assert shown(reader.read()) == ["assistant: "]
    assert shown(reader.unfinished()) == shown(reader.unfinished()) == ["pay open", "pay open"]
    at_desk.executor.execute(calls[1], reply="r1")
    assert shown(reader.read()) == []
    assert shown(reader.unfinished()) == ["pay open", "pay ok"]
    at_desk.executor.execute(calls[0], reply="r1")
    assert shown(reader.read()) == []
    assert shown(reader.unfinished()) == ["pay ok", "pay ok"]
    at_desk.executor.execute(calls[0], reply="r2")
    assert shown(reader.read()) == ["pay ok", "pay ok"]
    assert shown(reader.unfinished()) == ["pay ok"]


def test_a_reader_that_stops_at_any_entry_reads_the_same(at_desk: Desk) -> None:
    """What was yielded up to an entry is not yielded again, wherever a reading has stopped."""
    at_desk.ask("Pay.")
    for _ in range(2):
        at_desk.turn(*PAYS, text="I pay.")
    at_desk.say("Done.")
    at_desk.flush()
    row = at_desk.store.find("desk")
    assert row is not None
    whole = shown(TranscriptReader(at_desk.store, "desk").read())
    for until in range(row.head + 1):
        reader = TranscriptReader(at_desk.store, "desk")
        first = shown(reader.read(until=until))
        again = shown(TranscriptReader(at_desk.store, "desk").read(until=until))
        assert (first, first + shown(reader.read())) == (again, whole)


def test_a_call_has_what_was_asked_about_it_and_who_has_decided(at_desk: Desk) -> None:
    """The questions of policies, and the answer, each once."""
    at_desk.answers = [True, False]
    at_desk.turn(("approved", order("A-1")), ("approved", order("A-2")), ("pay", order("A-3")))
    at_desk.flush()
    decisions = [call.decisions for call in at_desk.calls()]
    assert [len(words) for words in decisions] == [2, 2, 0]
    assert decisions[0][0] == decisions[1][0] != decisions[0][1] != decisions[1][1]


DAMAGED = [("tool_invoked", items) for items in (b"{}", b"[{}]", b"[7]")] + [("said", b"{"), ("approval", b"[{}]")]
DAMAGED.append(("postponed_call", b'[{"session_id": "s", "call_id": "a", "at": "yesterday"}]'))


@pytest.mark.parametrize("name, items", DAMAGED, ids=range(len(DAMAGED)))
def test_damage_is_reported_with_its_entry(name: str, items: bytes, wording: Wording) -> None:
    """What cannot be read is not left out."""
    with stores.open("memory:") as store:
        _append(store, "s", [SessionEntry(1, "", "", "log", f"handrail.{name}", 1, 0, 0, 1, items)])
        with raises(StoreCorruptError, wording):
            read_items(store, "s")


def _record(call: ToolCall, reply: str) -> ToolInvoked:
    return ToolInvoked(
        call=call,
        params=None,
        result=ToolResult.ok("paid"),
        refused_at=None,
        handler_seconds=0.1,
        total_seconds=0.2,
        effect_key=None,
        replayed=False,
        session_id="s",
        run_context=None,
        at=EVENING,
        reply=reply,
    )


def _entries(items: Iterator[object]) -> list[SessionEntry]:
    lengths: dict[str, int] = {}
    entries: list[SessionEntry] = []
    for number, item in enumerate(items, 1):
        stored = stored_type(type(item))
        start = lengths.get(stored.name, 0)
        lengths[stored.name] = start + 1
        reply, call_id = (item.reply or "", item.call_id) if isinstance(item, ToolInvoked) else ("", "")
        data = stored.dump((item,))
        entries.append(SessionEntry(number, reply, call_id, "log", stored.name, stored.version, start, 0, 1, data))
    return entries


def _append(store: Store, session_id: str, entries: list[SessionEntry]) -> None:
    with Session.open(store, session_id):
        pass
    lock = store.acquire(session_id, wait=timedelta(0))
    append(store, lock, 0, entries, None)
    store.release(lock)


def _part(message: dict[str, Any], calls: list[ToolCall] | None = None, reply: str | None = None) -> ConversationPart:
    requested = tuple(RequestedCall(call.id, call.name, call.arguments) for call in calls or ())
    return ConversationPart((message,), reply, requested)


def _function(call_id: str, tool: str, arguments: object = '{"order": "A-1"}') -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": tool, "arguments": arguments}}


RECORD: dict[str, Any] = json.loads("""
{"id": "a", "name": "pay", "arguments": "{\\"order\\": \\"A-1\\", \\"tokens\\": [\\"x\\", \\"y\\"]}", "params": null,
 "message": "", "success": true, "exclude_value": false, "at": "2026-01-05T20:00:00+00:00", "refused_at": null,
 "handler_seconds": 0.1, "total_seconds": 0.2, "effect_key": null, "replayed": false, "session_id": "s", "value": null,
 "final": true, "run_context": null}
""")
"""The record of a call without a reply."""


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
    (call,) = at_desk.calls()
    assert (call.outcome, call.wait) == ("open", ApprovalWait(duration=HOURS, by="anna", approved=True, since=EVENING))


_NONE: dict[str, str] = {}
_LATER = ("later", "person", _NONE)
_ALLOWED = ("allow", "person", {"at": (EVENING + HOURS).isoformat(), "answered_by": "bob"})
NOTES: list[tuple[list[tuple[str, str, dict[str, str]]], ApprovalWait | None]] = [
    *(([("allow", "rule", _NONE)], None), ([("deny", "nobody", _NONE)], None)),
    ([("allow", "person", _NONE)], ApprovalWait(approved=True)),
    ([("deny", "person", {"answered_by": "bob"})], ApprovalWait(by="bob", approved=False)),
    ([_LATER], ApprovalWait(since=EVENING)),
    ([_LATER, _ALLOWED], ApprovalWait(duration=HOURS, by="bob", approved=True, since=EVENING)),
    ([_LATER, ("allow", "remembered", _NONE)], ApprovalWait(approved=True, since=EVENING)),
]
"""What a gate notes, as the verdict, who has decided, and other fields; and what the call has waited for."""


@pytest.mark.parametrize("records, wait", NOTES)
def test_the_gate_of_an_agent_notes_what_people_decide(
    records: list[tuple[str, str, dict[str, str]]], wait: ApprovalWait | None, at_desk: Desk
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
    assert [each.wait for each in at_desk.calls()] == [wait]


def test_notes_of_a_nested_call_belong_to_the_outermost(at_desk: Desk) -> None:
    """It is the call that waited."""
    at_desk.request(("outer", order("A-1")))
    at_desk.flush()
    nested = CallRef.nested(CallRef("r1", "c11"), "n1")
    call = {"session_id": "desk", "reply": nested.reply, "call_id": "n1"}
    note = {"call": call, "decision": {"verdict": "later", "by": "person"}}
    _close_and_append(at_desk, "handrail.approval", note)
    assert [call.outcome for call in at_desk.calls()] == ["waiting"]


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
        assert shown(read_items(kept, "s")) == ["user: Do it.", "assistant: ", "helper waiting", "note ok"]
        assert shown(read_items(kept, child))[-1] == "sign waiting"
    office.run(Reader(replies), mode="ask", asker=Clerk({"sign": Answer("yes")}))
    with stores.open(office.url, read_only=True) as kept:
        calls = [item for item in read_items(kept, "s") if isinstance(item, TranscriptCall)]
        assert [(call.tool, call.outcome, call.child) for call in calls] == [
            ("helper", "ok", child),
            ("note", "ok", ""),
        ]
        noted, signed = (item for item in read_items(kept, child) if isinstance(item, TranscriptCall))
        assert noted.wait is None
        assert signed.wait is not None
        assert (signed.outcome, signed.wait.approved) == ("ok", True)


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
