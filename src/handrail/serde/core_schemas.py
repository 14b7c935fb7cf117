"""Core schemas, which are what pydantic makes of a type before it builds a validator: how one is walked and rebuilt.

A core schema is a dictionary with a `type`; `pydantic_core.core_schema` documents every kind. A part that several
places share stands under `definitions`, and is referred to by `definition-ref`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Protocol, cast

from pydantic_core import CoreConfig, CoreSchema, SchemaSerializer, SchemaValidator

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


class SchemaEdit(Protocol):
    """Makes the replacement of a part of a core schema."""

    def __call__(self, part: Core, /, *, was: Core, made: bool) -> Core:
        """The part, or another.

        Args:
            part: the part, whose own parts have been replaced.
            was: the part as it was.
            made: whether the program's own code may have made the value that it is given, where JSON would be.
        """
        ...


_WRAPPERS: Final = ("schema", "json_schema", "strict_schema")
"""Where the schema stands that a schema adds something to."""


def parts_of(core: Core) -> Iterator[Core]:
    """The parts that stand directly in a core schema."""
    for name in _ALL_PARTS:
        if name in core:
            yield from _each(core[name])


def kinds_in(core: Core) -> frozenset[str]:
    """The types of all parts of a core schema, itself included."""
    found: set[str] = set()
    left = [core]
    while left:
        part = left.pop()
        found.add(part["type"])
        left.extend(parts_of(part))
    return frozenset(found)


def places_of(core: Core, definitions: Mapping[str, Core]) -> Iterator[tuple[str, Core]]:
    """Every part of a whole core schema with the place of the data that it is of, each shared part once."""
    yield from _places(core, definitions, "$", set())


def _places(core: Core, definitions: Mapping[str, Core], path: str, seen: set[str]) -> Iterator[tuple[str, Core]]:
    if core["type"] == "definition-ref":
        if core["schema_ref"] not in seen and core["schema_ref"] in definitions:
            seen.add(core["schema_ref"])
            yield from _places(definitions[core["schema_ref"]], definitions, path, seen)
        return
    yield path, core
    if core["type"] == "dataclass-field":
        path = f"{path}.{core['name']}"
    if core["type"] in _NAMING:
        for name, part in core["fields"].items():
            yield from _places(part, definitions, f"{path}.{name}", seen)
        return
    for name in _ALL_PARTS:
        # A shared part is met where it is referred to, because only there its place is known. What writes a value has
        # no place in the data.
        if name in core and name not in {"definitions", "serialization"}:
            inner = f"{path}{_BELOW.get(name, '')}"
            for position, part in enumerate(_each(core[name])):
                is_fixed = name == "items_schema" and isinstance(core[name], list) and "variadic_item_index" not in core
                yield from _places(part, definitions, f"{path}[{position}]" if is_fixed else inner, seen)


_NAMING: Final = frozenset({"model-fields", "typed-dict"})
"""What has its fields by their names."""

_BELOW: Final = {"items_schema": "[*]", "values_schema": ".*", "keys_schema": ".*"}


def rebuilt(core: Core, change: SchemaEdit, *, made: bool = False) -> Core:
    """A copy in which `change` has replaced every part, innermost first.

    Args:
        core: what is to be rebuilt.
        change: makes the replacement of each.
        made: whether the program's own code may have made the value that `core` is given.
    """
    # A function before a part gives that part whatever it returns, and so it does to all below.
    inner = made or core["type"] in _CALLING
    copy = dict(core)
    for name in _PARTS:
        if name in copy:
            copy[name] = _mapped(copy[name], lambda part: rebuilt(part, change, made=inner))
    if "steps" in core:  # each is given what the one before it has made
        first, *others = core["steps"]
        copy["steps"] = [rebuilt(first, change, made=made), *(rebuilt(part, change, made=True) for part in others)]
    return change(copy, was=core, made=made)


def replacing(core: Core, made: Mapping[str, Any]) -> Core:
    """`made`, to which those refer who referred to `core`."""
    return dict(made, ref=core["ref"]) if "ref" in core else dict(made)


def without_name(core: Core) -> CoreSchema:
    """A core schema to which nothing refers, so that it may stand several times."""
    return cast("CoreSchema", {key: value for key, value in core.items() if key != "ref"})


def validator_of(core: Core, config: CoreConfig) -> SchemaValidator:
    """The validator of a core schema, of all of it: what pydantic has built for a model itself is not used instead."""
    # pydantic has no public name for this: the third parameter is `_use_prebuilt`. `tests/serde/test_core_schemas.py`
    # fails with a version of pydantic in which it is gone, or means something else.
    return SchemaValidator(cast("CoreSchema", core), config, False)  # noqa: FBT003 - it has no other name


def serializer_of(core: Core, config: CoreConfig) -> SchemaSerializer:
    """The serializer of a core schema, of all of it, as for `validator_of`."""
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


def choices_of(union: Core) -> list[Core]:
    """The choices of a union, without their labels."""
    choices: list[Any] = union["choices"]
    return [cast("Core", choice[0] if isinstance(choice, tuple) else choice) for choice in choices]


def innermost(core: Core, definitions: Mapping[str, Core]) -> Core:
    """The part that says what a core schema is of, without what checks, converts or names it."""
    while True:
        if core["type"] == "definition-ref" and core["schema_ref"] in definitions:
            core = definitions[core["schema_ref"]]
            continue
        inner = next((core[name] for name in _WRAPPERS if isinstance(core.get(name), dict)), None)
        # A dataclass has a `schema` too, that of its arguments, and so has a model; each is what it is itself.
        if inner is None or core["type"] in OF_CLASSES:
            return core
        core = inner


def python_view(core: Core, definitions: Mapping[str, Core]) -> Core:
    """The part that says which values of Python a core schema is of; like `innermost`, but not of the JSON."""
    while True:
        kind = core["type"]
        if kind == "definition-ref" and core["schema_ref"] in definitions:
            core = definitions[core["schema_ref"]]
        elif kind == "lax-or-strict":
            core = core["strict_schema"]
        elif kind == "json-or-python":
            core = core["python_schema"]
        elif kind == "chain":
            core = core["steps"][0]
        elif kind == "union" and "custom_error_type" in core:  # a class, or what it is made of
            core = core["choices"][0]
        elif kind not in OF_CLASSES and isinstance(core.get("schema"), dict):
            core = core["schema"]
        else:
            return core


_NAMED_BY_PYDANTIC: Final = frozenset({"none", "str", "int", "float", "bool", "dataclass", "model"})
"""Types that pydantic calls in the location of a fault what they are called in Python."""

_NAMES: Final = {
    **{name.lower(): name for name in ("Decimal", "Fraction", "UUID", "Any", "Url", "None", "Counter")},
    "ordered-dict": "OrderedDict",
}


def fields_of(part: Core) -> dict[str, Core]:
    """The parts of the fields of a class or a TypedDict, by their names."""
    core = part if part["type"] == "typed-dict" else part["schema"]
    # Validators of the program may stand around the fields of a model.
    while "fields" not in core:
        core = core["schema"]
    fields: Any = core["fields"]
    return cast("dict[str, Core]", fields) if isinstance(fields, dict) else {field["name"]: field for field in fields}


def is_labelled(core: Core, definitions: Mapping[str, Core]) -> bool:
    """Whether a member of a union is called by its label in the location of a fault."""
    # Not `python_view`: pydantic makes its own label of the outermost part, such as the function that checks a value.
    return referred(core, definitions)["type"] not in _NAMED_BY_PYDANTIC


def label_of(core: Core, definitions: Mapping[str, Core], above: tuple[Core, ...] = ()) -> str:
    """A type as a message names it, with what it holds; a `Sequence` is named by the list that it is read as."""
    if core["type"] == "json-or-python" and core["json_schema"]["type"] in {"list", "dict"}:
        core = core["json_schema"]
    view = python_view(core, definitions)
    if view["type"] == "literal":
        return f"Literal[{', '.join(map(repr, view['expected']))}]"
    cls = view.get("cls")
    name = str(view.get("cls_repr", _NAMES.get(view["type"], view["type"])))
    name = str(view.get("cls_name", cls.__name__)) if isinstance(cls, type) else name
    if view["type"] in OF_CLASSES or any(view is each for each in above):
        return name
    parts = view["choices"] if view["type"] == "union" else [view.get(each, ()) for each in _HELD]
    inner = [label_of(part, definitions, (*above, view)) for part in _each(parts)]
    if view["type"] == "union":
        return " | ".join(inner)
    return f"{name}[{', '.join(inner)}]" if inner else name


_HELD: Final = ("keys_schema", "values_schema", "items_schema")

_LIBRARIES: Final = frozenset({"pydantic", "pydantic_core", "handrail", "ipaddress", "operator"})
_BOUNDS_OF: Final = "pydantic._internal._validators"


def is_of_the_program(function: object) -> bool:
    """Whether what checks, converts or writes values is a function of the program, and not of pydantic's or Handrail's.

    Args:
        function: what a part of a core schema has as `function`.
    """
    return (_module_of(function) or "pydantic").partition(".")[0] not in _LIBRARIES


def is_bound(function: object) -> bool:
    """Whether it is a function by which pydantic holds a value to a bound."""
    return _module_of(function) == _BOUNDS_OF


def makes_secret(function: object) -> bool:
    """Whether it makes a value of one of pydantic's secrets, other than a text, from what it holds."""
    # `SecretBytes` is a class, and `Secret` calls a function that is nested in one of its methods: both are known by
    # module and name.
    own = [each for each in (*getattr(function, "__mro__", ()), function) if _module_of(each) == "pydantic.types"]
    return any(getattr(each, "__qualname__", "").partition(".")[0] in {"SecretBytes", "Secret"} for each in own)


def _module_of(function: object) -> str | None:
    called: object = cast("Core", function).get("function") if isinstance(function, dict) else function
    return getattr(getattr(called, "func", called), "__module__", None)


def _each(value: object) -> Iterator[Core]:
    if isinstance(value, dict):
        held = cast("dict[object, object]", value)
        # Of a mapping of fields one may be called `type`: that entry is a part, and not a text.
        if isinstance(held.get("type"), str):
            yield cast("Core", held)
        else:
            for inner in held.values():
                yield from _each(inner)
    elif isinstance(value, list | tuple):
        for inner in cast("list[object]", value):
            yield from _each(inner)


def _mapped(value: Any, change: Callable[[Core], Core]) -> Any:  # noqa: ANN401 - a part, or several
    if isinstance(value, dict):
        held = cast("Core", value)
        return change(held) if isinstance(held.get("type"), str) else {k: _mapped(v, change) for k, v in held.items()}
    if not isinstance(value, list | tuple):
        return value
    several = [_mapped(inner, change) for inner in cast("list[Any]", value)]
    return several if isinstance(value, list) else tuple(several)  # a tuple is a choice of a union, with its label
