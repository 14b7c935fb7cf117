"""What an adapter of a provider's SDK adds to a call, over the same loop by hand: append, answer, append."""

from __future__ import annotations

import gc
import json
import statistics
from collections.abc import Callable, Generator
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
from handrail.adapters.tool_executor import Answers, ToolExecutor
from handrail.runtime import Session, ToolCall

RESPONSES, CHAT, MESSAGES = "OpenAI Responses", "OpenAI Chat Completions", "Anthropic Messages"

LIMITS = tuple(
    Limit(f"a call by the adapter, {api}", 10.0, "us over a loop by hand") for api in (RESPONSES, CHAT, MESSAGES)
)

_ARGUMENTS = {"left": 2, "right": 3}
_NUMBERS = count()
_ROUNDS, _CALLS = 60, 150


@tool(effect="read")
def add(left: int, right: int) -> int:
    """Add two numbers."""
    return left + right


class _Loop(NamedTuple):
    # The adapter, a reply with one call of its API, and the same loop by hand.

    adapter: ModuleType
    response: Callable[[str], Any]
    by_hand: Callable[[ToolExecutor, Any], None]


def _response(number: str) -> Response:
    words = {"name": "add", "arguments": json.dumps(_ARGUMENTS)}
    call = {"type": "function_call", "id": f"fc_{number}", "call_id": f"call_{number}", "status": "completed", **words}
    own = {"id": f"resp_{number}", "object": "response", "created_at": 1, "status": "completed", "model": "m"}
    more: dict[str, Any] = {"tools": [], "tool_choice": "auto", "parallel_tool_calls": True}
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


def _responses_by_hand(executor: ToolExecutor, response: Response) -> None:
    talk = executor.environment.session.conversation
    asked = [item for item in response.output if item.type == "function_call"]
    calls = [ToolCall(item.call_id, item.name, item.arguments) for item in asked]
    talk.append(*[item.to_dict() for item in response.output], calls=calls, reply=response.id)
    kind = {"type": "function_call_output"}
    talk.append(*[{**kind, "call_id": one.call_id, "output": one.content} for one in _answers(executor)])


def _chat_by_hand(executor: ToolExecutor, response: ChatCompletion) -> None:
    talk = executor.environment.session.conversation
    message = response.choices[0].message
    asked = [call for call in message.tool_calls or () if call.type == "function"]
    calls = [ToolCall(call.id, call.function.name, call.function.arguments) for call in asked]
    talk.append(message.to_dict(), calls=calls, reply=response.id)
    talk.append(*[{"role": "tool", "tool_call_id": one.call_id, "content": one.content} for one in _answers(executor)])


def _messages_by_hand(executor: ToolExecutor, response: Message) -> None:
    talk = executor.environment.session.conversation
    asked = [block for block in response.content if block.type == "tool_use"]
    calls = [ToolCall(block.id, block.name, block.input) for block in asked]
    message = {"role": "assistant", "content": [block.to_dict() for block in response.content]}
    talk.append(message, calls=calls, reply=response.id)
    kind = {"type": "tool_result"}
    results = [
        {**kind, "tool_use_id": one.call_id, "content": one.content, "is_error": not one.success}
        for one in _answers(executor)
    ]
    talk.append({"role": "user", "content": results})


def _answers(executor: ToolExecutor) -> Answers:
    answers = executor.answer()
    assert isinstance(answers, Answers)
    return answers


_LOOPS = {
    RESPONSES: _Loop(openai, _response, _responses_by_hand),
    CHAT: _Loop(openai, _completion, _chat_by_hand),
    MESSAGES: _Loop(anthropic, _message, _messages_by_hand),
}


@contextmanager
def cases() -> Generator[dict[str, Callable[[], object]]]:
    """What is measured, by name: microseconds that an adapter adds to a reply with one call, in memory."""
    yield {limit.case: partial(_difference, loop) for limit, loop in zip(LIMITS, _LOOPS.values(), strict=True)}


def _difference(loop: _Loop) -> float:
    """The median of pairs of so many calls in a row, in sessions of their own."""
    pairs = [(_time(loop, by_hand=False), _time(loop, by_hand=True)) for _ in range(_ROUNDS + 1)][1:]
    return statistics.median(adapter - hand for adapter, hand in pairs)


def _time(loop: _Loop, *, by_hand: bool) -> float:
    executor = ToolExecutor([add], session=Session())
    responses = [loop.response(str(next(_NUMBERS))) for _ in range(_CALLS)]
    gc.collect()
    watch = Stopwatch()
    with watch:
        for response in responses:
            loop.by_hand(executor, response) if by_hand else loop.adapter.answer(executor, response)
    assert len(executor.environment.session.conversation) == 2 * _CALLS
    return watch.timing(_CALLS).processor  # nothing waits, and the difference is small beside what others take
