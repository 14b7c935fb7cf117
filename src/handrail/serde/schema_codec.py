"""The codec of arguments whose schema is data: decoded JSON, held to a JSON Schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from pydantic_core import from_json

from handrail.errors import DumpError, ParseError, SchemaError
from handrail.serde.faults import Fault, fault_message
from handrail.serde.json_schema import is_array, is_object
from handrail.serde.json_values import (
    MAX_JSON_DEPTH,
    TOO_DEEPLY,
    Text,
    json_of,
    json_syntax_fault,
    lone_surrogate,
    number_faults,
    repeated_keys,
    size_faults,
)
from handrail.serde.schema_validation import JsonSchemaValidator
from handrail.serde.typed import Codec

_EMPTY: Final = frozenset({"", "null"})


class _SchemaCodec:
    """Parses and writes objects of a JSON Schema, as the codec of a dataclass does; immutable."""

    kind: Final = dict
    differs_from_shown: Final = False

    def __init__(
        self, validator: JsonSchemaValidator, max_bytes: int | None = None, shown: Mapping[str, Any] | None = None
    ) -> None:
        self._validator = validator
        self._max_bytes = max_bytes
        self._shown = validator.schema if shown is None else shown
        self.parsed_json = json_of

    def within(self, max_bytes: int | None) -> _SchemaCodec:
        """The codec of the same arguments that parses so much at most."""
        return _SchemaCodec(self._validator, max_bytes, self._shown)

    def with_schema(self, schema: Mapping[str, Any]) -> _SchemaCodec:
        """The codec of the same arguments that shows another schema: this one with other descriptions."""
        return _SchemaCodec(self._validator, self._max_bytes, schema)

    def for_keys(self) -> None:
        """No other codec: no default is filled in."""

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON Schema; a new one each time."""
        return cast("dict[str, Any]", from_json(json_of(self._shown)))

    def parse(self, data: Text | Mapping[str, object]) -> dict[str, Any]:
        """The object that `data` says, as JSON or decoded already.

        Raises:
            ParseError: it does not fit; `faults` has all that is wrong with it.
        """
        return self.parse_json(json_of(data) if isinstance(data, Mapping) else data)

    def parse_json(self, data: Text) -> dict[str, Any]:
        """The object that `data` says.

        Raises:
            ParseError: it does not fit; `faults` has all that is wrong with it.
        """
        if self._max_bytes is not None and (faults := size_faults(data, self._max_bytes)):
            raise _refusal(faults)
        try:
            # Models write these for no arguments, and a schema may take none.
            value: object = {} if data in _EMPTY else from_json(data)
        except (ValueError, TypeError) as error:  # pydantic's reader takes a lone surrogate for no text at all
            raise _refusal([("$", _syntax_fault(error, data))]) from None
        if faults := (*self._validator.faults(value), *number_faults(data), *repeated_keys(data or "{}")):
            raise _refusal(faults)
        return cast("dict[str, Any]", value)  # the schema takes objects alone

    def dump_json(self, value: object) -> bytes:
        """An object as JSON.

        Raises:
            DumpError: JSON cannot say it, or it does not fit the schema.
        """
        data = json_of(value)
        if faults := number_faults(data) or self._validator.faults(from_json(data)):
            raise DumpError(fault_message(faults), faults=faults)
        return data

    def dump(self, value: object) -> Any:  # noqa: ANN401 - decoded JSON
        """An object as decoded JSON."""
        return from_json(self.dump_json(value))


def _syntax_fault(error: Exception, data: Text) -> str:
    if "recursion limit" in str(error):
        return TOO_DEEPLY.format(levels=MAX_JSON_DEPTH)
    if isinstance(error, TypeError) and isinstance(data, str):
        return lone_surrogate(data)
    return json_syntax_fault(str(error), data)


def _refusal(faults: tuple[Fault, ...] | list[Fault]) -> ParseError:
    return ParseError(fault_message(tuple(faults)), faults=tuple(faults))


def schema_codec(schema: object) -> Codec[dict[str, Any]]:
    """The codec of arguments that a JSON Schema describes.

    Args:
        schema: the schema of an object, as decoded JSON. Where it says nothing of other fields, it takes them.

    Raises:
        SchemaError: it is not a JSON Schema of an object, or has a keyword that is not checked.
    """
    if not is_object(schema):
        raise SchemaError(
            f"#: the schema is of type {type(schema).__name__}, and must be a dict", type=schema, path="#"
        )
    if schema.get("type") != "object":
        raise SchemaError('#/type: arguments are an object; write "type": "object"', type=schema, path="#/type")
    # A copy, because the caller may change its own.
    copied = _with_definitions(cast("dict[str, Any]", from_json(json_of(schema))))
    made = _SchemaCodec(JsonSchemaValidator(copied))
    return cast("Codec[dict[str, Any]]", made)  # it implements what tools need of a codec


_COMPONENTS: Final = "#/components/schemas/"
"""How parts of an OpenAPI document refer to its schemas."""


def _with_definitions(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema with the `components` of an OpenAPI document as its `$defs`, where every reader looks for them."""
    components = schema.get("components")
    if not is_object(components) or not is_object(schemas := components.get("schemas")):
        return schema
    rest: Any = _with_references({name: value for name, value in schema.items() if name != "components"})
    taken = rest.get("$defs", {})
    if twice := sorted(schemas.keys() & taken.keys()):
        raise SchemaError(
            f"#/components/schemas/{twice[0]}: $defs has this name too; rename one of them", type=schema, path="#"
        )
    return {**rest, "$defs": {**taken, **_with_references(dict(schemas))}}


def _with_references(node: Any) -> Any:  # noqa: ANN401 - decoded JSON
    """A part of a schema whose references to `components` lead to `$defs`."""
    if is_array(node):
        return [_with_references(each) for each in node]
    if isinstance(node, str) and node.startswith(_COMPONENTS):
        return f"#/$defs/{node.removeprefix(_COMPONENTS)}"
    if not is_object(node):
        return node
    return {name: _with_references(value) for name, value in node.items()}
