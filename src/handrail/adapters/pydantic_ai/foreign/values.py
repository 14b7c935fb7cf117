"""Values of foreign tools: read during the call, and converted to JSON for the record and the model.

| in a value that a tool returns | becomes |
|---|---|
| an iterator, anywhere in dicts, lists and tuples | the list of its items |
| an asynchronous iterator there | a failed call, because it is not read |
| a value that PydanticAI can send to the model | unchanged; the record has it as JSON |
| any other: a lone surrogate, a list in itself, an object of some class | the same as in the record: JSON, or text |
| lone surrogates in the content or metadata of a `ToolReturn` | their escapes |
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import fields, is_dataclass, replace
from typing import Any, Final, TypeGuard, cast

from pydantic import BaseModel
from pydantic_ai import BinaryContent, ToolReturn
from pydantic_ai.messages import TextContent, ToolReturnPart, tool_return_ta
from pydantic_core import from_json, to_json

from handrail.adapters.pydantic_ai.toolset import part_content
from handrail.errors import ToolValidationError
from handrail.prompt import BinaryPart
from handrail.prompt.content_parts import ContentPart
from handrail.runtime import ToolMessage
from handrail.serde.json_schema import is_array, is_object
from handrail.serde.json_values import SecretValue, escape_surrogates, escaped_within, is_secret
from handrail.serde.secrets import schema_masking
from handrail.taint.state import ContentMarks

NO_VALUE: Final = object()
"""The placeholder for a value that JSON cannot represent."""

_DEEPEST: Final = 200
_SIMPLE: Final = frozenset({type(None), bool, int, float, str, bytes})


class UnreadableValueError(ToolValidationError):
    """A tool has run, and its return value is not supported. Never leaves the adapter."""


def freeze_value(name: str, returned: object) -> tuple[Any, Any]:
    """The return value of a tool for PydanticAI, and its record.

    Raises:
        UnreadableValueError: it contains an asynchronous iterator.
        Exception: what an iterator raises.
    """
    if _is_return(returned):
        shown, recorded = freeze_value(name, returned.return_value)
        content, metadata = _escaped_content(returned.content), escaped_within(returned.metadata)
        # PydanticAI gets the same object wherever possible, so that a subclass or its identity is preserved.
        if shown is returned.return_value and content is returned.content and metadata is returned.metadata:
            return returned, recorded
        return replace(returned, return_value=shown, content=content, metadata=metadata), recorded
    read = _read(name, returned, ())
    recorded = to_plain_json(read)
    if _is_representable(read):
        return read, recorded
    recorded = recorded if _is_representable(recorded) else to_plain_text(recorded)
    return recorded, recorded


def with_value(returned: object, value: Any, marks: ContentMarks | None = None) -> Any:  # noqa: ANN401 - whatever the tool returns
    """What a tool returned with another value in the place of its own; what it says beside the value is marked."""
    if not _is_return(returned):
        return value
    if marks is None or not returned.content:
        return replace(returned, return_value=value)
    said = (returned.content,) if isinstance(returned.content, str) else returned.content
    return replace(returned, return_value=value, content=[marks.first, *said, marks.last])


def split_files(returned: object) -> tuple[Any, tuple[ContentPart, ...]]:
    """The return value of a tool without its files, and the files; a value that has none is the same object.

    PydanticAI sends the files to the model that are the value itself, or items of a list.
    """
    value = returned.return_value if _is_return(returned) else returned
    files = [each for each in ToolReturnPart("", value).files if isinstance(each, BinaryContent)]
    if not files:
        return value, ()
    others = [each for each in value if not isinstance(each, BinaryContent)] if is_array(value) else None
    return others, tuple(BinaryPart(each.data, each.media_type) for each in files)


def replayed_value(message: ToolMessage) -> Any:  # noqa: ANN401 - decoded JSON, with PydanticAI's files
    """The recorded value of a tool, with its files behind the rest, as `split_files` has taken it apart."""
    value, parts = message.result.value, message.result.parts
    if not parts:
        return value
    others = value if is_array(value) else () if value is None else (value,)
    return [*others, *map(part_content, parts)]


def advised_value(returned: object, message: ToolMessage) -> Any:  # noqa: ANN401 - whatever the tool returns
    """What a tool returned, with the feedback of its message: behind a text, otherwise as the last item of a list."""
    if not message.feedback:
        return returned
    if _is_return(returned):
        return replace(returned, return_value=advised_value(returned.return_value, message))
    if isinstance(returned, str):
        return f"{returned}\n\n{message.feedback}"
    return [*(returned if is_array(returned) else (returned,)), message.feedback]


def to_plain_json(value: object) -> Any:  # noqa: ANN401 - decoded JSON
    """A value as JSON; one that JSON cannot represent is described as text."""
    found = as_json(value)
    return to_plain_text(value) if found is NO_VALUE else found


def as_json(value: object) -> Any:  # noqa: ANN401 - decoded JSON
    """A value as JSON; `NO_VALUE` if JSON cannot represent it."""
    # ASCII text has no lone surrogates, and needs no conversion. Most return values are of this kind.
    if _is_simple_text(value):
        return value
    try:
        return from_json(to_json(value, serialize_unknown=True, inf_nan_mode="strings"))
    except Exception:  # noqa: BLE001 - it contains itself or a lone surrogate, or its own code fails: described as text
        return NO_VALUE


def to_plain_text(value: object) -> str:
    """The `repr` of a value."""
    try:
        return repr(value).encode("utf-8", "backslashreplace").decode()
    except Exception:  # noqa: BLE001 - its `repr` fails: described by its type
        return f"(a value of type {type(value).__name__} that cannot be shown)"


def secrets_put_back(found: object, value: object) -> Any:  # noqa: ANN401 - decoded JSON
    """The JSON of a value, with its secrets instead of their masks.

    Two calls that differ only in a secret differ in it. A set of secrets becomes a sorted list of them.

    Args:
        found: the result of `as_json` for the value.
        value: the value: dicts, lists, models and dataclasses are traversed.
    """
    if is_secret(value):
        return value
    if is_object(found):
        named = _named(value)
        return {name: secrets_put_back(item, named[name]) if name in named else item for name, item in found.items()}
    # A set with members that are not secrets has another length, and stays masked.
    if is_array(found) and len(parts := _ordered(value)) == len(found):
        return [secrets_put_back(item, part) for item, part in zip(found, parts, strict=True)]
    return found


def holds_secret(value: object, depth: int = 0) -> bool:
    """Whether one of pydantic's secrets is in a value: in dicts, lists, sets, models and dataclasses."""
    if type(value) in _SIMPLE or depth > _DEEPEST:
        return False
    if is_secret(value):
        return True
    items = cast("Iterable[object]", value) if isinstance(value, list | tuple | AbstractSet) else _named(value).values()
    return any(holds_secret(item, depth + 1) for item in items)


def with_secrets_marked(schema: Mapping[str, Any], arguments: Mapping[str, object]) -> Mapping[str, Any]:
    """The JSON Schema of parameters, with a mark at unmarked secrets.

    pydantic marks `SecretStr` and `SecretBytes`; for `Secret[T]` it writes the schema of `T`.

    Args:
        schema: the schema.
        arguments: the arguments of a call as JSON, with their secrets.
    """
    # What the schema's own marks hide is masked first; a secret that is left has no mark yet.
    left = schema_masking(schema).mask(arguments)
    hidden = [name for name, value in left.items() if holds_secret(value)] if is_object(left) else []
    if not hidden:
        return schema
    declared: object = schema.get("properties")
    marks = {name: {"writeOnly": True} for name in hidden}
    return {**schema, "properties": {**(declared if is_object(declared) else {}), **marks}}


def _named(value: object) -> Mapping[object, object]:
    """The parts of a value by their names in JSON; parts with other names there are omitted."""
    if isinstance(value, Mapping):
        return cast("Mapping[object, object]", value)
    if isinstance(value, BaseModel):
        fields_of_model = type(value).model_fields.items()
        return {info.serialization_alias or name: getattr(value, name) for name, info in fields_of_model}
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    return {}


def _ordered(value: object) -> Sequence[object]:
    if isinstance(value, AbstractSet):
        members = cast("AbstractSet[object]", value)  # each is checked
        return sorted(filter(is_secret, members), key=_revealed)
    return cast("Sequence[object]", value) if isinstance(value, list | tuple) else ()


def _revealed(secret: SecretValue) -> str:
    return str(secret.get_secret_value())


def _read(name: str, value: object, within: tuple[int, ...]) -> object:
    """The value with its iterators read; the same object if there are none.

    Args:
        name: the tool, for the error.
        value: a part of the return value of the tool.
        within: the ids of the containers of the part.
    """
    if type(value) in _SIMPLE or len(within) > _DEEPEST or id(value) in within:
        return value  # too deep, or in itself: JSON cannot represent it, so it is described as text
    if isinstance(value, AsyncIterator):
        raise UnreadableValueError(
            f"{name} returns {type(cast('object', value)).__name__}, an asynchronous iterator, which is not read: "
            "the tool must collect its items and return a list"
        )
    inner = (*within, id(value))
    if isinstance(value, Iterator):
        return [_read(name, item, inner) for item in cast("Iterator[object]", value)]  # each is checked in its turn
    if isinstance(value, dict):
        entries = cast("dict[object, object]", value)  # as above
        read = {key: _read(name, item, inner) for key, item in entries.items()}
        return entries if all(read[key] is item for key, item in entries.items()) else read
    if isinstance(value, list | tuple):
        items = cast("list[object] | tuple[object, ...]", value)  # as above
        found = [_read(name, item, inner) for item in items]
        if all(new is old for new, old in zip(found, items, strict=True)):
            return items
        return found if isinstance(items, list) else tuple(found)
    return value


def _is_representable(value: object) -> bool:
    """Whether PydanticAI can write a value in a message, and read it again."""
    if _is_simple_text(value):
        return True
    # Serializers of pydantic limit the depth, so a value that fits by itself may fail inside of a message.
    message = [[[[[[[[value]]]]]]]]  # at least as deep as a value in a history
    try:
        from_json(tool_return_ta.dump_json(message, by_alias=True))
    except Exception:  # noqa: BLE001 - as for `as_json`
        return False
    return True


def _escaped_content(content: Any) -> Any:  # noqa: ANN401 - PydanticAI's
    """What a tool adds for the model, with lone surrogates escaped; the same object if it has none."""
    if isinstance(content, TextContent):
        text = escape_surrogates(content.content)
        return content if text == content.content else TextContent(text, metadata=content.metadata)
    if not isinstance(content, list | tuple):
        return escaped_within(content)
    parts = list(cast("Sequence[object]", content))
    made = [_escaped_content(part) for part in parts]
    return made if any(one is not other for one, other in zip(parts, made, strict=True)) else cast("Any", content)


def _is_return(value: object) -> TypeGuard[ToolReturn[Any]]:
    return isinstance(value, ToolReturn)


def _is_simple_text(value: object) -> bool:
    return value is None or type(value) is bool or (type(value) is str and value.isascii())
