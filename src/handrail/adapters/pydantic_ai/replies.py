"""Names the reply of a PydanticAI call: the one place that says which response of the model asked for it.

| the response | its name |
|---|---|
| has been named before | that name, from `metadata["handrail_reply"]` |
| has an id of the provider's, which no earlier response of the history has | that id |
| has a `run_id`, or belongs to the run that is going on | `<run_id>:<ordinal among the responses of that run>` |
| has neither, because the history was made by hand | a digest of its calls and of its position |

A name that cannot be stored, or begins as the replies of nested calls do, is replaced by its digest.

No count starts with the process. The name is written into the metadata of the response, which are not sent to the
model, so that another process, or a history from which messages have been dropped, finds the same one. A capability
writes it when the response arrives. A bare toolset writes it when the first call starts: in a history that was stored
before, and has lost earlier responses since, the ordinal is not that of the run.

Some servers give every response the same id, in each run anew. Where the session has a record of such a call from
before the response arrived, the id does not name the response.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from pydantic_ai import ModelMessage, ModelResponse, RunContext, ToolCallPart
from pydantic_ai.messages import ModelResponsePart
from pydantic_core import from_json

from handrail.errors import StoreError
from handrail.runtime import ToolCall, ToolInvoked
from handrail.session import Session
from handrail.session.calls import CallRef, is_reply

STAMP = "handrail_reply"
"""The key in the metadata of a response under which its name is stored."""

Words = str | dict[str, Any] | None
"""The arguments of a call as the model wrote them; `None` if that is not known, or it wrote none."""


class Asked(NamedTuple):
    """What the model asked for, as the history has it.

    Attributes:
        ref: the identity of the call. Its reply is `None` for a call that was made by hand, outside of any run.
        words: the arguments as the model wrote them.
    """

    ref: CallRef
    words: Words = None

    def tool_call(self, name: str, arguments: str | dict[str, Any]) -> ToolCall:
        """The call for the pipeline: what is to run, and beside it what the model wrote if that is something else."""
        if self.words is None or _same(arguments, self.words):
            return ToolCall(self.ref.call_id, name, arguments)
        return ToolCall(self.ref.call_id, name, arguments, self.words)


def asked(ctx: RunContext[Any], session: Session, call_id: str | None = None) -> Asked:
    """What the model asked for in a call.

    Args:
        ctx: the run context of the call.
        session: the session of the call.
        call_id: the id of the call; without one, that of the context.
    """
    call_id = (ctx.tool_call_id if call_id is None else call_id) or ""
    for place in range(len(ctx.messages) - 1, -1, -1):
        response = ctx.messages[place]
        if isinstance(response, ModelResponse):
            for part in response.tool_calls:
                if part.tool_call_id == call_id:
                    return Asked(CallRef(_name_of(ctx, session, place, response), call_id), part.args)
    # A call that a tool makes through the tool manager stands in no response.
    return Asked(CallRef(_storable(f"{ctx.run_id}:{ctx.run_step}") if ctx.run_id else None, call_id))


def stamped(ctx: RunContext[Any], session: Session, response: ModelResponse, taken: set[str]) -> ModelResponse:
    """A response that has just arrived, with its name, and with ids of their own for its calls.

    It is a copy, because a model may return one object for several replies; and a name that it brings along is that of
    an earlier reply.

    Args:
        ctx: the run context of the request.
        session: the session of the run.
        response: the response.
        taken: ids that no call of it may have; those of its calls are added.
    """
    response = _with_unique_ids(response, taken)
    name = _new_name(ctx, session, ctx.messages, response)
    return replace(response, metadata={**(response.metadata or {}), STAMP: name})


def _with_unique_ids(response: ModelResponse, taken: set[str]) -> ModelResponse:
    """A response whose calls have ids that are not taken; those that they have are taken from then on.

    Some models begin to count anew in each reply, or give several calls of one reply the same id. Providers take
    letters, digits, `_` and `-`.
    """
    renamed: dict[int, ModelResponsePart] = {}
    for place, part in enumerate(response.parts):
        if isinstance(part, ToolCallPart):
            first, number = part.tool_call_id or "call", 1
            unique = first
            while unique in taken:
                number += 1
                unique = f"{first}_{number}"
            taken.add(unique)
            if unique != part.tool_call_id:
                renamed[place] = replace(part, tool_call_id=unique)
    if not renamed:
        return response
    return replace(response, parts=[renamed.get(place, part) for place, part in enumerate(response.parts)])


def name_in_history(messages: Sequence[ModelMessage], place: int) -> str:
    """The name of the response at that place of a history; it is not written into it."""
    response = messages[place]
    assert isinstance(response, ModelResponse)  # noqa: S101 - for the type checkers
    earlier = [message for message in messages[:place] if isinstance(message, ModelResponse)]
    name = _stamp(response)
    if name and all(_stamp(other) != name for other in earlier):
        return name
    if _is_provider_id_of_its_own(response, earlier):
        return _storable(response.provider_response_id or "")
    if response.run_id:
        ordinal = 1 + sum(1 for other in earlier if other.run_id == response.run_id)
        return _storable(f"{response.run_id}:{ordinal}")
    return _digest(response.tool_calls, len(earlier) + 1)


def _name_of(ctx: RunContext[Any], session: Session, place: int, response: ModelResponse) -> str:
    """The name of the response at that place of the run's history; it is written into it."""
    is_live = bool(ctx.run_id) and response.run_id == ctx.run_id
    if is_live and _stamp(response) is None:
        name = _new_name(ctx, session, ctx.messages[:place], response)
    else:
        name = name_in_history(ctx.messages, place)
    if _stamp(response) != name:
        response.metadata = {**(response.metadata or {}), STAMP: name}
    return name


def _new_name(ctx: RunContext[Any], session: Session, earlier: Sequence[ModelMessage], response: ModelResponse) -> str:
    """A name for a response of the run that is going on, which has none yet."""
    responses = [message for message in earlier if isinstance(message, ModelResponse)]
    if _is_provider_id_of_its_own(response, responses):
        name = _storable(response.provider_response_id or "")
        if not _is_used_up(name, session, response):
            return name
    if ctx.run_id:
        # A history processor may have dropped responses, so they are not counted here.
        return _storable(f"{ctx.run_id}:{ctx.run_step}")
    return _digest(response.tool_calls, len(responses) + 1)


def _is_provider_id_of_its_own(response: ModelResponse, earlier: Sequence[ModelResponse]) -> bool:
    name = response.provider_response_id
    return bool(name) and all(other.provider_response_id != name for other in earlier)


def _is_used_up(name: str, session: Session, response: ModelResponse) -> bool:
    """Whether the session has a record under that name from before the response arrived."""
    try:
        records = [session.recorded_call(CallRef(name, call.tool_call_id)) for call in response.tool_calls]
    except StoreError:  # no call is started without its store
        return True
    return any(isinstance(record, ToolInvoked) and record.at < response.timestamp for record in records)


def _stamp(response: ModelResponse) -> str | None:
    name: object = (response.metadata or {}).get(STAMP)
    return name if isinstance(name, str) and is_reply(name) else None


def _storable(name: str) -> str:
    return name if is_reply(name) else hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()


def _digest(calls: Sequence[ToolCallPart], position: int) -> str:
    asked_for = [[call.tool_name, call.tool_call_id, decoded_words(call.args)] for call in calls]
    text = json.dumps([position, asked_for], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


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
