"""Who said what, and the outcome of each call, as they are read from a store."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from handrail import store as stores
from handrail.adapters.tool_executor import Waiting
from handrail.errors import StoreCorruptError
from handrail.prompt import ToolResult
from handrail.runtime import Session, ToolCall, ToolInvoked
from handrail.session.calls import CallRef
from handrail.session.conversation import Conversation, ConversationPart, RequestedCall
from handrail.session.persistence.protocol import SessionEntry
from handrail.session.persistence.stored_types import stored_type
from handrail.store import EffectStatus, Store
from handrail.store.protocol import ClaimOwner
from handrail.transcript import (
    ConversationId,
    TranscriptCall,
    TranscriptReader,
)
from tests.cli.desk import effect
from tests.store.units import append, insert
from tests.transcript.desks import EVENING, Desk, desk, items_of, order, shown
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
            message["tool_calls"] = [
                {"id": each.id, "type": "function", "function": {"name": each.name, "arguments": each.arguments}}
                for each in asked
            ]
        at_desk.conversation.append(message, calls=asked, reply=f"r{number}")
        answered = at_desk.executor.answer()
        assert not isinstance(answered, Waiting)
        at_desk.conversation.append(
            *({"role": "tool", "tool_call_id": each.call_id, "content": each.content} for each in answered)
        )
    at_desk.say("Done.")
    expected = [line for number in (1, 2, 3) for line in (f"assistant: I pay {number}.", "pay ok", "pay ok")]
    assert shown(at_desk.items()) == [*expected, "assistant: Done."]
    paid = [f"A-{number}{letter} is paid" for number in (1, 2, 3) for letter in "ab"]
    assert [(item.arguments["order"], item.content) for item in at_desk.calls()] == [
        (content.split()[0], content) for content in paid
    ]
    assert [str(item.call) for item in at_desk.calls()][:3] == ["r1/c0", "r1/c0_2", "r2/c0"]


def test_calls_come_after_the_message_that_asks_for_them(at_desk: Desk) -> None:
    """In the order asked, each with its outcome; answers of tools are no messages of their own."""
    at_desk.ask("Pay.")
    at_desk.turn(("pay", order("A-1")), ("fail", order("A-2")), ("nope", "{}"), ("pay", "{"), text="I pay.")
    at_desk.say("Done.")
    assert shown(at_desk.items()) == [
        "user: Pay.",
        "assistant: I pay.",
        "pay ok",
        "fail failed",
        "nope refused",
        "pay refused",
        "assistant: Done.",
    ]


def test_a_call_says_what_the_model_reads_and_how_long_it_took(at_desk: Desk) -> None:
    """And its identity, when it ended, and the arguments decoded."""
    at_desk.turn(("pay", order("A-1")))
    (call,) = at_desk.calls()
    assert call.call == ("r1", "c11")
    assert (call.arguments, call.content) == ({"order": "A-1"}, "A-1 is paid")
    assert (call.seconds is not None, call.replayed, call.at) == (True, False, EVENING)
    assert (call.conversation, call.child, call.nested, call.wait) == (ConversationId("loop"), "", (), None)


def test_a_secret_is_masked(at_desk: Desk) -> None:
    """Where the record of the call shows it so; a call that was not parsed is shown as the model wrote it."""
    at_desk.turn(("pay", order("A-1", token="hunter2")))  # noqa: S106 - of nothing
    assert at_desk.calls()[0].arguments == {"order": "A-1", "token": "**********"}


def test_nested_calls_are_within_their_call(at_desk: Desk) -> None:
    """They are no calls of the conversation."""
    at_desk.turn(("outer", order("A-1")))
    (call,) = at_desk.calls()
    assert [(inner.tool, inner.outcome, inner.content) for inner in call.nested] == [("pay", "ok", "A-1 is paid")]
    assert call.content == "inside: A-1 is paid"


def test_an_effect_in_doubt_is_unknown(at_desk: Desk) -> None:
    """As long as the ledger has it so."""
    at_desk.turn(("doubt", order("A-1")))
    assert [call.outcome for call in at_desk.calls()] == ["unknown"]


def test_a_repeated_effect_is_replayed(at_desk: Desk) -> None:
    """The second call of the same key has the result of the first."""
    at_desk.turn(("once", order("A-1")))
    at_desk.turn(("once", order("A-1")))
    assert [(call.outcome, call.replayed) for call in at_desk.calls()] == [("ok", False), ("ok", True)]


def test_a_reply_that_was_not_carried_out_is_open(at_desk: Desk) -> None:
    """Also while the session is held; it is read without it."""
    at_desk.ask("Pay.")
    at_desk.request(("pay", order("A-1")))
    at_desk.flush()
    assert shown(at_desk.items())[-1] == "pay open"


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


def test_a_call_that_others_have_answered_has_no_record(at_desk: Desk) -> None:
    """A program may carry out calls by itself."""
    calls = [ToolCall("a", "theirs", "{}")]
    at_desk.conversation.add(_part({"role": "assistant", "tool_calls": [_function("a", "theirs")]}, calls, "r1"))
    at_desk.conversation.add(_part({"role": "tool", "tool_call_id": "a", "content": "done"}))
    at_desk.say("So.")
    (call,) = at_desk.calls()
    assert (call.outcome, call.content, call.seconds) == ("answered", "done", None)
    assert shown(at_desk.items()) == ["assistant: ", "theirs answered", "assistant: So."]


def test_an_answer_to_no_call_is_a_message(at_desk: Desk) -> None:
    """Nothing that was appended is left out."""
    at_desk.conversation.add(_part({"role": "tool", "tool_call_id": "x", "content": "lost"}))
    assert shown(at_desk.items()) == ["tool: lost"]


def test_calls_that_the_form_does_not_show_are_those_that_were_stated(at_desk: Desk) -> None:
    """A program states the calls of its messages, whatever their form."""
    at_desk.conversation.add(_part({"said": "x"}, [ToolCall("a", "pay", order("A-1"))], "r1"))
    assert shown(at_desk.items()) == ['message: {"said": "x"}', "assistant: ", "pay open"]


def test_calls_without_a_conversation_are_shown_alone(at_desk: Desk) -> None:
    """Each with the calls that it has made."""
    count = 3
    for number in range(count):
        at_desk.executor.execute(ToolCall(f"c{number}", "outer", order(f"A-{number}")), reply="r")
    calls = at_desk.calls()
    assert [call.call.call_id for call in calls] == [f"c{number}" for number in range(count)]
    assert {call.conversation for call in calls} == {None}
    assert {len(call.nested) for call in calls} == {1}


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
        *others, call = items_of(store, "s")
    assert len(others) == len(parts)
    assert isinstance(call, TranscriptCall)
    assert (call.outcome, [each.arguments for each in call.nested]) == ("ok", [{"order": "A-2"}])


def test_messages_that_are_repeated_are_shown_once(at_desk: Desk) -> None:
    """A conversation whose history was replaced is stored whole again; its open calls stay open."""
    first, second, third = ({"role": "user", "content": text} for text in "abc")
    reply = {"role": "assistant", "tool_calls": [_function("x", "pay")]}
    agent = Conversation(
        at_desk.session[ConversationPart], at_desk.session.calls, "agent", "clerk", clock=at_desk.clock
    )
    agent.add(ConversationPart((first, second, reply), "r1", (RequestedCall("x", "pay", order("A-1")),)))
    agent.add(ConversationPart((first, reply, third), "r1", (RequestedCall("x", "pay", order("A-1")),), restarts=True))
    agent.add(ConversationPart((third, first), restarts=True))
    assert shown(at_desk.items()) == [
        "user: a | b",
        "assistant: ",
        "pay open",
        "restarted 2",
        "user: c",
        "restarted 2",
    ]


def test_calls_of_a_conversation_that_was_replaced_come_before_the_new_one(at_desk: Desk) -> None:
    """The new one does not ask for them."""
    reply = {"role": "assistant", "tool_calls": [_function("x", "pay")]}
    agent = Conversation(
        at_desk.session[ConversationPart], at_desk.session.calls, "agent", "clerk", clock=at_desk.clock
    )
    agent.add(ConversationPart((reply,), "r1", (RequestedCall("x", "pay", order("A-1")),)))
    agent.add(ConversationPart(({"role": "user", "content": "Anew."},), restarts=True))
    assert shown(at_desk.items()) == ["assistant: ", "pay open", "restarted 0", "user: Anew."]


def test_conversations_of_a_session_have_their_speakers(at_desk: Desk) -> None:
    """Each holds the calls of its own reply."""
    at_desk.request(("pay", order("A-1")))
    agent = Conversation(
        at_desk.session[ConversationPart], at_desk.session.calls, "agent", "clerk", clock=at_desk.clock
    )
    asked = ToolCall("x", "fail", order("A-1"))
    agent.add(_part({"role": "assistant", "tool_calls": [_function("x", "fail")]}, [asked], "r2"))
    at_desk.executor.execute(asked, reply="r2")
    at_desk.conversation.add(_part({"role": "assistant", "content": "So."}))
    assert [(item.conversation, line) for item, line in zip(at_desk.items(), shown(at_desk.items()), strict=True)] == [
        (ConversationId("loop"), "assistant: "),
        (ConversationId("loop"), "pay open"),
        (ConversationId("agent", "clerk"), "assistant: "),
        (ConversationId("agent", "clerk"), "fail failed"),
        (ConversationId("loop"), "assistant: So."),
    ]


def test_a_reset_is_shown_where_it_was(at_desk: Desk) -> None:
    """What was said before has been removed, and is still in the store."""
    at_desk.ask("Pay.")
    at_desk.session.reset()
    at_desk.ask("Anew.")
    assert shown(at_desk.items()) == ["user: Pay.", "removed 1", "user: Anew."]


def test_a_fork_has_the_transcript_of_its_origin(at_desk: Desk) -> None:
    """Its calls are not those of another session."""
    at_desk.turn(("pay", order("A-1")))
    with at_desk.session.fork(session_id="fork"):
        assert shown(items_of(at_desk.store, "fork")) == ["assistant: ", "pay ok"]


# -------------------------------------------------------------------------------------------------------- being written


def test_calls_are_yielded_as_soon_as_they_have_ended(at_desk: Desk) -> None:
    """In the order asked; their answers are not shown again, and a session that was deleted adds nothing."""
    calls = at_desk.request(("pay", order("A-1")), ("doubt", order("A-2")), ("pay", order("A-3")), text="I pay.")
    at_desk.flush()
    reader = TranscriptReader(at_desk.store, "desk")
    assert shown(reader.read(following=True)) == ["assistant: I pay."]
    at_desk.executor.execute(calls[0], reply="r1")
    at_desk.executor.execute(calls[2], reply="r1")
    assert shown(reader.read(following=True)) == ["pay ok"]
    at_desk.answer(calls)
    at_desk.say("Done.")
    at_desk.request(("pay", order("A-4")))
    at_desk.session.close()
    assert shown(reader.read(following=True)) == ["doubt unknown", "pay ok", "assistant: Done.", "assistant: "]
    lock = at_desk.store.acquire("desk", wait=timedelta(0))
    at_desk.store.delete_session(lock)
    assert shown(reader.read(following=True)) == []
    assert shown(reader.finish()) == ["pay open"]


# ------------------------------------------------------------------------------------------------------------- damage


@pytest.mark.parametrize(
    "name, items",
    [
        ("handrail.said", b"{"),
        ("handrail.tool_invoked", b"{}"),
        ("handrail.tool_invoked", b"[{}]"),
        ("handrail.tool_invoked", b"[7]"),
        ("handrail.approval", b"[{}]"),
        ("handrail.postponed_call", b'[{"session_id": "s", "call_id": "a", "at": "yesterday"}]'),
    ],
    ids=["conversation", "list", "record", "kind", "approval", "time"],
)
def test_damage_is_reported_with_its_entry(name: str, items: bytes, wording: Wording) -> None:
    """What cannot be read is not left out."""
    with stores.open("memory:") as store:
        _append(store, "s", [SessionEntry(1, "", "", "log", name, 1, 0, 0, 1, items)])
        with pytest.raises(StoreCorruptError) as raised:
            items_of(store, "s")
    assert str(raised.value) == wording


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


def _function(call_id: str, tool: str) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": tool, "arguments": order("A-1")}}
