"""The stored form of conversations: which reply is open, and where turns begin."""

from __future__ import annotations

import pytest

from handrail.session.calls import CallRef
from handrail.session.conversation import ConversationPart, OpenReply, RequestedCall, last_turns, open_reply

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
    assert open_reply(reversed(parts)) == OpenReply(name, tuple((CallRef(name, call.id), call) for call in calls))
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
