"""The loop over the SDK of Anthropic: the tools of a request, and the answer to a response of Messages.

    from handrail.adapters import anthropic as loop

    reply = loop.answer(executor)
    while reply.continues:
        response = client.messages.create(..., messages=talk.messages, tools=loop.tools(executor))
        reply = loop.answer(executor, response)

| `stop_reason` | the reply |
|---|---|
| `tool_use` | is appended whole, with its thinking; its calls run, and one message of the user has all answers |
| `end_turn`, `stop_sequence` | is appended, and is final |
| `pause_turn` | is appended; the next request has it continued |
| `refusal` | is final, and is not appended, because Anthropic refuses a conversation that has it |
| any other, or none | is incomplete: `IncompleteReplyError` |

A reply without content is not appended either. The SDK is not imported, because nothing of it is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

from handrail.adapters.model_replies import IMAGES, PDF, Json, ModelReply, ProviderForm, ReplyItems, as_fields, as_json
from handrail.adapters.strict_schemas import ANTHROPIC, strict_faults
from handrail.adapters.tool_executor import ToolExecutor
from handrail.errors import IncompleteReplyError
from handrail.prompt import Tool
from handrail.prompt.tool_result import BinaryPart, ContentPart
from handrail.runtime import ToolCall, ToolMessage
from handrail.serde import dump
from handrail.serde.json_schema import is_array

__all__ = ["ReplyItems", "answer", "answer_async", "tools"]

_FINAL = {"end_turn", "stop_sequence"}

# Of the process: a tool may be offered by many executors, and its definition is the same for all.
_definitions: WeakKeyDictionary[Tool[Any, Any], Json] = WeakKeyDictionary()


def tools(executor: ToolExecutor, *, strict: bool = False, cache: bool = False) -> list[Any]:
    """The tools of the next request: `tools=tools(executor)`. They may change with each reply.

    Args:
        executor: offers them.
        strict: has Anthropic enforce the schema of each tool whose schema it takes as strict. No schema is changed for
            it; `handrail check --provider anthropic` shows which tools are not strict, and why. Not by default, because
            a request has a limit on strict tools (20) and on their optional parameters (24), and is refused beyond it.
        cache: has Anthropic cache the prompt up to the last tool.
    """
    described = [_definitions.get(tool) or _describe(tool) for tool in _FORM.tools(executor)]
    definitions = [one if strict else {key: one[key] for key in one if key != "strict"} for one in described]
    if cache and definitions:
        definitions[-1] = {**definitions[-1], "cache_control": {"type": "ephemeral"}}
    return definitions


def answer(executor: ToolExecutor, response: object = None) -> ReplyItems:
    """Appends a response to `session.conversation`, runs its calls, and appends their answers.

    Without a response, answers the calls of the open reply, as after a kill, or when a person has answered; if none is
    open, nothing is done, and `is_final` says whether the conversation ends with an answer.

    Args:
        executor: runs the calls.
        response: a `Message` of the SDK, or its JSON; of a stream, its `get_final_message()`.

    Raises:
        IncompleteReplyError: the response is cut off. Nothing was appended, and no call has run.
        InvalidArgumentError: it is not a response of Anthropic.
        SessionUseError: the calls of another reply have not been answered, or this response was answered before.
        Exception: as for `ToolExecutor.answer`, and `Conversation.append`.
    """
    return _FORM.answer(executor, response)


async def answer_async(executor: ToolExecutor, response: object = None) -> ReplyItems:
    """Answers as `answer` does, without blocking the event loop; calls that only read run concurrently."""
    return await _FORM.answer_async(executor, response)


def _describe(tool: Tool[Any, Any]) -> Json:
    schema = tool.parameters_schema
    definition: Json = {"name": tool.name, "description": tool.description, "input_schema": schema}
    if tool.examples:
        definition["input_examples"] = [
            {} if example.input is None else dump(example.input) for example in tool.examples
        ]
    if not strict_faults(schema, ANTHROPIC):
        definition["strict"] = True
    return _definitions.setdefault(tool, definition)


def _read(response: Any) -> ModelReply:  # noqa: ANN401 - whatever the program gives
    fields = as_fields(response)
    content, reason, reply_id = fields.get("content"), fields.get("stop_reason"), fields.get("id") or ""
    if not is_array(content):
        raise TypeError("it has no list of content")
    if reason == "refusal":
        words = as_fields(fields.get("stop_details")).get("explanation")
        return ModelReply(reply_id, (), is_final=True, refusal=words or "the model refused to answer")
    blocks = [as_json(block) for block in content]
    # Not of `blocks`: a call with NaN, which is null there, is refused.
    calls = [ToolCall(it["id"], it["name"], it["input"]) for it in map(as_fields, content) if it["type"] == "tool_use"]
    # The input of a call that was cut off is parsed as far as it came, and may be valid.
    if reason != "tool_use" and (calls or reason not in {*_FINAL, "pause_turn"}):
        raise IncompleteReplyError(reply_id, f"stop_reason {reason}" + (" beside calls" if calls else ""))
    messages = [{"role": "assistant", "content": blocks}] if blocks else []
    return ModelReply(reply_id, messages, calls, not calls and reason != "pause_turn")


def _write(_: Sequence[Json], answers: Sequence[ToolMessage]) -> list[Json]:
    return [{"role": "user", "content": [_result_block(one) for one in answers]}]


def _result_block(answer: ToolMessage) -> Json:
    content = [_block(part) for part in answer.parts if str(part)] or answer.content
    block = {"type": "tool_result", "tool_use_id": answer.call_id, "content": content}
    return block if answer.success else {**block, "is_error": True}


def _block(part: ContentPart) -> Json:
    kind = "image" if isinstance(part, BinaryPart) and part.media_type in IMAGES else "document"
    if isinstance(part, BinaryPart) and part.media_type in {*IMAGES, PDF}:
        source = {"type": "base64", "media_type": part.media_type, "data": part.base64}
        return {"type": kind, "source": source}
    return {"type": "text", "text": str(part)}


_RESPONSE = "a Message of Anthropic, or its JSON; of a stream, its get_final_message()"
_FORM = ProviderForm("anthropic.answer", _RESPONSE, _read, _write)
