"""How the conversation of a session is stored: its messages in parts, each with the calls that they ask for.

A part is an item of a LOG: the messages that were appended together. A session may have several conversations: that of
the program's own loop, that of an agent, and one for each prompt. Each part states whose it is.

A reply with calls is *open* until a part follows that ends it. A part that answers only some of its calls, because
others wait for an approval, says which.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, Literal, NamedTuple, cast

from handrail.session.call_records import OpenCall
from handrail.session.call_ref import CallRef, distinct_id
from handrail.session.persistence.stored_types import stored_as
from handrail.session.slices import SlicePolicy

Speaker = Literal["loop", "agent", "prompt"]
"""Whose conversation it is: that of the program's own loop, of an agent, or of a prompt that is evaluated."""

REPLY_KEY = "handrail_reply"
"""The key in the metadata of a PydanticAI response under which its name is stored."""


@stored_as("handrail.requested_call")
@dataclass(frozen=True, slots=True)
class RequestedCall:
    """A call that a reply of a conversation asks for.

    Attributes:
        id: as of `ToolCall`; several calls of a reply may have one, see `ConversationPart.call_refs`.
        name: as of `ToolCall`.
        arguments: as of `ToolCall`.
    """

    id: str
    name: str
    arguments: Any


@stored_as("handrail.said")
@dataclass(frozen=True, slots=True)
class ConversationPart:
    """Messages that were appended together. Its slice is a LOG.

    Attributes:
        messages: in order, each in the form of its provider, or of PydanticAI.
        reply: the reply whose calls they ask for; `None` if they ask for none, or its name is not known.
        calls: what they ask for and do not answer, in order.
        answers: the ids of those calls of the open reply that they answer while others stay open; `None` if they end
            the open reply.
        speaker: whose conversation it is.
        name: the agent or prompt; empty for the program's own loop.
        ended: whether a run ended with these messages, with an answer.
        restarts: whether they begin another conversation, to which earlier parts do not belong.
        unchecked: whether they end with an answer that is still to be checked: by the completion check of the run.
        at: when they were appended.
    """

    slice_policy: ClassVar[SlicePolicy] = SlicePolicy.LOG

    messages: tuple[Any, ...]
    reply: str | None = None
    calls: tuple[RequestedCall, ...] = ()
    answers: tuple[str, ...] | None = None
    speaker: Speaker = "loop"
    name: str = ""
    ended: bool = False
    restarts: bool = False
    at: datetime | None = None
    unchecked: bool = False

    @property
    def is_unfinished(self) -> bool:
        """Whether a conversation that ends with it waits for the model, for its calls, or for a check of its answer."""
        if self.ended:
            return False
        said = cast("dict[str, Any]", self.messages[-1]) if isinstance(self.messages[-1], dict) else {}
        is_answer = said.get("role") == "tool" or said.get("type") == "function_call_output"
        is_request = is_answer or said.get("role") == "user" or said.get("kind") == "request"
        return self.speaker == "prompt" or bool(self.calls) or self.answers is not None or self.unchecked or is_request

    @property
    def call_refs(self) -> tuple[CallRef, ...]:
        """The identities of its calls, in order; each call has one of its own, also if it shares its id."""
        taken: set[str] = set()
        return tuple(CallRef(self.reply, distinct_id(call.id, taken) if self.reply else call.id) for call in self.calls)

    @staticmethod
    def listed_calls(items: Sequence[Any]) -> Iterable[OpenCall]:
        """The calls of the open reply of each conversation."""
        parts = cast("Sequence[ConversationPart]", items)  # the items of the slice of this class
        for speaker, name in dict.fromkeys((part.speaker, part.name) for part in parts):
            reply = open_reply(part for part in reversed(parts) if (part.speaker, part.name) == (speaker, name))
            for ref, call in zip(reply.refs, reply.calls, strict=True):
                yield OpenCall(call=ref, tool=call.name, state="unrecorded")


class OpenReply(NamedTuple):
    """The reply of a conversation that no part has ended.

    Attributes:
        name: its name; `None` if none is open, or its name is not known.
        calls: its calls that no message of the conversation answers.
        refs: the identities of these calls.
    """

    name: str | None
    calls: tuple[RequestedCall, ...]
    refs: tuple[CallRef, ...]


NONE_OPEN = OpenReply(None, (), ())
"""Nothing is open."""


def open_reply(parts: Iterable[ConversationPart]) -> OpenReply:
    """The open reply of a conversation.

    Args:
        parts: its parts, the newest first; no more of them are taken than are needed.
    """
    answered: set[str] = set()
    for part in parts:
        if part.ended:
            break
        if part.answers is None:
            left = [pair for pair in zip(part.calls, part.call_refs, strict=True) if pair[0].id not in answered]
            calls, refs = tuple(call for call, _ in left), tuple(ref for _, ref in left)
            return OpenReply(part.reply if calls else None, calls, refs)
        answered.update(part.answers)
    return NONE_OPEN


def last_turns(parts: Iterable[ConversationPart], turns: int) -> list[ConversationPart]:
    """The parts of the last turns of a conversation, the oldest first; those since the last restart.

    A turn begins with a part that answers no call. The answers of its calls belong to it.

    Args:
        parts: the parts of the conversation, the newest first; no more of them are taken than are needed.
        turns: how many turns, at least 1.
    """
    found: list[ConversationPart] = []
    begun = 0
    for part in parts:
        # After a part that asks for calls, or answers some of those that are open, comes an answer.
        is_open = not part.ended and bool(part.calls or part.answers is not None)
        begun += bool(found) and not is_open
        if begun == turns:
            break
        found.append(part)
        if part.restarts:
            break
    return found[::-1]
