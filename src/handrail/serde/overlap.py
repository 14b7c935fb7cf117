"""Whether two JSON Schemas have a value in common: then JSON alone does not say of which of the two types a value is.

It is decided by what the schemas say of types, formats, choices, items and fields. Bounds and patterns are not looked
at, but for the forms of `handrail.serde.json_schema`; where that does not decide it, there is a value in common.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import combinations
from typing import Final, NamedTuple

from handrail.serde.faults import json_kind
from handrail.serde.json_schema import (
    CLASS,
    DECIMAL,
    FORMATS,
    FRACTION,
    KEY_FORMS,
    Node,
    is_object,
    leaves_of,
    resolve_ref,
)

_TEXT: Final = "text"
_PATTERNS: Final = {DECIMAL: "decimal", FRACTION: "fraction", **{pattern: kind for kind, pattern in KEY_FORMS.items()}}
_APART: Final = frozenset({"date-time", "date", "time", "duration", "uuid", "decimal", "fraction", *KEY_FORMS})
"""Forms of texts of which no two have a text in common, but for those below."""

_NUMBERS: Final = frozenset({"decimal", "fraction", "integer", "number"})
# A UUID may be written without hyphens, and 32 digits are then a number too, and a fraction that is whole.
_ALIKE: Final = [*map(set, combinations(_NUMBERS, 2)), *({kind, "uuid"} for kind in _NUMBERS)]
_WITHOUT_COLONS: Final = frozenset({"base64url", "binary"})
_WITH_COLONS: Final = frozenset({"date-time", "time"})


class Side(NamedTuple):
    """One of two schemas.

    Attributes:
        node: the schema, or a part of it.
        root: what holds its definitions.
        written: whether it is of what is written rather than of what is read: all fields are there, and a number that
            is not an integer has a decimal point.
    """

    node: Node
    root: Node
    written: bool = False

    def at(self, node: Node) -> Side:
        """Another part of the same schema."""
        return self._replace(node=node)


def overlaps(one: Side, other: Side, *, same_class: bool = False) -> bool:
    """Whether the two have a value in common.

    Args:
        one: a schema.
        other: another.
        same_class: whether both are read as values of one class, so that they differ only in what they hold.
    """
    return _Search(exact=one.written or other.written).common(one, other, same_class=same_class)


class _Search:
    """One search; it remembers which pairs it is about to compare, because types may be recursive."""

    __slots__ = ("_exact", "_seen")

    def __init__(self, *, exact: bool) -> None:
        self._exact = exact
        self._seen: set[tuple[int, int]] = set()

    def common(self, one: Side, other: Side, *, same_class: bool = False) -> bool:
        """Whether the two sides have a value in common; a pair that is compared already is taken to have one."""
        # Both nodes are held by the callers until the pair is discarded, so that no id is given to another node.
        pair = id(one.node), id(other.node)
        # A pair that is being compared further up: the answer is that of the rest, as for any recursive relation.
        if pair in self._seen:
            return True
        self._seen.add(pair)
        try:
            return any(self._plain(a, b, same_class) for a in _leaves(one) for b in _leaves(other))
        finally:
            self._seen.discard(pair)

    def _plain(self, one: Side, other: Side, same_class: bool) -> bool:  # noqa: FBT001 - handed on
        """The same for schemas that are not unions."""
        # Listed choices are tried one by one; everything else is compared as a whole.
        for side, beside in ((one, other), (other, one)):
            if choices := _choices(side.node):
                return any(self._takes(beside, choice) for choice in choices)
        first, second = one.node.get("type"), other.node.get("type")
        # A schema without a type takes any value.
        if first is None or second is None:
            return True
        if first != second:
            # What is written has a decimal point if it is not an integer; what is read may lack it.
            # `integer` and `number` are the only two types of JSON Schema that have values in common.
            return {first, second} == {"integer", "number"} and not self._exact
        compare = {"string": self._texts, "array": self._arrays, "object": self._objects}.get(first)
        return compare is None or compare(one, other, same_class)

    def _texts(self, one: Side, other: Side, same_class: bool) -> bool:  # noqa: FBT001 - as its neighbours
        del same_class
        forms = {_form(one.node), _form(other.node)}
        if len(forms) == 1:
            return True
        # Two different forms: their texts are apart unless digits alone can be of both.
        if forms <= _APART:
            return forms in _ALIKE
        return not (forms & _WITHOUT_COLONS and forms & _WITH_COLONS)

    def _takes(self, side: Side, choice: object) -> bool:
        if choices := _choices(side.node):
            return any(_is_same_choice(each, choice) for each in choices)
        asked, kind = side.node.get("type"), json_kind(choice)
        if asked is None:
            return True
        if isinstance(choice, str) and asked == kind:
            form = FORMATS.get(_form(side.node), side.node.get("pattern", ""))
            return re.search(form, choice) is not None if _form(side.node) != _TEXT else True
        return asked == kind or (asked == "number" and kind == "integer")

    def _arrays(self, one: Side, other: Side, same_class: bool) -> bool:  # noqa: FBT001 - handed on
        first, second = _lengths(one.node), _lengths(other.node)
        least, most = max(first[0], second[0]), min(first[1], second[1])
        if least > most:
            return False
        # Of one class, two empty arrays are one value, so that only items distinguish them.
        least = max(least, int(same_class))
        if least > most:
            return False
        return all(
            self.common(one.at(_item(one.node, position)), other.at(_item(other.node, position)))
            for position in range(least)
        )

    def _objects(self, one: Side, other: Side, same_class: bool) -> bool:  # noqa: FBT001 - handed on
        needed = {*_needed(one), *_needed(other)}
        # A field that each object of one side has, and no object of the other may have, distinguishes the two.
        if not all(_has(side.node, name) for side in (one, other) for name in needed):
            return False
        fields = [(_field(one.node, name), _field(other.node, name)) for name in needed]
        # Two mappings of one class differ in their keys or values only.
        if same_class and not needed:
            fields = [(_field(one.node, ""), _field(other.node, "")), (_key(one.node), _key(other.node))]
        if not all(self.common(one.at(a), other.at(b)) for a, b in fields):
            return False
        return not same_class or any(a != b and self._differ(one.at(a), other.at(b)) for a, b in fields)

    def _differ(self, one: Side, other: Side) -> bool:
        """Whether what both can be read from may be different values; an empty collection is not."""
        are_fields = "properties" in resolve_ref(one.node, one.root) or "properties" in resolve_ref(
            other.node, other.root
        )
        of_one_class = one.node.get(CLASS) == other.node.get(CLASS)
        return self.common(one, other, same_class=of_one_class and not are_fields)


def _leaves(side: Side) -> Iterator[Side]:
    return map(side.at, leaves_of(side.node, side.root))


def _choices(node: Node) -> list[object]:
    return list(node.get("enum", [node["const"]] if "const" in node else []))


def _is_same_choice(one: object, other: object) -> bool:
    """Whether JSON has one value for both: `1` is `1.0` there, and is not `true`."""
    kinds = {json_kind(one), json_kind(other)}
    return one == other and (len(kinds) == 1 or kinds == {"integer", "number"})


def _form(node: Node) -> str:
    known = _PATTERNS.get(node.get("pattern", ""))
    return known or str(node.get("format", _TEXT))


def _lengths(node: Node) -> tuple[int, float]:
    fixed = len(node.get("prefixItems", ()))
    is_open = is_object(node.get("items", {}))
    return node.get("minItems", 0), node.get("maxItems", float("inf") if is_open else fixed)


def _item(node: Node, position: int) -> Node:
    fixed = node.get("prefixItems", ())
    return fixed[position] if position < len(fixed) else _schema(node.get("items"))


def _needed(side: Side) -> list[str]:
    """The fields that every object has."""
    return list(side.node.get("properties" if side.written else "required", ()))


def _has(node: Node, name: str) -> bool:
    return name in node.get("properties", {}) or node.get("additionalProperties", True) is not False


def _field(node: Node, name: str) -> Node:
    found: object = node.get("properties", {}).get(name, node.get("additionalProperties"))
    return _schema(found)


def _key(node: Node) -> Node:
    """The schema of the keys of a mapping."""
    return {"type": "string", **_schema(node.get("propertyNames"))}


def _schema(found: object) -> Node:
    return found if is_object(found) else {}
