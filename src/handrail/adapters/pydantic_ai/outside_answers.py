"""Calls that waited, and that PydanticAI has answered without the pipeline: they are recorded, and wait no longer.

| the call | its record |
|---|---|
| is answered by `ToolDenied` in `DeferredToolResults` | refused at its approval, with the message |
| has a result in `DeferredToolResults.calls`, after `CallDeferred` | a success or a failure, as the model reads it |
| belongs to an evaluation that `unfinished="discard"` has ended | refused at its approval |

A call that the pipeline answers has its record from there. The answers are found in the messages of the run, before the
next request is made.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pydantic_ai import ModelMessage, ModelRequest, ModelResponse, ToolCallPart, ToolReturnPart

from handrail.adapters.pydantic_ai.replies import name_in_history
from handrail.errors import StoreError, UnknownTypeError
from handrail.prompt import ToolResult
from handrail.redaction import redacted_logger
from handrail.runtime import ToolCall
from handrail.runtime.approval import calls_that_wait, has_pending, record_outside_answer
from handrail.runtime.environment import Environment
from handrail.runtime.execution import ASYNC
from handrail.session.calls import CallRef
from handrail.session.open_calls import PostponedCall

_log = redacted_logger("handrail.adapters")

_DISCARDED = "the program has begun another evaluation in place of the one that made this call, so it was not run"


class _Waiting(NamedTuple):
    """A call that waits, in the messages of a run."""

    item: PostponedCall
    part: ToolCallPart
    answer: ToolReturnPart | None


async def record_answers(environment: Environment, messages: Sequence[ModelMessage]) -> None:
    """Record the calls that wait in the session, and have an answer in the messages. A store that fails is logged.

    Args:
        environment: the run.
        messages: the messages of the run.
    """
    for ref, waiting in await _waiting(environment, messages):
        answer = waiting.answer
        # An attempt that the pipeline has answered has a record, though perhaps no final one.
        if answer is None or (answer.outcome != "denied" and environment.session.calls.find(ref) is not None):
            continue
        text = answer.model_response_str(wrap_if_error=False)
        result = ToolResult[None].ok(None, text) if answer.outcome == "success" else ToolResult[None].error(text)
        await _record(environment, ref, waiting, result)


async def record_discarded(environment: Environment, messages: Sequence[ModelMessage]) -> None:
    """Record the calls of a discarded evaluation that wait as refused. A store that fails is logged.

    Args:
        environment: the run.
        messages: those of the discarded evaluation.
    """
    for ref, waiting in await _waiting(environment, messages):
        await _record(environment, ref, waiting, ToolResult[None].error(_DISCARDED))


async def _waiting(environment: Environment, messages: Sequence[ModelMessage]) -> list[tuple[CallRef, _Waiting]]:
    session = environment.session
    # The common case costs no reading, and so no thread.
    if not has_pending(session):
        return []
    try:
        items = await ASYNC.write_to(session.store, lambda: list(calls_that_wait(session)))
    except (StoreError, UnknownTypeError):  # the latter of items of other versions
        _log.warning("it cannot be read which calls of %s wait", session.session_id, exc_info=True)
        return []
    found: list[tuple[CallRef, _Waiting]] = []
    wanted = {item.call: item for item in items}
    for ref, part, place in _calls_in(messages, {ref.call_id for ref in wanted}):
        if ref in wanted:
            found.append((ref, _Waiting(wanted[ref], part, _answer_to(part, messages[place + 1 :]))))
    return found


def _calls_in(messages: Sequence[ModelMessage], ids: set[str]) -> Iterator[tuple[CallRef, ToolCallPart, int]]:
    """The calls in the messages with one of these ids, each with the place of its response."""
    for place, message in enumerate(messages):
        if isinstance(message, ModelResponse):
            for part in message.tool_calls:
                if part.tool_call_id in ids:
                    yield CallRef(name_in_history(messages, place), part.tool_call_id), part, place


def _answer_to(call: ToolCallPart, later: Sequence[ModelMessage]) -> ToolReturnPart | None:
    parts = (part for message in later if isinstance(message, ModelRequest) for part in message.parts)
    answers = (part for part in parts if isinstance(part, ToolReturnPart))
    return next((part for part in answers if part.tool_call_id == call.tool_call_id), None)


async def _record(environment: Environment, ref: CallRef, waiting: _Waiting, result: ToolResult[None]) -> None:
    call = ToolCall(ref.call_id, waiting.item.tool, waiting.part.args or {})
    await record_outside_answer(environment, ASYNC, ref, call, result)
