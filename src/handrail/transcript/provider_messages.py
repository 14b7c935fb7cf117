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

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias, cast

from pydantic_core import from_json

from handrail.prompt.content_parts import describe_file
from handrail.serde.formatting import json_line
from handrail.session.conversation_parts import REPLY_KEY
from handrail.transcript.items import BlockKind

_Json: TypeAlias = Mapping[str, Any]

_UNKNOWN_ROLE = "message"
_TEXT_TYPES = frozenset({"text", "input_text", "output_text", "summary_text", "reasoning_text"})
_CALL_TYPES = frozenset({"function_call", "custom_tool_call"})
_OUTPUT_TYPES = frozenset({"function_call_output", "custom_tool_call_output"})
_PART_ROLES = {"system-prompt": "system", "instruction": "system", "user-prompt": "user"}
_DATA_URL = re.compile(r"data:([\w.+-]+/[\w.+-]+);base64,")
_FEEDBACK = "feedback"
"""The role of PydanticAI where it says why it could not use a reply."""


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


class AskedPiece(NamedTuple):
    """A call that a message asks for.

    Attributes:
        call_id: its id.
        tool: the tool.
        arguments: as the model wrote them.
        reply: the reply, if the message states it; else `None`.
    """

    call_id: str
    tool: str
    arguments: Any
    reply: str | None = None


class AnswerPiece(NamedTuple):
    """The answer to a call.

    Attributes:
        call_id: its id.
        text: what the model reads.
    """

    call_id: str
    text: str


MessagePiece: TypeAlias = SaidPiece | AskedPiece | AnswerPiece
"""A piece of a message."""


def message_pieces(message: object) -> Iterator[MessagePiece]:
    """The pieces of a message in the form of its provider, in order."""
    said = _fields(message)
    if said is None:
        yield _data(_UNKNOWN_ROLE, message)
        return
    kind = _word(said, "kind")
    if kind in {"request", "response"} and _is_list(said.get("parts")):
        yield from _pydantic_ai(said, "user" if kind == "request" else "assistant")
    elif _word(said, "role"):
        yield from _with_role(said, said["role"])
    else:
        yield from _response_item(said)


def decoded_arguments(arguments: object) -> Any:  # noqa: ANN401 - decoded JSON
    """The arguments of a call, decoded; as they are if they are not JSON."""
    if not isinstance(arguments, str):
        return arguments
    try:
        # The cache of strings is of use for those that come again: names, and not values.
        return from_json(arguments, cache_strings="keys")
    except (ValueError, TypeError):  # the latter for a lone surrogate
        pass
    try:
        return json.loads(arguments)  # takes more: halves of surrogate pairs, deep values
    except (ValueError, RecursionError):
        return arguments


# ------------------------------------------------------------------------------------------------- OpenAI and Anthropic


def _with_role(said: _Json, role: str) -> Iterator[MessagePiece]:
    """A message with a role, of Chat Completions, of Anthropic, or of Responses."""
    call_id = said.get("tool_call_id")
    if role == "tool" and isinstance(call_id, str):
        yield AnswerPiece(call_id, _text_of(said.get("content")))
        return
    for block in _listed(said.get("content")):
        yield from _block(block, role)
    refusal = said.get("refusal")
    if isinstance(refusal, str) and refusal:
        yield SaidPiece(role, "refusal", refusal)
    for call in _listed(said.get("tool_calls")):
        yield from _tool_call(call, role)


def _tool_call(call: object, role: str) -> Iterator[MessagePiece]:
    """A call of Chat Completions."""
    fields = _fields(call) or {}
    named = _fields(fields.get(_word(fields, "type") or "function")) or {}
    if isinstance(fields.get("id"), str) and isinstance(named.get("name"), str):
        # A custom tool has one text as its input.
        yield AskedPiece(fields["id"], named["name"], named.get("arguments", named.get("input")))
    else:
        yield _data(role, call)


def _response_item(item: _Json) -> Iterator[MessagePiece]:
    """An item of Responses without a role."""
    kind, call_id = _word(item, "type"), item.get("call_id")
    if kind in _CALL_TYPES and isinstance(call_id, str) and isinstance(item.get("name"), str):
        yield AskedPiece(call_id, item["name"], item.get("arguments", item.get("input")))
    elif kind in _OUTPUT_TYPES and isinstance(call_id, str):
        yield AnswerPiece(call_id, _text_of(item.get("output")))
    elif kind == "reasoning":
        # What is encrypted says nothing to a reader, and a summary is often empty.
        for block in (*_listed(item.get("summary")), *_listed(item.get("content"))):
            text = _plain(block)
            if text:
                yield SaidPiece("assistant", "thinking", text)
    else:
        yield _data(_UNKNOWN_ROLE, item)


def _block(block: object, role: str) -> Iterator[MessagePiece]:
    """A block or part of `content`."""
    text = _plain(block)
    if text is not None:
        if text:
            yield SaidPiece(role, "text", text)
        return
    fields = _fields(block) or {}
    kind = _word(fields, "type")
    if kind == "refusal" and isinstance(fields.get("refusal"), str):
        yield SaidPiece(role, "refusal", fields["refusal"])
    elif kind == "thinking" and isinstance(fields.get("thinking"), str):
        yield SaidPiece(role, "thinking", fields["thinking"])
    elif kind == "tool_use" and isinstance(fields.get("id"), str) and isinstance(fields.get("name"), str):
        yield AskedPiece(fields["id"], fields["name"], fields.get("input"))
    elif kind == "tool_result" and isinstance(fields.get("tool_use_id"), str):
        yield AnswerPiece(fields["tool_use_id"], _text_of(fields.get("content")))
    elif kind != "redacted_thinking":
        yield _data(role, block)


def _plain(block: object) -> str | None:
    """The text of a block that is only text; `None` for others."""
    if isinstance(block, str):
        return block
    fields = _fields(block) or {}
    text: object = fields.get("text")
    return text if _word(fields, "type") in _TEXT_TYPES and isinstance(text, str) else None


# ----------------------------------------------------------------------------------------------------------- PydanticAI


def _pydantic_ai(said: _Json, role: str) -> Iterator[MessagePiece]:
    reply: object = (_fields(said.get("metadata")) or {}).get(REPLY_KEY)
    for part in _listed(said["parts"]):
        yield from _part(_fields(part) or {"content": part}, role, reply if isinstance(reply, str) else None)


def _part(part: _Json, role: str, reply: str | None) -> Iterator[MessagePiece]:
    kind, content, call_id = _word(part, "part_kind"), part.get("content"), part.get("tool_call_id")
    speaker = _PART_ROLES.get(kind, role)
    if kind in _PART_ROLES or kind == "text":
        for block in _listed(content):
            yield from _block(block, speaker)
    elif kind == "thinking":
        if isinstance(content, str) and content:
            yield SaidPiece(role, "thinking", content)
    elif kind == "tool-call" and isinstance(call_id, str) and isinstance(part.get("tool_name"), str):
        yield AskedPiece(call_id, part["tool_name"], part.get("args") or "{}", reply)
    elif kind in {"tool-return", "retry-prompt"} and isinstance(call_id, str) and part.get("tool_name"):
        yield AnswerPiece(call_id, _text_of(content))
    elif kind in {"retry-prompt", "retry-feedback"}:  # without a tool it is about the answer
        yield SaidPiece(_FEEDBACK, "text", _text_of(content))
    else:
        yield _data(role, part)


# --------------------------------------------------------------------------------------------------------------- values


def _fields(value: object) -> _Json | None:
    """The fields of an object in JSON; `None` for other values."""
    return cast("_Json", value) if isinstance(value, dict) else None


def _word(fields: _Json, name: str) -> str:
    """The text of a field; empty if it has none."""
    word: object = fields.get(name)
    return word if isinstance(word, str) else ""


def _is_list(value: object) -> bool:
    return isinstance(value, list | tuple)


def _listed(value: object) -> Sequence[object]:
    """The items of a list; another value as the only one; nothing for `None`."""
    if isinstance(value, list | tuple):
        return cast("Sequence[object]", value)
    return () if value is None else (value,)


def _text_of(content: object) -> str:
    """The text of an answer: its texts on lines of their own, and what else is in it as JSON."""
    if isinstance(content, str):
        return content
    texts = [_plain(block) if (file := _file(block)) is None else file for block in _listed(content)]
    if texts and None not in texts:
        return "\n".join(text for text in texts if text)
    return "" if content is None else json_line(content)


def _file(block: object) -> str | None:
    """What stands for a file: of Anthropic, Responses, Chat Completions or PydanticAI; `None` for any other block."""
    fields = _fields(block) or {}
    source = _fields(fields.get("source")) or fields
    data, media_type = source.get("data"), source.get("media_type")
    if not isinstance(data, str):
        url: object = fields.get("image_url", fields.get("file_data"))
        data = (_fields(url) or {}).get("url", url)
        if not isinstance(data, str) or (found := _DATA_URL.match(data)) is None:
            return None
        media_type, data = found[1], data[found.end() :]
    padding = data[-2:].count("=")
    return describe_file(media_type, len(data) * 3 // 4 - padding) if isinstance(media_type, str) else None


def _data(role: str, value: object) -> SaidPiece:
    return SaidPiece(role, "data", value if isinstance(value, str) else _file(value) or json_line(value))
