"""The stored form of conversations: which reply is open, and the parts that versions before have written."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail.session.call_ref import CallRef
from handrail.session.conversation_parts import ConversationPart, OpenReply, RequestedCall, last_turns, open_reply
from handrail.session.persistence.stored_types import stored_type

A, B = RequestedCall("a", "note", "{}"), RequestedCall("b", "pay", {"cents": 5})
ASKS = ConversationPart(({"role": "assistant"},), "r1", (A, B))
SOME = ConversationPart(({"role": "tool"},), answers=("a",))
REST = ConversationPart(({"role": "tool"},))


@pytest.mark.parametrize(
    "parts, name, calls",
    [
        ((), None, ()),
        ((ASKS,), "r1", (A, B)),
        ((ASKS, SOME), "r1", (B,)),
        ((ASKS, SOME, ConversationPart((), answers=("b",))), None, ()),
        ((ASKS, REST), None, ()),
        ((ASKS, SOME, REST), None, ()),
        ((ASKS, ConversationPart((), ended=True)), None, ()),
        ((SOME,), None, ()),
    ],
)
def test_the_open_reply_is_the_last_one_that_no_part_has_ended(
    parts: tuple[ConversationPart, ...], name: str | None, calls: tuple[RequestedCall, ...]
) -> None:
    """A part that answers some of its calls leaves the others open; any other part ends it."""
    assert open_reply(reversed(parts)) == OpenReply(name, calls, tuple(CallRef(name, call.id) for call in calls))
    assert [each.call for each in ConversationPart.listed_calls(parts)] == [CallRef(name, call.id) for call in calls]


SAYS, ENDS = ConversationPart(({"role": "user"},)), ConversationPart(({"role": "assistant"},), ended=True)
BEGINS = ConversationPart(({"role": "user"},), restarts=True)


@pytest.mark.parametrize(
    "parts, turns, length",
    [
        ((), 3, 0),
        ((SAYS, ASKS), 1, 1),
        ((SAYS, ASKS, REST), 1, 2),
        ((SAYS, ASKS, SOME, REST), 1, 3),
        ((SAYS, ASKS, SOME, SOME, REST), 2, 5),
        ((SAYS, ASKS, REST, ENDS), 1, 1),
        ((SAYS, ASKS, REST, ENDS), 2, 3),
        ((SAYS, ASKS, REST, ENDS), 9, 4),
        ((SAYS, ConversationPart((), "r1", (A,), ended=True), SAYS), 1, 1),
        ((SAYS, ENDS, BEGINS, ASKS, REST), 9, 3),
        ((ASKS, BEGINS), 1, 1),
        ((REST, SAYS), 2, 2),
    ],
)
def test_a_turn_begins_with_a_part_that_answers_no_call(
    parts: tuple[ConversationPart, ...], turns: int, length: int
) -> None:
    """All answers of a reply belong to its turn; the parts before a restart to no turn of the conversation."""
    assert last_turns(reversed(parts), turns) == list(parts[len(parts) - length :])


def test_each_conversation_of_a_session_has_its_open_reply() -> None:
    """They are stored in one LOG; a part of one ends nothing in another."""
    other = ConversationPart((), "r2", (RequestedCall("c", "note", "{}"),), speaker="agent", name="desk")
    assert [each.call for each in ConversationPart.listed_calls((ASKS, other, SOME))] == [
        CallRef("r1", "b"),
        CallRef("r2", "c"),
    ]


@given(st.lists(st.sampled_from([ASKS, SOME, REST]), max_size=8))
def test_no_more_parts_are_read_than_decide(parts: list[ConversationPart]) -> None:
    """The newest that answers not only some calls decides."""
    taken: list[ConversationPart] = []

    def newest_first() -> Any:
        for part in reversed(parts):
            taken.append(part)
            yield part

    open_reply(newest_first())
    assert all(part is SOME for part in taken[:-1])


ASKED: dict[str, Any] = {
    "kind": "response",
    "parts": [
        {"part_kind": "text", "content": "I pay."},
        {"part_kind": "tool-call", "tool_name": "pay", "tool_call_id": "a", "args": '{"cents":5}'},
        {"part_kind": "tool-call", "tool_name": "note", "tool_call_id": "b", "args": None},
    ],
    "metadata": {"handrail_reply": "r1"},
    "timestamp": "2026-01-02T03:04:05Z",
}
ANSWER_A: dict[str, Any] = {
    "kind": "request",
    "parts": [{"part_kind": "tool-return", "tool_call_id": "a", "content": "paid"}],
}
PAY, NOTE = RequestedCall("a", "pay", '{"cents":5}'), RequestedCall("b", "note", "{}")
AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def _said(*messages: Any, at: datetime | None = None, **fields: Any) -> ConversationPart:
    return ConversationPart(messages, speaker="agent", name="desk", at=at, **fields)


@pytest.mark.parametrize("as_text", [False, True])
@pytest.mark.parametrize(
    "part",
    [
        _said(ASKED, reply="r1", calls=(PAY, NOTE), at=AT),
        _said(ASKED, ANSWER_A, reply="r1", calls=(NOTE,), at=AT),
        _said(ANSWER_A, answers=("a",)),
        _said({"kind": "response", "parts": [], "metadata": None}),
        _said({**ASKED, "metadata": {"handrail_reply": 7}}, calls=(PAY, NOTE), at=AT),
        _said({"kind": "request", "parts": [{"timestamp": "2026-01-02T03:04:05"}]}, answers=(), at=AT),
        _said({"kind": "request", "timestamp": "noon", "parts": "none"}, answers=()),
        _said(1, {}, answers=()),
        _said(answers=()),
    ],
)
def test_a_part_of_an_older_version_is_read_with_its_calls(part: ConversationPart, as_text: bool) -> None:
    """Versions before stored the messages alone, as JSON or as text that holds JSON."""
    item = {"agent": "desk", "messages": json.dumps(part.messages) if as_text else part.messages}
    assert stored_type(ConversationPart).load(json.dumps([item]).encode(), 1) == [part]


@pytest.mark.parametrize("text", ["", "{}", "[", '["\\ud800"]'])
def test_text_of_an_older_version_that_is_no_list_is_one_message(text: str) -> None:
    """It is left to the reader of the messages to refuse it."""
    item = {"agent": "mails", "messages": text, "ended": True, "of": "prompt", "whole": True}
    (part,) = stored_type(ConversationPart).load(json.dumps([item]).encode(), 1)
    expected: Any = {} if text == "{}" else text
    assert part == ConversationPart((expected,), answers=(), speaker="prompt", name="mails", ended=True, restarts=True)
