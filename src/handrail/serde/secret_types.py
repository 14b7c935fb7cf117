"""Which places of a type are secret: the one predicate, `is_secret`.

| a place is secret | by |
|---|---|
| if its type is or contains `SecretStr`, `SecretBytes` or another `Secret` of pydantic's | the type |
| if its field is declared with `field(metadata={"secret": True})` | a mark |
| if its type is `Annotated[T, Field(json_schema_extra={"writeOnly": True})]`, or says `"format": "password"` | a mark |
| if `handrail.redaction` lists the name of its field | the operator |

pydantic writes the first kind as asterisks. The others are written as `MASK`. What is shown, stored and returned has
the mask there, and so has what is read of it, whatever the type of the place: an `int` that is marked is read as
asterisks. Only null stays null. Parameters of a tool are read as they are.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import Field, is_dataclass
from typing import Annotated, Any, Final, NamedTuple, Protocol, TypeGuard, cast, get_args, get_origin

from pydantic_core import core_schema

from handrail.redaction import MASK, current_redaction
from handrail.serde.adapter import Adapter, agreeing, core_config
from handrail.serde.annotations import (
    is_model,
    is_record,
    is_union,
    options_around,
    quoted_alias,
    strip_annotated,
    unquoted,
)
from handrail.serde.bounded_cache import BoundedCache
from handrail.serde.core_schemas import Core, is_bound, parts_of, rebuilt, serializer_of, validator_of
from handrail.serde.json_schema import is_object
from handrail.serde.supported_types import AcceptedType, record_types

_SECRETS = frozenset({"SecretStr", "SecretBytes", "Secret"})
_MODULE = "pydantic.types"  # not imported, because it takes long; a program with a secret has imported it
_MARKED: Final = object()
"""Stands for the type of a field that is marked as secret."""
_UNKNOWN: Final = object()
"""Stands for a type alias whose text cannot be resolved: it may hold a secret, so it counts as one."""


def is_secret(kind: object) -> bool:
    """Whether the values of a place must not be shown.

    Args:
        kind: the annotation of the place, or the dataclass field. A secret in a field of a nested dataclass makes that
            field secret, not this place.

    Raises:
        TypeError: the annotation of the field is text, as below `from __future__ import annotations`, so that its type
            is not known. Give the annotation that `typing.get_type_hints` has found, or use `masking_of` on the class.
    """
    if isinstance(kind, Field):
        field = cast("Any", kind)
        if field.metadata.get("secret") or current_redaction().hides_name(field.name):
            return True
        if isinstance(field.type, str):
            raise TypeError(f"the annotation of the field {field.name} is text: {field.type}; resolve it first")
        return is_secret(field.type)
    return kind is _MARKED or _is_secret_type(kind, ())


def is_secret_schema(node: Mapping[str, Any]) -> bool:
    """Whether a JSON Schema marks a place as secret, as pydantic's does for its secrets."""
    return node.get("writeOnly") is True or node.get("format") == "password"


class SecretValue(Protocol):
    """One of pydantic's secrets: an object that holds the secret and does not show it."""

    def get_secret_value(self) -> object:
        """What it holds."""
        ...


def is_secret_value(value: object) -> TypeGuard[SecretValue]:
    """Whether a value is one of pydantic's secrets."""
    cls: type[Any] = type(value)
    return _is_secret_class(cls)


def marked_fields(kind: object) -> frozenset[str]:
    """The fields of a dataclass, model or TypedDict that are secret, and of which pydantic does not know it.

    Raises:
        SchemaError: an annotation cannot be resolved.
    """
    return frozenset(name for name, place in fields_of(kind).items() if place is _MARKED)


def fields_of(kind: object) -> Mapping[str, object]:
    """The places of the fields of a dataclass, model or TypedDict.

    Raises:
        SchemaError: an annotation cannot be resolved.
    """
    return _fields.get(kind, lambda: _made_fields(kind))


class TypePlaces:
    """Places of types: annotations, and a mark for a field that is marked as secret."""

    __slots__ = ()

    def is_secret(self, place: object) -> bool:
        """Whether the values of a place must not be shown."""
        return is_secret(place)

    def reaches(self, place: object) -> bool:
        """Whether the place is secret, or one below it."""
        return _reaches.get((place,), lambda: _Reach(found=_type_reaches(place, []))).found

    def below(self, place: object, name: str | None) -> Iterator[object]:
        """The places that an item of that name may have; `None` is for the items of an array."""
        for option in _options(place):
            cls = _class_of(option)
            if cls is None:
                continue
            if is_record(cls):
                if name is not None and name in (found := fields_of(option)):
                    yield found[name]
            # An object is read by mappings, and an array by the other collections.
            elif issubclass(cls, Mapping) == (name is not None):
                yield from _arguments(option)


def _is_secret_type(kind: object, aliases: tuple[object, ...], *, marks_only: bool = False) -> bool:
    # Most types are of these, and all below takes longer.
    if _is_never_secret(kind):
        return False
    quoted = quoted_alias(kind)
    if quoted is not None:
        if quoted in aliases:  # it holds itself
            return False
        aliases = (*aliases, quoted)
    if _is_marked(kind):
        return True
    return any(_holds_secret(option, aliases, marks_only=marks_only) for option in _options(kind))


class _Reach(NamedTuple):
    """Whether secrets are below a place; a tuple, because `BoundedCache` takes `None` for a value that is missing."""

    found: bool


_NEVER_SECRET: Final = (str, int, bool, float, type(None))

_reaches: Final[BoundedCache[_Reach]] = BoundedCache()
_fields: Final[BoundedCache[Mapping[str, object]]] = BoundedCache()


def _made_fields(kind: object) -> Mapping[str, object]:
    cls = cast("type[Any]", get_origin(kind) or kind)
    hints = record_types(kind)
    hides = current_redaction().hides_name
    marked = {name for name, hint in hints.items() if hides(name) or _is_secret_type(hint, (), marks_only=True)}
    if is_dataclass(cls):
        marked.update(field.name for field in dataclasses.fields(cls) if field.metadata.get("secret"))
    if is_model(cls):
        marked.update(name for name, field in cls.model_fields.items() if _is_mark(field))
    return {name: _MARKED if name in marked else hint for name, hint in hints.items()}


def _is_marked(hint: object) -> bool:
    """Whether `Annotated` around a type, or around a member of a union, marks it."""
    options, plain = options_around(hint)
    return any(map(_is_mark, options)) or (is_union(plain) and any(map(_is_marked, get_args(plain))))


def _is_mark(option: object) -> bool:
    extra: object = getattr(option, "json_schema_extra", None)
    return is_object(extra) and is_secret_schema(extra)


def _type_reaches(place: object, seen: list[object]) -> bool:
    if _is_never_secret(place):
        return False
    # A list, because an annotation may hold options that have no hash.
    if place in seen:
        return False
    seen.append(place)
    if is_secret(place):
        return True
    inner = (
        child
        for option in _options(place)
        if (cls := _class_of(option)) is not None
        for child in (fields_of(option).values() if is_record(cls) else _arguments(option))
    )
    return any(_type_reaches(child, seen) for child in inner)


def _is_never_secret(place: object) -> bool:
    """Whether a place is of scalars without secrets, or of unions and collections of such scalars."""
    origin = get_origin(place)
    if origin is None:
        return any(place is kind for kind in _NEVER_SECRET)
    if origin is Annotated:
        kind, *options = get_args(place)
        return _is_never_secret(kind) and not any(map(_is_mark, options))
    return (is_union(place) or origin in {list, dict}) and all(map(_is_never_secret, get_args(place)))


def _options(kind: object) -> Iterator[object]:
    """The types that a union may be, without what only decorates or names them; the type itself if it is not one."""
    plain = strip_annotated(kind)
    if isinstance(plain, str):
        try:
            plain = strip_annotated(unquoted(quoted_alias(kind)))
        except Exception:  # noqa: BLE001 - a name of the text is not in the module of the alias
            plain = _UNKNOWN
    if is_union(plain):
        for option in get_args(plain):
            yield from _options(option)
    else:
        yield plain


def _holds_secret(kind: object, aliases: tuple[object, ...], *, marks_only: bool) -> bool:
    """Whether a type that is not a union is a secret, or a collection of secrets."""
    if kind is _UNKNOWN:
        return not marks_only
    cls = _class_of(kind)
    # A dataclass or model is masked field by field, so that one secret in it does not hide the rest.
    if cls is None or is_record(cls):
        return False
    if not marks_only and _is_secret_class(cls):
        return True
    return any(_is_secret_type(argument, aliases, marks_only=marks_only) for argument in _arguments(kind))


def _arguments(kind: object) -> tuple[object, ...]:
    """The types that a collection holds."""
    cls = _class_of(kind)
    return get_args(kind) if cls is not None and issubclass(cls, Collection) else ()


def _class_of(kind: object) -> type[Any] | None:
    cls = get_origin(kind) or kind
    return cls if isinstance(cls, type) else None


def _is_secret_class(cls: type[Any]) -> bool:
    # A subclass that the program defines is a secret too.
    return any(base.__module__ == _MODULE and base.__name__ in _SECRETS for base in cls.__mro__)


_WITH_FIELDS: Final = ("dataclass", "model", "typed-dict")


def masking_adapter(adapter: Adapter, found: Iterable[AcceptedType]) -> Adapter:
    """The adapter of a type that writes the mask for what is marked, and reads it back.

    Args:
        adapter: that of the type.
        found: the classes in the type.

    Returns:
        The same, if nothing is marked, and there are no secrets of pydantic's that are not text.
    """
    marked = {one.cls: fields for one in found if (fields := marked_fields(one.cls))}
    if not marked and "function-after" not in adapter.kinds:
        return adapter

    def change(part: Core, *, was: Core, made: bool) -> Core:
        del made
        if was["type"] == "function-after" and _makes_secret(was["function"]["function"]):
            return {**part, "schema": _mask_or(part["schema"])}
        if was["type"] == "function-after" and _bounds_secret(was):
            # The mask may be shorter than the least length that the secret is held to.
            return {"type": "union", "choices": [_mask_through(part["schema"]), part], "mode": "left_to_right"}
        names = marked.get(was.get("cls", object)) if was["type"] in _WITH_FIELDS else None
        return part if names is None else _with_masked(part, names)

    core, config = rebuilt(adapter.core, change), core_config()
    if core == adapter.core:
        return adapter
    agreed = agreeing(core, config)
    return adapter._replace(core=core, validator=validator_of(agreed, config), serializer=serializer_of(core, config))


def _with_masked(part: Core, names: Collection[str]) -> Core:
    """A class, or what is inside of it around its fields, with the fields of these names masked."""
    if "fields" not in part or part["type"] in {"dataclass", "model"}:
        return {**part, "schema": _with_masked(part["schema"], names)}
    fields: Any = part["fields"]
    if isinstance(fields, Mapping):
        by_name = cast("Mapping[str, Core]", fields)
        return {**part, "fields": {name: _masked(each, name in names) for name, each in by_name.items()}}
    return {**part, "fields": [_masked(each, each["name"] in names) for each in cast("list[Core]", fields)]}


def _masked(field: Core, is_marked: bool) -> Core:  # noqa: FBT001 - called twice, beside
    if not is_marked:
        return field
    held = field["schema"]
    # A default is that of the field, so it stays outside.
    if held["type"] == "default":
        return {**field, "schema": {**held, "schema": _or_mask(held["schema"])}}
    return {**field, "schema": _or_mask(held)}


def _or_mask(held: Core) -> Core:
    written = core_schema.plain_serializer_function_ser_schema(_mask_for, when_used="unless-none")
    return cast("Core", core_schema.no_info_wrap_validator_function(_read, cast("Any", held), serialization=written))


def _mask_for(value: object) -> str:
    del value
    return MASK


def _makes_secret(function: object) -> bool:
    """Whether it makes a value of one of pydantic's secrets, other than a text, from what it holds."""
    # `SecretBytes` is a class, and `Secret` calls a function that is nested in one of its methods: both are known by
    # module and name.
    own = [each for each in _with_bases(function) if getattr(each, "__module__", None) == _MODULE]
    names = {getattr(each, "__qualname__", "").partition(".")[0] for each in own}
    return bool(names & {"SecretBytes", "Secret"})


def _with_bases(function: object) -> list[object]:
    return [*getattr(function, "__mro__", ()), function]


def _bounds_secret(core: Core) -> bool:
    """Whether it holds a secret to a bound, such as a length, which the mask may not keep to."""
    while core["type"] == "function-after" and is_bound(core["function"]):
        core = core["schema"]
    if core["type"] != "lax-or-strict":
        return False
    parts = [part for part in parts_of(core["strict_schema"]) if part["type"] == "function-after"]
    return any(_is_secret_class(made) for part in parts if isinstance(made := part["function"]["function"], type))


def _mask_through(held: Core) -> core_schema.CoreSchema:
    """Reads the mask as what is held reads it."""
    return core_schema.chain_schema([core_schema.literal_schema([MASK]), cast("Any", held)])


def _mask_or(held: Core) -> core_schema.CoreSchema:
    """Reads the mask too, because nothing else is stored of a secret."""
    made: object = MASK.encode() if held["type"] == "bytes" else MASK
    mask = core_schema.no_info_after_validator_function(lambda _: made, core_schema.literal_schema([MASK]))
    return core_schema.union_schema([mask, cast("Any", held)], mode="left_to_right")


def _read(value: object, read: Callable[[Any], object]) -> object:
    return MASK if value == MASK else read(value)
