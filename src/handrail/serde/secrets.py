"""Which parts of a value are secret, and the JSON of a value without them, for people to read.

A place is secret if its type is or contains `SecretStr`, `SecretBytes` or another `Secret` of pydantic's, or if its
field is declared with `field(metadata={"secret": True})`, or has a name that `handrail.redaction` lists. In a JSON
Schema, where there are no types, `"writeOnly"` and the format `password` mark it; pydantic writes both for `SecretStr`
and `SecretBytes`. `is_secret` is the one predicate.

A secret place is replaced by `MASK` whole, a list of secrets too; only null stays null. What is beside secrets and
does not fit the type is masked as well: a field of another name may be a secret whose name was misspelled.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import Field, is_dataclass
from typing import Annotated, Any, Final, NamedTuple, Protocol, TypeGuard, cast, get_args, get_origin

from handrail.errors import SchemaError
from handrail.redaction import MASK, current_redaction
from handrail.serde.annotations import is_union, quoted_alias, strip_annotated, unquoted
from handrail.serde.bounded_cache import BoundedCache
from handrail.serde.json_schema import is_array, is_object
from handrail.serde.json_values import json_of
from handrail.serde.record_types import is_model, is_record
from handrail.serde.supported_types import accept_type, record_types
from handrail.serde.typed import codec, dump

_SECRETS = frozenset({"SecretStr", "SecretBytes", "Secret"})
_MODULE = "pydantic.types"  # not imported, because it takes long; a program with a secret has imported it
_MARKED: Final = object()
"""Stands for the type of a field that its metadata marks as secret."""
_UNKNOWN: Final = object()
"""Stands for a type alias whose text cannot be resolved: it may hold a secret, so it counts as one."""


class MaskedJson(NamedTuple):
    """JSON without secrets.

    Attributes:
        data: the JSON in UTF-8.
        masked: whether anything in it has been replaced by `MASK`.
    """

    data: bytes
    masked: bool


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


def _is_secret_type(kind: object, aliases: tuple[object, ...]) -> bool:
    quoted = quoted_alias(kind)
    if quoted is not None:
        if quoted in aliases:  # it holds itself
            return False
        aliases = (*aliases, quoted)
    return any(_holds_secret(option, aliases) for option in _options(kind))


class SecretValue(Protocol):
    """One of pydantic's secrets: an object that holds the secret and does not show it."""

    def get_secret_value(self) -> object:
        """What it holds."""
        ...


def is_secret_value(value: object) -> TypeGuard[SecretValue]:
    """Whether a value is one of pydantic's secrets."""
    cls: type[Any] = type(value)
    return _is_secret_class(cls)


class Masking:
    """Shows the values of one type without their secrets; immutable, and safe to use from any thread.

    Attributes:
        hides: whether the type has secrets. If not, nothing is ever masked.
        json: the JSON of a value that was parsed as the type. The value is not checked once more, so that this costs
            next to nothing for a type without secrets; it raises what a serializer raises for a value that has been
            changed since.
    """

    __slots__ = ("_places", "_root", "hides", "json")

    def __init__(self, root: object, places: _Places, to_json: Callable[[Any], bytes]) -> None:
        """Look at a type once; `masking_of` and `schema_masking` do."""
        self._root = root
        self._places = places
        self.hides: bool = places.reaches(root)
        self.json: Callable[[Any], bytes] = to_json
        if self.hides:
            self.json = lambda parsed: self.masked(to_json(parsed)).data

    def mask(self, plain: object) -> object:
        """Decoded JSON without the secrets that it holds if it is of the type, and without what does not fit."""
        return _Walk(self._places).masked(plain, (self._root,)) if self.hides else plain

    def masked(self, data: bytes) -> MaskedJson:
        """The same for JSON that is not decoded."""
        if not self.hides:
            return MaskedJson(data, masked=False)
        walk = _Walk(self._places)
        plain = walk.masked(json.loads(data), (self._root,))
        return MaskedJson(_encode(plain).encode(), masked=walk.has_masked)


def masking_of(kind: object) -> Masking:
    """How values of a type are shown. It is made once for a type; one that is not a dataclass has no secrets."""
    return _maskings.get(kind, lambda: _masking(kind))


def schema_masking(schema: Mapping[str, Any]) -> Masking:
    """How decoded JSON of a JSON Schema is shown; for parameters of which there is nothing but the schema."""
    return Masking(schema, _Schemas(schema), json_of)


def masked_json(value: object) -> MaskedJson:
    """The JSON of any value without its secrets.

    Raises:
        DumpError: a part of it is not of its declared type, not finite, not Unicode, endless, or has no form in JSON.
        SchemaError: it is of a dataclass that Handrail does not take.
    """
    return masking_of(type(value)).masked(_encode(dump(value)).encode())


_maskings: Final[BoundedCache[Masking]] = BoundedCache()
_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def _masking(kind: object) -> Masking:
    if not is_record(get_origin(kind) or kind):
        return Masking(None, _Types(), json_of)
    try:
        found = accept_type(kind)
    except SchemaError:  # it is not taken as parameters, so nothing is parsed as it
        return Masking(None, _Types(), json_of)
    parsing = codec(cast("type[Any]", kind))
    # A `__post_init__` may put a value of another type into a field. Without the checks of `dump_json` it would be
    # written by a type that it does not have.
    changes_itself = any(hasattr(one.cls, "__post_init__") or is_model(one.cls) for one in found)
    return Masking(kind, _Types(), parsing.dump_json if changes_itself else parsing.parsed_json)


class _Places(Protocol):
    """The places of a type or schema: where secrets are, and what lies below a place."""

    def is_secret(self, place: Any, /) -> bool:  # noqa: ANN401 - an annotation, or a node of a schema
        """Whether the values of a place must not be shown."""
        ...

    def reaches(self, place: Any, /) -> bool:  # noqa: ANN401 - as above
        """Whether the place is secret, or one below it."""
        ...

    def below(self, place: Any, name: str | None, /) -> Iterable[object]:  # noqa: ANN401 - as above
        """The places that an item of that name may have; `None` is for the items of an array."""
        ...


class _Walk:
    """One walk through decoded JSON, which notes whether it has masked anything."""

    __slots__ = ("_places", "has_masked")

    def __init__(self, places: _Places) -> None:
        self._places = places
        self.has_masked = False

    def masked(self, plain: object, places: Sequence[object]) -> object:
        """The value without what is secret at any of the places that it may have."""
        if plain is None:
            return None
        # Without a place the name is not declared, and what it holds may be a secret under a misspelled name.
        if places and not any(map(self._places.is_secret, places)):
            if not any(map(self._places.reaches, places)):
                # Nothing below is secret, so that it is not copied, and an undeclared name in it stays.
                return plain
            if is_object(plain):
                return {name: self.masked(item, self._below(places, name)) for name, item in plain.items()}
            if is_array(plain):
                inner = self._below(places, None)
                return [self.masked(item, inner) for item in plain]
        self.has_masked = True
        return MASK

    def _below(self, places: Sequence[object], name: str | None) -> tuple[object, ...]:
        return tuple(inner for place in places for inner in self._places.below(place, name))


# --------------------------------------------------------------------------------------------------------------- types


class _Types:
    """Places of types: annotations, and `_MARKED` for a field that is marked as secret."""

    __slots__ = ()

    def is_secret(self, place: object) -> bool:
        return is_secret(place)

    def reaches(self, place: object) -> bool:
        return _reaches.get((place,), lambda: _Reach(found=_type_reaches(place, []))).found

    def below(self, place: object, name: str | None) -> Iterator[object]:
        for option in _options(place):
            cls = _class_of(option)
            if cls is None:
                continue
            if is_record(cls):
                if name is not None and name in (found := _fields_of(option)):
                    yield found[name]
            # An object is read by mappings, and an array by the other collections.
            elif issubclass(cls, Mapping) == (name is not None):
                yield from _arguments(option)


class _Reach(NamedTuple):
    """Whether secrets are below a place; a tuple, because `BoundedCache` takes `None` for a value that is missing."""

    found: bool


_NEVER_SECRET: Final = (str, int, bool, float, type(None))

_reaches: Final[BoundedCache[_Reach]] = BoundedCache()
_fields: Final[BoundedCache[Mapping[str, object]]] = BoundedCache()


def _fields_of(kind: object) -> Mapping[str, object]:
    """The places of the fields of a dataclass, model or TypedDict."""
    return _fields.get(kind, lambda: _made_fields(kind))


def _made_fields(kind: object) -> Mapping[str, object]:
    cls = cast("type[Any]", get_origin(kind) or kind)
    hints = record_types(kind)
    marked = {name for name in hints if current_redaction().hides_name(name)}
    if is_dataclass(cls):
        marked.update(field.name for field in dataclasses.fields(cls) if field.metadata.get("secret"))
    return {name: _MARKED if name in marked else hint for name, hint in hints.items()}


def _type_reaches(place: object, seen: list[object]) -> bool:
    # Most places are of these, and all below takes longer.
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
        for child in (_fields_of(option).values() if is_record(cls) else _arguments(option))
    )
    return any(_type_reaches(child, seen) for child in inner)


def _is_never_secret(place: object) -> bool:
    """Whether a place is of scalars without secrets, or of unions and collections of such scalars."""
    origin = get_origin(place)
    if origin is None:
        return any(place is kind for kind in _NEVER_SECRET)
    if origin is Annotated:
        return _is_never_secret(get_args(place)[0])
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


def _holds_secret(kind: object, aliases: tuple[object, ...]) -> bool:
    """Whether a type that is not a union is a secret, or a collection of secrets."""
    if kind is _UNKNOWN:
        return True
    cls = _class_of(kind)
    # A dataclass or model is masked field by field, so that one secret in it does not hide the rest.
    if cls is None or is_record(cls):
        return False
    return _is_secret_class(cls) or any(_is_secret_type(argument, aliases) for argument in _arguments(kind))


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


# ------------------------------------------------------------------------------------------------------------- schemas


_SECRET_SCHEMA: Final = {"writeOnly": True}


class _Schemas:
    """Places of a JSON Schema: its nodes. A reference that leads nowhere in the schema is a place without secrets."""

    __slots__ = ("_root",)

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root

    def is_secret(self, place: object) -> bool:
        return self._is_secret(place, set())

    def reaches(self, place: object) -> bool:
        return self._reaches(place, set())

    def below(self, place: object, name: str | None) -> Iterator[object]:
        for node in self._options(place, set()):
            yield from _items(node) if name is None else _named(node, name)

    def _is_secret(self, place: object, seen: set[int]) -> bool:
        for node in self._options(place, seen):
            if node.get("writeOnly") is True or node.get("format") == "password":
                return True
            # Beside declared properties the others are fields of their own; without them the object is a collection,
            # and one secret in it makes all of it secret.
            inner = _items(node) if "properties" in node else (*_items(node), *_others(node))
            if any(self._is_secret(child, seen) for child in inner):
                return True
        return False

    def _reaches(self, place: object, seen: set[int]) -> bool:
        return self.is_secret(place) or any(
            self._reaches(child, seen)
            for node in self._options(place, seen)
            for child in (*_properties(node).values(), *_others(node), *_items(node))
        )

    def _options(self, place: object, seen: set[int]) -> Iterator[Mapping[str, Any]]:
        """The nodes that a place refers to or is made of, each once."""
        if not is_object(place) or id(place) in seen:
            return
        # By identity: the nodes are parts of one schema, which is there during the whole walk, and they have no hash.
        seen.add(id(place))
        yield place
        if isinstance(reference := place.get("$ref"), str):
            yield from self._options(self._target(reference), seen)
        for word in ("anyOf", "oneOf", "allOf"):
            for option in _list(place.get(word)):
                yield from self._options(option, seen)

    def _target(self, reference: str) -> object:
        """What a pointer of the form `#/$defs/Name` leads to; `None` if it leads nowhere."""
        if not reference.startswith("#"):
            return None
        target: object = self._root
        for part in reference.removeprefix("#").split("/")[1:]:
            # In this order (RFC 6901, section 4): the other way round `~01` would become a slash.
            target = target.get(part.replace("~1", "/").replace("~0", "~")) if is_object(target) else None
        return target


def _properties(node: Mapping[str, Any]) -> Mapping[str, object]:
    found: object = node.get("properties")
    if not is_object(found):
        return {}
    hides = current_redaction().hides_name
    return {name: _SECRET_SCHEMA if hides(name) else schema for name, schema in found.items()}


def _others(node: Mapping[str, Any]) -> tuple[object, ...]:
    """The schemas of properties that are not named."""
    patterns: object = node.get("patternProperties")
    return (*(patterns.values() if is_object(patterns) else ()), node.get("additionalProperties"))


def _named(node: Mapping[str, Any], name: str) -> tuple[object, ...]:
    """The schemas that a property may have; none if its name is not declared, and not any name is.

    Patterns of names are not matched: they are untrusted regular expressions. Each of them may apply.
    """
    named = _properties(node)
    if name in named:
        return tuple(schema for schema in (named[name],) if is_object(schema))
    *patterns, others = _others(node)
    return (*patterns, others) if is_object(others) else ()


def _items(node: Mapping[str, Any]) -> tuple[object, ...]:
    found = (node.get("items"), *_list(node.get("prefixItems")))
    return tuple(schema for schema in found if is_object(schema))


def _list(value: object) -> Sequence[object]:
    return value if is_array(value) else ()
