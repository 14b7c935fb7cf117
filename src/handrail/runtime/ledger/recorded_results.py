"""How the ledger records the result of an effect, and how a later call reads it.

The value is recorded as the JSON that the tool's result type writes. If its class has been given a later version with
`stored_as`, the name and the version of the class are recorded with it: `{"$type": ..., "version": 2, "value": ...}`.
A value without them is of a first version, or was given by a person who has settled the effect. The parts of a result
are recorded around its value: `{"$parts": [...], "value": ...}`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast, get_args, get_origin

from pydantic_core import from_json, to_json

from handrail.errors import ParseError, UnknownTypeError
from handrail.prompt import Tool, ToolResult
from handrail.prompt.content_parts import ContentPart, dump_parts, load_parts
from handrail.runtime.ledger.effects import EffectResult, Hit
from handrail.serde.annotations import is_union, strip_annotated
from handrail.serde.bounded_cache import BoundedCache
from handrail.session.persistence.stored_types import StoredType, is_versioned, stored_type

_VERSIONED = BoundedCache[dict[str, StoredType]]()
"""The dataclasses with versions of each result type, by their stored names."""


def dump_result(tool: Tool[Any, Any], result: ToolResult[Any]) -> EffectResult:
    """A result as the ledger records it: the effect has happened.

    Of a value that JSON cannot represent the message has what the model has read.
    """
    value = tool.dump_value(result.value)
    if value is None:
        return EffectResult(result.render(), None, result.exclude_value_from_context)
    kind = cast("type[Any]", type(result.value))
    if is_versioned(kind):
        stored = stored_type(kind)
        value = b'{"$type":%s,"version":%d,"value":%s}' % (to_json(stored.name), stored.version, value)
    if result.parts:
        value = b'{"$parts":%s,"value":%s}' % (to_json(dump_parts(result.parts)), value)
    return EffectResult(result.message, value, result.exclude_value_from_context)


def load_result(tool: Tool[Any, Any], hit: Hit) -> ToolResult[Any]:
    """The recorded result of an effect, as a result of the tool.

    Raises:
        UnknownTypeError: it is of an earlier version of its type, and an upgrade of the program failed; or of a later.
        Exception: it cannot be read, because the type of the result has changed or the row was changed by hand.
    """
    found = hit.result
    message, value = found.message, None
    recorded, parts = split_parts(found.value)
    if recorded is None:
        message = f"{message} {hit.caveat}".strip()
    elif tool.value_codec is not None:
        value = _load_value(tool, recorded)
    return ToolResult(message, value, exclude_value_from_context=found.exclude_value_from_context, parts=parts)


def split_parts(data: bytes | None) -> tuple[bytes | None, tuple[ContentPart, ...]]:
    """The value that is recorded, and the parts around it.

    Raises:
        ValueError: it is not what `dump_result` writes.
    """
    if data is None or not data.startswith(b'{"$parts":'):
        return data, ()
    read: Any = from_json(data)
    if read.keys() != {"$parts", "value"}:
        raise ValueError("it has other keys than $parts and value")
    return to_json(read["value"]), load_parts(read["$parts"])


def _load_value(tool: Tool[Any, Any], data: bytes) -> object:
    kind = tool.result_type
    versioned = _VERSIONED.get(kind, lambda: {stored.name: stored for stored in _versioned_types(kind)})
    if not versioned:
        return tool.load_value(data)
    read: Any = from_json(data)
    named = cast("dict[str, Any]", read if isinstance(read, dict) else {})
    if named.keys() == {"$type", "version", "value"} and named["$type"] in versioned:
        return tool.load_value(_upgraded(named["value"], versioned[named["$type"]], named["version"]))
    try:
        return tool.load_value(data)
    except ParseError as error:
        unread = error
    failed: UnknownTypeError | None = None
    # The record states no version: the newest one that fits is used, because it needs the fewest upgrades.
    for stored in versioned.values():
        for version in reversed(range(1, stored.version)):
            try:
                return tool.load_value(_upgraded(read, stored, version))
            except ParseError:
                failed = None
            except UnknownTypeError as error:
                failed = error
    # A value without a version is most likely of the first, which was tried last.
    raise failed or unread


def _versioned_types(kind: object) -> Iterator[StoredType]:
    """The dataclasses with versions among the members of a result type."""
    plain = strip_annotated(kind)
    if is_union(plain):
        for member in get_args(plain):
            yield from _versioned_types(member)
    elif is_versioned(cls := get_origin(plain) or plain):
        yield stored_type(cast("type[Any]", cls))


def _upgraded(item: Any, stored: StoredType, version: int) -> bytes:  # noqa: ANN401 - decoded JSON
    """The JSON of a value in the present version of its class."""
    return to_json(stored.upgrade(item, version))
