"""What an adapter of a provider's SDK adds to a call, over the same loop by hand: append, answer, append."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import count
from types import ModuleType
from typing import Any, NamedTuple

from anthropic.types import Message
from openai.types.chat import ChatCompletion
from openai.types.responses import Response

from benchmarks.timing import Limit, Stopwatch
from handrail import tool
from handrail.adapters import anthropic, openai
from handrail.adapters.tool_executor import ToolExecutor
from handrail.runtime import Session, ToolCall, ToolMessage

RESPONSES, CHAT, MESSAGES = "OpenAI Responses", "OpenAI Chat Completions", "Anthropic Messages"

LIMITS = tuple(
    Limit(f"a call by the adapter, {api}", 10.0, "us over a loop by hand") for api in (RESPONSES, CHAT, MESSAGES)
)

_ARGUMENTS = {"left": 2, "right": 3}
_NUMBERS = count()
_ROUNDS, _CALLS = 60, 50


@tool(effect="read")
def add(left: int, right: int) -> int:
    """Add two numbers."""
    return left + right


class _Loop(NamedTuple):
    # A reply with one call of an API, the adapter, and what a program without it has of both.

    adapter: ModuleType
    response: Callable[[str], Any]
    messages: Callable[[Any], list[Any]]
    calls: Callable[[Any], list[ToolCall]]
    answers: Callable[[Iterable[ToolMessage]], list[Any]]


def _response(number: str) -> Response:
    words = {"name": "add", "arguments": json.dumps(_ARGUMENTS)}
    call = {"type": "function_call", "id": f"fc_{number}", "call_id": f"call_{number}", "status": "completed", **words}
    own = {"id": f"resp_{number}", "object": "response", "created_at": 1, "status": "completed", "model": "m"}
    more = {"tools": [], "tool_choice": "auto", "parallel_tool_calls": True}
    return Response.model_validate({**own, **more, "output": [call]})


def _completion(number: str) -> ChatCompletion:
    function = {"name": "add", "arguments": json.dumps(_ARGUMENTS)}
    call = {"id": f"call_{number}", "type": "function", "function": function}
    message = {"role": "assistant", "content": None, "refusal": None, "annotations": [], "tool_calls": [call]}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls", "logprobs": None}
    own = {"id": f"chatcmpl-{number}", "object": "chat.completion", "created": 1, "model": "m"}
    return ChatCompletion.model_validate({**own, "choices": [choice]})


def _message(number: str) -> Message:
    block = {"type": "tool_use", "id": f"toolu_{number}", "name": "add", "input": _ARGUMENTS}
    own = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": "m", "stop_reason": "tool_use"}
    usage = {"input_tokens": 1, "output_tokens": 1}
    return Message.model_validate({**own, "stop_sequence": None, "content": [block], "usage": usage})


_LOOPS = {
    RESPONSES: _Loop(
        openai,
        _response,
        lambda reply: [item.to_dict() for item in reply.output],
        lambda reply: [ToolCall(item.call_id, item.name, item.arguments) for item in reply.output],
        lambda answers: [{"type": "function_call_output", "call_id": a.call_id, "output": a.content} for a in answers],
    ),
    CHAT: _Loop(
        openai,
        _completion,
        lambda reply: [reply.choices[0].message.to_dict()],
        lambda reply: [
            ToolCall(call.id, call.function.name, call.function.arguments)
            for call in reply.choices[0].message.tool_calls or ()
        ],
        lambda answers: [{"role": "tool", "tool_call_id": a.call_id, "content": a.content} for a in answers],
    ),
    MESSAGES: _Loop(
        anthropic,
        _message,
        lambda reply: [{"role": "assistant", "content": [block.to_dict() for block in reply.content]}],
        lambda reply: [ToolCall(block.id, block.name, block.input) for block in reply.content],
        lambda answers: [
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": a.call_id, "content": a.content, "is_error": not a.success}
                    for a in answers
                ],
            }
        ],
    ),
}


@contextmanager
def cases() -> Generator[Mapping[str, Callable[[], object]]]:
    """What is measured, by name: microseconds that an adapter adds to a reply with one call, in memory."""
    yield {limit.case: partial(_difference, loop) for limit, loop in zip(LIMITS, _LOOPS.values(), strict=True)}


def _difference(loop: _Loop) -> float:
    """The median of pairs of so many calls in a row, each pair in sessions of its own."""
    pairs = [(_time(loop, by_hand=False), _time(loop, by_hand=True)) for _ in range(_ROUNDS + 1)][1:]
    return statistics.median(adapter - hand for adapter, hand in pairs)


def _time(loop: _Loop, *, by_hand: bool) -> float:
    executor = ToolExecutor([add], session=Session())
    responses = [loop.response(str(next(_NUMBERS))) for _ in range(_CALLS)]
    watch = Stopwatch()
    with watch:
        for response in responses:
            _answer_by_hand(loop, executor, response) if by_hand else loop.adapter.answer(executor, response)
    assert len(executor.environment.session.conversation) == 2 * _CALLS
    return watch.timing(_CALLS).time


def _answer_by_hand(loop: _Loop, executor: ToolExecutor, response: Any) -> None:  # noqa: ANN401 - of an SDK
    talk = executor.environment.session.conversation
    talk.append(*loop.messages(response), calls=loop.calls(response), reply=response.id)
    answers = executor.answer()
    assert isinstance(answers, tuple)
    talk.append(*loop.answers(answers))
