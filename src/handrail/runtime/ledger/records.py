"""What the ledger records of a call: its arguments, for people and for the reconciler of its effect, and its result.

| what is recorded of the arguments | the JSON |
|---|---|
| the arguments as the tool parsed them | an object: the arguments |
| and what the model wrote, where a person, a hook or a default has changed it | `{"arguments": {}, "written": {}}` |
| either of them, if it has more than 32 KiB | a string in parentheses: its length in bytes, and its SHA-256 |
| what cannot be shown | a string in parentheses: the reason |

Secrets are masked in both (`handrail.serde.Masking`). Arguments that
look like the second row are recorded as in that row, without `"written"`, so that a record is unambiguous.

The value of a result is recorded as the JSON that the tool's result type writes. The parts of a result are recorded
around its value: `{"$parts": [...], "value": ...}`.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pydantic_core import from_json, to_json

from handrail.errors import DumpError, ParseError
from handrail.prompt import Tool, ToolResult
from handrail.prompt.tool_result import ContentPart, dump_parts, load_parts
from handrail.redaction import MASK, redacted_logger
from handrail.runtime.calls import written_arguments
from handrail.serde import Masking, digest
from handrail.serde.canonical import bytes_digest
from handrail.serde.formatting import shorten
from handrail.serde.json_schema import is_object
from handrail.session.calls import ToolCall

if TYPE_CHECKING:
    from handrail.runtime.ledger.effects import EffectResult
    from handrail.store.protocol import EffectRow

MOST_BYTES: Final = 32 * 1024
"""The limit, in bytes, on the recorded arguments of an effect, and on what the model wrote."""

_LONGEST_SHOWN: Final = 1_000

_log = redacted_logger("handrail.runtime")

_ARGUMENTS, _WRITTEN = "arguments", "written"
_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
_encode_sorted = json.JSONEncoder(sort_keys=True).encode


class RecordedArguments(NamedTuple):
    """Recorded arguments, decoded; a part that is too long, or cannot be shown, is a string.

    Attributes:
        arguments: the arguments as the tool parsed them.
        words: what the model wrote; `None` if that was the same.
    """

    arguments: Any
    words: Any = None


def recorded_arguments(call: ToolCall, params: object, masking: Masking, *, words: bool = False) -> bytes:
    """The record of the arguments of a call, with `words` also what the model wrote. Never raises."""
    try:
        arguments = b"{}" if params is None else masking.json(params)
        written = _words(call, arguments, masking) if words or call.written is not None else None
        if written is not None:
            return b'{"arguments":%s,"written":%s}' % (_bounded(arguments), _bounded(written))
        is_pair = arguments.startswith(b'{"arguments":') and _is_pair(json.loads(arguments))
        return b'{"arguments":%s}' % _bounded(arguments) if is_pair else _bounded(arguments)
    except Exception as error:  # noqa: BLE001 - logged; the parameters may have code of the program
        _log.warning("the arguments of %s are not recorded: %s", call.name, type(error).__name__)
        return _unshown(type(error).__name__)


def read_arguments(data: bytes | None) -> RecordedArguments:
    """Decodes recorded arguments; those that were not recorded are `None`. Raises `ValueError`."""
    read = json.loads(b"null" if data is None else data)
    return RecordedArguments(read[_ARGUMENTS], read.get(_WRITTEN)) if _is_pair(read) else RecordedArguments(read)


def same_arguments(first: bytes | None, second: bytes | None, tool: Tool[Any, Any]) -> bool:
    """True if two records have equal parsed arguments, as keys compare them; false if one is too long."""
    one, two = read_arguments(first), read_arguments(second)
    if not is_object(one.arguments) or not is_object(two.arguments):
        return False
    return (
        _encode_sorted(one.arguments) == _encode_sorted(two.arguments) or _digest(one, tool) == _digest(two, tool) != ""
    )


def _digest(record: RecordedArguments, tool: Tool[Any, Any]) -> str:
    arguments = record.arguments if record.words is None else record.words
    try:
        return digest(tool.parse(record.arguments) if tool.key_codec is None else tool.key_params(arguments, None))
    except (DumpError, ParseError):
        return ""


def other_arguments(record_json: bytes | None) -> str:
    """The sentence to the model that a result is of other arguments, with those that the model wrote then."""
    record = read_arguments(record_json)
    written = record.arguments if record.words is None else record.words
    clause = f", {shorten(_encode_sorted(written), _LONGEST_SHOWN)}," if is_object(written) else ""
    return f"(This was done before with other arguments{clause} and is not done again.)"


def is_recorded_as(record: bytes, params: object, masking: Masking) -> bool:
    """True if parameters would be recorded like this, whatever the model wrote; false if the record is too long."""
    arguments = read_arguments(record).arguments
    own = read_arguments(recorded_arguments(ToolCall("", "a call"), params, masking)).arguments
    return is_object(arguments) and _encode_sorted(own) == _encode_sorted(arguments)


def started_params(record: bytes | None, call: ToolCall, params: object, tool: Tool[Any, Any]) -> tuple[object] | None:
    """The parameters that an effect was begun with, as the only item; a person may have changed those of a later call.

    They are those of the call, or those parsed from the record, if they would be recorded in the same way; `None` if
    neither would: a parser that changes its own result (a `__post_init__` that multiplies) does not restore them.
    """
    masking = tool.masking
    if record is None or recorded_arguments(call, params, masking) == record or is_recorded_as(record, params, masking):
        return (params,)
    if masking.hides and MASK.encode() in record:  # the mask would be used as the secret
        return None
    try:
        params_read: object = tool.parse(read_arguments(record).arguments)
    except (ParseError, ValueError, TypeError):
        return None
    return (params_read,) if params_read is not None and is_recorded_as(record, params_read, masking) else None


def _is_pair(read: object) -> bool:
    return is_object(read) and _ARGUMENTS in read and read.keys() <= {_ARGUMENTS, _WRITTEN}


def _words(call: ToolCall, arguments: bytes, masking: Masking) -> bytes | None:
    decoded = written_arguments(call)
    if masking.hides and not is_object(decoded):
        return _unshown("it is not a JSON object, and the tool takes secrets")
    masked = masking.mask(decoded)
    try:
        words = _encode(masked).encode()
    except (TypeError, ValueError, RecursionError):  # it is not JSON, or has a lone surrogate
        words = json.dumps(repr(masked)).encode()
    # Compared as text, because `True == 1` in Python.
    return (
        None
        if words == arguments or _encode_sorted(json.loads(words)) == _encode_sorted(json.loads(arguments))
        else words
    )


def _unshown(why: str) -> bytes:
    return _encode(f"(not shown: {why})").encode()


def _bounded(data: bytes) -> bytes:
    too_long = len(data) > MOST_BYTES
    return _unshown(f"{len(data):,} bytes, sha256 {bytes_digest(data)}") if too_long else data


def dump_result(tool: Tool[Any, Any], result: ToolResult[Any]) -> EffectResult:
    """The record of a result. Of a value that JSON cannot represent the message has what the model has read."""
    from handrail.runtime.ledger.effects import EffectResult  # noqa: PLC0415

    value = tool.dump_value(result.value)
    if value is None:
        return EffectResult(result.render(), None, result.exclude_value_from_context)
    if result.parts:
        value = b'{"$parts":%s,"value":%s}' % (to_json(dump_parts(result.parts)), value)
    return EffectResult(result.message, value, result.exclude_value_from_context)


def load_result(tool: Tool[Any, Any], row: EffectRow) -> ToolResult[Any]:
    """The recorded result of an effect; raises any `Exception` if its type or the row has changed."""
    message, value = row.message, None
    data, parts = split_parts(row.value)
    if data is None:
        message = f"{message} (This was done before, and is not done again. Its value is not recorded.)".strip()
    elif tool.value_codec is not None:
        value = tool.load_value(data)
    return ToolResult(message, value, exclude_value_from_context=row.exclude_value_from_context, parts=parts)


def split_parts(data: bytes | None) -> tuple[bytes | None, tuple[ContentPart, ...]]:
    """The value that is recorded, and the parts around it; raises `ValueError` if `dump_result` did not write it."""
    if data is None or not data.startswith(b'{"$parts":'):
        return data, ()
    read: Any = from_json(data)
    if read.keys() != {"$parts", "value"}:
        raise ValueError("it has other keys than $parts and value")
    return to_json(read["value"]), load_parts(read["$parts"])
