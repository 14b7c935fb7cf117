"""Values of tools that are not Handrail's: the arguments of functions, and what tools return, as JSON.

PydanticAI's validation accepts more than the schema that the model sees: `"2024"` for a moment in 1970, `true` and
`"7"` for an integer. So the arguments of functions are first checked by a validator built from the signature, as
strictly as those of Handrail's tools; valid ones go to PydanticAI's, which creates the values. Only PydanticAI
validates tools without a signature (its `from_schema`, those of MCP servers), functions of `*args` or `**kwargs`, and
the fields of pydantic models, which have their own validators.

| in a value that a tool returns | becomes |
|---|---|
| an iterator, anywhere in dicts, lists and tuples | the list of its items |
| an asynchronous iterator there | a failed call, because it is not read |
| a value that PydanticAI can send to the model | unchanged; the record has it as JSON |
| any other: a lone surrogate, a list in itself, an object of some class | the same as in the record: JSON, or text |
| lone surrogates in the content or metadata of a `ToolReturn` | their escapes |
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import fields, is_dataclass, replace
from typing import Annotated, Any, Final, NotRequired, TypeGuard, cast, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo
from pydantic_ai import BinaryContent, RunContext, Tool, ToolReturn, ToolsetTool
from pydantic_ai.messages import TextContent, ToolReturnPart, tool_return_ta
from pydantic_ai.toolsets import AbstractToolset, FunctionToolset
from pydantic_core import CoreConfig, CoreSchema, SchemaValidator, from_json, to_json
from pydantic_core.core_schema import float_schema, union_schema
from typing_extensions import TypedDict  # pydantic requires this one before Python 3.12

from handrail.adapters.pydantic_ai.toolset import part_content
from handrail.errors import ToolValidationError
from handrail.prompt import BinaryPart
from handrail.prompt.tool_result import ContentPart
from handrail.runtime import ToolMessage
from handrail.serde.adapter import BUILD_ERRORS, agreeing, inexact_numbers
from handrail.serde.core_schemas import Core, cached, rebuilt, replacing, without_name
from handrail.serde.json_schema import is_array, is_object
from handrail.serde.json_values import (
    escape_surrogates,
    escaped_within,
    is_decoded,
    is_secret,
    stated_arguments,
)
from handrail.serde.secrets import schema_masking
from handrail.serde.typed import repair
from handrail.taint import ContentMarks

NO_VALUE: Final = object()
"""The placeholder for a value that JSON cannot represent."""

_NOT_JSON: Final = frozenset({"json_invalid", "string_unicode"})
_EXACT: Final = frozenset({"int", "float", "bool", "str", "time"})  # pydantic converts others to them unless strict
_MANY: Final = frozenset({inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD})
_UNCHECKED: Final = "any"  # the title of the validator of a tool built from a schema: it accepts everything
_DEEPEST: Final = 200
_SIMPLE: Final = frozenset({type(None), bool, int, float, str, bytes})

# Untyped, because type checkers want to see the fields written out.
_typed_dict = cast("Callable[[str, Mapping[str, object]], Any]", TypedDict)

# --------------------------------------------------------------------------------------------- arguments of functions


class FunctionArguments:
    """A strict validator of the schema, followed by PydanticAI's.

    Attributes:
        lenient: PydanticAI's validator, which creates the values.
    """

    def __init__(self, lenient: Any, strict: SchemaValidator, schema: Mapping[str, Any]) -> None:  # noqa: ANN401 - PydanticAI's
        """Checks by `strict`, which matches `schema`, and creates the values by `lenient`."""
        self.lenient = lenient
        self._check = strict.validate_json
        self._schema = schema

    def validate_json(self, input: str | bytes | bytearray, **options: Any) -> Any:  # noqa: ANN401 - PydanticAI's
        """The values, by the names of the parameters."""
        # Partial arguments arrive while a model is still streaming; they are incomplete, so the strict check would
        # refuse them.
        if options.get("allow_partial", "off") == "off":
            return self.lenient.validate_json(self._agreed(input, options.get("context")), **options)
        return self.lenient.validate_json(input, **options)

    def validate_python(self, input: Any, **options: Any) -> Any:  # noqa: ANN401 - PydanticAI's
        """The values of decoded JSON; already created values are left to PydanticAI."""
        value: object = input
        if isinstance(value, dict) and is_decoded(cast("object", value)):
            # Encoded again, because pydantic is stricter for Python values than for JSON: a date, for example, is text
            # in JSON.
            return self.validate_json(to_json(input, inf_nan_mode="constants"), **options)
        return self.lenient.validate_python(input, **options)

    def _agreed(self, data: str | bytes | bytearray, context: object) -> str | bytes | bytearray:
        data = stated_arguments(data)
        try:
            self._check(data, context=context)
        except ValidationError as error:
            lines = error.errors(include_url=False, include_input=False)
            if lines[0]["type"] in _NOT_JSON:
                raise
            decoded = from_json(data)
            if not repair(lines, self._schema, decoded, inexact_numbers(data)):
                raise
            # Checked again: the conversion fixes one kind of fault, and others may remain.
            return self._agreed(to_json(decoded, inf_nan_mode="constants"), context)
        return data


def read_by_signature(
    tools: Mapping[str, ToolsetTool[Any]], toolset: AbstractToolset[Any]
) -> dict[str, ToolsetTool[Any]]:
    """The tools of a toolset, with functions reading their arguments strictly by their schema."""
    validators: dict[int, FunctionArguments] = {}

    # Validators are matched by identity, because a wrapper may have renamed the tool.
    def visit(leaf: AbstractToolset[Any]) -> None:
        for tool in leaf.tools.values() if isinstance(leaf, FunctionToolset) else ():
            if (arguments := _function_arguments(tool)) is not None:
                validators[id(arguments.lenient)] = arguments

    toolset.apply(visit)
    checks = {name: validators.get(id(tool.args_validator)) for name, tool in tools.items()}
    return {
        name: tool if (check := checks[name]) is None else replace(tool, args_validator=check)
        for name, tool in tools.items()
    }


def _function_arguments(tool: Tool[Any]) -> FunctionArguments | None:
    schema = tool.function_schema
    if schema.validator.title == _UNCHECKED:
        return None
    strict = _strict_validator(tool.function, schema.single_arg_name)
    return None if strict is None else FunctionArguments(schema.validator, strict, schema.json_schema)


# Listing the tools happens before each request; building a validator takes much longer than a look-up.
@cached
def _strict_validator(function: Callable[..., Any], only: str | None) -> SchemaValidator | None:
    try:
        kind = _arguments_type(function, only)
        if kind is None:
            return None
        core = rebuilt(cast("Core", TypeAdapter[Any](kind).core_schema), _exact)
        return SchemaValidator(cast("CoreSchema", agreeing(core, CoreConfig(), published=True)), CoreConfig())
    except BUILD_ERRORS:  # PydanticAI can read it, and does
        return None


def _arguments_type(function: Callable[..., Any], only: str | None) -> Any:  # noqa: ANN401 - a type
    """The type of the arguments; `None` if the signature does not say it."""
    types, hints = get_type_hints(function, include_extras=True), dict[str, Any]()
    for parameter in inspect.signature(function).parameters.values():
        hint: object = types.get(parameter.name, Any)
        if hint is RunContext or get_origin(hint) is RunContext:
            continue
        if parameter.kind in _MANY:  # they accept names that the signature does not have
            return None
        if isinstance(parameter.default, FieldInfo):
            hint = Annotated[cast("Any", hint), parameter.default]
        if parameter.name != only and parameter.default is not inspect.Parameter.empty:
            hint = NotRequired[cast("Any", hint)]
        hints[parameter.name] = hint
    if only is not None:
        return hints[only]
    arguments = _typed_dict("Arguments", hints)
    arguments.__pydantic_config__ = ConfigDict(extra="forbid")
    return arguments


def _exact(part: Core, _was: Core, changed: bool) -> Core:  # noqa: FBT001 - of an edit
    if part["type"] in {"decimal", "fraction"} and not changed:  # published as numbers too
        return replacing(part, union_schema([float_schema(strict=True), without_name(part)]))
    return {**part, "strict": True} if part["type"] in _EXACT and not changed and "strict" not in part else part


# ----------------------------------------------------------------------------------------------- what a tool returns


class UnreadableValueError(ToolValidationError):
    """A tool has run, and its return value is not supported. Never leaves the adapter."""


def freeze_value(name: str, value: object) -> tuple[Any, Any]:
    """The return value of a tool for PydanticAI, and as JSON for its record.

    Raises:
        UnreadableValueError: it contains an asynchronous iterator.
        Exception: raised by an iterator.
    """
    if _is_return(value):
        inner, plain = freeze_value(name, value.return_value)
        content, metadata = _escape_content(value.content), escaped_within(value.metadata)
        # PydanticAI gets the same object wherever possible, so that a subclass or its identity is preserved.
        if inner is value.return_value and content is value.content and metadata is value.metadata:
            return value, plain
        return replace(value, return_value=inner, content=content, metadata=metadata), plain
    value = _read(name, value, ())
    plain = to_plain_json(value)
    if _is_representable(value):
        return value, plain
    plain = plain if _is_representable(plain) else to_plain_text(plain)
    return plain, plain


def with_value(result: object, value: Any, marks: ContentMarks | None = None) -> Any:  # noqa: ANN401 - whatever the tool returns
    """A return value with another one in its place; the content beside it is marked."""
    if not _is_return(result):
        return value
    if marks is None or not result.content:
        return replace(result, return_value=value)
    content = (result.content,) if isinstance(result.content, str) else result.content
    return replace(result, return_value=value, content=[marks.first, *content, marks.last])


def split_files(result: object) -> tuple[Any, tuple[ContentPart, ...]]:
    """The return value of a tool without its files, and the files; a value that has none is the same object.

    PydanticAI sends the files to the model that are the value itself, or items of a list.
    """
    value = result.return_value if _is_return(result) else result
    files = [file for file in ToolReturnPart("", value).files if isinstance(file, BinaryContent)]
    if not files:
        return value, ()
    others = [item for item in value if not isinstance(item, BinaryContent)] if is_array(value) else None
    return others, tuple(BinaryPart(file.data, file.media_type) for file in files)


def replayed_value(message: ToolMessage) -> Any:  # noqa: ANN401 - decoded JSON, with PydanticAI's files
    """The recorded value of a tool, with its files behind the rest, as `split_files` has taken it apart."""
    value, parts = message.result.value, message.result.parts
    if not parts:
        return value
    others = value if is_array(value) else () if value is None else (value,)
    return [*others, *map(part_content, parts)]


def advised_value(result: object, message: ToolMessage) -> Any:  # noqa: ANN401 - whatever the tool returns
    """A return value with the feedback of its message: behind a text, otherwise as the last item of a list."""
    if not message.feedback:
        return result
    if _is_return(result):
        return replace(result, return_value=advised_value(result.return_value, message))
    if isinstance(result, str):
        return f"{result}\n\n{message.feedback}"
    return [*(result if is_array(result) else (result,)), message.feedback]


def to_plain_json(value: object) -> Any:  # noqa: ANN401 - decoded JSON
    """A value as JSON; one that JSON cannot represent is described as text."""
    plain = as_json(value)
    return to_plain_text(value) if plain is NO_VALUE else plain


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


def _read(name: str, value: object, within: tuple[int, ...]) -> object:
    """The value with its iterators read; the same object if there are none. `within` are the ids of its containers."""
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
        new_items = [_read(name, item, inner) for item in items]
        if all(new is old for new, old in zip(new_items, items, strict=True)):
            return items
        return new_items if isinstance(items, list) else tuple(new_items)
    return value


def _is_representable(value: object) -> bool:
    if _is_simple_text(value):
        return True
    # Serializers of pydantic limit the depth, so a value that fits by itself may fail inside of a message.
    message = [[[[[[[[value]]]]]]]]  # at least as deep as a value in a history
    try:
        from_json(tool_return_ta.dump_json(message, by_alias=True))
    except Exception:  # noqa: BLE001 - as for `as_json`
        return False
    return True


def _escape_content(content: Any) -> Any:  # noqa: ANN401 - PydanticAI's
    if isinstance(content, TextContent):
        text = escape_surrogates(content.content)
        return content if text == content.content else TextContent(text, metadata=content.metadata)
    if not isinstance(content, list | tuple):
        return escaped_within(content)
    parts = list(cast("Sequence[object]", content))
    new_parts = [_escape_content(part) for part in parts]
    is_changed = any(one is not other for one, other in zip(parts, new_parts, strict=True))
    return new_parts if is_changed else cast("Any", content)


def _is_return(value: object) -> TypeGuard[ToolReturn[Any]]:
    return isinstance(value, ToolReturn)


def _is_simple_text(value: object) -> bool:
    return value is None or type(value) is bool or (type(value) is str and value.isascii())


# --------------------------------------------------------------------------------------------------- pydantic's secrets


def holds_secret(value: object, depth: int = 0) -> bool:
    """Whether one of pydantic's secrets is in a value: in dicts, lists, sets, models and dataclasses."""
    if type(value) in _SIMPLE or depth > _DEEPEST:
        return False
    if is_secret(value):
        return True
    items = cast("Iterable[object]", value) if isinstance(value, list | tuple | AbstractSet) else _parts(value).values()
    return any(holds_secret(item, depth + 1) for item in items)


def secrets_put_back(plain: object, value: object) -> Any:  # noqa: ANN401 - decoded JSON
    """A value as `as_json` gives it, with its secrets instead of their masks.

    Two calls that differ only in a secret differ in it. A set of secrets becomes a sorted list of them.
    """
    if is_secret(value):
        return value
    if is_object(plain):
        parts = _parts(value)
        return {name: secrets_put_back(item, parts[name]) if name in parts else item for name, item in plain.items()}
    # A set with members that are not secrets has another length, and stays masked.
    if is_array(plain) and len(items := _items(value)) == len(plain):
        return [secrets_put_back(item, part) for item, part in zip(plain, items, strict=True)]
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
