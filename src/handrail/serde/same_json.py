"""Whether two parts of core schemas surely read the same JSON, though as values of different types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, cast

from handrail.serde.core_schemas import Core, referred

_UNREAD: Final = frozenset({"ref", "metadata", "serialization", "default", "default_factory", "dataclass_name"})
"""What does not matter to which JSON a core schema reads."""

_OF_CLASS: Final = frozenset({"cls", "cls_name", "fields", "slots", "frozen", "config", "generic_origin"})


def reads_the_same(one: Core, other: Core, definitions: Mapping[str, Core]) -> bool:
    """Whether two parts surely read the same JSON, though perhaps as values of different classes."""
    return _Equality(definitions).same(one, other)


class _Equality:
    """One comparison; pairs that are being compared are taken to be equal, because types may be recursive."""

    __slots__ = ("_definitions", "_seen")

    def __init__(self, definitions: Mapping[str, Core]) -> None:
        self._definitions = definitions
        self._seen: set[tuple[int, int]] = set()

    def same(self, one: Core, other: Core) -> bool:
        """Whether two parts read the same JSON."""
        one, other = referred(one, self._definitions), referred(other, self._definitions)
        pair = id(one), id(other)
        # A pair that has been compared and differs has ended the whole comparison, so that only equal ones are met
        # again.
        if one is other or pair in self._seen:
            return True
        self._seen.add(pair)
        one, other = _as_list(one), _as_list(other)
        if one["type"] != other["type"]:
            return False
        unread = _UNREAD
        if one["type"] == "dataclass":
            # It may refuse what the fields alone would take.
            if one.get("post_init") or other.get("post_init"):
                return False
            unread = _UNREAD | _OF_CLASS
        names = (one.keys() | other.keys()) - unread
        return all(name in one and name in other and self._equal(one[name], other[name]) for name in names)

    def _equal(self, one: object, other: object) -> bool:
        if isinstance(one, dict) and isinstance(other, dict):
            first, second = cast("Core", one), cast("Core", other)
            if isinstance(first.get("type"), str) and isinstance(second.get("type"), str):
                return self.same(first, second)
            return first.keys() == second.keys() and all(self._equal(first[key], second[key]) for key in first)
        if isinstance(one, list | tuple) and isinstance(other, list | tuple):
            pair = cast("Sequence[object]", one), cast("Sequence[object]", other)
            return len(pair[0]) == len(pair[1]) and all(map(self._equal, *pair))
        return _is_equal(cast("Core", one), other)  # or anything else


def _as_list(core: Core) -> Core:
    """A tuple of any length as the list that reads the same; any other part as it is."""
    if core["type"] != "tuple" or "variadic_item_index" not in core or len(core["items_schema"]) != 1:
        return core
    kept = {key: value for key, value in core.items() if key != "variadic_item_index"}
    return {**kept, "type": "list", "items_schema": core["items_schema"][0]}


def _is_equal(one: object, other: object) -> bool:
    """Whether two values are equal and of one type: `True` is 1 in Python."""
    return type(one) is type(other) and one == other
