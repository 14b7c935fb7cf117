"""Reads the arguments of PydanticAI's functions strictly by their schema, like those of Handrail's tools.

PydanticAI's validation accepts more: `"2024"` for a moment in 1970, `true` and `"7"` for an integer. So the arguments
are first checked by a validator built from the signature; valid ones go to PydanticAI's validator, which creates the
values. Only PydanticAI validates tools without a signature (its `from_schema`, those of MCP servers), functions of
`*args` or `**kwargs`, and the fields of pydantic models, which have their own validators.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Annotated, Any, Final, NotRequired, cast, get_origin, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo
from pydantic_ai import RunContext, Tool, ToolsetTool
from pydantic_ai.toolsets import AbstractToolset, FunctionToolset
from pydantic_core import CoreConfig, CoreSchema, SchemaValidator, from_json, to_json
from pydantic_core.core_schema import float_schema, union_schema
from typing_extensions import TypedDict  # pydantic requires this one before Python 3.12

from handrail.serde.adapter import BUILD_ERRORS, agreeing, inexact_numbers
from handrail.serde.core_schemas import Core, cached, rebuilt, replacing, without_name
from handrail.serde.json_values import is_decoded, stated_arguments
from handrail.serde.typed import repair

_NOT_JSON: Final = frozenset({"json_invalid", "string_unicode"})
_EXACT: Final = frozenset({"int", "float", "bool", "str", "time"})
"""Types that pydantic converts from other JSON unless it is strict."""

_MANY: Final = frozenset({inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD})
_UNCHECKED: Final = "any"
"""The title of the validator of a tool built from a schema: it accepts everything."""

# Untyped, because type checkers want to see the fields written out.
_typed_dict = cast("Callable[[str, Mapping[str, object]], Any]", TypedDict)


class FunctionArguments:
    """A strict validator of the schema, followed by PydanticAI's.

    Attributes:
        made: PydanticAI's validator, which creates the values.
    """

    def __init__(self, made: Any, checked: SchemaValidator, schema: Mapping[str, Any]) -> None:  # noqa: ANN401 - PydanticAI's
        """Check by `checked`, which matches `schema`, and create the values by `made`."""
        self.made = made
        self._check = checked.validate_json
        self._schema = schema

    def validate_json(self, input: str | bytes | bytearray, **options: Any) -> Any:  # noqa: ANN401 - PydanticAI's
        """The values, by the names of the parameters.

        Raises:
            ValidationError: the arguments do not fit.
        """
        # Partial arguments arrive while a model is still streaming; they are incomplete, so the strict check would
        # refuse them.
        if options.get("allow_partial", "off") == "off":
            return self.made.validate_json(self._agreed(input, options.get("context")), **options)
        return self.made.validate_json(input, **options)

    def validate_python(self, input: Any, **options: Any) -> Any:  # noqa: ANN401 - PydanticAI's
        """The values of decoded JSON; already created values are left to PydanticAI.

        Raises:
            ValidationError: the arguments do not fit.
        """
        given: object = input
        if isinstance(given, dict) and is_decoded(cast("object", given)):
            # Encoded again, because pydantic is stricter for Python values than for JSON: a date, for example, is text
            # in JSON.
            return self.validate_json(to_json(input, inf_nan_mode="constants"), **options)
        return self.made.validate_python(input, **options)

    def _agreed(self, data: str | bytes | bytearray, context: object) -> str | bytes | bytearray:
        """`data` as the schema has it: with `5` for `5.0`, and a list for a text that holds it; `{}` for nothing."""
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
    for tool in functions_of(toolset):
        if (found := _validator_of(tool)) is not None:
            validators[id(found.made)] = found
    if not validators:
        return dict(tools)
    by_name = {name: validators.get(id(tool.args_validator)) for name, tool in tools.items()}
    return {
        name: tool if (validator := by_name[name]) is None else replace(tool, args_validator=validator)
        for name, tool in tools.items()
    }


def functions_of(toolset: AbstractToolset[Any]) -> list[Tool[Any]]:
    """The function tools of a toolset, also below wrappers."""
    tools: list[Tool[Any]] = []

    def visit(leaf: AbstractToolset[Any]) -> None:
        if isinstance(leaf, FunctionToolset):
            tools.extend(leaf.tools.values())

    toolset.apply(visit)
    return tools


def _validator_of(tool: Tool[Any]) -> FunctionArguments | None:
    described = tool.function_schema
    if described.validator.title == _UNCHECKED:
        return None
    checked = _strict_validator(tool.function, described.single_arg_name)
    return None if checked is None else FunctionArguments(described.validator, checked, described.json_schema)


# Listing the tools happens before each request; building a validator takes much longer than a look-up.
@cached
def _strict_validator(function: Callable[..., Any], only: str | None) -> SchemaValidator | None:
    try:
        kind = _kind_of(function, only)
        if kind is None:
            return None
        core = rebuilt(cast("Core", TypeAdapter[Any](kind).core_schema), _exact)
        return SchemaValidator(cast("CoreSchema", agreeing(core, CoreConfig(), published=True)), CoreConfig())
    except BUILD_ERRORS:  # PydanticAI can read it, and does
        return None


def _kind_of(function: Callable[..., Any], only: str | None) -> Any:  # noqa: ANN401 - a type
    """The type of the arguments; `None` if it cannot be expressed.

    Args:
        function: the function.
        only: the parameter whose fields are the arguments, if there is one.
    """
    hints = _hints_of(function)
    if hints is None or only is not None:
        return None if hints is None else hints[only or ""]
    empty = inspect.Parameter.empty
    optional = {each.name for each in inspect.signature(function).parameters.values() if each.default is not empty}
    fields = {name: NotRequired[hint] if name in optional else hint for name, hint in hints.items()}
    arguments = _typed_dict("Arguments", fields)
    arguments.__pydantic_config__ = ConfigDict(extra="forbid")
    return arguments


def _hints_of(function: Callable[..., Any]) -> dict[str, Any] | None:
    """The types of the parameters that a model supplies, by name; `None` if it may supply others."""
    hints = get_type_hints(function, include_extras=True)
    found: dict[str, Any] = {}
    for parameter in inspect.signature(function).parameters.values():
        hint: object = hints.get(parameter.name, Any)
        if hint is RunContext or get_origin(hint) is RunContext:
            continue
        if parameter.kind in _MANY:
            # `*args` and `**kwargs` accept names that the signature does not have.
            return None
        if isinstance(parameter.default, FieldInfo):
            hint = Annotated[cast("Any", hint), parameter.default]
        found[parameter.name] = hint
    return found


def _exact(part: Core, _was: Core, made: bool) -> Core:  # noqa: FBT001 - of an edit
    """A part that converts nothing from JSON."""
    if part["type"] in {"decimal", "fraction"} and not made:  # published as numbers too
        return replacing(part, union_schema([float_schema(strict=True), without_name(part)]))
    return {**part, "strict": True} if part["type"] in _EXACT and not made and "strict" not in part else part
