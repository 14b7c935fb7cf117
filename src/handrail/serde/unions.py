"""Which unions a type may hold: those whose members JSON distinguishes.

| two members of a union are distinguished by | as in a union of |
|---|---|
| the kind of their JSON; a float is written with a decimal point | `int`, `float`, `str`, `list[int]` |
| the choices of a `Literal` or an enum | `Literal["a"]`, `Literal["b"]` |
| the form of their texts | `datetime`, `date`, `timedelta`, `UUID` |
| the length of a tuple, or an item | `tuple[int, str]`, `tuple[int, int]` |
| a field that only one of two classes has, or of distinguished types | `Circle`, `Square` with `Literal` fields |

All others are taken to be alike; bounds and patterns are not looked at, and the same JSON may be an empty collection.

A store and a ledger refuse a union of members that are alike, `datetime | str`, `list[int] | list[str]`, unless JSON
restores the value of both without a type: `str | Literal["a"]`. What is written has all fields of a class, also those
with a default. A model may leave these out, so two members of parameters that hold classes are distinguished by the
others alone; which of other members a model means, it need not say.

pydantic tries each member of a union, and each member tries what it holds. Where two members hold the union itself, the
number of attempts doubles with every level of the input, unless a discriminator selects the member. So a recursive
union needs one, in parameters as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations, product
from typing import Any, Final, NamedTuple, NoReturn, cast

from handrail.errors import SchemaError
from handrail.serde.core_schemas import (
    OF_CLASSES,
    OF_FIELDS,
    Core,
    choices_of,
    core_definitions,
    fields_of,
    is_of_the_program,
    label_of,
    parts_of,
    places_of,
    referred,
)

_NULL: Final[Core] = {"type": "none"}
_UNKNOWN: Final[Core] = {"type": "any"}

_KINDS: Final[Mapping[str, str]] = {
    "none": "null",
    "bool": "boolean",
    "int": "integer",
    "float": "number",
    **dict.fromkeys(("str", "bytes", "decimal", "fraction", "url", "multi-host-url", "is-instance"), "string"),
    **dict.fromkeys(("datetime", "date", "time", "timedelta", "uuid"), "string"),
    **dict.fromkeys(("list", "tuple", "set", "frozenset", "deque"), "array"),
    **dict.fromkeys(("dict", "ordered-dict", "counter", "dataclass", "model", "typed-dict"), "object"),
}
"""The kind of JSON as which a value is written, by the type of its core schema; of no other is it known."""

_NUMBERS: Final = frozenset({"int", "float", "decimal", "fraction"})
_KINDS_OF_CHOICES: Final = {type(None): "null", bool: "boolean", int: "integer", float: "number", str: "string"}
_TEXTS: Final[Mapping[str, str]] = {
    **{kind: kind for kind in ("datetime", "date", "time", "timedelta")},
    **dict.fromkeys(("uuid", "decimal", "fraction"), "digits"),
}
"""Groups of types whose texts are distinguished from those of another group."""

_RESTORED: Final = frozenset({"none", "bool", "int", "float", "str", "literal", "any"})
"""What JSON restores without a type."""


class _Fields(NamedTuple):
    types: Mapping[str, Core]
    required: frozenset[str]
    written: frozenset[str]


class _Comparison:
    """One comparison; it remembers which pairs it is about to compare, because types may be recursive.

    Attributes:
        stored: whether what is written is compared, or what a model may write.
    """

    __slots__ = ("_definitions", "_pairs", "stored")

    def __init__(self, definitions: Mapping[str, Core], *, stored: bool) -> None:
        self.stored = stored
        self._definitions = definitions
        self._pairs: set[tuple[int, int]] = set()

    def are_alike(self, one: Core, other: Core) -> bool:
        """Whether the same JSON may be read as two values, of which something depends on which it is."""
        return any(
            self._overlap(*pair) and self._matters(*pair) for pair in product(self._leaves(one), [*self._leaves(other)])
        )

    def _matters(self, one: Core, other: Core) -> bool:
        if self.stored:
            return not {one["type"], other["type"]} <= _RESTORED
        return self._holds_class(one) and self._holds_class(other)

    def _holds_class(self, core: Core) -> bool:
        return any(part["type"] in OF_CLASSES for _, part in places_of(core, self._definitions))

    def meet(self, one: Core, other: Core) -> bool:
        """Whether both may read an array, or an object."""
        kinds = [{kind for leaf in self._leaves(each) for kind in self._kinds(leaf)} for each in (one, other)]
        return bool(kinds[0] & kinds[1] & {"array", "object"})

    def _common(self, one: Core, other: Core) -> bool:
        """Whether both may read the same JSON."""
        # By identity: the core schema holds its parts as long as the comparison takes.
        pair = id(referred(one, self._definitions)), id(referred(other, self._definitions))
        if pair in self._pairs:
            return True
        self._pairs.add(pair)
        try:
            return any(self._overlap(*each) for each in product(self._leaves(one), [*self._leaves(other)]))
        finally:
            self._pairs.discard(pair)

    def _leaves(self, core: Core) -> Iterator[Core]:
        """What a type may be, without what only checks it."""
        kind = core["type"]
        if kind == "definition-ref":
            yield from self._leaves(referred(core, self._definitions))
        elif kind != "function-after" and (is_of_the_program(core.get("function")) or _is_written_by_program(core)):
            yield _UNKNOWN
        elif kind == "nullable":
            yield _NULL
            yield from self._leaves(core["schema"])
        elif kind == "union":
            # pydantic's own secrets and paths: a value of the class, or what makes one.
            choices = choices_of(core)[:1] if "custom_error_type" in core else choices_of(core)
            for choice in choices:
                yield from self._leaves(choice)
        elif kind == "tagged-union":
            for choice in core["choices"].values():
                yield from self._leaves(choice)
        else:
            inner = _inside(core)
            yield from (core,) if inner is None else self._leaves(inner)

    def _kinds(self, leaf: Core) -> set[str]:
        if (choices := _choices(leaf)) is not None:
            return {_KINDS_OF_CHOICES.get(cast("Any", type(each)), "string") for each in choices}
        if leaf["type"] in _NUMBERS and not self.stored:
            return {"integer", "number"} if leaf["type"] in {"int", "float"} else {"integer", "number", "string"}
        return {_KINDS[leaf["type"]]} if leaf["type"] in _KINDS else {*_KINDS.values()}

    def _overlap(self, one: Core, other: Core) -> bool:
        kinds = self._kinds(one) & self._kinds(other)
        ours, theirs = _choices(one), _choices(other)
        if ours is not None and theirs is not None:
            return any((type(each), each) == (type(beside), beside) for each, beside in product(ours, theirs))
        groups = {_TEXTS.get(each["type"]) for each in (one, other)}
        if kinds == {"string"}:
            return None in groups or len(groups) == 1
        if _is_fixed(one) and _is_fixed(other):
            items = one["items_schema"], other["items_schema"]
            return len(items[0]) == len(items[1]) and all(map(self._common, *items))
        if {one["type"], other["type"]} <= OF_FIELDS:
            first, second = _fields(one), _fields(other)
            return self._reads(first, second) or self._reads(second, first)
        return bool(kinds)

    def _reads(self, one: _Fields, other: _Fields) -> bool:
        """Whether an object that is written as the one may be read as the other."""
        names = (one.written if self.stored else one.required) | other.required
        return names <= one.types.keys() & other.types.keys() and all(
            self._common(one.types[name], other.types[name]) for name in names
        )


def _inside(core: Core) -> Core | None:
    """What a part only checks, converts or names; `None` if it is a type itself."""
    kind = core["type"]
    if kind == "json-or-python":
        # A `Sequence` is read as a list, and a path as a value of its class.
        return cast("Core", core["json_schema" if core["json_schema"]["type"] in {"list", "dict"} else "python_schema"])
    if kind in {"lax-or-strict", "chain"}:
        return cast("Core", core["strict_schema"] if kind == "lax-or-strict" else core["steps"][0])
    return None if kind in OF_CLASSES or "schema" not in core else cast("Core", core["schema"])


def _is_written_by_program(core: Core) -> bool:
    return is_of_the_program(core.get("serialization", {}).get("function"))


def _choices(leaf: Core) -> list[object] | None:
    """The choices of a `Literal` or an enum."""
    if leaf["type"] == "enum":
        return [each.value for each in leaf["members"]]
    return list(leaf["expected"]) if leaf["type"] == "literal" else None


def _is_fixed(leaf: Core) -> bool:
    return leaf["type"] == "tuple" and "variadic_item_index" not in leaf


def _fields(leaf: Core) -> _Fields:
    """The fields of a class or a TypedDict."""
    named = fields_of(leaf)
    types = {name: cast("Core", field["schema"]) for name, field in named.items()}
    # Of a TypedDict a field may be missing in what is written, too.
    required = frozenset(
        name for name, field in named.items() if field.get("required", types[name]["type"] != "default")
    )
    return _Fields(types, required, required if leaf["type"] == "typed-dict" else frozenset(types))


# ------------------------------------------------------------------------------------------------------------ refusals


def check_read_unions(kind: object, core: Core, *, parameters: bool) -> None:
    """Refuse unions that take too long to be read, and classes of parameters of which a model cannot say one.

    Args:
        kind: the type, as the error names it.
        core: what pydantic made of it.
        parameters: whether a model writes its values.

    Raises:
        SchemaError: there is one; `path` says where.
    """
    definitions = core_definitions(core)
    for path, union in _unions(core, definitions):
        if (pair := _recursive_pair(union, definitions)) is not None:
            one, other = (label_of(each, definitions) for each in pair)
            _refuse(
                kind,
                path,
                f"{one} and {other} both hold this union again, so that each level of the input would be read twice",
                f"{_CURE}; and declare the union as Annotated[... | ..., Field(discriminator='kind')]",
            )
        if parameters and (pair := _alike(union, definitions, stored=False)) is not None:
            one, other = (label_of(each, definitions) for each in pair)
            _refuse(kind, path, f"a model cannot say whether it means {one} or {other}", _CURE)


def check_stored_unions(kind: object, core: Core) -> None:
    """Refuse unions whose members the JSON in a store does not distinguish.

    Args:
        kind: the type, as the error names it.
        core: what pydantic made of it.

    Raises:
        SchemaError: there is one; `path` says where.
    """
    definitions = core_definitions(core)
    for path, union in _unions(core, definitions):
        if (pair := _alike(union, definitions, stored=True)) is not None:
            one, other = (label_of(each, definitions) for each in pair)
            _refuse(kind, path, f"what is stored does not say whether it is {one} or {other}", _CURE_OF_STORED)


_CURE: Final = (
    "give each class a field that distinguishes it, with another text in each, such as kind: Literal['first'], and no "
    "default"
)
_CURE_OF_STORED: Final = (
    "declare one of the two, one collection of both, such as list[int | str], or a class for each, with a field that "
    "distinguishes it, such as kind: Literal['first']"
)


def _refuse(kind: object, path: str, fault: str, cure: str) -> NoReturn:
    raise SchemaError(f"{path}: {fault}; {cure}", type=kind, path=path)


def _unions(core: Core, definitions: Mapping[str, Core]) -> Iterator[tuple[str, Core]]:
    """The unions of the program in a type, with their places."""
    for path, part in places_of(core, definitions):
        # Paths and secrets of pydantic's are unions too.
        is_pydantics = "custom_error_type" in part or any(each["type"] == "is-instance" for each in parts_of(part))
        if part["type"] == "union" and not is_pydantics:
            yield path, part


def _alike(union: Core, definitions: Mapping[str, Core], *, stored: bool) -> tuple[Core, Core] | None:
    """Two members of a union that the same JSON may be read as."""
    comparison = _Comparison(definitions, stored=stored)
    return next((pair for pair in combinations(choices_of(union), 2) if comparison.are_alike(*pair)), None)


def _recursive_pair(union: Core, definitions: Mapping[str, Core]) -> tuple[Core, Core] | None:
    """Two members of a union that may read the same kind of JSON, arrays or objects, and hold the union again."""
    comparison = _Comparison(definitions, stored=True)
    recursive = [each for each in choices_of(union) if _holds(each, union, definitions, set())]
    return next((pair for pair in combinations(recursive, 2) if comparison.meet(*pair)), None)


def _holds(core: Core, union: Core, definitions: Mapping[str, Core], seen: set[str]) -> bool:
    """Whether a part holds a union, at any depth."""
    if core["type"] == "definition-ref":
        name = core["schema_ref"]
        if name in seen or name not in definitions:
            return False
        seen.add(name)
        return _holds(definitions[name], union, definitions, seen)
    return core is union or any(_holds(part, union, definitions, seen) for part in parts_of(core))
