"""The conversation of a session with a model: its messages, kept so that another process can continue it.

Theory of operation
    A message is JSON in the form of the provider. Handrail stores it and does not interpret it. What has to be known of
    a reply is which calls it asks for: they are stated when it is appended.

    A reply with calls is *open* until something is appended after it. Then each of its calls has a record, or else it
    is listed by `Session.open_calls`. A process that resumes the session finishes the open reply first, with
    `ToolExecutor.answer`: calls with a final record are answered from it, and only the others run.

    | appended | stored |
    |---|---|
    | a reply with calls | before a handler of its calls starts; with the first claim or record, if one comes first |
    | what follows an open reply: the answers | with the next unit; until then they can be made again from the records |
    | any other message | at once |

    So a turn of the conversation costs no unit of its own.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol, cast

from pydantic_core import PydanticSerializationError, to_json

from handrail.errors import SessionUseError
from handrail.errors.developer import check_argument
from handrail.serde.json_values import escaped_within
from handrail.session.call_records import CallRecord, OpenCall
from handrail.session.call_ref import CallRef, ToolCall, is_reply
from handrail.session.persistence.stored_types import stored_as
from handrail.session.slices import Slice, SlicePolicy

Message = Any
"""A message in the form of its provider: what JSON restores, mostly a dictionary."""


@stored_as("handrail.requested_call")
@dataclass(frozen=True, slots=True)
class RequestedCall:
    """A call that a reply of a conversation asks for.

    Attributes:
        id: as of `ToolCall`.
        name: as of `ToolCall`.
        arguments: as of `ToolCall`.
    """

    id: str
    name: str
    arguments: Any


@stored_as("handrail.messages")
@dataclass(frozen=True, slots=True)
class ConversationPart:
    """Messages that were appended together. Its slice is a LOG.

    Attributes:
        messages: in order.
        reply: the reply whose calls they ask for; `None` if they ask for none.
        calls: what they ask for, in order.
    """

    slice_policy: ClassVar[SlicePolicy] = SlicePolicy.LOG

    messages: tuple[Any, ...]
    reply: str | None = None
    calls: tuple[RequestedCall, ...] = ()

    @staticmethod
    def listed_calls(items: Sequence[Any]) -> Iterable[OpenCall]:
        """The calls of the open reply."""
        parts = cast("Sequence[ConversationPart]", items)  # the items of the slice of this class
        for call in parts[-1].calls if parts else ():
            yield OpenCall(call=CallRef(parts[-1].reply, call.id), tool=call.name, state="unrecorded")


class ConversationSession(Protocol):
    """What a conversation needs of its session."""

    @property
    def session_id(self) -> str:
        """The id of the session."""
        ...

    def __getitem__(self, kind: type[ConversationPart], /) -> Slice[ConversationPart]:
        """The slice of a type."""
        ...

    def log_item(
        self, kind: type[ConversationPart], item: ConversationPart, *, written: Literal["now", "deferred"]
    ) -> None:
        """Append to a LOG, stored now or with the next unit."""
        ...

    def recorded_call(self, ref: CallRef) -> CallRecord | None:
        """The event that recorded a call last."""
        ...


class Conversation:
    """The messages of a session, in order; `Session.conversation`.

    Args:
        session: the session.
    """

    __slots__ = ("_session",)

    def __init__(self, session: ConversationSession) -> None:
        self._session = session

    def __len__(self) -> int:
        """How many messages there are."""
        return sum(len(part.messages) for part in self._session[ConversationPart].all())

    @property
    def messages(self) -> list[Message]:
        """Copies of all messages, as they were appended: what the provider is sent.

        Raises:
            StoreError: they cannot be read.
        """
        parts = self._session[ConversationPart].all()
        return [copy.deepcopy(message) for part in parts for message in part.messages]

    @property
    def reply(self) -> str | None:
        """The name of the open reply; `None` if none is open."""
        part = self._session[ConversationPart].latest()
        return None if part is None else part.reply

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The calls of the open reply, with and without a record; empty if none is open."""
        part = self._session[ConversationPart].latest()
        calls = () if part is None else part.calls
        return tuple(ToolCall(call.id, call.name, copy.deepcopy(call.arguments)) for call in calls)

    def append(self, *messages: Message, calls: Iterable[ToolCall] = (), reply: str | None = None) -> None:
        """Append messages. After an open reply these are the answers of its calls, all of them at once.

        Args:
            messages: in order, each what JSON restores. They are copied.
            calls: the calls that they ask for. Then the reply is open.
            reply: names the reply that asks for the calls, as for `ToolExecutor.execute`; required with calls.

        Raises:
            InvalidArgumentError: `calls` has something that is not a `ToolCall`.
            ValueError: there are calls and no valid `reply`.
            SessionUseError: a message is not JSON; or a call of the open reply has no record, so that the messages
                cannot be its answers. Nothing was appended.
            SessionError: the session is closed, or has passed to another process.
        """
        asked = tuple(calls)
        for call in asked:
            check_argument("Conversation.append", "calls", call, ToolCall, "calls: ToolCall(id, name, arguments)")
        if asked and not is_reply(reply):
            raise ValueError(
                f"calls are appended with the name of their reply, and {reply!r:.80} cannot be one. Give the id that "
                "the provider gave the response"
            )
        answers = self._check_answered()
        if not messages:
            return
        requested = tuple(RequestedCall(call.id, call.name, _arguments(call)) for call in asked)
        part = ConversationPart(_storable(messages), reply if asked else None, requested)
        self._session.log_item(ConversationPart, part, written="deferred" if answers or asked else "now")

    def _check_answered(self) -> bool:
        """Whether a reply is open, all of whose calls have a record.

        Raises:
            SessionUseError: one has none.
        """
        part = self._session[ConversationPart].latest()
        calls = () if part is None else part.calls
        for call in calls:
            ref = CallRef(None if part is None else part.reply, call.id)
            if self._session.recorded_call(ref) is None:
                raise SessionUseError(
                    f"call {ref} of {call.name} has not been answered, so no message can follow it in the conversation "
                    f"of session {self._session.session_id!r}; finish the reply first, with ToolExecutor.answer"
                )
        return bool(calls)


def _storable(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Copies of messages; a lone surrogate, which a model may write and no store takes, is replaced by its escape."""
    try:
        to_json(messages)
    except PydanticSerializationError:
        return tuple(map(escaped_within, messages))
    return tuple(map(copy.deepcopy, messages))


def _arguments(call: ToolCall) -> Any:  # noqa: ANN401 - what the model wrote, or decoded JSON
    arguments = call.words
    return bytes(arguments).decode(errors="backslashreplace") if isinstance(arguments, bytes | bytearray) else arguments
