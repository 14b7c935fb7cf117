"""Core schemas, which pydantic makes of a type before it builds a validator: how one is walked, rebuilt and checked.

A core schema is a dictionary with a `type`; `pydantic_core.core_schema` documents every kind. A part that several
places share stands under `definitions`, and is referred to by `definition-ref`.

| two members of a union are distinguished by | as in a union of |
|---|---|
| the kind of their JSON; a float has a decimal point, which fields of classes do not show | `int`, `float`, `str` |
| the choices of a `Literal` or an enum | `Literal["a"]`, `Literal["b"]` |
| the form of their texts | `datetime`, `date`, `timedelta`, `UUID` |
| a field that only one of two classes has, or of distinguished types | `Circle`, `Square` with `Literal` fields |

All others are alike; bounds and patterns are not looked at. A store and a ledger refuse a union of members that are
alike, `datetime | str`, unless JSON restores both without a type: `str | Literal["a"]`. What is written has all fields
of a class. A model may leave out those with a default, so two members of parameters that hold classes are distinguished
by the others alone.

Where two members of a union hold the union itself, pydantic's attempts double with every level of the input. So a
recursive union needs a discriminator, in parameters as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache, wraps
from itertools import combinations, product
from typing import Any, Final, NamedTuple, ParamSpec, TypeVar, cast

from pydantic_core import CoreConfig, CoreSchema, SchemaSerializer, SchemaValidator

from handrail.errors import SchemaError

Core = dict[str, Any]
"""A core schema, or a part of one."""

_PARTS: Final = (
    "schema",
    "items_schema",
    "keys_schema",
    "values_schema",
    "json_schema",
    "python_schema",
    "lax_schema",
    "strict_schema",
    "choices",
    "fields",
    "definitions",
    "serialization",
)
"""Where the parts of a core schema stand: one, a list of them, or a mapping. Anything else may be a user's value."""

_ALL_PARTS: Final = (*_PARTS, "steps")

_CALLING: Final = frozenset({"function-before", "function-wrap"})
"""What calls a function, and hands what it returns to the part inside."""

OF_CLASSES: Final = frozenset({"dataclass", "model"})
"""What is of one class, and has the fields of that in another part."""

OF_FIELDS: Final = OF_CLASSES | {"typed-dict"}
"""What is written as an object of named fields."""


SchemaEdit = Callable[[Core, Core, bool], Core]
"""Makes the replacement of a part of a core schema, or gives the part.

It has the part, whose own parts have been replaced; the part as it was; and whether the program's own code may have
made the value that it is given, where JSON would be.
"""


def iter_parts(core: Core) -> Iterator[Core]:
    """The parts that stand directly in a core schema."""
    for name in _ALL_PARTS:
        if name in core:
            yield from _iter_items(core[name])


def kinds_in(core: Core) -> frozenset[str]:
    """The types of all parts of a core schema, itself included."""
    return frozenset({core["type"]}).union(*map(kinds_in, iter_parts(core)))


def iter_places(core: Core, definitions: Mapping[str, Core]) -> Iterator[tuple[str, Core]]:
    """Every part of a whole core schema with the place of the data that it is of, each shared part once."""
    yield from _places(core, definitions, "$", set())


def _places(core: Core, definitions: Mapping[str, Core], path: str, visited: set[str]) -> Iterator[tuple[str, Core]]:
    if core["type"] == "definition-ref":
        if core["schema_ref"] not in visited and core["schema_ref"] in definitions:
            visited.add(core["schema_ref"])
            yield from _places(definitions[core["schema_ref"]], definitions, path, visited)
        return
    yield path, core
    if core["type"] == "dataclass-field":
        path = f"{path}.{core['name']}"
    if core["type"] in _NAMING:
        for name, part in core["fields"].items():
            yield from _places(part, definitions, f"{path}.{name}", visited)
        return
    for name in _ALL_PARTS:
        # A shared part is met where it is referred to, where its place is known; what writes a value has none.
        if name in core and name not in {"definitions", "serialization"}:
            inner = f"{path}{_BELOW.get(name, '')}"
            for position, part in enumerate(_iter_items(core[name])):
                is_fixed = name == "items_schema" and isinstance(core[name], list) and "variadic_item_index" not in core
                yield from _places(part, definitions, f"{path}[{position}]" if is_fixed else inner, visited)


_NAMING: Final = frozenset({"model-fields", "typed-dict"})
"""What has its fields by their names."""

_BELOW: Final = {"items_schema": "[*]", "values_schema": ".*", "keys_schema": ".*"}


def rebuilt(core: Core, change: SchemaEdit, *, coded: bool = False) -> Core:
    """A copy in which `change` has replaced every part, innermost first.

    `coded` says whether the program's own code may have made the value that `core` is given.
    """
    # A function before a part gives that part whatever it returns, and so it does to all below.
    inner = coded or core["type"] in _CALLING
    copy = dict(core)
    for name in _PARTS:
        if name in copy:
            copy[name] = _map_items(copy[name], lambda part: rebuilt(part, change, coded=inner))
    if "steps" in core:  # each is given what the one before it has made
        first, *others = core["steps"]
        copy["steps"] = [rebuilt(first, change, coded=coded), *(rebuilt(part, change, coded=True) for part in others)]
    return change(copy, core, coded)


def replacing(core: Core, replacement: Mapping[str, Any]) -> Core:
    """The replacement of `core`, to which those refer who referred to `core`."""
    return dict(replacement, ref=core["ref"]) if "ref" in core else dict(replacement)


def without_name(core: Core) -> CoreSchema:
    """A core schema to which nothing refers, so that it may stand several times."""
    return cast("CoreSchema", {key: value for key, value in core.items() if key != "ref"})


def make_validator(core: Core, config: CoreConfig) -> SchemaValidator:
    """Makes the validator of all of a core schema, without what pydantic has built for a model itself."""
    # pydantic has no public name for this, `_use_prebuilt`; `tests/serde/test_types.py` holds what it means.
    return SchemaValidator(cast("CoreSchema", core), config, False)  # noqa: FBT003 - it has no other name


def make_serializer(core: Core, config: CoreConfig) -> SchemaSerializer:
    """Makes the serializer of all of a core schema, as `make_validator`."""
    return SchemaSerializer(cast("CoreSchema", core), config, False)  # noqa: FBT003 - as above


def core_definitions(core: Core) -> Mapping[str, Core]:
    """The shared parts of a whole core schema, by the names by which they are referred to."""
    return {part["ref"]: part for part in core.get("definitions", ())}


def whole(core: Core, definitions: Mapping[str, Core]) -> Core:
    """A part of a core schema with the shared parts that it refers to."""
    if not definitions:
        return core
    return {"type": "definitions", "schema": core, "definitions": list(definitions.values())}


def referred(core: Core, definitions: Mapping[str, Core]) -> Core:
    """The part that a reference refers to; any other as it is."""
    while core["type"] == "definition-ref" and core["schema_ref"] in definitions:
        core = definitions[core["schema_ref"]]
    return core


def list_choices(union: Core) -> list[Core]:
    """The choices of a union, without their labels."""
    choices: list[Any] = union["choices"]
    return [cast("Core", choice[0] if isinstance(choice, tuple) else choice) for choice in choices]


def innermost(core: Core, definitions: Mapping[str, Core]) -> Core:
    """The part that says what a core schema is of, without what checks, converts or names it."""
    while True:
        core = referred(core, definitions)
        # pydantic's own secrets and paths are unions: a value of the class, or what makes one.
        inner = list_choices(core)[0] if "custom_error_type" in core and core["type"] == "union" else _inside(core)
        if inner is None:
            return core
        core = inner


def _inside(core: Core) -> Core | None:
    kind = core["type"]
    if kind == "json-or-python":
        # A `Sequence` is read as a list, and a path as a value of its class.
        return cast("Core", core["json_schema" if core["json_schema"]["type"] in {"list", "dict"} else "python_schema"])
    if kind in {"lax-or-strict", "chain"}:
        return cast("Core", core["strict_schema"] if kind == "lax-or-strict" else core["steps"][0])
    return None if kind in OF_CLASSES or not isinstance(core.get("schema"), dict) else cast("Core", core["schema"])


def list_fields(part: Core) -> dict[str, Core]:
    """The parts of the fields of a class or a TypedDict, by their names."""
    core = part if part["type"] == "typed-dict" else part["schema"]
    # Validators of the program may stand around the fields of a model.
    while "fields" not in core:
        core = core["schema"]
    fields: Any = core["fields"]
    return cast("dict[str, Core]", fields) if isinstance(fields, dict) else {field["name"]: field for field in fields}


def make_label(core: Core, definitions: Mapping[str, Core], above: tuple[Core, ...] = ()) -> str:
    """The name of a type in messages, with what it holds; a `Sequence` is named by the list that it is read as."""
    view = innermost(core, definitions)
    if view["type"] == "literal":
        return f"Literal[{', '.join(map(repr, view['expected']))}]"
    cls = view.get("cls")
    name = str(view.get("cls_repr", view["type"]))
    name = str(view.get("cls_name", cls.__name__)) if isinstance(cls, type) else name
    if view["type"] in OF_CLASSES or any(view is outer for outer in above):
        return name
    parts = view["choices"] if view["type"] == "union" else [view.get(key, ()) for key in _INNER_PARTS]
    inner = [make_label(part, definitions, (*above, view)) for part in _iter_items(parts)]
    if view["type"] == "union":
        return " | ".join(inner)
    return f"{name}[{', '.join(inner)}]" if inner else name


_INNER_PARTS: Final = ("keys_schema", "values_schema", "items_schema")

_LIBRARIES: Final = frozenset({"pydantic", "pydantic_core", "handrail", "ipaddress", "operator"})
_BOUNDS_OF: Final = "pydantic._internal._validators"


CHANGING: Final = ("strip_whitespace", "to_lower", "to_upper")
"""Words by which a text is changed."""

_BOUNDS: Final = ("gt", "ge", "lt", "le", "multiple_of", "min_length", "max_length")

HOLDING: Final = (*_BOUNDS, *CHANGING, "pattern", "max_digits", "decimal_places")
"""What a part of a core schema holds its values to when it reads them, and not when it writes them."""


def is_of_the_program(function: object) -> bool:
    """Returns whether the `function` of a part is one of the program, and not of pydantic's or Handrail's."""
    return (_find_module(function) or "pydantic").partition(".")[0] not in _LIBRARIES


def is_bound(function: object) -> bool:
    """Returns whether pydantic holds a value to a bound by it."""
    return _find_module(function) == _BOUNDS_OF


def secret_parts(core: Core) -> Iterator[bool]:
    """Returns of each thing that a place holds itself, not in a field of a class, whether it is a secret of pydantic's.

    A bound counts as something that is not: the mask may not keep to it.
    """
    if core["type"] == "function-after" and is_bound(core["function"]):
        yield False
    inner = _inside(core)
    if getattr(core.get("serialization", {}).get("function"), "__name__", "").startswith("_serialize_secret"):
        yield True
    elif inner is not None:
        yield from secret_parts(inner)
    else:
        parts = [] if core["type"] in OF_FIELDS else [part for part in iter_parts(core) if part["type"] != "none"]
        for part in parts:
            yield from secret_parts(part)
        if not parts:
            yield False


def makes_secret(function: object) -> bool:
    """Returns whether it makes a value of one of pydantic's secrets, other than a text, from what it holds."""
    # `SecretBytes` is a class, and `Secret` calls a function that is nested in one of its methods: both are known by
    # module and name.
    own = [owner for owner in (*getattr(function, "__mro__", ()), function) if _find_module(owner) == "pydantic.types"]
    return any(getattr(owner, "__qualname__", "").partition(".")[0] in {"SecretBytes", "Secret"} for owner in own)


def _find_module(function: object) -> str | None:
    callable_: object = cast("Core", function).get("function") if isinstance(function, dict) else function
    return getattr(getattr(callable_, "func", callable_), "__module__", None)


def _iter_items(value: object) -> Iterator[Core]:
    if isinstance(value, dict):
        node = cast("dict[object, object]", value)
        # Of a mapping of fields one may be called `type`: that entry is a part, and not a text.
        if isinstance(node.get("type"), str):
            yield cast("Core", node)
        else:
            for inner in node.values():
                yield from _iter_items(inner)
    elif isinstance(value, list | tuple):
        for inner in cast("list[object]", value):
            yield from _iter_items(inner)


def _map_items(value: Any, change: Callable[[Core], Core]) -> Any:  # noqa: ANN401 - a part, or several
    if isinstance(value, dict):
        node = cast("Core", value)
        return (
            change(node) if isinstance(node.get("type"), str) else {k: _map_items(v, change) for k, v in node.items()}
        )
    if not isinstance(value, list | tuple):
        return value
    several = [_map_items(inner, change) for inner in cast("list[Any]", value)]
    return several if isinstance(value, list) else tuple(several)  # a tuple is a choice of a union, with its label


# ------------------------------------------------------------------------------------------------------------- unions


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

JSON_KINDS: Final[Mapping[type[Any], str]] = {
    type(None): "null",
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
}
"""The names of the JSON types of decoded values."""

_NUMBERS: Final = frozenset({"int", "float", "decimal", "fraction"})
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
    always: frozenset[str]


class _Comparison:
    __slots__ = ("_definitions", "_pairs", "stores")

    def __init__(self, definitions: Mapping[str, Core], *, stores: bool) -> None:
        self.stores = stores
        self._definitions = definitions
        self._pairs: set[tuple[int, int]] = set()

    def are_alike(self, one: Core, other: Core) -> bool:
        return any(
            self._overlap(*pair, is_inside=False) and self._matters(*pair)
            for pair in product(self._leaves(one), [*self._leaves(other)])
        )

    def _matters(self, one: Core, other: Core) -> bool:
        if self.stores:
            return not {one["type"], other["type"]} <= _RESTORED
        return self._holds_class(one) and self._holds_class(other)

    def _holds_class(self, core: Core) -> bool:
        return any(part["type"] in OF_CLASSES for _, part in iter_places(core, self._definitions))

    def meet(self, one: Core, other: Core) -> bool:
        kinds = [{kind for leaf in self._leaves(member) for kind in self._kinds(leaf)} for member in (one, other)]
        return bool(kinds[0] & kinds[1] & {"array", "object"})

    def _common(self, one: Core, other: Core) -> bool:
        # By identity: the core schema holds its parts as long as the comparison takes.
        pair = id(referred(one, self._definitions)), id(referred(other, self._definitions))
        if pair in self._pairs:
            return True
        self._pairs.add(pair)
        try:
            pairs = product(self._leaves(one), [*self._leaves(other)])
            return any(self._overlap(*leaves, is_inside=True) for leaves in pairs)
        finally:
            self._pairs.discard(pair)

    def _leaves(self, core: Core) -> Iterator[Core]:
        kind = core["type"]
        if kind == "definition-ref":
            yield from self._leaves(referred(core, self._definitions))
        elif kind != "function-after" and (is_of_the_program(core.get("function")) or _is_written_by_program(core)):
            yield _UNKNOWN
        elif kind == "nullable":
            yield {"type": "none"}
            yield from self._leaves(core["schema"])
        elif kind == "union":
            # pydantic's own secrets and paths: a value of the class, or what makes one.
            for choice in list_choices(core)[:1] if "custom_error_type" in core else list_choices(core):
                yield from self._leaves(choice)
        elif kind == "tagged-union":
            for choice in core["choices"].values():
                yield from self._leaves(choice)
        else:
            inner = _inside(core)
            yield from (core,) if inner is None else self._leaves(inner)

    def _kinds(self, leaf: Core, *, is_inside: bool = True) -> set[str]:
        if (choices := _choices(leaf)) is not None:
            return {JSON_KINDS.get(type(choice), "string") for choice in choices}
        # pydantic prefers the exact one of two members that are numbers, and not that of two classes which holds it.
        if leaf["type"] in _NUMBERS and (is_inside or not self.stores):
            return {"integer", "number"} if leaf["type"] in {"int", "float"} else {"integer", "number", "string"}
        return {_KINDS[leaf["type"]]} if leaf["type"] in _KINDS else {*_KINDS.values()}

    def _overlap(self, one: Core, other: Core, *, is_inside: bool) -> bool:
        kinds = self._kinds(one, is_inside=is_inside) & self._kinds(other, is_inside=is_inside)
        own, theirs = _choices(one), _choices(other)
        if own is not None and theirs is not None:
            return any(
                member == beside and isinstance(member, bool) is isinstance(beside, bool)
                for member, beside in product(own, theirs)
            )
        groups = {_TEXTS.get(member["type"]) for member in (one, other)}
        if kinds == {"string"}:
            return None in groups or len(groups) == 1
        if {one["type"], other["type"]} <= OF_FIELDS:
            first, second = _fields(one), _fields(other)
            return self._reads(first, second) or self._reads(second, first)
        return bool(kinds)

    def _reads(self, one: _Fields, other: _Fields) -> bool:
        names = (one.always if self.stores else one.required) | other.required
        return names <= one.types.keys() & other.types.keys() and all(
            self._common(one.types[name], other.types[name]) for name in names
        )


def _is_written_by_program(core: Core) -> bool:
    return is_of_the_program(core.get("serialization", {}).get("function"))


def _choices(leaf: Core) -> list[object] | None:
    if leaf["type"] == "enum":
        return [member.value for member in leaf["members"]]
    return list(leaf["expected"]) if leaf["type"] == "literal" else None


def _fields(leaf: Core) -> _Fields:
    field_parts = list_fields(leaf)
    types = {name: cast("Core", field["schema"]) for name, field in field_parts.items()}
    # Of a TypedDict a field may be missing in what is written, too.
    required = frozenset(
        name for name, field in field_parts.items() if field.get("required", types[name]["type"] != "default")
    )
    return _Fields(types, required, required if leaf["type"] == "typed-dict" else frozenset(types))


# ------------------------------------------------------------------------------------------------------------ refusals


def check_read_unions(kind: object, core: Core, *, parameters: bool) -> None:
    """Refuses unions that are read too slowly, and parameters that a model cannot say; raises `SchemaError`."""
    definitions = core_definitions(core)
    for path, union in _unions(core, definitions):
        _refuse(kind, path, _recursive_pair(union, definitions), definitions, _RECURSIVE)
        if parameters:
            _refuse(kind, path, _alike(union, definitions, stores=False), definitions, _UNSAID)


def check_stored_unions(kind: object, core: Core) -> None:
    """Refuses unions whose members the JSON in a store does not distinguish; raises `SchemaError`."""
    definitions = core_definitions(core)
    for path, union in _unions(core, definitions):
        _refuse(kind, path, _alike(union, definitions, stores=True), definitions, _UNSTORED)


_CURE: Final = (
    "give each class a field that distinguishes it, with another text in each, such as kind: Literal['first'], and no "
    "default"
)
_RECURSIVE: Final = (
    "{} and {} both hold this union again, so that each level of the input would be read twice; "
    f"{_CURE}; and declare the union as Annotated[... | ..., Field(discriminator='kind')]"
)
_UNSAID: Final = "a model cannot say whether it means {} or {}; " + _CURE
_UNSTORED: Final = (
    "what is stored does not say whether it is {} or {}; declare one of the two, one collection of both, such as "
    "list[int | str], or a class for each, with a field that distinguishes it, such as kind: Literal['first']"
)


def _refuse(
    kind: object, path: str, pair: tuple[Core, Core] | None, definitions: Mapping[str, Core], fault: str
) -> None:
    if pair is not None:
        text = fault.format(*(make_label(member, definitions) for member in pair))
        raise SchemaError(f"{path}: {text}", type=kind, path=path)


def _unions(core: Core, definitions: Mapping[str, Core]) -> Iterator[tuple[str, Core]]:
    for path, part in iter_places(core, definitions):
        # Paths and secrets of pydantic's are unions too.
        is_pydantics = "custom_error_type" in part or any(inner["type"] == "is-instance" for inner in iter_parts(part))
        if part["type"] == "union" and not is_pydantics:
            yield path, part


def _alike(union: Core, definitions: Mapping[str, Core], *, stores: bool) -> tuple[Core, Core] | None:
    comparison = _Comparison(definitions, stores=stores)
    return next((pair for pair in combinations(list_choices(union), 2) if comparison.are_alike(*pair)), None)


def _recursive_pair(union: Core, definitions: Mapping[str, Core]) -> tuple[Core, Core] | None:
    comparison = _Comparison(definitions, stores=True)
    recursive = [one for one in list_choices(union) if any(part is union for _, part in iter_places(one, definitions))]
    return next((pair for pair in combinations(recursive, 2) if comparison.meet(*pair)), None)


# ------------------------------------------------------------------------------------------------------- what is kept


P = ParamSpec("P")
V = TypeVar("V")

MAX_CACHED: Final = 1024
"""So many values are kept. What is beyond that has come from types that are made at run time."""


def cached(make: Callable[P, V]) -> Callable[P, V]:
    """Decorates a function that makes something of a type, so that it does so once for each; the least used value goes.

    Types that are made at run time would stay for ever otherwise. Equal types share a value. Safe to use from any
    thread, without a lock, because building a codec runs functions of the program. A failure is not kept.
    """
    lookup = cast("Callable[P, V]", lru_cache(maxsize=MAX_CACHED)(make))

    @wraps(make)
    def get(*args: P.args, **options: P.kwargs) -> V:
        try:
            return lookup(*args, **options)
        except TypeError:  # a part of the type cannot be hashed
            return make(*args, **options)

    return get
