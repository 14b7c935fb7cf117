"""Values of tools that are not Handrail's, as JSON: their arguments, and what they return.

PydanticAI gets of a returned value what is recorded, and its files as they are; the model reads the same when the call
is answered from its record.

| in a value that a tool returns | becomes |
|---|---|
| a file, by itself or as an item of a list | the same; a `BinaryContent` is recorded as a part of the result |
| an iterator | the list of its items |
| an asynchronous iterator | a failed call, because it is not read |
| any other value | JSON, or text if JSON cannot represent it |
| lone surrogates beside it, in a `ToolReturn` | their escapes |
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import fields, is_dataclass, replace
from typing import Any, Final, TypeGuard, cast

from pydantic import BaseModel
from pydantic_ai import BinaryContent, ToolDefinition, ToolReturn
from pydantic_ai.messages import TextContent, is_multi_modal_content
from pydantic_core import from_json, to_json

from handrail.adapters.pydantic_ai.toolset import message_content, part_content
from handrail.prompt import BinaryPart
from handrail.prompt.tool_result import ContentPart
from handrail.runtime import ToolMessage
from handrail.serde.json_schema import is_array, is_object
from handrail.serde.json_values import escaped_within, is_secret
from handrail.serde.secrets import schema_masking
from handrail.taint import ContentMarks

_DEEPEST: Final = 200
_LEVELS: Final = 8  # of the messages around a value: serializers limit the depth of a whole history
_SIMPLE: Final = frozenset({type(None), bool, int, float, str, bytes})

# ---------------------------------------------------------------------------------------------------------- arguments


def plain_arguments(
    args: object, definition: ToolDefinition | None = None, *, with_secrets: bool = False
) -> dict[str, Any]:
    """Arguments validated by PydanticAI as JSON; a value that JSON cannot represent is described as text.

    With the definition of the tool, the fields of a function's only parameter, if that is a model, are the arguments.
    `with_secrets` keeps secrets as objects, which JSON writes as asterisks.
    """
    plain = _to_json(args)
    if issubclass(type(args), dict):
        entries = cast("dict[object, object]", args).items()  # keys may be anything
        plain = {str(_to_json(name)): _to_json(value) for name, value in entries} or plain
    if with_secrets:
        plain = _secrets_put_back(plain, args)
    if not is_object(plain):
        return {"arguments": plain}
    arguments = dict(plain)
    return arguments if definition is None else _unwrap(arguments, args, definition.parameters_json_schema)


def _unwrap(arguments: dict[str, Any], args: object, schema: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a function's only parameter, if that is a model: they are the parameters in its schema."""
    if len(arguments) != 1 or not isinstance(args, dict):
        return arguments
    ((name, fields),) = arguments.items()
    (value,) = cast("dict[object, object]", args).values()  # validation may return anything
    properties: object = schema.get("properties")
    properties = properties if is_object(properties) else {}
    if not is_object(fields):
        return arguments
    if not (isinstance(value, BaseModel) or is_dataclass(value)):
        # Validation returns a plain dict for a `TypedDict`, as for a server that accepts anything.
        is_wrapped = name not in properties and bool(fields) and fields.keys() <= properties.keys()
    elif name in properties:  # a field has the parameter's name, or the parameter is not the only one
        is_wrapped = not _may_be_object(properties[name])
    else:
        # A model without fields accepts others; the only other case with any name is a function of `**models`.
        is_wrapped = bool(properties) or schema.get("additionalProperties") is True
    return dict(fields) if is_wrapped else arguments


def _may_be_object(schema: object) -> bool:
    if not is_object(schema):
        return True
    branches = schema.get("anyOf")
    if is_array(branches):
        return any(map(_may_be_object, branches))
    kind: object = schema.get("type", "object")
    return kind == "object"


# ----------------------------------------------------------------------------------------------- what a tool returns


def freeze_value(name: str, value: object, refusal: type[Exception]) -> tuple[Any, Any, tuple[ContentPart, ...]]:
    """The return value of a tool for PydanticAI, as JSON for its record, and its files for that.

    Raises:
        refusal: it is an asynchronous iterator.
        Exception: raised by an iterator.
    """
    if _is_return(value):
        inner, plain, files = freeze_value(name, value.return_value, refusal)
        content, metadata = value.content, escaped_within(value.metadata)
        content = (
            escaped_within(content) if content is None or isinstance(content, str) else [*map(_escaped_text, content)]
        )
        return replace(value, return_value=inner, content=content, metadata=metadata), plain, files
    if isinstance(value, AsyncIterator):
        raise refusal(
            f"{name} returns {type(cast('object', value)).__name__}, an asynchronous iterator, which is not read: "
            "the tool must collect its items and return a list"
        )
    if isinstance(value, Iterator):  # read once, in the call
        value = list(cast("Iterator[object]", value))
    items = value if is_array(value) else (value,)
    files = tuple(BinaryPart(item.data, item.media_type) for item in items if isinstance(item, BinaryContent))
    if not any(map(is_multi_modal_content, items)):
        plain = _to_json(value)
        return plain, plain, ()
    others = [_to_json(item) for item in items if not isinstance(item, BinaryContent)]
    if not is_array(value):
        return value, others[0] if others else None, files
    return [item if is_multi_modal_content(item) else _to_json(item) for item in items], others, files


def _escaped_text(content: Any) -> Any:  # noqa: ANN401 - content for the user, of PydanticAI
    is_tagged = isinstance(content, TextContent)
    return replace(content, content=escaped_within(content.content)) if is_tagged else escaped_within(content)


def with_value(result: object, value: Any, marks: ContentMarks | None = None) -> Any:  # noqa: ANN401 - whatever the tool returns
    """A return value with another one in its place; the content beside it is marked."""
    if not _is_return(result):
        return value
    if marks is None or not result.content:
        return replace(result, return_value=value)
    content = (result.content,) if isinstance(result.content, str) else result.content
    return replace(result, return_value=value, content=[marks.first, *content, marks.last])


def replayed_value(message: ToolMessage) -> Any:  # noqa: ANN401 - decoded JSON, with PydanticAI's files
    """The recorded value of a tool, with its files behind the rest.

    It is what the model reads of the message if the result has a text: a tool has none, but what a person has found.
    """
    value, parts = message.result.value, message.result.parts
    if message.is_changed or message.result.message:
        return message_content(message)
    if parts:
        value = [*(value if is_array(value) else () if value is None else (value,)), *map(part_content, parts)]
    return advised_value(value, message)


def advised_value(result: object, message: ToolMessage) -> Any:  # noqa: ANN401 - whatever the tool returns
    """A return value with the feedback of its message: behind a text, otherwise as the last item of a list."""
    if not message.feedback:
        return result
    if _is_return(result):
        return replace(result, return_value=advised_value(result.return_value, message))
    if isinstance(result, str):
        return f"{result}\n\n{message.feedback}"
    return [*(result if is_array(result) else (result,)), message.feedback]


def _to_json(value: object) -> Any:  # noqa: ANN401 - decoded JSON
    """A value as JSON; one that JSON cannot represent is described as text."""
    # ASCII text has no lone surrogates, and needs no conversion. Most values are of this kind.
    if value is None or type(value) is bool or (type(value) is str and value.isascii()):
        return value
    message = value
    for _ in range(_LEVELS):
        message = [message]
    try:
        plain = from_json(to_json(message, serialize_unknown=True, inf_nan_mode="strings"))
    except Exception:  # noqa: BLE001 - it contains itself or a lone surrogate, or its own code fails
        return _to_text(value)
    for _ in range(_LEVELS):
        (plain,) = plain
    return plain


def _to_text(value: object) -> str:
    """The `repr` of a value."""
    try:
        return repr(value).encode("utf-8", "backslashreplace").decode()
    except Exception:  # noqa: BLE001 - its `repr` fails: described by its type
        return f"(a value of type {type(value).__name__} that cannot be shown)"


def _is_return(value: object) -> TypeGuard[ToolReturn[Any]]:
    return isinstance(value, ToolReturn)


# --------------------------------------------------------------------------------------------------- pydantic's secrets


def holds_secret(value: object, depth: int = 0) -> bool:
    """Whether one of pydantic's secrets is in a value: in dicts, lists, sets, models and dataclasses."""
    if type(value) in _SIMPLE or depth > _DEEPEST:
        return False
    if is_secret(value):
        return True
    items = cast("Iterable[object]", value) if isinstance(value, list | tuple | AbstractSet) else _parts(value).values()
    return any(holds_secret(item, depth + 1) for item in items)


def _secrets_put_back(plain: object, value: object) -> Any:  # noqa: ANN401 - decoded JSON
    """A value as `_to_json` gives it, with its secrets instead of their masks.

    Two calls that differ only in a secret differ in it. A set of secrets becomes a sorted list of them.
    """
    if is_secret(value):
        return value
    if is_object(plain):
        parts = _parts(value)
        return {name: _secrets_put_back(item, parts[name]) if name in parts else item for name, item in plain.items()}
    # A set with members that are not secrets has another length, and stays masked.
    if is_array(plain) and len(items := _items(value)) == len(plain):
        return [_secrets_put_back(item, part) for item, part in zip(plain, items, strict=True)]
    return plain


def with_secrets_marked(schema: Mapping[str, Any], arguments: Mapping[str, object]) -> Mapping[str, Any]:
    """The JSON Schema of parameters, with a mark at secrets of these arguments that it does not mark.

    pydantic marks `SecretStr` and `SecretBytes`; for `Secret[T]` it writes the schema of `T`.
    """
    # What the schema's own marks hide is masked first; a secret that is left has no mark yet.
    rest = schema_masking(schema).mask(arguments)
    names = [name for name, value in rest.items() if holds_secret(value)] if is_object(rest) else []
    if not names:
        return schema
    properties: object = schema.get("properties")
    marks = {name: {"writeOnly": True} for name in names}
    return {**schema, "properties": {**(properties if is_object(properties) else {}), **marks}}


def _parts(value: object) -> Mapping[object, object]:
    if isinstance(value, Mapping):
        return cast("Mapping[object, object]", value)
    if isinstance(value, BaseModel):
        model_fields = type(value).model_fields.items()
        return {info.serialization_alias or name: getattr(value, name) for name, info in model_fields}
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    return {}


def _items(value: object) -> Sequence[object]:
    if isinstance(value, AbstractSet):
        members = cast("AbstractSet[object]", value)  # each is checked
        return sorted(filter(is_secret, members), key=_reveal)
    return cast("Sequence[object]", value) if isinstance(value, list | tuple) else ()


def _reveal(secret: Any) -> str:  # noqa: ANN401 - a secret of pydantic's
    return str(secret.get_secret_value())
