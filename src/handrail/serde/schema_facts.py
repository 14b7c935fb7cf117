"""What the reader of a type needs to know of its JSON Schema, which for a simple type need not be made for that.

Making a JSON Schema takes as long as making a validator, and most programs declare more tools than a run shows to a
model. Of a simple type, a dataclass of scalars, lists and optional values with plain bounds and descriptions, no part
of the schema can be at fault. So it is made when it is asked for, and what is known of it is in the core schema.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, cast

from handrail.serde.core_schemas import Core, parts_of
from handrail.serde.json_schema import JSON_SCALARS, Node, flat_names, holds_numbers, leaves_untyped


@dataclass(frozen=True, slots=True)
class SchemaFacts:
    """What a reader needs to know of a JSON Schema.

    Attributes:
        required: how many fields must be given.
        untyped: whether a place in it takes any value, so that no type refuses what JSON cannot say.
        numbers: whether a value may hold NaN or an infinity.
        flat: the names of the fields, if none of them holds an object or an array; empty otherwise.
    """

    required: int
    untyped: bool
    numbers: bool
    flat: tuple[str, ...]


def facts_of(schema: Node) -> SchemaFacts:
    """What is known of a JSON Schema."""
    return SchemaFacts(
        len(schema.get("required", ())), leaves_untyped(schema), holds_numbers(schema), flat_names(schema)
    )


def simple_facts(core: Core, kinds: frozenset[str]) -> SchemaFacts | None:
    """What is known of the JSON Schema of a simple type before it is made; `None` if the type is not simple.

    Args:
        core: the core schema of the type, which is closed.
        kinds: the types of its parts.
    """
    if core["type"] != "dataclass" or "metadata" in core or core["schema"]["computed_fields"]:
        return None
    fields: list[Core] = core["schema"]["fields"]
    if not all(map(_is_simple, fields)):
        return None
    return SchemaFacts(
        sum(each["schema"]["type"] != "default" for each in fields),
        untyped=False,
        numbers="float" in kinds,
        flat=() if "list" in kinds else tuple(each["name"] for each in fields),
    )


_BOUNDS: Final = frozenset({"gt", "ge", "lt", "le", "min_length", "max_length"})

_WORDS: Final = {
    "dataclass-field": frozenset({"name", "schema", "init", "kw_only"}),
    "default": frozenset({"schema", "default", "default_factory", "default_factory_takes_data"}),
    "nullable": frozenset({"schema"}),
    "list": frozenset({"items_schema", *_BOUNDS}),
    **dict.fromkeys(("str", "int", "float"), _BOUNDS),
    **dict.fromkeys(("bool", "none"), frozenset[str]()),
}
"""The types of the parts of simple types, each with what it may say; of anything else the schema may be at fault."""


def _is_simple(part: Core) -> bool:
    words = _WORDS.get(part["type"])
    if words is None or not part.keys() - {"type", "metadata"} <= words:
        return False
    if not all(type(part[word]) is int for word in _BOUNDS & part.keys()):
        return False
    if "default" in part and type(part["default"]) not in JSON_SCALARS:
        return False
    return _is_described(part.get("metadata", {})) and all(map(_is_simple, parts_of(part)))


def _is_described(metadata: object) -> bool:
    """Whether what a part says beside the type is nothing, or a text that describes it."""
    said = cast("dict[str, Any]", metadata)
    updates: dict[str, Any] = said.get("pydantic_js_updates", {})
    return said.keys() <= {"pydantic_js_updates"} and all(
        word == "description" and isinstance(text, str) for word, text in updates.items()
    )
