"""What the reader of a type needs to know of its JSON Schema, which for a simple type need not be made for that.

Making a JSON Schema takes as long as making a validator, and most programs declare more tools than a run shows to a
model. Of a simple type, a dataclass of scalars, lists and optional values with plain bounds and descriptions, no part
of the schema can be at fault. So it is made when it is asked for, and what is known of it is in the core schema.

Of most simple types the annotations show that they are, once `accept_type` has found no fault in them. Then neither can
the validator be at fault, and is made when it is first used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from types import NoneType
from typing import Annotated, Any, Final, cast, get_args, get_origin

from handrail.serde.annotations import is_union
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


_PLAIN: Final[tuple[type[Any], ...]] = (str, int, float, bool, NoneType)

_HOOKS: Final = ("__get_pydantic_core_schema__", "__get_pydantic_json_schema__")

_BOUNDED: Final[Mapping[type[Any], frozenset[str]]] = {
    int: frozenset({"Gt", "Ge", "Lt", "Le"}),
    float: frozenset({"Gt", "Ge", "Lt", "Le"}),
    str: frozenset({"MinLen", "MaxLen"}),
    list: frozenset({"MinLen", "MaxLen"}),
}
"""The constraints of `annotated_types` that a type may have, by the names of their classes."""

_TEXTS_OF_FIELD: Final = frozenset({"annotation", "description", "metadata"})
"""What a `Field` of a simple type may say; `metadata` has its bounds."""


def is_surely_simple(cls: type[Any], hints: Mapping[str, Any]) -> bool:
    """Whether a class is known to be a simple type by its annotations, so that pydantic can build what reads it.

    Args:
        cls: the class, in which `accept_type` has found no fault.
        hints: the types of its fields.
    """
    # pydantic calls methods that it knows by name or mark, so a class has no names beside those of its fields.
    if not is_dataclass(cls) or any(hasattr(cls, hook) for hook in _HOOKS):
        return False
    names = {name for base in cls.__mro__[:-1] for name in vars(base) if not name.startswith("__")}
    return names <= hints.keys() and all(
        # pydantic resolves text by itself, and may fail where `accept_type` does not.
        each.type is hints[each.name]
        and not each.name.startswith("_")
        and (each.default is MISSING or type(each.default) in JSON_SCALARS)
        and all(word == "description" and isinstance(text, str) for word, text in each.metadata.items())
        and _is_plain(hints[each.name])
        for each in fields(cls)
    )


def _is_plain(hint: object) -> bool:
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _is_plain(args[0]) and all(_is_plain_option(option, args[0]) for option in args[1:])
    if is_union(hint):
        others = [member for member in args if member is not NoneType]
        return len(others) == 1 and _is_plain(others[0])
    return _is_plain(args[0]) if origin is list else any(hint is kind for kind in _PLAIN)


def _is_plain_option(option: Any, inner: object) -> bool:  # noqa: ANN401 - whatever is annotated
    kind = cast("Any", type(option))
    if (kind.__module__, kind.__name__) != ("pydantic.fields", "FieldInfo"):
        return False
    empty = kind()
    words = [word for word in kind.__slots__ if not word.startswith("_") and word not in _TEXTS_OF_FIELD]
    if any(getattr(option, word) != getattr(empty, word) for word in words):
        return False
    may = _BOUNDED.get(cast("type[Any]", get_origin(inner) or inner), frozenset[str]())
    return isinstance(option.description, str | None) and all(_is_plain_bound(each, may) for each in option.metadata)


def _is_plain_bound(bound: object, may: frozenset[str]) -> bool:
    kind = type(bound)
    is_known = kind.__module__ == "annotated_types" and kind.__name__ in may
    return is_known and all(type(getattr(bound, each.name)) is int for each in fields(cast("Any", bound)))
