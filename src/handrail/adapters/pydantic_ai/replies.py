"""Names the reply of a PydanticAI call, that is, the response of the model that asked for it.

| the response | its name |
|---|---|
| has been named before | that name, from `metadata["handrail_reply"]` |
| has a provider id that no other reply of the session has | that id |
| has a `run_id`, or belongs to the current run | `<run_id>:<ordinal among the responses of that run>` |
| has neither, because the history was created by hand | a digest of its calls and of its position |

A name that cannot be stored, or starts like the replies of nested calls, is replaced by its digest.

The name does not depend on the process. It is written into the metadata of the response, which are not sent to the
model, so that another process, or a history from which messages have been dropped, has the same name. A capability
writes it when the response arrives. A bare toolset writes it when the first call starts: in a history that was stored
before, and has lost earlier responses since, the ordinal is not that of the run.

Some servers reuse ids of responses, or always send the same. So the id does not name a new response if it already names
another reply:

- an earlier response of the history;
- a response that has arrived in this process, in any run on the session;
- the reply of a call of the same id that was recorded before the response arrived;
- the reply of a call that was open at the first request (`Session.open_calls`): its process may have been killed after
  the effect and before the record.

Claims and records from after the response arrived may be its own: durable execution delivers a response again, with its
original timestamp. If the store uses a server's clock, it is compared with that of this machine.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, NamedTuple

from pydantic_ai import ModelMessage, ModelResponse, RunContext, ToolCallPart
from pydantic_ai.messages import ModelResponsePart
from pydantic_core import PydanticSerializationError, from_json, to_json

from handrail.errors import SessionError, StoreError
from handrail.runtime import ToolCall, ToolInvoked
from handrail.runtime.execution import ASYNC
from handrail.serde.json_values import escape_surrogates
from handrail.session import Session
from handrail.session.calls import CallRef, distinct_id, is_reply, is_storable_id
from handrail.session.conversation import REPLY_KEY

Words = str | dict[str, Any] | None
"""The arguments of a call as the model wrote them; `None` if they are not known, or it wrote none."""


class _Names(NamedTuple):
    """The provider ids that name replies of a session but are not in the current history.

    Attributes:
        given: when the response arrived to which this process gave the name. It grows with the records.
        open: since when a reply has had the name, for those whose calls were open at the first request.
    """

    given: dict[str, datetime]
    open: dict[str, datetime]


_ALWAYS = datetime.min.replace(tzinfo=UTC)


class Asked(NamedTuple):
    """A call in the history.

    Attributes:
        ref: the identity of the call. Its reply is `None` for a call that was made outside any run.
        words: the arguments as the model wrote them.
    """

    ref: CallRef
    words: Words = None

    def tool_call(self, name: str, arguments: str | dict[str, Any]) -> ToolCall:
        """The call for the pipeline: the arguments to run, and those that the model wrote if they differ."""
        if self.words is None or _same(arguments, self.words):
            return ToolCall(self.ref.call_id, name, arguments)
        return ToolCall(self.ref.call_id, name, arguments, self.words)


def asked(ctx: RunContext[Any], session: Session, call_id: str | None = None) -> Asked:
    """The call as the model asked for it.

    Args:
        ctx: the run context of the call.
        session: the session of the call.
        call_id: the id of the call; by default that of the context.
    """
    call_id = (ctx.tool_call_id if call_id is None else call_id) or ""
    # From the end, because an id may occur in earlier replies too.
    for place in range(len(ctx.messages) - 1, -1, -1):
        response = ctx.messages[place]
        if isinstance(response, ModelResponse):
            for part in response.tool_calls:
                if part.tool_call_id == call_id:
                    return Asked(CallRef(_name_of(ctx, session, place, response), call_id), part.args)
    # A call that a tool makes through the tool manager is not in a response.
    return Asked(CallRef(_storable(f"{ctx.run_id}:{ctx.run_step}") if ctx.run_id else None, call_id))


async def learn_replies(session: Session) -> None:
    """Read which replies of a session have open calls, without holding the event loop; once for each session.

    A reply is named by them, if it has calls and an id of its provider. What cannot be read is read again then, and is
    reported if it is needed.
    """
    if session.store is None or _Names in session.attached:
        return
    with suppress(StoreError, SessionError):
        await ASYNC.write_to(session.store, partial(_names_of, session))


def stamped(ctx: RunContext[Any], session: Session, response: ModelResponse, taken: set[str]) -> ModelResponse:
    """A copy of a new response, with its name, and with calls that can be stored, each with a unique id.

    It is a copy, because a model may return one object for several replies; a name that it already has is that of an
    earlier reply.

    Args:
        ctx: the run context of the request.
        session: the session of the run.
        response: the response.
        taken: ids that none of its calls may have; those of its calls are added.
    """
    response = _with_storable_calls(response, taken)
    name = _new_name(ctx, session, ctx.messages, response)
    return replace(response, metadata={**(response.metadata or {}), REPLY_KEY: name})


def _with_storable_calls(response: ModelResponse, taken: set[str]) -> ModelResponse:
    """A response whose calls have unused ids, which are then added to `taken`.

    Some models restart their ids in each reply, or give several calls of one reply the same id. Providers accept
    letters, digits, `_` and `-`. An id that a store cannot look up, of a megabyte or with a NUL, is replaced too: the
    conversation, its approvals and the sessions of called agents are stored under it. Lone surrogates are escaped
    first, so that a call is the same when its response is loaded from a store.
    """
    changed: dict[int, ModelResponsePart] = {}
    for place, part in enumerate(response.parts):
        if isinstance(part, ToolCallPart):
            unique = distinct_id(_sendable(escape_surrogates(part.tool_call_id)), taken)
            if (called := _escaped_call(replace(part, tool_call_id=unique))) != part:
                changed[place] = called
    if not changed:
        return response
    return replace(response, parts=[changed.get(place, part) for place, part in enumerate(response.parts)])


def _escaped_call(call: ToolCallPart) -> ToolCallPart:
    """A call with the lone surrogates in its name and arguments escaped.

    In the arguments they become JSON escapes, which the pipeline refuses as it refuses the surrogates.
    """
    name, words = escape_surrogates(call.tool_name), call.args
    if isinstance(words, str):
        words = escape_surrogates(words)
    elif words is not None:
        try:
            to_json(words, serialize_unknown=True)
        except PydanticSerializationError:
            words = json.dumps(words, default=str)
    if (name, words) == (call.tool_name, call.args):
        return call
    return ToolCallPart(
        name,
        words,
        call.tool_call_id,
        tool_kind=call.tool_kind,
        id=call.id,
        provider_name=call.provider_name,
        provider_details=call.provider_details,
    )


def name_of_answer(response: ModelResponse) -> str | None:
    """The name of an answer: that of its response, with its time, because a server may reuse the id of an answer.

    It is the same when the response is loaded from a store; `None` for a response that has no name.
    """
    name = _stamp(response)
    return None if name is None else _storable(f"{name}@{response.timestamp.isoformat()}")


def name_in_history(messages: Sequence[ModelMessage], place: int) -> str:
    """The name of the response at that index of a history; it is not written into it."""
    response = messages[place]
    assert isinstance(response, ModelResponse)  # noqa: S101 - for the type checkers
    earlier = [message for message in messages[:place] if isinstance(message, ModelResponse)]
    name = _stamp(response)
    # A stamp that an earlier response has too was copied by a model that returns one object for several replies. Theirs
    # are compared as they are: this one is valid, so an equal one is, too.
    if name and not any(other.metadata and other.metadata.get(REPLY_KEY) == name for other in earlier):
        return name
    if _is_provider_id_of_its_own(response, earlier):
        return _storable(response.provider_response_id or "")
    if response.run_id:
        ordinal = 1 + sum(1 for other in earlier if other.run_id == response.run_id)
        return _storable(f"{response.run_id}:{ordinal}")
    return _digest(response.tool_calls, len(earlier) + 1)


def _name_of(ctx: RunContext[Any], session: Session, place: int, response: ModelResponse) -> str:
    """The name of the response at that index of the run's history; it is written into it."""
    # Only a response of this run can be given a new name; one of the history must have the same name in each process.
    is_live = bool(ctx.run_id) and response.run_id == ctx.run_id
    if is_live and _stamp(response) is None:
        name = _new_name(ctx, session, ctx.messages[:place], response)
    else:
        name = name_in_history(ctx.messages, place)
    if _stamp(response) != name:
        response.metadata = {**(response.metadata or {}), REPLY_KEY: name}
    return name


def _new_name(ctx: RunContext[Any], session: Session, earlier: Sequence[ModelMessage], response: ModelResponse) -> str:
    """A name for a response of the current run that has none yet."""
    responses = [message for message in earlier if isinstance(message, ModelResponse)]
    if _is_provider_id_of_its_own(response, responses):
        name = _storable(response.provider_response_id or "")
        if not response.tool_calls or not _is_taken(name, session, response):
            return name
    if ctx.run_id:
        # A history processor may have dropped responses, so they are not counted here.
        return _storable(f"{ctx.run_id}:{ctx.run_step}")
    return _digest(response.tool_calls, len(responses) + 1)


def _is_provider_id_of_its_own(response: ModelResponse, earlier: Sequence[ModelResponse]) -> bool:
    name = response.provider_response_id
    return bool(name) and all(other.provider_response_id != name for other in earlier)


def _is_taken(name: str, session: Session, response: ModelResponse) -> bool:
    """Whether the name is that of another reply of the session; if not, it becomes that of this response."""
    arrived = response.timestamp
    try:
        names = _names_of(session)
        records = [session.calls.find(CallRef(name, call.tool_call_id)) for call in response.tool_calls]
    except StoreError:  # no call starts without its store
        return True
    # Durable execution delivers the same response again, with its timestamp: it keeps its name.
    if names.given.get(name) == arrived:
        return False
    if name in names.open and names.open[name] < arrived:
        return True
    if any(isinstance(record, ToolInvoked) and record.at < arrived for record in records):
        return True
    # `dict.setdefault` is atomic, so of two threads with the same id only the first one gets the name.
    return names.given.setdefault(name, arrived) != arrived


def _names_of(session: Session) -> _Names:
    # Two threads may both read the store; `setdefault` makes both use the first result.
    names: _Names | None = session.attached.get(_Names)
    return names or session.attached.setdefault(_Names, _Names({}, _open_replies(session)))


def _open_replies(session: Session) -> dict[str, datetime]:
    """The replies of open calls, each with the time since when it has had its name.

    Raises:
        StoreError: the store cannot be read.
    """
    found: dict[str, datetime] = {}
    for each in session.open_calls:
        since = each.claimed_at or _ALWAYS
        # A nested call is recorded under its own reply, but its ancestors' replies are in use as well.
        for call in (each.call, *each.call.ancestors):
            if call.reply is not None:
                found[call.reply] = min(since, found.get(call.reply, since))
    return found


def _stamp(response: ModelResponse) -> str | None:
    name: object = (response.metadata or {}).get(REPLY_KEY)
    return name if isinstance(name, str) and is_reply(name) else None


def _sendable(call_id: str) -> str:
    """The id of a call, or its digest if a store cannot look it up; an empty one stays empty."""
    if not call_id or is_storable_id(call_id):
        return call_id
    return f"call_{hashlib.sha256(call_id.encode(errors='surrogatepass')).hexdigest()[:32]}"


def _storable(name: str) -> str:
    return name if is_reply(name) else hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()


def _digest(calls: Sequence[ToolCallPart], position: int) -> str:
    # Decoded arguments, because a history that was stored and loaded may have another notation of the same JSON.
    asked_for = [[call.tool_name, call.tool_call_id, decoded_words(call.args)] for call in calls]
    return hashlib.sha256(json.dumps([position, asked_for], sort_keys=True, default=str).encode()).hexdigest()


def decoded_words(words: object) -> object:
    """Arguments as the model wrote them, decoded; as they are if they are not JSON."""
    if not isinstance(words, str):
        return {} if words is None else words
    try:
        return from_json(words or "{}")
    except (ValueError, TypeError):  # the latter for a lone surrogate
        return words


def _same(arguments: str | dict[str, Any], words: str | dict[str, Any]) -> bool:
    return arguments == words or decoded_words(arguments) == decoded_words(words)
