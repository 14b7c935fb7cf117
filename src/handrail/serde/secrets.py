"""Values without their secrets, for people to read, and the texts by which a secret is found elsewhere.

The JSON Schema of a type marks secret places by `"writeOnly"` and `"format": "password"`. A secret place is replaced by
`MASK` whole, a list of secrets too; only null stays null. What is beside secrets and does not fit the type is masked as
well: a field of another name may be a secret whose name was misspelled.

What a handler raises shows values, not JSON: `repr(b"...")`, `datetime.date(1947, 11, 8)`, `ident.hex`. So these texts
of a secret are looked for:

| a secret is | its texts |
|---|---|
| text | it |
| bytes | in UTF-8 if they are that, as `repr` has them, in hexadecimal digits, in both alphabets of base64 |
| a member of an enum | `str`, `repr`, and those of its value |
| anything else | `str`, `repr`, `hex` of a UUID, `isoformat` of a moment |

Of a secret that is shorter than what is looked for, no longer form is.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import is_dataclass
from datetime import datetime
from enum import Enum
from itertools import count
from typing import Any, Final, NamedTuple, cast, get_origin
from uuid import UUID

from pydantic import BaseModel
from pydantic_core import from_json

from handrail.errors import SchemaError
from handrail.redaction import MASK, SHORTEST_WORD, current_redaction
from handrail.serde.annotations import accept_type, is_model, is_record
from handrail.serde.core_schemas import cached
from handrail.serde.formatting import DataPath, format_path
from handrail.serde.json_schema import Node, is_array, is_object, is_secret_schema
from handrail.serde.json_values import COLLECTIONS, encode_json, escaped_within, is_secret, parts_of_value, walk_value
from handrail.serde.typed import codec, result_codec


class _Place:
    __slots__ = ("_below", "_nodes", "_root", "is_secret", "reaches")

    def __init__(self, root: Node, nodes: Sequence[object]) -> None:
        self._root = root
        # By identity: the nodes are parts of one schema, and have no hash.
        self._nodes = list({id(option): option for node in nodes for option in _options(root, node, set())}.values())
        self._below: dict[str | None, _Place | None] = {}
        self.is_secret: bool = any(_leads_to_secret(root, node, _collected, set()) for node in self._nodes)
        self.reaches: bool = any(_leads_to_secret(root, node, _below, set()) for node in self._nodes)

    def below(self, at: str | int) -> _Place | None:
        name = at if isinstance(at, str) else None
        if name not in self._below:
            if len(self._below) > _MOST_NAMES:
                self._below.clear()  # of a mapping, whose keys come from outside
            nodes = [
                child
                for node in self._nodes
                for child in (_items(node) if name is None else _property_schemas(node, name))
            ]
            self._below[name] = _Place(self._root, nodes) if nodes else None
        return self._below[name]


def _leads_to_secret(root: Node, node: object, inside: Callable[[Node], Sequence[object]], visited: set[int]) -> bool:
    return any(
        is_secret_schema(option) or any(_leads_to_secret(root, child, inside, visited) for child in inside(option))
        for option in _options(root, node, visited)
    )


def _collected(node: Node) -> Sequence[object]:
    # Beside declared properties the others are fields of their own; without them the object is a collection, and one
    # secret in it makes all of it secret.
    return _items(node) if "properties" in node else (*_items(node), *_others(node))


def _below(node: Node) -> Sequence[object]:
    return (*_properties(node).values(), *_others(node), *_items(node))


def _options(root: Node, place: object, visited: set[int]) -> Iterator[Node]:
    if not is_object(place) or id(place) in visited:
        return
    visited.add(id(place))
    yield place
    if isinstance(reference := place.get("$ref"), str):
        yield from _options(root, _target(root, reference), visited)
    for word in ("anyOf", "oneOf", "allOf"):
        for option in _list(place.get(word)):
            yield from _options(root, option, visited)


def _target(root: Node, reference: str) -> object:
    if not reference.startswith("#"):
        return None
    target: object = root
    for part in reference.removeprefix("#").split("/")[1:]:
        # In this order (RFC 6901, section 4): the other way round `~01` would become a slash.
        target = target.get(part.replace("~1", "/").replace("~0", "~")) if is_object(target) else None
    return target


def _properties(node: Node) -> Mapping[str, object]:
    properties: object = node.get("properties")
    if not is_object(properties):
        return {}
    hides = current_redaction().hides_name
    return {name: _SECRET_SCHEMA if hides(name) else schema for name, schema in properties.items()}


def _others(node: Node) -> tuple[object, ...]:
    patterns: object = node.get("patternProperties")
    return (*(patterns.values() if is_object(patterns) else ()), node.get("additionalProperties"))


def _property_schemas(node: Node, name: str) -> tuple[object, ...]:
    properties = _properties(node)
    if name in properties:
        return tuple(schema for schema in (properties[name],) if is_object(schema))
    *patterns, others = _others(node)
    return (*patterns, others) if is_object(others) else ()


def _items(node: Node) -> tuple[object, ...]:
    items = (node.get("items"), *_list(node.get("prefixItems")))
    return tuple(schema for schema in items if is_object(schema))


def _list(value: object) -> Sequence[object]:
    return value if is_array(value) else ()


# ------------------------------------------------------------------------------------------------------------ the walk


def _walk(value: object, place: _Place | None, path: DataPath, secrets: list[tuple[DataPath, object]]) -> object:
    if value is None:
        return None
    if place is not None and not place.reaches:
        return value  # it is not copied, and an undeclared name in it stays
    if place is None or place.is_secret or is_secret(value) or not _is_composed(value):
        secrets.append((path, value))
        return MASK
    items = [(at, _walk(item, place.below(at), (*path, at), secrets)) for at, item in parts_of_value(value)]
    return [item for _, item in items] if isinstance(value, COLLECTIONS) else dict(items)


def _is_composed(value: object) -> bool:
    return isinstance(value, (BaseModel, *_COMPOSED)) or is_dataclass(value)


def _texts_in(value: object) -> Iterator[str]:
    if is_secret(value):
        yield from _texts_in(value.get_secret_value())
    elif isinstance(value, bytes | bytearray | memoryview):
        yield from _texts_of_bytes(bytes(cast("bytes", value)))
    elif isinstance(value, Enum):
        yield from _texts_in(value.value)
        yield from _display_texts(value)
    elif isinstance(value, str):
        yield str.__str__(value)  # a subclass may show another text
    elif _is_composed(value):
        for _, item in parts_of_value(value):
            yield from _texts_in(item)
    elif value is not None and not isinstance(value, bool):
        yield from _display_texts(value)


def _texts_of_bytes(value: bytes) -> Iterator[str]:
    import base64  # noqa: PLC0415

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


def _display_texts(value: object) -> Iterator[str]:
    with suppress(Exception):  # code of the program; what cannot be shown is in no text
        if len(str(value)) < SHORTEST_WORD:
            return
        yield str(value)
        yield repr(value)
    if isinstance(value, UUID):
        yield value.hex
    elif isinstance(value, datetime):
        yield value.isoformat()


# --------------------------------------------------------------------------------------------------------------- types


class Masking:
    """Shows the values of one type without their secrets; safe to use from any thread.

    Attributes:
        hides: whether the type has secrets. If not, nothing is ever masked.
        hides_plain: whether some are values of Python that show themselves, as a marked `str` does.
        json: writes a value that was parsed as the type, without another check; it raises what a serializer raises for
            a value that has been changed since.
    """

    __slots__ = ("_place", "hides", "hides_plain", "json")

    def __init__(self, schema: Node, to_json: Callable[[Any], bytes] = encode_json, *, plain: bool = True) -> None:
        self._place = _Place(schema, [schema])
        self.hides: bool = self._place.reaches
        self.hides_plain: bool = self.hides and plain
        self.json: Callable[[Any], bytes] = to_json
        if self.hides:
            self.json = lambda value: _encode(self.mask(json.loads(to_json(value)))).encode()

    def mask(self, plain: object) -> object:
        """Decoded JSON of the type without its secrets, and without what does not fit."""
        return _walk(plain, self._place, (), [])

    def _secrets(self, value: object) -> list[tuple[DataPath, object]]:
        secrets: list[tuple[DataPath, object]] = []
        _walk(value, self._place, (), secrets)
        return secrets

    def masks_in(self, plain: object) -> tuple[str, ...]:
        """The places of secrets in decoded JSON that hold the mask itself, as paths: `$.password`."""
        return tuple(format_path(path) for path, secret in self._secrets(plain) if holds_mask(secret))

    def texts_in(self, value: object) -> Iterator[str]:
        """The texts that a program may show of the secrets in a value, or in its decoded JSON: `str`, `repr` and more.

        Raises:
            RecursionError: it is nested too deeply, or in a cycle.
        """
        for _, secret in self._secrets(value):
            yield from _texts_in(secret)


def type_masking(kind: object) -> Masking:
    """The masking of a type; made once."""
    return _masking(kind, of_results=not is_record(get_origin(kind) or kind))


def result_masking(kind: object) -> Masking:
    """The masking of a type of results; JSON need not distinguish the members of its unions."""
    return _masking(kind, of_results=True)


def schema_masking(schema: Mapping[str, Any]) -> Masking:
    """The masking of decoded JSON, for parameters that have only a JSON Schema."""
    return Masking(schema)


@cached
def _masking(kind: object, *, of_results: bool) -> Masking:
    try:
        records = accept_type(kind)
        value_codec = result_codec(kind) if of_results else codec(cast("type[Any]", kind))
    except SchemaError:  # it is not taken, so nothing is of it
        return Masking({})
    names = [name for one in records for name in one.hints]
    # Of a type without secrets no schema is decoded for this.
    hides_names = any(map(current_redaction().hides_name, names))
    schema = value_codec.schema if value_codec.hides or hides_names else {}
    plain = hides_names or (value_codec.hides and value_codec.is_marked)
    if of_results:
        return Masking(schema, plain=plain)
    # A `__post_init__` may put a value of another type into a field. Without the checks of `dump_json` it would be
    # written by a type that it does not have.
    if any(hasattr(one.cls, "__post_init__") or is_model(one.cls) for one in records):
        return Masking(schema, value_codec.dump_json, plain=plain)
    return Masking(schema, value_codec.parsed_json, plain=plain)


class PartialJson(NamedTuple):
    """The JSON of as much of a value as JSON can say, without secrets."""

    text: str  # the JSON, with null in the place of the rest
    gaps: tuple[str, ...]  # where that is, and why: `$.mean is NaN`
    is_escaped: bool  # whether it has the escapes of lone surrogates


def partial_json(value: object) -> PartialJson:
    """Writes as much of any value as JSON can say, a hundred levels deep and ten thousand parts long."""
    gaps: list[str] = []
    try:
        plain = _sayable(value, (), (), count(), gaps)
        escape_free = escaped_within(plain)
        return PartialJson(_encode(escape_free), tuple(gaps), escape_free is not plain)
    except Exception:  # noqa: BLE001 - code of the program, such as a property
        return PartialJson("null", (f"$ is of type {type(value).__name__}",), is_escaped=False)


def _sayable(value: object, path: DataPath, above: tuple[int, ...], numbers: Iterator[int], gaps: list[str]) -> object:
    kind: type[Any] = type(value)
    if isinstance(value, str):
        return value
    gap = ""
    if isinstance(value, float) and not math.isfinite(value):
        gap = f"is {json.dumps(value)}"
    elif id(value) in above or len(above) > _MOST_LEVELS or next(numbers) > _MOST_PARTS:
        gap = "is left out, because it contains itself, or there is too much"
    try:
        if is_record(kind):
            accept_type(kind)  # of any other class it is not known what is secret
        elif not gap and not issubclass(kind, _COMPOSED):
            return from_json(encode_json(value), allow_inf_nan=False)
    except Exception:  # noqa: BLE001 - code of the program may run
        gap = f"is of type {kind.__name__}"
    if gap:
        gaps.append(f"{format_path(path)} {gap}")
        return None
    inner = (*above, id(value))
    parts = [(str(at), _sayable(part, (*path, at), inner, numbers, gaps)) for at, part in parts_of_value(value)]
    if issubclass(kind, COLLECTIONS):
        return [part for _, part in parts]
    return dict(parts) if issubclass(kind, Mapping) else result_masking(kind).mask(dict(parts))


_COMPOSED: Final = (Mapping, *COLLECTIONS)
_MOST_LEVELS: Final = 100
_MOST_PARTS: Final = 10_000
_MOST_NAMES: Final = 1_000
_SECRET_SCHEMA: Final = {"writeOnly": True}
_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def mask_places(plain: object) -> tuple[str, ...]:
    """The places in JSON of unknown types that are masks, as paths: `$.password`."""
    return tuple(format_path(path) for path, part in walk_value(plain) if _is_mask(part))


def holds_mask(plain: object) -> bool:
    """Returns whether a value is the mask of a secret, or has one in it."""
    return any(_is_mask(part) for _, part in walk_value(plain))


def _is_mask(part: object) -> bool:
    return (part.get_secret_value() if is_secret(part) else part) in (MASK, MASK.encode())
