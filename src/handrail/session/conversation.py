"""The conversation of a session with a model: its messages, stored so that another process can continue it.

Theory of operation
    A message is JSON in the form of the provider. Handrail stores it and does not interpret it: which calls a reply
    asks for is stated when it is appended. A part is an item of a LOG: the messages that were appended together. A
    session may have several conversations: that of the program's own loop, that of an agent, and one for each prompt.

    A reply with calls is *open* until something is appended after it. Each of its calls has a record, or is listed by
    `Session.open_calls`. A process that resumes the session finishes the open reply first, with `ToolExecutor.answer`:
    calls with a final record are answered from it, and only the others run.

    | appended | stored |
    |---|---|
    | a reply with calls | before a handler of its calls starts; with the first claim or record, if one comes first |
    | what follows an open reply: the answers | with the next unit; until then they can be made again from the records |
    | any other message | at once |

    So a turn of the conversation costs no unit of its own.

Secrets
    The process that runs a call has its arguments as the model wrote them, for the handler and for the next request.
    What is stored, and what listeners are notified of, has `MASK` in place of each secret. A call that another process
    resumes with the mask is refused, and the model reads that it has to ask again (`handrail.runtime.steps`).

    The name of the tool says which arguments are secret. In the messages of a provider a call is an object that has
    that name beside its arguments. Other texts of the same part that repeat a secret of at least eight characters are
    masked too. Instructions are stored without the secrets that a `Redaction` recognizes; the words of a user or of the
    model are not changed.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import lru_cache
from itertools import chain
from typing import Any, ClassVar, Final, Literal, NamedTuple, cast

from pydantic_core import PydanticSerializationError, to_json

from handrail.clock import SYSTEM_CLOCK, Clock
from handrail.errors import DumpError, InvalidArgumentError, SessionError, SessionUseError
from handrail.errors.developer import check_argument
from handrail.redaction import Redaction, current_redaction
from handrail.serde import digest
from handrail.serde.json_schema import is_array, is_object
from handrail.serde.json_values import escape_surrogates, escaped_within
from handrail.session.calls import CallMasking, CallRecords, CallRef, OpenCall, ToolCall, checked_reply, distinct_id
from handrail.session.persistence.stored_types import stored_as
from handrail.session.reducers import Slice
from handrail.session.slices import SlicePolicy
from handrail.waiting import asynchronous

CALL_IDS: Final = ("tool_call_id", "call_id", "tool_use_id")
"""What PydanticAI and providers call the id of a call in its answer."""

Speaker = Literal["loop", "agent", "prompt"]
"""Whose conversation it is: that of the program's own loop, of an agent, or of a prompt that is evaluated."""

REPLY_KEY = "handrail_reply"
"""The key in the metadata of a PydanticAI response under which its name is stored."""

RECORDED_REPLY = "handrail_recorded_reply"
"""The same in a reply that a replay gives again, for the name that it has in the record."""


@stored_as("handrail.requested_call")
@dataclass(frozen=True, slots=True)
class RequestedCall:
    """A call that a reply of a conversation asks for, as `ToolCall`; several calls of a reply may have one id."""

    id: str
    name: str
    arguments: Any


@stored_as("handrail.said")
@dataclass(frozen=True, slots=True)
class ConversationPart:
    """Messages that were appended together. Its slice is a LOG."""

    slice_policy: ClassVar[SlicePolicy] = SlicePolicy.LOG

    messages: tuple[Any, ...]  # in order, each in the form of its provider, or of PydanticAI
    reply: str | None = None  # the reply whose calls they ask for; `None` if there are none, or its name is unknown
    calls: tuple[RequestedCall, ...] = ()  # the calls that they ask for and do not answer, in order
    # The ids of the calls of the open reply that they answer while others stay open; `None` if they end it.
    answers: tuple[str, ...] | None = None
    speaker: Speaker = "loop"
    name: str = ""  # the agent or prompt; empty for the program's own loop
    ended: bool = False  # whether a run ended with these messages, with an answer
    restarts: bool = False  # whether they begin another conversation, to which earlier parts do not belong
    at: datetime | None = None  # when they were appended
    unchecked: bool = False  # whether they end with an answer that the completion check of the run has yet to check
    # Of a reply: digests of the parts of the request that it answers, by their names, as far as they have changed since
    # the reply before; empty for what is no longer a part.
    request: Mapping[str, str] | None = field(default=None, compare=False)

    @property
    def is_unfinished(self) -> bool:
        """Returns whether a conversation that ends with it waits for the model, its calls, or a check of its answer."""
        if self.ended:
            return False
        last = cast("dict[str, Any]", self.messages[-1]) if isinstance(self.messages[-1], dict) else {}
        is_answer = last.get("role") == "tool" or last.get("type") == "function_call_output"
        is_request = is_answer or last.get("role") == "user" or last.get("kind") == "request"
        return self.speaker == "prompt" or bool(self.calls) or self.answers is not None or self.unchecked or is_request

    @property
    def has_reply(self) -> bool:
        """Returns whether one of the messages is a reply of the model, as far as their form says so."""
        return bool(self.calls) or any(
            one.get("kind") == "response" or one.get("role") == "assistant" for one in filter(is_object, self.messages)
        )

    @property
    def call_refs(self) -> tuple[CallRef, ...]:
        """The identities of its calls, in order; each call has one of its own, also if it shares its id."""
        names: set[str] = set()
        return tuple(CallRef(self.reply, distinct_id(call.id, names) if self.reply else call.id) for call in self.calls)

    @staticmethod
    def listed_calls(items: Sequence[Any]) -> Iterable[OpenCall]:
        """The calls of the open reply of each conversation."""
        parts = cast("Sequence[ConversationPart]", items)  # the items of the slice of this class
        for speaker, name in dict.fromkeys((part.speaker, part.name) for part in parts):
            reply = open_reply(part for part in reversed(parts) if (part.speaker, part.name) == (speaker, name))
            for ref, call in reply.calls:
                yield OpenCall(call=ref, tool=call.name, state="unrecorded")


class OpenReply(NamedTuple):
    """The reply of a conversation that no part has ended."""

    name: str | None  # its name; `None` if none is open, or its name is unknown
    # Its calls that no message of the conversation answers, each with its identity.
    calls: tuple[tuple[CallRef, RequestedCall], ...]


def open_reply(parts: Iterable[ConversationPart]) -> OpenReply:
    """The open reply of a conversation; `parts` are the newest first, and no more of them are read than needed."""
    answered_ids: set[str] = set()
    for part in parts:
        if part.ended or (part.answers is None and not part.calls):
            break
        if part.answers is None:
            pairs = zip(part.call_refs, part.calls, strict=True)
            calls = tuple((ref, call) for ref, call in pairs if call.id not in answered_ids)
            return OpenReply(part.reply if calls else None, calls)
        answered_ids.update(part.answers)
    return OpenReply(None, ())


def last_turns(parts: Iterable[ConversationPart], turns: int) -> list[ConversationPart]:
    """The parts of the last turns of a conversation, the oldest first; those since the last restart.

    A turn begins with a part that answers no call. The answers of its calls belong to it.

    Args:
        parts: the newest first; no more of them are read than needed.
        turns: at least 1.
    """
    turn_parts: list[ConversationPart] = []
    count = 0
    for part in parts:
        # After a part that asks for calls, or answers some of those that are open, comes an answer.
        is_open = not part.ended and bool(part.calls or part.answers is not None)
        count += bool(turn_parts) and not is_open
        if count == turns:
            break
        turn_parts.append(part)
        if part.restarts:
            break
    return turn_parts[::-1]


Message = Any
"""A message in the form of its provider: what JSON restores, mostly a dictionary."""


class Conversation:
    """The messages of a session, in order; `Session.conversation` is that of the program's own loop.

    Args:
        items: the parts of all conversations of a session.
        calls: the records of its calls.
        speaker: whose conversation it is.
        name: the agent or prompt; empty for the program's own loop.
        clock: the source of the time.

    Attributes:
        digest_request: returns digests of the parts of the last request, to be recorded with the reply to it, or `None`
            if they are not known. It refers to nothing that refers to the session, which ends with its last user.
    """

    __slots__ = ("_calls", "_clock", "_digests", "_items", "_name", "_speaker", "digest_request")

    def __init__(
        self,
        items: Slice[ConversationPart],
        calls: CallRecords,
        speaker: Speaker = "loop",
        name: str = "",
        *,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._items = items
        self._calls = calls
        self._speaker: Speaker = speaker
        self._name = name
        self._clock = clock
        self._digests: dict[str, str] | None = None
        self.digest_request: Callable[[], Mapping[str, str] | None] = _unknown_request

    def __len__(self) -> int:
        return sum(len(part.messages) for part in self.parts)

    def __bool__(self) -> bool:
        newest = self._items.latest()
        return newest is not None and ((self._is_mine(newest) and bool(newest.messages)) or len(self) > 0)

    @property
    def parts(self) -> tuple[ConversationPart, ...]:
        """The parts since the last restart, in order.

        Raises:
            StoreError: they cannot be read.
        """
        mine = [part for part in self._items.all() if self._is_mine(part)]
        start = max((place for place, part in enumerate(mine) if part.restarts), default=0)
        return tuple(mine[start:])

    @property
    def messages(self) -> list[Message]:
        """Copies of all messages, as they were appended: what the provider is sent.

        Raises:
            StoreError: they cannot be read.
        """
        return [copy.deepcopy(message) for part in self.parts for message in part.messages]

    def last(self, turns: int) -> list[Message]:
        """Returns copies of the messages of the last turns, at least 1; no older ones are read.

        A turn begins with messages that answer no call, so the messages never begin with an answer whose call is
        missing.

        Raises:
            InvalidArgumentError: `turns` is not positive.
            StoreError: they cannot be read.
        """
        if turns < 1:
            expected = "a number of turns, at least 1"
            raise InvalidArgumentError(function="Conversation.last", argument="turns", value=turns, expected=expected)
        items, length = self._items, len(self._items)
        # A turn mostly has two parts, and the part before it says that it begins: these are read at once.
        first = max(length - 2 * turns - 1, 0)
        newest_first = chain(reversed(items[first:length]), (items[place] for place in reversed(range(first))))
        parts = last_turns(filter(self._is_mine, newest_first), turns)
        return [copy.deepcopy(message) for part in parts for message in part.messages]

    @property
    def reply(self) -> str | None:
        """The name of the open reply, or its digest if it is long; `None` if none is open."""
        return self._open_reply().name

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The calls of the open reply, with and without a record; empty if none is open."""
        requests = self._open_reply().calls
        return tuple(ToolCall(call.id, call.name, copy.deepcopy(call.arguments)) for _, call in requests)

    def append(
        self, *messages: Message, calls: Iterable[ToolCall] = (), reply: str | None = None, ended: bool = False
    ) -> None:
        """Appends messages. Those after an open reply end it, so append the answers of all its calls together.

        Completeness of the answers is not checked, because messages are not interpreted.

        Args:
            messages: in order, each what JSON restores. They are copied; a lone surrogate is replaced by its escape.
            calls: the calls that they ask for, all of the reply, with the ids of the provider. Then the reply is open.
            reply: names the reply, as for `ToolExecutor.execute`; required with calls. A name of more than 500
                characters is replaced by its digest.
            ended: whether they are the answer of the model, with which a run ends; see `ConversationPart.ended`.

        Raises:
            InvalidArgumentError: `calls` has something that is not a `ToolCall`.
            ValueError: there are calls and no valid `reply`, or with `ended`; or calls or a reply, and no message.
            SessionUseError: a message is not JSON; a call of the open reply has no record; an earlier reply of that
                name has a record of a call of the same id; or it may not wait on an event loop. Nothing was appended.
            SessionError: the session is closed, or has passed to another process.
            StoreError: the store does not take messages that are stored at once. They are in the conversation of this
                process, and are stored with its next unit: do not append them again.
            CommitInDoubtError: it is unknown whether they were stored; open the session again.
        """
        requests = tuple(calls)
        for call in requests:
            check_argument("Conversation.append", "calls", call, ToolCall, "calls: ToolCall(id, name, arguments)")
        name = checked_reply(reply) if requests else None
        if not messages and (requests or reply is not None):
            raise ValueError(
                "calls and the name of a reply belong to a message, and none was given: append the message of the "
                "model that asks for the calls"
            )
        if requests and ended:
            raise ValueError("a run does not end with a reply that asks for calls: leave out ended=True")
        answers = self._check_answered()
        if messages:
            part = ConversationPart(copy.deepcopy(messages), name, tuple(map(_request, requests)), ended=ended)
            self._check_new(part)
            self.add(part, write="deferred" if answers or requests else "surely")

    append_async: Final = asynchronous(append)

    def add(self, part: ConversationPart, *, write: Literal["now", "deferred", "surely"] = "now") -> None:
        """Appends a part, without a check of what it answers; speaker, name and time are those of the conversation.

        Raises:
            SessionUseError: the session is stored, and a message is not JSON. Nothing was appended.
            SessionError: the session is closed, or has passed to another process.
        """
        storable = _storable(part.messages)
        item = replace(part, messages=storable, speaker=self._speaker, name=self._name, at=self._clock.now())
        if part.has_reply and (digests := self.digest_request()) is not None:
            item = replace(item, request=self._changed_request(digests) or None)
        try:
            self._items.log(item, write=write)
        except SessionError as error:
            if not isinstance(error.__cause__, DumpError):
                raise
            raise SessionUseError(
                f"nothing was appended to the conversation of session {self._items.session_id!r}, because it is not "
                f"JSON: {error.__cause__}"
            ) from error.__cause__

    def _changed_request(self, digests: Mapping[str, str]) -> dict[str, str]:
        if self._digests is None:
            requests = (part.request or {} for part in self.parts)
            self._digests = {name: one for request in requests for name, one in request.items()}
        changed = {name: one for name, one in digests.items() if self._digests.get(name) != one}
        changed |= {name: "" for name, one in self._digests.items() if one and name not in digests}
        self._digests |= changed
        return changed

    def _is_mine(self, part: ConversationPart) -> bool:
        return part.speaker == self._speaker and part.name == self._name

    def _open_reply(self) -> OpenReply:
        newest = self._items.latest()
        # The fast path reads no other part: the newest one is mostly of this conversation, and says what is open.
        if newest is None or (self._is_mine(newest) and newest.answers is None):
            return open_reply(() if newest is None else (newest,))
        return open_reply(reversed(self.parts))

    def _check_new(self, part: ConversationPart) -> None:
        for ref in part.call_refs:
            if self._calls.is_final(ref):
                raise SessionUseError(
                    f"session {self._items.session_id!r} has a record of call {ref} already, so an earlier reply had "
                    "the same name, and this call would be answered from that record. Some servers give each response "
                    "the same id: name the reply yourself then, reply=f'reply-{len(conversation)}'"
                )

    def _check_answered(self) -> bool:
        calls = self._open_reply().calls
        for ref, call in calls:
            if self._calls.find(ref) is None:
                raise SessionUseError(
                    f"call {ref} of {call.name} has not been answered, so no message can follow it in the conversation "
                    f"of session {self._items.session_id!r}; finish the reply first, with ToolExecutor.answer"
                )
        return bool(calls)


def _unknown_request() -> None:
    """Stands for a request of which nothing is known."""


def _request(call: ToolCall) -> RequestedCall:
    return RequestedCall(escape_surrogates(call.id), escape_surrogates(call.name), _storable_arguments(call.words))


def _storable_arguments(words: str | bytes | Mapping[str, Any]) -> str | Mapping[str, Any]:
    if isinstance(words, bytes | bytearray):
        words = bytes(words).decode(errors="backslashreplace")
    if isinstance(words, str):
        return escape_surrogates(words)
    try:
        json.dumps(words, ensure_ascii=False, allow_nan=False).encode()  # refuses NaN and lone surrogates
    except (ValueError, TypeError, RecursionError):
        with suppress(ValueError, TypeError, RecursionError):  # no text either: storing it raises, and says where
            return json.dumps(words)
    return words


def _storable(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    try:
        to_json(messages)
    except PydanticSerializationError:
        return tuple(map(escaped_within, messages))
    return messages


_NAMES: Final = ("tool_name", "name")
_ARGUMENTS: Final = ("args", "arguments", "input")
"""What PydanticAI and providers call the tool and the arguments of a call, in the object of the call."""

_INSTRUCTIONS: Final = "instructions"
"""The instructions in a request of PydanticAI."""


def masked_item(item: Any, masking: CallMasking) -> Any:  # noqa: ANN401 - of any LOG
    """An item of a LOG as it leaves the process: a part of a conversation without secrets, any other as it is."""
    return masked_part(item, masking) if isinstance(item, ConversationPart) else item


def masked_part(part: ConversationPart, masking: CallMasking) -> ConversationPart:
    """A part of a conversation as it is stored; the same object if it has no secrets."""
    messages, calls = tuple(map(_redact_instructions, part.messages)), part.calls
    if masking.tools:
        secrets: set[str] = set()
        messages = tuple(_mask_node(message, masking, secrets) for message in messages)
        calls = tuple(replace(call, arguments=masking.arguments(call.name, call.arguments, secrets)) for call in calls)
        if secrets:
            spoken = Redaction(values=secrets, forms=())
            messages = tuple(_redact_node(message, spoken) for message in messages)
    masked = replace(part, messages=messages, calls=calls)
    return part if masked == part else masked


def _mask_node(node: Any, masking: CallMasking, secrets: set[str]) -> Any:  # noqa: ANN401 - decoded JSON
    if is_array(node):
        return [_mask_node(item, masking, secrets) for item in node]
    if not is_object(node):
        return node
    tool = next((name for key in _NAMES if isinstance(name := node.get(key), str) and name in masking.tools), None)
    return {
        key: _mask_node(item, masking, secrets)
        if tool is None or key not in _ARGUMENTS
        else masking.arguments(tool, item, secrets)
        for key, item in node.items()
    }


def _redact_instructions(message: Any) -> Any:  # noqa: ANN401 - decoded JSON
    text = message.get(_INSTRUCTIONS) if is_object(message) else None
    if not isinstance(text, str):
        return message
    redacted = _redact(text, current_redaction())
    return message if redacted == text else {**message, _INSTRUCTIONS: redacted}


@lru_cache(maxsize=32)  # each request has them, mostly the same
def _redact(instructions: str, redaction: Redaction) -> str:
    return redaction.text(instructions)


def _redact_node(node: Any, spoken: Redaction) -> Any:  # noqa: ANN401 - as above
    if isinstance(node, str):
        return spoken.text(node)
    if is_object(node):
        return {key: _redact_node(item, spoken) for key, item in node.items()}
    return [_redact_node(item, spoken) for item in node] if is_array(node) else node


def digest_request(request: Mapping[str, Any]) -> dict[str, str]:
    """Digests of the parts of a request to a model; each tool is one, and so is their order.

    Of the answers to calls only the ids count: calls are compared by themselves.
    """
    parts, tools = {name: value for name, value in request.items() if name != "tools"}, request.get("tools") or ()
    names = [_tool_name(tool, place) for place, tool in enumerate(tools)]
    parts |= {"order of tools": names, **{f"tool {name}": tool for name, tool in zip(names, tools, strict=True)}}
    return {name: digest(without_answers(value)) for name, value in parts.items()}


def _tool_name(tool: Any, place: int) -> str:  # noqa: ANN401 - decoded JSON
    inner = tool.get("function", tool) if is_object(tool) else None
    return str(inner.get("name", place) if is_object(inner) else place)


def without_answers(node: Any, left_out: frozenset[str] = frozenset()) -> Any:  # noqa: ANN401 - decoded JSON
    """Messages of which the answers to calls have the ids alone, and from which some names are left out."""
    if is_array(node):
        return [without_answers(item, left_out) for item in node]
    if not is_object(node):
        return node
    if call_id := next((node[name] for name in CALL_IDS if name in node), None):
        return {"call": call_id}
    return {name: without_answers(value, left_out) for name, value in node.items() if name not in left_out}
