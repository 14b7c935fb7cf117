"""Reads the messages of providers: who says what, which calls are asked for, and which are answered.

| form | text | a call | its answer |
|---|---|---|---|
| OpenAI Chat Completions | `content`: text, or parts with `text` | an item of `tool_calls` | the role `tool` |
| OpenAI Responses | an item with `role` and `content` | `function_call` | `function_call_output` |
| Anthropic Messages | `content`: text, or blocks of the type `text` | a block `tool_use` | a block `tool_result` |
| PydanticAI | the parts of a request or response | a part `tool-call` | a part `tool-return`, or `retry-prompt` |

Sources: the types of the SDKs of OpenAI and Anthropic, and `pydantic_ai.messages`. Reading never fails: a program may
append what it likes, and providers add forms. What is not known here is a block of JSON. A file in base64 is shown by
its media type and size: `[image/png, 12 kB]`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias, cast

from pydantic_core import from_json

from handrail.prompt.tool_result import describe_file
from handrail.serde.formatting import json_line
from handrail.serde.json_schema import is_object
from handrail.session.calls import CallRef
from handrail.session.conversation import REPLY_KEY
from handrail.transcript.items import BlockKind, TranscriptCall

_ASKED = {
    "tool_use": ("id", "name", "input"),
    "function_call": ("call_id", "name", "arguments"),
    "custom_tool_call": ("call_id", "name", "input"),
    "tool-call": ("tool_call_id", "tool_name", "args"),
}
"""Where a block of a kind has the id of a call, its tool and its arguments."""

_ANSWERS = {
    "tool_result": ("tool_use_id", "content"),
    "function_call_output": ("call_id", "output"),
    "custom_tool_call_output": ("call_id", "output"),
    "tool-return": ("tool_call_id", "content"),
    "retry-prompt": ("tool_call_id", "content"),
}
"""Where a block of a kind has the id of the call that it answers, and the answer."""

_TEXTS = frozenset({"text", "input_text", "output_text", "summary_text", "reasoning_text"})
_PART_ROLES = {
    "system-prompt": "system",
    "instruction": "system",
    "user-prompt": "user",
    # Where PydanticAI says why it could not use a reply; with a tool it is the answer to a call.
    "retry-prompt": "feedback",
    "retry-feedback": "feedback",
}
_DATA_URL = re.compile(r"data:([\w.+-]+/[\w.+-]+);base64,")
_UNKNOWN_ROLE, _MODEL = "message", "assistant"


class SaidPiece(NamedTuple):
    """A block of a message.

    Attributes:
        role: who says it.
        kind: what it is.
        text: its text; JSON for `"data"`.
    """

    role: str
    kind: BlockKind
    text: str


class AnswerPiece(NamedTuple):
    """The answer to a call.

    Attributes:
        call_id: its id.
        text: what the model reads.
    """

    call_id: str
    text: str


MessagePiece: TypeAlias = SaidPiece | TranscriptCall | AnswerPiece
"""A piece of a message; a call has the reply that asks for it, if the message states that."""


def message_pieces(message: object) -> Iterator[MessagePiece]:
    """The pieces of a message in the form of its provider, in order."""
    if not is_object(message):
        yield _data(_UNKNOWN_ROLE, message)
        return
    kind, role, call_id = str(message.get("kind")), message.get("role"), message.get("tool_call_id")
    if kind in {"request", "response"} and isinstance(message.get("parts"), list | tuple):
        metadata = message.get("metadata")
        reply = metadata.get(REPLY_KEY) if is_object(metadata) else None
        for part in message["parts"]:
            yield from _block(part, "user" if kind == "request" else _MODEL, reply if isinstance(reply, str) else None)
    elif role == "tool" and isinstance(call_id, str):
        yield AnswerPiece(call_id, _answer_text(message.get("content")))
    elif isinstance(role, str) and role:
        refusal = {"type": "refusal", "refusal": message.get("refusal")}
        for block in (*_listed(message.get("content")), *([refusal] if refusal["refusal"] else [])):
            yield from _block(block, role)
        for call in _listed(message.get("tool_calls")):
            yield _tool_call(call, role)
    else:
        yield from _block(message, _UNKNOWN_ROLE)


def decoded_arguments(arguments: object) -> Any:  # noqa: ANN401 - decoded JSON
    """The arguments of a call, decoded; as they are if they are not JSON."""
    try:
        # The cache of strings is of use for those that come again: names, and not values.
        return from_json(arguments, cache_strings="keys") if isinstance(arguments, str) else arguments
    except (ValueError, TypeError):  # the latter for a lone surrogate
        return arguments


def _tool_call(call: object, role: str) -> MessagePiece:
    """A call of Chat Completions: its kind names the field that has the tool and the arguments."""
    fields = call if is_object(call) else {}
    named: object = fields.get(str(fields.get("type", "function")))
    call_id, tool = fields.get("id"), named.get("name") if is_object(named) else None
    if not (is_object(named) and isinstance(call_id, str) and isinstance(tool, str)):
        return _data(role, call)
    # A custom tool has one text as its input.
    return TranscriptCall(call=CallRef(None, call_id), tool=tool, arguments=named.get("arguments", named.get("input")))


def _block(block: object, role: str, reply: str | None = None) -> Iterator[MessagePiece]:
    """A block of `content`, an item of Responses, or a part of PydanticAI."""
    fields = {"type": "text", "text": block} if isinstance(block, str) else block if is_object(block) else {}
    kind = str(fields.get("part_kind", fields.get("type")))
    content: object = fields.get("content")
    if kind in _ASKED:
        call_id, tool, arguments = (fields.get(name) for name in _ASKED[kind])
        call = TranscriptCall(call=CallRef(reply, str(call_id)), tool=str(tool), arguments=arguments or "{}")
        yield call if isinstance(call_id, str) and isinstance(tool, str) else _data(role, block)
    elif kind in _ANSWERS and fields.get("tool_name", True):
        call_id, answer = (fields.get(name) for name in _ANSWERS[kind])
        yield AnswerPiece(call_id, _answer_text(answer)) if isinstance(call_id, str) else _data(role, block)
    elif kind in {"retry-prompt", "retry-feedback"}:
        yield SaidPiece(_PART_ROLES[kind], "text", _answer_text(content))
    elif kind in _PART_ROLES or (kind == "text" and "part_kind" in fields):
        for inner in _listed(content):
            yield from _block(inner, _PART_ROLES.get(kind, role))
    elif kind == "reasoning":
        # What is encrypted says nothing to a reader, and a summary is often empty.
        for inner in (*_listed(fields.get("summary")), *_listed(content)):
            yield from _said(_MODEL, "thinking", inner)
    elif kind in {"thinking", "refusal"}:
        yield from _said(role, cast("BlockKind", kind), fields.get(kind, content))
    elif kind != "redacted_thinking":
        yield from _said(role, "text", block)


def _said(role: str, kind: BlockKind, block: object) -> Iterator[SaidPiece]:
    """Text, unless it is empty; JSON if it is none."""
    text = _text(block)
    if text is None:
        yield _data(role, block)
    elif text:
        yield SaidPiece(role, kind, text)


def _text(block: object) -> str | None:
    """The text of a block that is only text; `None` for others."""
    text: object = block.get("text") if is_object(block) and str(block.get("type")) in _TEXTS else block
    return text if isinstance(text, str) else None


def _listed(value: object) -> Sequence[object]:
    """The items of a list; another value as the only one; nothing for `None`."""
    if isinstance(value, list | tuple):
        return cast("Sequence[object]", value)
    return () if value is None else (value,)


def _answer_text(content: object) -> str:
    """The text of an answer: its texts on lines of their own, and what else is in it as JSON."""
    texts = [_file(block) or _text(block) for block in _listed(content)]
    return json_line(content) if None in texts else "\n".join(filter(None, texts))


def _file(block: object) -> str | None:
    """What stands for a file: of Anthropic, Responses, Chat Completions or PydanticAI; `None` for any other block."""
    fields: Mapping[str, Any] = block if is_object(block) else {}
    source: Mapping[str, Any] = fields["source"] if is_object(fields.get("source")) else fields
    data, media_type = source.get("data"), source.get("media_type")
    if not isinstance(data, str):
        url: object = fields.get("image_url", fields.get("file_data"))
        url = url.get("url") if is_object(url) else url
        match = _DATA_URL.match(url) if isinstance(url, str) else None
        if match is None:
            return None
        media_type, data = match[1], match.string[match.end() :]
    padding = data[-2:].count("=")
    return describe_file(media_type, len(data) * 3 // 4 - padding) if isinstance(media_type, str) else None


def _data(role: str, value: object) -> SaidPiece:
    return SaidPiece(role, "data", value if isinstance(value, str) else _file(value) or json_line(value))
