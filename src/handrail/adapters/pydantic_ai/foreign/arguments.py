"""The arguments of plain functions are read as the schema says that the model sees, as those of Handrail's tools are.

PydanticAI's validation takes more: `"2024"` for a moment in 1970, `true` and `"7"` for an integer. So what the model
wrote is looked at first by a validator that is made from the signature; what passes goes to PydanticAI's, which makes
the values. Left to PydanticAI's alone are tools that are made without a signature (`Tool.from_schema`, those of MCP
servers), functions of `*args` or `**kwargs`, and the fields of pydantic models, which bring validators of their own.
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
from typing_extensions import TypedDict  # pydantic asks for this one before Python 3.12

from handrail.serde.adapter import BUILD_ERRORS, agreeing
from handrail.serde.build import check_sayable
from handrail.serde.core_schemas import Core, rebuilt
from handrail.serde.json_values import is_decoded
from handrail.serde.typed import BoundedCache, make_whole

_NOT_JSON: Final = frozenset({"json_invalid", "string_unicode"})
_EXACT: Final = frozenset({"int", "float", "bool", "str", "time"})
"""What pydantic makes of other JSON unless it is told to be strict."""

_MANY: Final = frozenset({inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD})
_UNCHECKED: Final = "any"
"""The title of the validator of a tool that is made from a schema: it takes everything."""

# Untyped, because type checkers want to see the fields written out.
_typed_dict = cast("Callable[[str, Mapping[str, object]], Any]", TypedDict)


class FunctionArguments:
    """A validator of PydanticAI's, and before it one that takes what the schema says.

    Attributes:
        made: PydanticAI's, which makes the values.
    """

    def __init__(self, made: Any, checked: SchemaValidator, schema: Mapping[str, Any]) -> None:  # noqa: ANN401 - PydanticAI's
        """Check by `checked`, which fits `schema`, and make the values by `made`."""
        self.made = made
        self._check = checked
        self._schema = schema

    def validate_json(self, input: str | bytes | bytearray, **options: Any) -> Any:  # noqa: ANN401 - PydanticAI's
        """The values, by the names of the parameters.

        Raises:
            ValidationError: the arguments do not fit.
        """
        if options.get("allow_partial", "off") == "off":
            return self.made.validate_json(self._agreed(input, options.get("context")), **options)
        return self.made.validate_json(input, **options)

    def validate_python(self, input: Any, **options: Any) -> Any:  # noqa: ANN401 - PydanticAI's
        """The values of decoded JSON; values that have been made before are left to PydanticAI.

        Raises:
            ValidationError: the arguments do not fit.
        """
        given: object = input
        if isinstance(given, dict) and is_decoded(cast("object", given)):
            return self.validate_json(to_json(input, inf_nan_mode="constants"), **options)
        return self.made.validate_python(input, **options)

    def _agreed(self, data: str | bytes | bytearray, context: object) -> str | bytes | bytearray:
        """`data` with `5` for `5.0` where an integer is asked for."""
        try:
            self._check.validate_json(data, context=context)
        except ValidationError as error:
            lines = error.errors(include_url=False, include_input=False)
            if lines[0]["type"] in _NOT_JSON:
                raise
            decoded = from_json(data)
            if not make_whole(lines, self._schema, decoded):
                raise
            data = to_json(decoded, inf_nan_mode="constants")
            self._check.validate_json(data, context=context)
        return data


def read_by_signature(
    tools: Mapping[str, ToolsetTool[Any]], toolset: AbstractToolset[Any]
) -> dict[str, ToolsetTool[Any]]:
    """The tools of a toolset, of which those that are functions read their arguments as their schema says."""
    validators: dict[int, FunctionArguments] = {}

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
    """The tools of a toolset that are made of functions, also below what only wraps them."""
    tools: list[Tool[Any]] = []

    def visit(leaf: AbstractToolset[Any]) -> None:
        if isinstance(leaf, FunctionToolset):
            tools.extend(leaf.tools.values())

    toolset.apply(visit)
    return tools


def check_parameters(tool: Tool[Any]) -> None:
    """Holds the parameters of a function to what those of Handrail's tools are held to.

    Raises:
        SchemaError: a model could not say the value of one, or not which of two it means; `path` begins with its name.
    """
    if tool.function_schema.validator.title == _UNCHECKED:
        return
    try:
        hints = _hints_of(tool.function)
    except BUILD_ERRORS:  # PydanticAI has found a way to read it
        return
    if hints is not None:
        check_sayable(hints)


_made: Final[BoundedCache[tuple[object, FunctionArguments | None]]] = BoundedCache()
"""By function and validator; the validator is kept along, so that its id stays its own."""


def _validator_of(tool: Tool[Any]) -> FunctionArguments | None:
    made = tool.function_schema.validator
    return _made.get((tool.function, id(made)), lambda: (made, _make(tool)))[1]


def _make(tool: Tool[Any]) -> FunctionArguments | None:
    described = tool.function_schema
    if described.validator.title == _UNCHECKED:
        return None
    try:
        kind = _kind_of(tool.function, described.single_arg_name)
        if kind is None:
            return None
        core = rebuilt(cast("Core", TypeAdapter[Any](kind).core_schema), _exact)
        checked = SchemaValidator(cast("CoreSchema", agreeing(core, CoreConfig(), published=True)), CoreConfig())
    except BUILD_ERRORS:  # PydanticAI has found a way to read it, and is left to it
        return None
    return FunctionArguments(described.validator, checked, described.json_schema)


def _kind_of(function: Callable[..., Any], only: str | None) -> Any:  # noqa: ANN401 - a type
    """The type of the arguments; `None` if it cannot be said.

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
    """The types of the parameters that a model gives, by their names; `None` if it may give others."""
    hints = get_type_hints(function, include_extras=True)
    found: dict[str, Any] = {}
    for parameter in inspect.signature(function).parameters.values():
        hint: object = hints.get(parameter.name, Any)
        if hint is RunContext or get_origin(hint) is RunContext:
            continue
        if parameter.kind in _MANY:
            return None
        if isinstance(parameter.default, FieldInfo):
            hint = Annotated[cast("Any", hint), parameter.default]
        found[parameter.name] = hint
    return found


def _exact(part: Core, *, was: Core, made: bool) -> Core:
    """A part that converts nothing, where it is given JSON."""
    del was
    return {**part, "strict": True} if part["type"] in _EXACT and not made and "strict" not in part else part
