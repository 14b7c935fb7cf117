"""The arguments of a call, as the policy about taint compares them with what sanitizers have extracted.

Every text that the model has chosen counts: a value, and the key of an object, unless the schema of the tool declares
it as the name of a property. `null` and an empty object or array are values, too. An argument that is equal to the
declared default of its parameter is as if it was not given, because the model could have left it out.

A value is compared by the text of its JSON, so `5` and `"5"` are one value, and so are `500` and `500.0`. A secret is
compared with nothing: all that is known of it is its mask.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from handrail.redaction import MASK
from handrail.serde.json_schema import Node, is_array, is_object

_CHOICES: Final = ("allOf", "anyOf", "oneOf")
"""What a schema has the schemas in that may describe the same value."""


@dataclass(frozen=True, slots=True)
class JudgedArguments:
    """The arguments of one call.

    Attributes:
        values: the arguments as decoded JSON, secrets masked.
        schema: the JSON Schema of the parameters.
    """

    values: object
    schema: Mapping[str, Any]

    def chosen(self) -> frozenset[str]:
        """The texts of the arguments that are not equal to the default of their parameter."""
        given = _without_defaults(self.values, (self.schema,), self.schema)
        if not given:
            return frozenset()
        return frozenset(leaves(given, names=declared_names(self.schema)))


def leaves(values: object, *, names: frozenset[str] = frozenset()) -> Iterator[str]:
    """The texts of decoded JSON: those of values, and the keys of objects.

    Args:
        values: the decoded JSON.
        names: keys that are left out.
    """
    if is_object(values) and values:
        for name, value in values.items():
            if name not in names:
                yield name
            yield from leaves(value, names=names)
    elif is_array(values) and values:
        for value in values:
            yield from leaves(value, names=names)
    else:
        yield values if isinstance(values, str) else _json_text(values)


def _json_text(value: object) -> str:
    """The JSON of a value, in which equal numbers are equal."""
    return json.dumps(_with_whole_numbers(value), sort_keys=True, ensure_ascii=False)


def declared_names(schema: object) -> frozenset[str]:
    """The names of the properties that a JSON Schema declares, in all of its parts."""
    if is_array(schema):
        return frozenset[str]().union(*map(declared_names, schema))
    if not is_object(schema):
        return frozenset()
    properties: object = schema.get("properties")
    own = frozenset(properties) if is_object(properties) else frozenset[str]()
    return own.union(*map(declared_names, schema.values()))


def _without_defaults(value: object, schemas: Sequence[Node], root: Node) -> object:
    """Decoded JSON without the entries of objects that are equal to the default that a schema declares for them."""
    seen: set[str] = set()
    described = [each for schema in schemas for each in _alternatives(schema, root, seen)]
    if is_object(value):
        kept: dict[str, object] = {}
        for name, item in value.items():
            of_item = [found for each in described if (found := _of_property(each, name)) is not None]
            if not any(_is_default(item, each) for each in of_item):
                kept[name] = _without_defaults(item, of_item, root)
        return kept
    if is_array(value):
        of_items = [found for each in described if is_object(found := each.get("items"))]
        return [_without_defaults(item, of_items, root) for item in value]
    return value


def _alternatives(schema: Node, root: Node, seen: set[str]) -> Iterator[Node]:
    """A schema, and those that it refers to or combines for the same value; each reference is followed once."""
    yield schema
    reference: object = schema.get("$ref")
    # A server may have made the schema: references may be circular, or multiply.
    if isinstance(reference, str) and reference not in seen:
        seen.add(reference)
        yield from _alternatives(_referred(reference, root), root, seen)
    for keyword in _CHOICES:
        members: object = schema.get(keyword)
        for member in members if is_array(members) else ():
            if is_object(member):
                yield from _alternatives(member, root, seen)


def _referred(reference: str, root: Node) -> Node:
    """What a reference names in a schema; empty if it is not in there, as the schema of a server may say anything."""
    found: object = root
    for name in reference.removeprefix("#/").split("/"):
        found = found.get(name) if is_object(found) else None
    return found if is_object(found) else {}


def _of_property(schema: Node, name: str) -> Node | None:
    """What a schema says of the values under a name."""
    properties: object = schema.get("properties")
    found = properties.get(name) if is_object(properties) else None
    found = schema.get("additionalProperties") if found is None else found
    return found if is_object(found) else None


def _is_default(value: object, schema: Node) -> bool:
    if "default" not in schema:
        return False
    # As text, because `True == 1`. Two secrets have one mask, so a secret is never equal to its default.
    text = _json_text(value)
    return MASK not in text and text == _json_text(schema["default"])


def _with_whole_numbers(value: object) -> object:
    if is_object(value):
        return {name: _with_whole_numbers(item) for name, item in value.items()}
    if is_array(value):
        return [_with_whole_numbers(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
