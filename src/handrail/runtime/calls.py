"""The values of a call: what the model asks for, the message that answers it, and its record.

Every call is recorded as a `ToolInvoked`; its `Step` is how far the call got. What else is emitted is in
`handrail.runtime.call_events`. Two calls with one identity are the same call if the model wrote the same tool and the
same arguments. A record has no secrets: it has the mask in their place, and a digest with the key of the store
distinguishes two of them.

A recorded value of a dataclass is written with the name and version of its class
(`handrail.session.persistence.stored_types`). It is loaded as a value of that class if the program knows the class, and
as decoded JSON otherwise: a record stays readable when the tool that made it is gone. A value that JSON does not
restore exactly (a date in a field of type `Any`, a lone surrogate, which is written as its escape) is loaded as decoded
JSON too. Values of other types are written as the JSON that is shown, and also as the JSON that the tool reads, if that
differs: with the tags of unions whose members the first JSON does not distinguish. A value that JSON cannot represent
is replaced by a note. Parameters that are exactly what decoding the text of the arguments gives are not written again:
`{"from": "arguments"}` is, with the class.

The arguments of a function are written without the class that was made for them. They are loaded as decoded JSON,
wherever the function is defined, and `Tool.parse` reads them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields, is_dataclass, make_dataclass, replace
from datetime import datetime
from enum import StrEnum, auto
from typing import Any, ClassVar, NamedTuple, cast

from pydantic_core import from_json, to_json

from handrail.errors import CallIdReusedError, DumpError, ParseError, SchemaError, SessionError, ToolValidationError
from handrail.limits import RunContext
from handrail.prompt import Tool, ToolResult
from handrail.prompt.content_parts import ContentPart, dump_parts, load_parts
from handrail.prompt.tool_declaration import Arguments
from handrail.redaction import MASK, redacted_logger
from handrail.serde import codec, digest, dump, parse
from handrail.serde.json_schema import is_array, is_object
from handrail.serde.secrets import partial_json
from handrail.session import SlicePolicy, stored_as
from handrail.session.call_ref import CallRef, ToolCall, shown_id
from handrail.session.persistence.stored_types import find_type, stored_type
from handrail.taint.state import ContentMarks

_log = redacted_logger("handrail.runtime")

_ADDED = ("reply", "arguments_digest")
"""Fields that a record may lack: what is `None` is not written."""

_DECODED_FROM = 1024
"""From so many bytes on, parameters are compared with the arguments decoded; smaller ones by their text alone, which
takes no time that could be measured."""

_AS_THEY_ARE = ("refused_at", "handler_seconds", "total_seconds", "effect_key", "replayed", "session_id", "final")


class ToolMessage(NamedTuple):
    """What goes back to the model: exactly one for each call. A named tuple, because one is made for each call.

    Attributes:
        call_id: the id of the call that it answers.
        content: the text that the model reads; of a long result the beginning and the end, see `Tool.max_result_chars`.
        success: whether the call succeeded; when it is false, everything the call did to state has been undone.
        result: what the handler returned, or the failed result that describes the failure.
        replayed: whether the result comes from the record of the call, or from the ledger. The handler was not run, or
            its result was dropped because the same call had been recorded meanwhile.
        is_cut: whether `content` is only a part of the text of the result.
        parts: the same as text and files, for a result that has files; otherwise empty. `content` has a line for each
            file instead: `[image/png, 12 kB]`.
        feedback: the feedback that the message ends with, in `content` and, if it has parts, as the last part; empty
            for nearly all messages. The result has none.
        refusal: what the handler raised to fail the call; its `__cause__` is the exception of PydanticAI that it stands
            for, if there is one. If one of their texts had a secret, both are copies without it: a
            `ToolValidationError`, and a `ModelRetry` or `ToolFailed`. `None` for other failures, and in an answer from
            a record.
        marks: of untrusted content, the lines with which `content` and `parts` begin and end; see
            `handrail.taint.state`.
        pending: whether the call waits, for an approval mostly: nothing of it has run or is recorded, `success` is
            false, and `content` says that it waits. Its result is in the message of the call that is made again.
    """

    call_id: str
    content: str
    success: bool
    result: ToolResult[Any]
    replayed: bool = False
    is_cut: bool = False
    parts: tuple[ContentPart, ...] = ()
    feedback: str = ""
    refusal: ToolValidationError | None = None
    pending: bool = False
    marks: ContentMarks | None = None

    @property
    def is_untrusted(self) -> bool:
        """Whether third parties have written what the model reads."""
        return self.marks is not None

    @property
    def is_changed(self) -> bool:
        """Whether the model reads another text than that of the result."""
        return self.is_cut or self.is_untrusted


def dump_tool_invoked(event: Any) -> bytes:  # noqa: ANN401 - a `ToolInvoked`, whose module imports this one
    """A `ToolInvoked` as one JSON object in UTF-8; does not fail for any value of a call."""
    call, result, run_context = event.call, event.result, event.run_context
    arguments = as_recorded(call.arguments)
    plain: dict[str, Any] = {
        "id": call.id,
        "name": call.name,
        "arguments": arguments,
        "final": event.final,
        "message": result.message,
        "success": result.success,
        "exclude_value": result.exclude_value_from_context,
        "run_context": None if run_context is None else codec(RunContext).dump(run_context),
        "at": event.at,
        "refused_at": event.refused_at,
        "handler_seconds": event.handler_seconds,
        "total_seconds": event.total_seconds,
        "effect_key": event.effect_key,
        "replayed": event.replayed,
        "session_id": event.session_id,
    }
    if call.written is not None:
        plain["written"] = as_recorded(call.written)
    if event.reply is not None:
        plain["reply"] = event.reply
    if event.arguments_digest is not None:
        plain["arguments_digest"] = event.arguments_digest
    if result.parts:
        plain["parts"] = dump_parts(result.parts)
    try:
        head = to_json(plain)
    except Exception:  # noqa: BLE001 - a model may send text that is not Unicode; every call is recorded
        head = json.dumps(plain, default=_spelled).encode()
    # Parts that are JSON already are appended to the object as bytes, in place of its closing brace.
    params, value = _params(event.params, arguments), _tagged(result.value)
    return b'%s,"params":%s,"value":%s}' % (head[:-1], params, value)


def load_tool_invoked(data: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of the `ToolInvoked` that `dump_tool_invoked` wrote, by their names.

    Raises:
        ValueError: it is not a record of a call.
    """
    try:
        context = data["run_context"]
        result = ToolResult(
            data["message"],
            _untagged(data["value"]),
            success=data["success"],
            exclude_value_from_context=data["exclude_value"],
            parts=load_parts(data.get("parts", ())),
        )
        fields: dict[str, Any] = {
            "call": ToolCall(data["id"], data["name"], data["arguments"], data.get("written")),
            "params": _untagged(_with_arguments(data["params"], data["arguments"])),
            "value_read": _to_be_read(data["value"]),
            "result": result,
            "run_context": None if context is None else parse(RunContext, context),
            "at": datetime.fromisoformat(data["at"]),
        }
        added = {name: data[name] for name in _ADDED if name in data}
        return fields | added | {name: data[name] for name in _AS_THEY_ARE}
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"it is not a record of a call: {error!r}") from error


def _spelled(value: object) -> str:
    return value.isoformat() if isinstance(value, datetime) else repr(value)


def as_recorded(value: object) -> Any:  # noqa: ANN401 - decoded JSON
    """Arguments as recorded: text as it is, other values as JSON, and values that JSON cannot represent as text."""
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    with suppress(Exception):  # it did not parse, so it may be anything
        return dump(value)
    with suppress(Exception):
        return repr(value)
    return f"<{type(value).__name__}>"


def _tagged(value: object) -> bytes:
    if value is None:
        return b"null"
    try:
        if isinstance(value, Arguments):
            return b'{"value":%s}' % codec(type(value)).dump_json(value)
        if is_dataclass(value):
            # Not `suppress`, which is three calls of Python: two values of each stored call pass here.
            try:
                stored = stored_type(type(value))
                items = stored.dump((value,))
                return b'{"type":"%s","version":%d,"value":%s}' % (stored.name.encode(), stored.version, items)
            except SessionError:  # it holds a value that JSON does not restore exactly
                pass
        return b'{"value":%s}' % to_json(dump(value))
    except Exception as error:  # noqa: BLE001 - logged; whatever the value is, the call is recorded
        partial = partial_json(value)
        if partial.is_escaped and not partial.gaps:
            return b'{"value":%s}' % partial.text.encode()
        _log.warning("a value of %s is not recorded with its call: %s", type(value).__name__, error)
        return b'{"unavailable":%s}' % to_json(type(value).__qualname__)


def _params(params: object, arguments: object) -> bytes:
    """Parameters as `_tagged` writes them, without the value where the arguments say it."""
    tagged = _tagged(params)
    head, value, json_value = tagged.partition(b'"value":')
    if not value or type(arguments) is not str:
        return tagged
    typed = head != b"{"
    json_value = json_value[1:-2] if typed else json_value[:-1]  # the value of a class is in an array
    return b'%s"from":"arguments"}' % head if _is_decoded(json_value, arguments) else tagged


def _is_decoded(value: bytes, arguments: str) -> bool:
    """Whether decoding the text of arguments gives a value, of which the JSON is given."""
    if len(value) < _DECODED_FROM:
        return value == arguments.encode(errors="surrogatepass")
    try:
        return _is_same_json(from_json(arguments), from_json(value))
    except (ValueError, TypeError):  # the latter for a lone surrogate
        return False


def _is_same_json(one: object, other: object) -> bool:
    """Whether decoded JSON is the same, in any order of keys; a number that is written as another one is not."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        ours, theirs = cast("dict[str, object]", one), cast("dict[str, object]", other)
        return ours.keys() == theirs.keys() and all(_is_same_json(value, theirs[key]) for key, value in ours.items())
    if isinstance(one, list):
        left, right = cast("list[object]", one), cast("list[object]", other)
        return len(left) == len(right) and all(map(_is_same_json, left, right))
    return one == other


def _with_arguments(params: Any, arguments: Any) -> Any:  # noqa: ANN401 - decoded JSON
    """What is recorded of parameters, with the value that the arguments say."""
    if params is None or "from" not in params:
        return params
    value = from_json(arguments)
    return {**params, "value": [value] if "type" in params else value}


def _to_be_read(data: Any) -> Any:  # noqa: ANN401 - decoded JSON
    """The JSON from which the tool loads a value that the record shows as JSON; `None` if there is no value."""
    return None if data is None or "type" in data else data.get("value")


def _untagged(data: Any) -> Any:  # noqa: ANN401 - decoded JSON in, a value of any type out
    if data is None or "unavailable" in data:
        return None
    if "type" not in data:
        return data["value"]
    (item,) = data["value"]
    try:
        # A class that is unknown here, or was changed since, must not make the record of a call unreadable.
        kind = find_type(data["type"])
        return item if kind is None else stored_type(kind).load(to_json([item]), data["version"])[0]
    except SessionError:
        _log.warning("a recorded value of %s no longer matches its class; it is shown as JSON", data["type"])
        return item


class Step(StrEnum):
    """The steps of the pipeline, in order; a step is stored by its name. `handrail.runtime.invoke` describes them."""

    LOOK_UP = auto()
    PARSE = auto()
    TURN = auto()
    POLICY = auto()
    APPROVAL = auto()
    DEADLINE = auto()
    CLAIM = auto()
    BEGIN = auto()
    HANDLER = auto()
    APPLY = auto()
    COMMIT = auto()
    RECORD = auto()
    RENDER = auto()

    @property
    def number(self) -> int:
        """Its place in the pipeline, from 1."""
        return list(Step).index(self) + 1


class _Form:
    """How a `ToolInvoked` is stored; see `handrail.runtime.calls`."""

    @staticmethod
    def dump(event: ToolInvoked, /) -> bytes:
        return dump_tool_invoked(event)

    @staticmethod
    def load(data: dict[str, Any], /) -> ToolInvoked:
        read = load_tool_invoked(data)
        if read["refused_at"] is not None:
            read["refused_at"] = Step(read["refused_at"])
        return ToolInvoked(**read)


@stored_as("handrail.tool_invoked", form=_Form())
@dataclass(frozen=True, slots=True)
class ToolInvoked:
    """A call has ended: one event for each call, whatever the outcome. Its slice is a LOG, so it is never rolled back.

    Attributes:
        call: what the model asked for, with the mask in place of secrets, as in the parameters and in the value.
        params: the parsed arguments; `None` if they did not parse, or the tool takes none. In a record of a function's
            call that was loaded from a store they are decoded JSON.
        result: what the handler returned, or the failed result that describes the failure.
        refused_at: the step that refused the call or failed; `None` for a call that succeeded.
        handler_seconds: how long the handler ran; `None` if it did not run.
        total_seconds: how long the whole call took, from its arrival, waiting included.
        effect_key: the key of the effect in the ledger; `None` if the call has no effect there.
        replayed: whether the result comes from the ledger.
        session_id: the session of the call.
        run_context: the correlation ids of the run.
        at: when the call ended.
        reply: the reply of the model that asked for the call; `None` if it was not given.
        final: whether a repeat of the same call is answered from this record. It is if the call succeeded, if the
            request is invalid, if a policy or an approver denied it, or if the handler refused it by a failed result or
            `ToolValidationError`. Otherwise the repeat goes through the pipeline: after any other exception of the
            handler, and if a policy or an approver raised, or no approver exists.
        value_read: decoded JSON from which the tool loads the value of the result, for records loaded from a store;
            `None` if the value has its original type.
        arguments_digest: distinguishes what the model wrote from the same with other secrets; `None` if it has no
            secrets, or there is no key for it. See `handrail.runtime.masked_records`.
    """

    slice_policy: ClassVar[SlicePolicy] = SlicePolicy.LOG

    call: ToolCall
    params: Any
    result: ToolResult[Any]
    refused_at: Step | None
    handler_seconds: float | None
    total_seconds: float
    effect_key: str | None
    replayed: bool
    session_id: str
    run_context: RunContext | None
    at: datetime
    reply: str | None = None
    final: bool = True
    value_read: Any = field(default=None, compare=False, repr=False)
    arguments_digest: str | None = field(default=None, compare=False, repr=False)

    @staticmethod
    def of(*values: Any) -> ToolInvoked:  # noqa: ANN401 - the fields, in their order
        """Create an event from its fields, in their order; for the pipeline, which creates one for each call.

        A frozen dataclass sets each field by a call of `object.__setattr__`. That takes 1.1 microseconds more, 4 % of a
        call that reads. A draft with the same slots is filled directly, and its class is then changed.
        """
        draft = _DRAFT(*values)
        # CPython permits this assignment because both classes have the same slots in the same order.
        draft.__class__ = ToolInvoked
        event: ToolInvoked = draft
        return event

    @property
    def ref(self) -> CallRef:
        """The identity of the call within its session."""
        return CallRef(self.reply, self.call.id)

    @property
    def call_id(self) -> str:
        """The id of the call."""
        return self.call.id

    @property
    def name(self) -> str:
        """The name of the tool, as the model wrote it."""
        return self.call.name

    @property
    def success(self) -> bool:
        """Whether the call succeeded."""
        return self.result.success


_FIELDS = tuple(each.name for each in fields(ToolInvoked))
_DRAFT: Any = make_dataclass("_Draft", _FIELDS, slots=True, repr=False, eq=False)
"""A `ToolInvoked` that is not frozen, with the same slots."""


def written_arguments(call: ToolCall) -> object:
    """The arguments as the model wrote them, decoded; as they are if they are not JSON."""
    words: Any = call.arguments if call.written is None else call.written  # an adapter may hand over anything
    if not isinstance(words, str | bytes):
        return dict(cast("Mapping[object, object]", words)) if isinstance(words, Mapping) else words
    try:
        return from_json(words)
    except (ValueError, TypeError):  # the latter for a lone surrogate
        return words if isinstance(words, str) else words.decode(errors="backslashreplace")


def is_same_call(call: ToolCall, recorded: ToolCall) -> bool:
    """Whether a call is the same as the one recorded under its identity."""
    if call.name != recorded.name:
        return False
    # The fast path: equal text is equal JSON. Different text may be too, with other spaces or another order of keys.
    if call.words == recorded.words:
        return True
    given, held = written_arguments(call), written_arguments(recorded)
    try:
        if digest(given) == digest(held):
            return True
    except (DumpError, SchemaError, RecursionError):  # not JSON, so the record holds them as text
        if as_recorded(call.words) == as_recorded(recorded.words):
            return True
    return _fits_masked(given, held)


def _fits_masked(given: object, held: object) -> bool:
    """Whether arguments are those of a record that has the mask in place of secrets."""
    if held == MASK:
        return True
    if is_object(held) and is_object(given):
        return held.keys() == given.keys() and all(_fits_masked(given[name], item) for name, item in held.items())
    if is_array(held) and is_array(given):
        return len(held) == len(given) and all(map(_fits_masked, given, held))
    return _is_same_json(given, held)


def reused_id(recorded: ToolInvoked, call: ToolCall | None = None) -> CallIdReusedError:
    """The error for a call whose identity belongs to another call, or has a final record.

    Args:
        recorded: the record of that identity.
        call: the call that differs from it; `None` if a call without a reply has a final record.
    """
    when = f"recorded at {recorded.at.isoformat(timespec='seconds')}"
    if call is None:
        msg = (
            f"call {shown_id(recorded.call_id)} of session {recorded.session_id!r} (tool {recorded.name}) has a final "
            f"record, {when}. State the reply: execute(call, reply=...) answers a call that is asked again from its "
            "record; a new call needs an id of its own"
        )
    else:
        other = f"tool {call.name}" if call.name != recorded.name else "other arguments"
        msg = (
            f"call {shown_id(recorded.call_id)} of reply {shown_id(recorded.reply)} in session "
            f"{recorded.session_id!r} belongs to a call of {recorded.name}, {when}, and was repeated with "
            f"{other}. Give each reply of the model a name of its own; if the model gave several calls of it one id, "
            "pass all of them together to ToolExecutor.answer or execute_all"
        )
    return CallIdReusedError(
        msg, call_id=recorded.call_id, reply=recorded.reply, recorded_at=recorded.at, tool=recorded.name
    )


def declared_result(tool: Tool[Any, Any] | None, event: ToolInvoked) -> ToolResult[Any]:
    """The result in a record, with its value as the tool declares it.

    A value that does not fit stays decoded JSON: the tool has changed since, or is gone.
    """
    if event.value_read is None or tool is None or tool.value_codec is None:
        return event.result
    try:
        return replace(event.result, value=tool.load_value(to_json(event.value_read)))
    except (ParseError, ValueError):
        _log.warning("the recorded value of %s no longer matches its type; it is returned as JSON", tool.name)
        return event.result
