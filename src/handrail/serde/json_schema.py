"""The JSON Schema that a model sees, and the check that its words constrain what they seem to.

Values and keys that are written in a string of JSON without being one have a pattern here, in the dialect that JSON
Schema recommends. Those of decimals, fractions and keys are published as `pattern`; the others are what their `format`
stands for.

pydantic ignores words that it does not know, so that a constraint in the spelling of JSON Schema, or in a dictionary
inside `Annotated`, would constrain nothing. Such words are refused; all other metadata is the program's own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import fields
from typing import Any, Final, Literal, TypeGuard, cast

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema, to_json

from handrail.serde.core_schemas import CHANGING, HOLDING, Core, core_definitions, innermost, makes_secret

SchemaMode = Literal["validation", "serialization"]
"""Whether a schema describes what is parsed (parameters) or what is dumped (results)."""

Node = Mapping[str, Any]
"""A JSON Schema, or a part of one."""

_REFS = "#/$defs/"
JSON_SCALARS: Final = frozenset({str, int, bool, type(None)})
"""The classes of the defaults that are JSON as they are."""

DECIMAL: Final = r"^[-+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?$"
"""A `Decimal`."""

FRACTION: Final = r"^[-+]?[0-9]+(/0*[1-9][0-9]*|\.[0-9]+)?$"
"""A `Fraction`."""

KEY_FORMS: Final[Mapping[str, str]] = {
    "integer": r"^(0|-?[1-9][0-9]*)$",
    "uuid": r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$",
}
"""A key that is not a string, by the type or format that it has in JSON Schema."""

FORMATS: Final[Mapping[str, str]] = {
    "date-time": r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:",
    "date": r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$",
    "duration": r"^[-+]?P",
}
"""How the texts of a format begin of which pydantic takes others."""


def json_schema(core: Core, *, mode: SchemaMode) -> JsonSchemaValue:
    """The JSON Schema of a closed type: every class closed, descriptions from `field(metadata={"description": ...})`.

    A recursive dataclass stands at the root in full, as providers ask, and once more under `$defs`.
    """
    schema = _Terse().generate(cast("core_schema.CoreSchema", core), mode=mode)
    # Providers refuse a root that is only a reference, which pydantic makes of a recursive dataclass.
    return {"$defs": schema["$defs"], **resolve_ref(schema, schema)} if "$ref" in schema else schema


def resolve_ref(node: Node, root: Node) -> Node:
    """`node`, or what it refers to in the definitions of `root`."""
    # A loop, because an alias may refer to another one.
    while isinstance(reference := node.get("$ref"), str):
        node = root["$defs"][reference.removeprefix(_REFS)]
    return node


def is_secret_schema(node: Node) -> bool:
    """Returns whether a JSON Schema marks a place as secret, as pydantic's does for its secrets."""
    return node.get("writeOnly") is True or node.get("format") == "password"


def is_object(value: object) -> TypeGuard[dict[str, Any]]:
    """Returns whether a piece of decoded JSON is an object."""
    return isinstance(value, dict)


def is_array(value: object) -> TypeGuard[list[Any]]:
    """Returns whether a piece of decoded JSON is an array."""
    return isinstance(value, list)


class _Terse(GenerateJsonSchema):
    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ANN401, ARG002 - pydantic's type is private
        return False

    def dataclass_schema(self, schema: core_schema.DataclassSchema) -> JsonSchemaValue:
        node = super().dataclass_schema(schema)
        for field in fields(schema["cls"]):
            if field.metadata.get("secret") and field.name in node["properties"]:
                node["properties"][field.name] = {**node["properties"][field.name], "writeOnly": True}
        return node

    def json_or_python_schema(self, schema: core_schema.JsonOrPythonSchema) -> JsonSchemaValue:
        node = super().json_or_python_schema(schema)
        function: Any = schema["json_schema"].get("function", {})
        return {**node, "writeOnly": True} if makes_secret(function.get("function")) else node

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        return {**super().model_schema(schema), "additionalProperties": False}

    def generate(self, schema: core_schema.CoreSchema, mode: SchemaMode = "validation") -> JsonSchemaValue:
        whole = super().generate(schema, mode)
        core = cast("Core", schema)
        root: Any = innermost(core, core_definitions(core)).get("cls")
        nodes = [(getattr(root, "__name__", ""), whole), *whole.get("$defs", {}).items()]
        for name, node in nodes:
            if self.normalize_name(node.get("title", "")) == self.normalize_name(name):
                node.pop("title", None)
        return whole

    def decimal_schema(self, schema: core_schema.DecimalSchema) -> JsonSchemaValue:
        return _with_pattern(super().decimal_schema(schema), DECIMAL)

    def fraction_schema(self, schema: core_schema.FractionSchema) -> JsonSchemaValue:
        return _with_pattern(super().fraction_schema(schema), FRACTION)

    def bytes_schema(self, schema: core_schema.BytesSchema) -> JsonSchemaValue:
        node = super().bytes_schema(schema)
        node["format"] = "base64url"  # a model's own configuration may say otherwise, and does not count
        if "minLength" in node:
            node["minLength"] = -(-4 * node["minLength"] // 3)
        if "maxLength" in node:
            node["maxLength"] = -(-node["maxLength"] // 3) * 4
        return node

    def dict_schema(self, schema: Any) -> JsonSchemaValue:  # noqa: ANN401 - of each kind of mapping
        node = super().dict_schema(schema)
        keys = self.generate_inner(schema["keys_schema"]) if "keys_schema" in schema else {}
        while "$ref" in keys:  # a key that an alias names
            keys = self.get_schema_from_definitions(keys["$ref"]) or {}
        pattern = KEY_FORMS.get(keys.get("format") or keys.get("type", ""), keys.get("pattern"))
        if pattern is None:
            return node
        names = {word: value for word, value in node.get("propertyNames", {}).items() if word != "$ref"}
        key_names = {**names, "pattern": pattern}
        # pydantic publishes the pattern of keys as one of properties, which leaves the object open to others.
        items = node.get("additionalProperties", next(iter(node.get("patternProperties", {}).values()), True))
        rest = {key: value for key, value in node.items() if key != "patternProperties"}
        return {**rest, "additionalProperties": items, "propertyNames": key_names}

    ordered_dict_schema = counter_schema = dict_schema

    def encode_default(self, dft: Any) -> Any:  # noqa: ANN401 - a default may be anything
        # pydantic makes an adapter of the type of a default, which takes as long as one of all fields.
        if type(dft) in JSON_SCALARS:
            return dft
        if not isinstance(dft, AbstractSet):
            return super().encode_default(dft)
        return super().encode_default(sorted(cast("AbstractSet[object]", dft), key=to_json))


def _with_pattern(node: JsonSchemaValue, pattern: str) -> JsonSchemaValue:
    for option in (node, *node.get("anyOf", ())):
        if option.get("type") == "string":
            option.setdefault("pattern", pattern)
        elif option.get("type") == "number":
            option["type"] = "integer"
    return node


def _nodes(node: object) -> Iterator[Node]:
    if is_array(node):
        for part in node:
            yield from _nodes(part)
    elif is_object(node):
        yield node
        for word, part in node.items():
            if word in _NAMING:
                yield from _nodes(list(part.values()))
            elif word not in _HOLDING_VALUES:
                yield from _nodes(part)


MEMBERS: Final = "$memberSchemas"
"""Where a schema by which faults are explained has those of the members of unions, by label; none that is shown has."""

_NAMING: Final = frozenset({"properties", "patternProperties", "$defs", MEMBERS})
_HOLDING_VALUES: Final = frozenset({"default", "examples", "enum", "const", "discriminator"})


def list_options(node: Node) -> list[Node]:
    """The alternatives of `node`, if it is a union."""
    return node.get("anyOf") or node.get("oneOf") or []


def find_facts(schema: Node) -> tuple[int, bool, bool]:
    """The number of required fields, whether a place takes any value, and whether one may hold NaN or an infinity."""
    nodes = [*_nodes(schema)]
    is_untyped = any(not node.keys() - _DESCRIBING or node.get("additionalProperties") is True for node in nodes)
    holds_numbers = is_untyped or any(node.get("type") == "number" for node in nodes)
    return len(schema.get("required", ())), is_untyped, holds_numbers


_DESCRIBING: Final = frozenset({"default", "description", "title", "examples", "deprecated"})
"""What does not restrict a value."""


# ---------------------------------------------------------------------------------------------------------------- words


TypeFault = tuple[str, str]
"""What is wrong with a type, and what to write instead."""

ACTING: Final = frozenset({*HOLDING}) - {*CHANGING}
"""The words that constrain a field: as arguments of `Field`, and as keys of `field(metadata=...)`."""

_BY_SCHEMA: Final = """
minimum min min_value maximum max max_value exclusiveMinimum exclusive_minimum exclusiveMaximum exclusive_maximum
multipleOf length minLength minItems min_items minProperties min_properties maxLength maxItems max_items maxProperties
max_properties regex regexp const enum choices format uniqueItems unique_items coerce_numbers_to_str
"""

WORDS: Final = frozenset({*_BY_SCHEMA.split(), *HOLDING})
"""All words that constrain a field, here, in JSON Schema or in other libraries."""

SHAPING: Final = frozenset(
    {"type", "items", "prefixItems", "properties", "required", "additionalProperties", "propertyNames", "$ref"}
    | {"patternProperties", "anyOf", "oneOf", "allOf", "not"}
)
"""Words of JSON Schema that a type says."""


def word_faults(words: Iterable[object], where: str, inert: Collection[object] = WORDS - ACTING) -> Iterator[TypeFault]:
    """The faults of words that stand where they constrain nothing."""
    for word in words:
        if word in inert:
            cure = "write Annotated[..., Field(...)] with pydantic's Field, or a type that says it"
            yield f"{word!r} {where} constrains nothing", cure
