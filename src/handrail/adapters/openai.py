"""The loop over the SDK of OpenAI: the tools of a request, and the answer to a response, of either API.

    from handrail.adapters import openai as loop

    reply = loop.answer(executor)
    while reply.continues:
        response = client.responses.create(..., input=talk.messages, tools=loop.tools(executor))
        reply = loop.answer(executor, response)

| | Responses | Chat Completions |
|---|---|---|
| complete | `status` is `completed` | `finish_reason` is `tool_calls` or `stop`, as for a call that is forced |
| appended | all items of `output` | the message, without fields that are null or empty |
| calls | `function_call`, `custom_tool_call` | all of `tool_calls`, of whatever type |
| answers | an item for each call | a message of the role `tool` for each call |
| images, PDFs | in `output` of the answer | in one message of the user, after the answers of all calls |

A call of a custom tool is one of the tool that has its name, as a call of a function is. Items of hosted tools are
appended, and nothing else. What the program itself has to answer is refused, such as `computer_call`, an approval of
MCP, or a `shell_call` that the server has not answered. The SDK is not imported, because nothing of it is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias
from weakref import WeakKeyDictionary

from handrail.adapters.loop import tool_description
from handrail.adapters.model_replies import IMAGES, PDF, Json, ModelReply, ProviderForm, ReplyItems, as_fields, as_json
from handrail.adapters.strict_schemas import OPENAI, strict_faults
from handrail.adapters.tool_executor import ToolExecutor
from handrail.errors import IncompleteReplyError, InvalidArgumentError, SessionUseError
from handrail.prompt import Tool
from handrail.prompt.tool_result import BinaryPart, ContentPart
from handrail.runtime import ToolCall, ToolMessage
from handrail.serde.json_schema import is_array

__all__ = ["ReplyItems", "answer", "answer_async", "tools"]

Api: TypeAlias = Literal["responses", "chat"]
"""The API that a request is made of."""

_OWN_CALLS = {"function_call": "arguments", "custom_tool_call": "input"}
_BY_PROGRAM = {"apply_patch_call", "computer_call", "local_shell_call", "mcp_approval_request"}
_BY_EITHER = {"shell_call", "tool_search_call"}  # if by the server, the response has their output, or says so
_NOT_OURS = "{} is for the program itself to answer, so nothing was appended. Leave such tools out of the request"
_FINISHED = {"tool_calls", "stop"}

# Of the process: a tool may be offered by many executors, and its function is the same for all.
_functions: WeakKeyDictionary[Tool[Any, Any], Json] = WeakKeyDictionary()


def tools(executor: ToolExecutor, *, api: Api = "responses", strict: bool = True) -> list[Any]:
    """The tools of the next request: `tools=tools(executor)`. They may change with each reply.

    Args:
        executor: offers them.
        api: the API of the request.
        strict: has OpenAI enforce the schema of each tool whose schema it takes as strict. No schema is changed for it;
            `handrail check --provider openai` shows which tools are not strict, and why.

    Raises:
        InvalidArgumentError: `api` is another one.
    """
    if api not in ("responses", "chat"):
        raise InvalidArgumentError(function="openai.tools", argument="api", value=api, expected='"responses" or "chat"')
    functions = [_functions.get(tool) or _describe(tool) for tool in _FORM.tools(executor)]
    described = [{**function, "strict": strict and function["strict"]} for function in functions]
    return [{"type": "function", **(one if api == "responses" else {"function": one})} for one in described]


def answer(executor: ToolExecutor, response: object = None) -> ReplyItems:
    """Appends a response to `session.conversation`, runs its calls, and appends their answers.

    Without a response, answers the calls of the open reply, as after a kill, or when a person has answered; if none is
    open, nothing is done, and `is_final` says whether the conversation ends with an answer.

    Args:
        executor: runs the calls.
        response: a response of the SDK, of either API, or its JSON; of a stream, what the SDK has assembled.

    Raises:
        IncompleteReplyError: the response is cut off. Nothing was appended, and no call has run.
        InvalidArgumentError: it is not a response of OpenAI.
        SessionUseError: the calls of another reply have not been answered; this response was answered before; or it has
            an item that the program itself has to answer.
        Exception: as for `ToolExecutor.answer`, and `Conversation.append`.
    """
    return _FORM.answer(executor, response)


async def answer_async(executor: ToolExecutor, response: object = None) -> ReplyItems:
    """Answers as `answer` does, without blocking the event loop; calls that only read run concurrently."""
    return await _FORM.answer_async(executor, response)


def _describe(tool: Tool[Any, Any]) -> Json:
    schema = tool.parameters_schema
    described = {"name": tool.name, "description": tool_description(tool), "parameters": schema}
    return _functions.setdefault(tool, {**described, "strict": not strict_faults(schema, OPENAI)})


# ------------------------------------------------------------------------------------------------------------ responses


def _read(response: Any) -> ModelReply:  # noqa: ANN401 - whatever the program gives
    fields = as_fields(response)
    reply_id, output, choices = fields.get("id") or "", fields.get("output"), fields.get("choices")
    if is_array(output):
        if (status := fields.get("status")) != "completed":
            details = as_fields(fields.get("incomplete_details") or fields.get("error"))
            words = details.get("reason") or details.get("message")
            raise IncompleteReplyError(reply_id, f"status {status}" + (f", {words}" if words else ""))
        return _read_items(reply_id, [as_json(item) for item in output])
    if is_array(choices):
        choice = as_fields(choices[0] if choices else None)
        if as_fields(choice.get("message")).get("function_call"):
            raise SessionUseError(_NOT_OURS.format("function_call (of `functions`, not of `tools`)"))
        if (reason := choice.get("finish_reason")) not in _FINISHED:
            raise IncompleteReplyError(reply_id, f"finish_reason {reason}")
        return _read_message(reply_id, as_json(choice["message"]))
    raise TypeError("it has neither a list of output nor one of choices")


def _read_items(reply_id: str, items: Sequence[Json]) -> ModelReply:
    calls: list[ToolCall] = []
    for item in items:
        kind = item.get("type")
        if kind in _OWN_CALLS:
            calls.append(ToolCall(item["call_id"], item["name"], item[_OWN_CALLS[kind]]))
            if (status := item.get("status")) in {"in_progress", "incomplete"}:
                raise IncompleteReplyError(reply_id, f"status {status} of call {item['call_id']}")
        elif kind in _BY_PROGRAM or (kind in _BY_EITHER and not _is_by_server(item, items)):
            raise SessionUseError(_NOT_OURS.format(kind))
    return ModelReply(reply_id, items, calls, not calls)


def _is_by_server(item: Json, items: Sequence[Json]) -> bool:
    outputs = (one for one in items if str(one.get("type")).endswith("_output"))
    return item.get("execution") == "server" or any(one.get("call_id") == item.get("call_id") for one in outputs)


def _read_message(reply_id: str, message: Json) -> ModelReply:
    has_helpers_fields = "parsed" in message  # a stream, or what was parsed: the API refuses what the SDK adds
    message = {name: value for name, value in message.items() if (value or name == "content") and name != "parsed"}
    if has_helpers_fields and "tool_calls" in message:
        message["tool_calls"] = [_plain_call(call) for call in message["tool_calls"]]
    calls = [_tool_call(call) for call in message.get("tool_calls", ())]
    is_empty = len(message) < 3 and not message.get("content")  # it has a role, and nothing else  # noqa: PLR2004
    return ModelReply(reply_id, [] if is_empty else [message], calls, not calls)


def _plain_call(call: Json) -> Json:
    plain = {name: value for name, value in call.items() if name != "index"}
    function = {name: value for name, value in plain.get("function", {}).items() if name != "parsed_arguments"}
    return {**plain, "function": function} if function else plain


def _tool_call(call: Json) -> ToolCall:
    kind = call.get("type") or "function"
    body: Json = call.get(kind) or {}
    return ToolCall(call["id"], body.get("name") or kind, body.get("arguments") or body.get("input") or "")


# -------------------------------------------------------------------------------------------------------------- answers


def _write(reply: Sequence[Json], answers: Sequence[ToolMessage]) -> list[Json]:
    if "tool_calls" in reply[-1]:
        written = [{"role": "tool", "tool_call_id": one.call_id, "content": one.content} for one in answers]
        files = [block for one in answers if one.parts for block in _file_blocks(one)]
        return [*written, {"role": "user", "content": files}] if files else written
    calls = [item for item in reply if item.get("type") in _OWN_CALLS]
    return [_write_item(call, one) for call, one in zip(calls, answers, strict=True)]


def _write_item(call: Json, answer: ToolMessage) -> Json:
    item: Json = {"type": f"{call['type']}_output", "call_id": answer.call_id, "output": answer.content}
    if answer.parts:
        item["output"] = [_input_part(part) for part in answer.parts if str(part)]
    caller = call.get("caller")  # a program of the model that makes calls recognizes its own
    return {**item, "caller": caller} if caller else item


def _input_part(part: ContentPart) -> Json:
    if isinstance(part, BinaryPart) and part.media_type in IMAGES:
        return {"type": "input_image", "image_url": part.data_url, "detail": "auto"}
    if isinstance(part, BinaryPart) and part.media_type == PDF:
        return {"type": "input_file", "filename": "file.pdf", "file_data": part.data_url}
    return {"type": "input_text", "text": str(part)}


def _file_blocks(answer: ToolMessage) -> list[Json]:
    files = [block for part in answer.parts if (block := _file_block(part)) is not None]
    first, last = (answer.marks.first, answer.marks.last) if answer.marks else ("", "")
    texts = [f"Files of the result of call {answer.call_id}:\n{first}".strip(), last]
    before, after = [{"type": "text", "text": text} for text in texts]
    return [before, *files, *([after] if last else ())] if files else []


def _file_block(part: ContentPart) -> Json | None:
    if isinstance(part, BinaryPart) and part.media_type in IMAGES:
        return {"type": "image_url", "image_url": {"url": part.data_url}}
    if isinstance(part, BinaryPart) and part.media_type == PDF:
        return {"type": "file", "file": {"filename": "file.pdf", "file_data": part.data_url}}
    return None


_RESPONSE = "a Response or a ChatCompletion of OpenAI, or its JSON; of a stream, what the SDK has assembled"
_FORM = ProviderForm("openai.answer", _RESPONSE, _read, _write)
