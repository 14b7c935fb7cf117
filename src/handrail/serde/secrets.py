"""Which parts of a value are secret, and the JSON of a value without them, for people to read.

`handrail.serde.secret_types` says which places of a type are secret. In a JSON Schema, where there are no types,
`"writeOnly"` and the format `password` mark them; pydantic writes both for `SecretStr` and `SecretBytes`.

A secret place is replaced by `MASK` whole, a list of secrets too; only null stays null. What is beside secrets and
does not fit the type is masked as well: a field of another name may be a secret whose name was misspelled.

A handler has values, not JSON: what it raises shows `repr(b"...")`, `datetime.date(1947, 11, 8)` or `ident.hex`. So the
texts of a secret are looked for beside its JSON:

| a secret is | its texts |
|---|---|
| text | it |
| bytes | in UTF-8 if they are that, as `repr` has them, in hexadecimal digits, in both alphabets of base64 |
| a member of an enum | `str`, `repr`, and those of its value |
| anything else | `str`, `repr`, `hex` of a UUID, `isoformat` of a moment |

Of a secret that is shorter than what is looked for, no longer form is.
"""

from __future__ import annotations

import base64
import json
import math
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, is_dataclass
from datetime import datetime
from enum import Enum
from typing import Any, Final, NamedTuple, Protocol, cast, get_origin
from uuid import UUID

from pydantic import BaseModel
from pydantic_core import from_json

from handrail.errors import SchemaError
from handrail.redaction import MASK, SHORTEST_WORD, current_redaction
from handrail.serde.annotations import field_values, is_model, is_record
from handrail.serde.bounded_cache import BoundedCache
from handrail.serde.formatting import format_path
from handrail.serde.json_schema import is_array, is_object
from handrail.serde.json_values import escape_surrogates, json_of, parts_of_value
from handrail.serde.location import Path
from handrail.serde.secret_types import TypePlaces, is_secret_schema, is_secret_value, marked_fields
from handrail.serde.supported_types import accept_type
from handrail.serde.typed import codec, dump


class SecretPlaces(Protocol):
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


def secret_texts(value: object, here: Sequence[object], places: SecretPlaces) -> Iterator[str]:
    """The texts of the secrets in a value, as a program shows them.

    Args:
        value: a value of the type, or decoded JSON.
        here: the places that it may have; without any its name is not declared, and it counts as secret.
        places: where secrets are.

    Raises:
        RecursionError: it is nested too deeply, or in a cycle.
    """
    if not here or is_secret_value(value) or any(map(places.is_secret, here)):
        yield from _texts_in(value)
    elif any(map(places.reaches, here)):
        if not _is_composed(value):  # it may be the member of a union that has no secrets, and is masked all the same
            yield from _texts_in(value)
            return
        for name, item in _parts(value):
            inner = tuple(below for place in here for below in places.below(place, name))
            yield from secret_texts(item, inner, places)


def _texts_in(value: object) -> Iterator[str]:
    """The texts of a secret, and of all that it holds."""
    if is_secret_value(value):
        yield from _texts_in(value.get_secret_value())
    elif isinstance(value, bytes | bytearray | memoryview):
        yield from _texts_of_bytes(bytes(cast("bytes", value)))
    elif isinstance(value, Enum):
        yield from _texts_in(value.value)
        yield from _shown(value)
    elif isinstance(value, str):
        yield str.__str__(value)  # a subclass may show another text
    elif _is_composed(value):
        for _name, item in _parts(value):
            yield from _texts_in(item)
    elif value is not None and not isinstance(value, bool):
        yield from _shown(value)


def _texts_of_bytes(value: bytes) -> Iterator[str]:
    if len(value) < SHORTEST_WORD:
        return
    with suppress(UnicodeDecodeError):
        yield value.decode()
    yield repr(value)[2:-1]
    yield value.hex()
    yield value.hex().upper()
    for encoded in (base64.b64encode(value).decode(), base64.urlsafe_b64encode(value).decode()):
        yield encoded
        yield encoded.rstrip("=")


def _shown(value: object) -> Iterator[str]:
    said = _said(str, value)
    if len(said) < SHORTEST_WORD:
        return
    yield said
    yield _said(repr, value)
    if isinstance(value, UUID):
        yield value.hex
    elif isinstance(value, datetime):
        yield value.isoformat()


def _said(show: Callable[[object], str], value: object) -> str:
    try:
        return show(value)
    except Exception:  # noqa: BLE001 - code of the program; what cannot be shown is in no text
        return ""


def _is_composed(value: object) -> bool:
    if isinstance(value, str | bytes | bytearray | memoryview):
        return False
    return isinstance(value, BaseModel | Collection) or is_dataclass(value)


def _parts(value: object) -> Iterator[tuple[str | None, object]]:
    """The items of a record or a collection, with their names; those of an array have none."""
    if isinstance(value, Mapping):
        yield from ((str(name), item) for name, item in cast("Mapping[object, object]", value).items())
    elif isinstance(value, BaseModel):
        yield from field_values(value)
    elif is_dataclass(value) and not isinstance(value, type):
        yield from ((field.name, getattr(value, field.name)) for field in fields(value) if hasattr(value, field.name))
    elif isinstance(value, Collection):
        yield from ((None, item) for item in cast("Collection[object]", value))


class MaskedJson(NamedTuple):
    """JSON without secrets.

    Attributes:
        data: the JSON in UTF-8.
        masked: whether anything in it has been replaced by `MASK`.
    """

    data: bytes
    masked: bool


class Masking:
    """Shows the values of one type without their secrets; immutable, and safe to use from any thread.

    Attributes:
        hides: whether the type has secrets. If not, nothing is ever masked.
        hides_plain: whether some are values of Python that show themselves, as a marked `str` does; one of pydantic's
            secrets does not.
        json: the JSON of a value that was parsed as the type. The value is not checked once more, so that this costs
            next to nothing for a type without secrets; it raises what a serializer raises for a value that has been
            changed since.
    """

    __slots__ = ("_places", "_root", "hides", "hides_plain", "json")

    def __init__(
        self, root: object, places: SecretPlaces, to_json: Callable[[Any], bytes], *, plain: bool = True
    ) -> None:
        """Look at a type once; `masking_of` and `schema_masking` do."""
        self._root = root
        self._places = places
        self.hides: bool = places.reaches(root)
        self.hides_plain: bool = self.hides and plain
        self.json: Callable[[Any], bytes] = to_json
        if self.hides:
            self.json = lambda parsed: self.masked(to_json(parsed)).data

    def mask(self, plain: object) -> object:
        """Decoded JSON without the secrets that it holds if it is of the type, and without what does not fit."""
        return _Walk(self._places).masked(plain, (self._root,)) if self.hides else plain

    def masks_in(self, plain: object) -> tuple[str, ...]:
        """The places of secrets that hold the mask itself, as paths: `$.password`.

        Args:
            plain: decoded JSON, in which a secret may also be one of pydantic's.
        """
        found = _masks(self._places, plain, (self._root,), ()) if self.hides else ()
        return tuple(map(format_path, found))

    def secrets_in(self, plain: object) -> Iterator[str]:
        """The texts and numbers that `mask` replaces.

        Args:
            plain: decoded JSON.
        """
        return _replaced(plain, self.mask(plain))

    def texts_in(self, value: object) -> Iterator[str]:
        """The texts that a program may show of the secrets in a value: `str`, `repr` and more.

        Args:
            value: a value of the type, or decoded JSON.

        Raises:
            RecursionError: it is nested too deeply, or in a cycle.
        """
        return secret_texts(value, (self._root,), self._places)

    def masked(self, data: bytes) -> MaskedJson:
        """The same for JSON that is not decoded."""
        if not self.hides:
            return MaskedJson(data, masked=False)
        walk = _Walk(self._places)
        plain = walk.masked(json.loads(data), (self._root,))
        return MaskedJson(_encode(plain).encode(), masked=walk.has_masked)


def masking_of(kind: object) -> Masking:
    """How values of a type are shown. It is made once for a type."""
    return _maskings.get(kind, lambda: _masking(kind))


def result_masking(kind: object) -> Masking:
    """How values of a type of results are shown; JSON need not tell the members of its unions apart."""
    return _result_maskings.get(kind, lambda: _masking(kind, of_results=True))


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


class PartialJson(NamedTuple):
    """The JSON of what JSON can say of a value, without secrets.

    Attributes:
        text: the JSON, with null in the place of the rest.
        gaps: where that is, and why: `$.mean is NaN`.
        is_escaped: whether it has the escapes of lone surrogates.
    """

    text: str
    gaps: tuple[str, ...]
    is_escaped: bool


def partial_json(value: object) -> PartialJson:
    """The JSON of as much of any value as JSON can say, a hundred levels deep and ten thousand parts long."""
    walk = _Sayable()
    try:
        text = _encode(walk.plain(value, (), ()))
    except Exception:  # noqa: BLE001 - code of the program, such as a property
        return PartialJson("null", (f"$ is of type {type(value).__name__}",), is_escaped=False)
    return PartialJson(text, tuple(walk.gaps), walk.is_escaped)


class _Sayable:
    """One walk through a value, which notes where JSON cannot say it."""

    __slots__ = ("_parts", "gaps", "is_escaped")

    def __init__(self) -> None:
        self._parts = 0
        self.gaps: list[str] = []
        self.is_escaped = False

    def plain(self, value: object, path: Path, above: tuple[int, ...]) -> object:
        """The value as decoded JSON; `above` has the ids of what holds it."""
        self._parts += 1
        inner = (*above, id(value))
        if reason := self._reason(value, above):
            self.gaps.append(f"{format_path(path)} {reason}")
            return None
        if not isinstance(value, _COMPOSED) and not is_record(type(value)):
            return self._escaped(value) if isinstance(value, str) else from_json(json_of(value))
        members = parts_of_value(cast("Any", value))
        parts = [(name, self.plain(part, (*path, name), inner)) for name, part in members]
        if isinstance(value, _LISTS):
            return [part for _, part in parts]
        named = {self._escaped(str(name)): part for name, part in parts}
        return named if isinstance(value, Mapping) else result_masking(type(value)).mask(named)

    def _reason(self, value: object, above: tuple[int, ...]) -> str:
        """Why JSON cannot say a value, or it is not shown; empty if it is."""
        kind = type(value)
        if isinstance(value, float) and not math.isfinite(value):
            return f"is {json.dumps(value)}"
        if id(value) in above:
            return "contains itself"
        if len(above) > _MOST_LEVELS or self._parts > _MOST_PARTS:
            return "is left out, because there is too much"
        try:
            if is_record(type(value)):
                accept_type(type(value))  # of any other class it is not known what is secret
            elif not isinstance(value, (str, *_COMPOSED)):
                from_json(json_of(value), allow_inf_nan=False)
        except Exception:  # noqa: BLE001 - code of the program may run
            return f"is of type {kind.__name__}"
        return ""

    def _escaped(self, text: str) -> str:
        escaped = escape_surrogates(text)
        self.is_escaped = self.is_escaped or escaped is not text
        return escaped


_LISTS: Final = (list, tuple, set, frozenset, deque)
_COMPOSED: Final = (Mapping, *_LISTS)
_MOST_LEVELS: Final = 100
_MOST_PARTS: Final = 10_000
_maskings: Final[BoundedCache[Masking]] = BoundedCache()
_result_maskings: Final[BoundedCache[Masking]] = BoundedCache()
_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def _masking(kind: object, *, of_results: bool = False) -> Masking:
    try:
        found = accept_type(kind)
    except SchemaError:  # it is not taken, so nothing is of it
        return Masking(None, TypePlaces(), json_of)
    plain = any(marked_fields(one.cls) for one in found)
    # The codec of parameters refuses results whose unions JSON does not tell apart.
    if of_results or not is_record(get_origin(kind) or kind):
        return Masking(kind, TypePlaces(), json_of, plain=plain)
    parsing = codec(cast("type[Any]", kind))
    # A `__post_init__` may put a value of another type into a field. Without the checks of `dump_json` it would be
    # written by a type that it does not have.
    changes_itself = any(hasattr(one.cls, "__post_init__") or is_model(one.cls) for one in found)
    if changes_itself:
        return Masking(kind, TypePlaces(), parsing.dump_json, plain=plain)

    def to_json(parsed: Any) -> bytes:  # noqa: ANN401 - a value of the type
        return parsing.parsed_json(parsed)  # asked for here, because asking for it builds the codec

    return Masking(kind, TypePlaces(), to_json, plain=plain)


class _Walk:
    """One walk through decoded JSON, which notes whether it has masked anything."""

    __slots__ = ("_places", "has_masked")

    def __init__(self, places: SecretPlaces) -> None:
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


def _replaced(plain: object, shown: object) -> Iterator[str]:
    """The texts and numbers of which the other value has the mask."""
    if shown == MASK:
        yield from _words(plain)
    elif is_object(shown) and is_object(plain):
        for name, item in shown.items():
            yield from _replaced(plain[name], item)
    elif is_array(shown) and is_array(plain):
        for item, other in zip(plain, shown, strict=True):
            yield from _replaced(item, other)


def _words(plain: object) -> Iterator[str]:
    if isinstance(plain, str | int | float) and not isinstance(plain, bool):
        yield str(plain)
    elif is_object(plain):
        for item in plain.values():
            yield from _words(item)
    elif is_array(plain):
        for item in plain:
            yield from _words(item)


def _masks(places: SecretPlaces, plain: object, here: Sequence[object], path: Path) -> Iterator[Path]:
    """The paths of what `_Walk` would mask, and that is or holds a mask."""
    is_hidden = not here or any(map(places.is_secret, here))
    if not is_hidden and not any(map(places.reaches, here)):
        return
    named = _segments(plain)
    if is_hidden or named is None:
        if holds_mask(plain):
            yield path
        return
    for segment, item in named:
        name = segment if isinstance(segment, str) else None
        inner = tuple(below for place in here for below in places.below(place, name))
        yield from _masks(places, item, inner, (*path, segment))


def _segments(plain: object) -> Iterable[tuple[str | int, object]] | None:
    """The items of an object or an array; `None` for anything else."""
    if is_object(plain):
        return plain.items()
    return enumerate(plain) if is_array(plain) else None


def mask_places(plain: object) -> tuple[str, ...]:
    """The places in JSON of unknown types that are masks, as paths: `$.password`."""
    return tuple(map(format_path, _mask_paths(plain, ())))


def _mask_paths(plain: object, path: Path) -> Iterator[Path]:
    named = _segments(plain)
    if named is None:
        if plain == MASK:
            yield path
        return
    for segment, item in named:
        yield from _mask_paths(item, (*path, segment))


def holds_mask(plain: object) -> bool:
    """Whether a value is the mask of a secret, or has one in it."""
    if is_secret_value(plain):
        return plain.get_secret_value() in {MASK, MASK.encode()}
    if is_object(plain):
        return any(map(holds_mask, plain.values()))
    return any(map(holds_mask, plain)) if is_array(plain) else plain == MASK


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
            if is_secret_schema(node):
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
