"""The values of a transcript, and how the messages of providers are read: who says what, and which calls are made.

A transcript is a sequence of `TranscriptItem`. A message comes before the calls that it asks for, and these come in the
order in which they were asked for.

| form | text | a call | its answer |
|---|---|---|---|
| OpenAI Chat Completions | `content`: text, or parts with `text` | an item of `tool_calls` | the role `tool` |
| OpenAI Responses | an item with `role` and `content` | `function_call` | `function_call_output` |
| Anthropic Messages | `content`: text, or blocks of the type `text` | a block `tool_use` | a block `tool_result` |
| PydanticAI | the parts of a request or response | a part `tool-call` | a part `tool-return`, or `retry-prompt` |

Sources: the types of the SDKs of OpenAI and Anthropic, and `pydantic_ai.messages`. Reading never fails: a program may
append what it likes, and providers add forms. An unknown form is a block of JSON. A file in base64 is shown by its
media type and size: `[image/png, 12 kB]`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple, TypeAlias, cast

from pydantic_core import from_json

from handrail.prompt.tool_result import describe_file
from handrail.serde.formatting import json_line
from handrail.serde.json_schema import is_object
from handrail.session.calls import CallRef
from handrail.session.conversation import REPLY_KEY, Speaker
from handrail.transaction.changes import CallChange

BlockKind: TypeAlias = Literal["text", "thinking", "refusal", "data"]
"""The kind of a block: text, the reasoning of the model, its refusal to answer, or JSON of another form."""

CallOutcome: TypeAlias = Literal[
    "ok", "refused", "failed", "undone", "unknown", "unapplied", "running", "waiting", "answered", "open"
]
"""The outcome of a call.

| outcome | means |
|---|---|
| `"ok"` | it succeeded |
| `"refused"` | it failed before its handler was started |
| `"failed"` | it failed later, and was rolled back |
| `"undone"` | it succeeded, and was rolled back with its caller |
| `"unknown"` | its effect may have happened |
| `"unapplied"` | its effect has happened, and the session has not applied the result |
| `"running"` | a process has claimed its effect |
| `"waiting"` | it waits for an approval |
| `"answered"` | the conversation answers it, and it has no record: it was not made by Handrail |
| `"open"` | it has neither a record nor an answer |
"""

BreakKind: TypeAlias = Literal["restarted", "removed"]
"""A conversation begins anew in the place of an earlier one; or parts of conversations were removed."""


class ConversationId(NamedTuple):
    """A conversation of a session: its speaker, and the name of the agent or prompt; empty for a program's own loop."""

    speaker: Speaker
    name: str = ""


@dataclass(frozen=True, slots=True)
class MessageBlock:
    """A piece of a message; the text of `"data"` is JSON on one line."""

    kind: BlockKind
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptMessage:
    """A message. The messages of one role that follow each other are one.

    Attributes:
        role: in the word of the provider: `"user"`, `"assistant"`, `"system"`, and others.
        blocks: the content, in order; empty if the message only asks for calls.
        at: when it was appended; `None` if that is not known.
    """

    conversation: ConversationId
    role: str
    blocks: tuple[MessageBlock, ...] = ()
    at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalWait:
    """A call has waited for an approval, or was decided on by a person at once.

    Attributes:
        duration: how long it waited; `None` if it was decided at once, or that is not known.
        by: the person or rule that has decided; empty if that is not known.
        approved: the decision; `None` as long as it waits.
        since: when it was asked; `None` if that is not known.
    """

    duration: timedelta | None = None
    by: str = ""
    approved: bool | None = None
    since: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptCall:
    """A call and its outcome.

    Attributes:
        conversation: the conversation that asks for it; `None` if no message of the session does.
        tool: the tool, as the model wrote it.
        arguments: as the model wrote them, decoded, with secrets masked; text if they are not JSON.
        content: the message for the model; empty if there is nothing yet.
        value: the value of its result, as JSON has it; `None` if it has none.
        seconds: how long it took, waiting included; `None` without a record.
        replayed: whether the result comes from the ledger.
        at: when it ended; `None` without a record.
        wait: its wait for an approval of a person; `None` if it needed none.
        owner: the process that has claimed its effect, in words; empty unless `"running"`.
        key: the key of its effect, as long as the ledger has not settled it; else empty.
        has_effect: whether it has claimed an effect: of that nothing is rolled back, and a person may have settled it.
        child: the session of the agent that it calls; empty if it calls none.
        nested: the calls that its handler has made, in the order in which they ended.
        step: the step of the pipeline that has refused it or failed; empty for a call that succeeded.
        effect_key: the key of its effect in the ledger; empty if it has none.
        turn_seconds: how long it waited for its turn.
        approval_seconds: how long its approver was asked.
        handler_seconds: how long its handler ran; `None` if it did not.
        changes: what it has changed in files, or what was undone; see `ToolInvoked.changes`.
        trace: the ids of its trace and its span, as of `ToolInvoked.trace`; empty if none has it.
        decisions: what policies have asked about it, and what rules, people and others have decided, in words.
    """

    conversation: ConversationId | None = None
    call: CallRef
    tool: str
    arguments: Any = None
    outcome: CallOutcome = "open"
    content: str = ""
    value: Any = None
    seconds: float | None = None
    replayed: bool = False
    at: datetime | None = None
    wait: ApprovalWait | None = None
    owner: str = ""
    key: str = ""
    has_effect: bool = False
    child: str = ""
    nested: Sequence[TranscriptCall] = ()
    step: str = ""
    effect_key: str = ""
    turn_seconds: float = 0.0
    approval_seconds: float = 0.0
    handler_seconds: float | None = None
    changes: Sequence[CallChange] = ()
    trace: str = ""
    decisions: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptBreak:
    """A conversation begins anew, or parts of conversations were removed.

    Attributes:
        conversation: the conversation; `None` for all of the session.
        count: how many messages the new conversation repeats, which are not shown again; or how many parts were
            removed.
        at: when; `None` if that is not known.
    """

    conversation: ConversationId | None
    kind: BreakKind
    count: int = 0
    at: datetime | None = None


TranscriptItem: TypeAlias = TranscriptMessage | TranscriptCall | TranscriptBreak
"""An item of a transcript."""


# ------------------------------------------------------------------------------------------------ messages of providers


_CALLS = {
    "tool_use": ("id", "name", "input"),
    "function_call": ("call_id", "name", "arguments"),
    "custom_tool_call": ("call_id", "name", "input"),
    "tool-call": ("tool_call_id", "tool_name", "args"),
}
"""Keys of the id of a call, its tool and its arguments, by the kind of a block."""

_ANSWERS = {
    "tool_result": ("tool_use_id", "content"),
    "function_call_output": ("call_id", "output"),
    "custom_tool_call_output": ("call_id", "output"),
    "tool-return": ("tool_call_id", "content"),
    "retry-prompt": ("tool_call_id", "content"),
}
"""Keys of the id of the call that a block answers, and of the answer, by the kind of the block."""

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


class BlockPiece(NamedTuple):
    """A block of a message; the text of `"data"` is JSON."""

    role: str
    kind: BlockKind
    text: str


class AnswerPiece(NamedTuple):
    """The answer to a call, as the model reads it."""

    call_id: str
    text: str


MessagePiece: TypeAlias = BlockPiece | TranscriptCall | AnswerPiece
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
        for block in (*_as_list(message.get("content")), *([refusal] if refusal["refusal"] else [])):
            yield from _block(block, role)
        for call in _as_list(message.get("tool_calls")):
            yield _tool_call(call, role)
    else:
        yield from _block(message, _UNKNOWN_ROLE)


def decode_arguments(arguments: object) -> Any:  # noqa: ANN401 - decoded JSON
    """The arguments of a call, decoded; as they are if they are not JSON."""
    try:
        # The cache of strings is of use for those that come again: names, and not values.
        return from_json(arguments, cache_strings="keys") if isinstance(arguments, str) else arguments
    except (ValueError, TypeError):  # the latter for a lone surrogate
        return arguments


def _tool_call(call: object, role: str) -> MessagePiece:
    fields = call if is_object(call) else {}
    function: object = fields.get(str(fields.get("type", "function")))
    call_id, tool = fields.get("id"), function.get("name") if is_object(function) else None
    if not (is_object(function) and isinstance(call_id, str) and isinstance(tool, str)):
        return _data(role, call)
    # A custom tool has one text as its input.
    return TranscriptCall(
        call=CallRef(None, call_id), tool=tool, arguments=function.get("arguments", function.get("input"))
    )


def _block(block: object, role: str, reply: str | None = None) -> Iterator[MessagePiece]:
    fields = {"type": "text", "text": block} if isinstance(block, str) else block if is_object(block) else {}
    kind = str(fields.get("part_kind", fields.get("type")))
    content: object = fields.get("content")
    if kind in _CALLS:
        call_id, tool, arguments = (fields.get(name) for name in _CALLS[kind])
        call = TranscriptCall(call=CallRef(reply, str(call_id)), tool=str(tool), arguments=arguments or "{}")
        yield call if isinstance(call_id, str) and isinstance(tool, str) else _data(role, block)
    elif kind in _ANSWERS and fields.get("tool_name", True):
        call_id, answer = (fields.get(name) for name in _ANSWERS[kind])
        yield AnswerPiece(call_id, _answer_text(answer)) if isinstance(call_id, str) else _data(role, block)
    elif kind in {"retry-prompt", "retry-feedback"}:
        yield BlockPiece(_PART_ROLES[kind], "text", _answer_text(content))
    elif kind in _PART_ROLES or (kind == "text" and "part_kind" in fields):
        for inner in _as_list(content):
            yield from _block(inner, _PART_ROLES.get(kind, role))
    elif kind == "reasoning":
        # What is encrypted says nothing to a reader, and a summary is often empty.
        for inner in (*_as_list(fields.get("summary")), *_as_list(content)):
            yield from _text_pieces(_MODEL, "thinking", inner)
    elif kind in {"thinking", "refusal"}:
        yield from _text_pieces(role, cast("BlockKind", kind), fields.get(kind, content))
    elif kind != "redacted_thinking":
        yield from _text_pieces(role, "text", block)


def _text_pieces(role: str, kind: BlockKind, block: object) -> Iterator[BlockPiece]:
    text = _text(block)
    if text is None:
        yield _data(role, block)
    elif text:
        yield BlockPiece(role, kind, text)


def _text(block: object) -> str | None:
    text: object = block.get("text") if is_object(block) and str(block.get("type")) in _TEXTS else block
    return text if isinstance(text, str) else None


def _as_list(value: object) -> Sequence[object]:
    if isinstance(value, list | tuple):
        return cast("Sequence[object]", value)
    return () if value is None else (value,)


def _answer_text(content: object) -> str:
    texts = [_file(block) or _text(block) for block in _as_list(content)]
    return json_line(content) if None in texts else "\n".join(filter(None, texts))


def _file(block: object) -> str | None:
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


def _data(role: str, value: object) -> BlockPiece:
    return BlockPiece(role, "data", value if isinstance(value, str) else _file(value) or json_line(value))
