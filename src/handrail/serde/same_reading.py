"""Whether two parts of a core schema read the same JSON: then the first of them is read, and the other is not tried.

It is found out without a value. Parts that functions of the program check are taken to differ, unless the function is
one and the same; two dataclasses are taken to be equal while what they hold is compared, because types may hold
themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import itemgetter
from typing import Any, Final, cast

from handrail.serde.core_schemas import Core

_SAYS_NOTHING: Final = frozenset(
    {"ref", "metadata", "serialization", "default", "default_factory", "default_factory_takes_data", "validate_default"}
)
"""Of no part do these say which JSON it reads."""

_OF_A_CLASS: Final = frozenset({"cls", "cls_name", "config", "dataclass_name", "frozen", "generic_origin", "slots"})
"""Of a dataclass these do not; the configuration is that of the whole schema."""

_LIKE_LISTS: Final = frozenset({"tuple", "set", "frozenset"})
_OF_TAGS: Final = "handrail.serde.unions"
_ITEMS: Final = frozenset({"type", "items_schema", "variadic_item_index"})


def reads_the_same(one: Core, other: Core, definitions: Mapping[str, Core]) -> bool:
    """Whether every JSON that one part reads is read by the other, and the other way round.

    Args:
        one: a part.
        other: another.
        definitions: the shared parts to which they refer.
    """
    return _Comparison(definitions).parts(one, other)


def stands_for(one: Core, other: Core, definitions: Mapping[str, Core]) -> bool:
    """Whether a list reads every array that another collection reads, because their items read the same JSON."""
    first, second = (_followed(core, definitions) for core in (one, other))
    if first["type"] != "list" or second["type"] not in _LIKE_LISTS:
        return False
    items, others = (_item_of(core) for core in (first, second))
    bounds = [{name: core[name] for name in core.keys() - _ITEMS - _SAYS_NOTHING} for core in (first, second)]
    if items is None or others is None or bounds[0] != bounds[1]:
        return False
    return reads_the_same(items, others, definitions)


def _item_of(core: Core) -> Core | None:
    """The type of all items of a collection; `None` if they have several, or any."""
    items: Any = core.get("items_schema")
    if not isinstance(items, list):
        return cast("Core | None", items)
    return cast("Core", items[0]) if len(cast("list[Core]", items)) == 1 and "variadic_item_index" in core else None


def _followed(core: Core, definitions: Mapping[str, Core]) -> Core:
    while core["type"] == "definition-ref" and core["schema_ref"] in definitions:
        core = definitions[core["schema_ref"]]
    return core


class _Comparison:
    """One comparison; it remembers which pairs it is about to compare."""

    __slots__ = ("_definitions", "_seen")

    def __init__(self, definitions: Mapping[str, Core]) -> None:
        self._definitions = definitions
        self._seen: set[tuple[int, int]] = set()

    def parts(self, one: Core, other: Core) -> bool:
        """Whether two parts read the same; a pair that is compared already is taken to."""
        first, second = (_followed(core, self._definitions) for core in (one, other))
        pair = id(first), id(second)
        if first is second or pair in self._seen:
            return True
        self._seen.add(pair)
        if first["type"] != second["type"] or first.get("post_init") or second.get("post_init"):
            return False
        silent = _SAYS_NOTHING | _OF_A_CLASS if first["type"] in {"dataclass", "dataclass-args"} else _SAYS_NOTHING
        names = first.keys() - silent
        return names == second.keys() - silent and all(self._values(first[name], second[name]) for name in names)

    def _values(self, one: Any, other: Any) -> bool:  # noqa: ANN401 - any value of a core schema
        if type(one) is not type(other):
            return False
        if isinstance(one, dict):
            first, second = cast("Core", one), cast("Core", other)
            if isinstance(first.get("type"), str) and isinstance(second.get("type"), str):
                return self.parts(first, second)
            return first.keys() == second.keys() and all(self._values(first[name], second[name]) for name in first)
        if isinstance(one, list | tuple):
            pairs = list(cast("list[object]", one)), list(cast("list[object]", other))
            return len(pairs[0]) == len(pairs[1]) and all(map(self._values, *pairs))
        return one is other or (
            type(one) is type(other) and _known(cast("object", one)) == _known(cast("object", other))
        )


def _known(value: object) -> object:
    """What tells a value of a core schema from another.

    The functions that select the member of a tag are told apart by the names of the members, which stand beside them.
    """
    if isinstance(value, itemgetter):
        return repr(cast("object", value))
    module: object = getattr(value, "__module__", None)
    return getattr(value, "__qualname__", value) if module == _OF_TAGS else value
