"""What a JSON Schema asks for and what a value is, in words that a model can act on."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from handrail.serde.formatting import shortened
from handrail.serde.forms import DECIMAL, FRACTION
from handrail.serde.json_schema import Node, is_object, resolved

_KINDS = {
    "null": "null",
    "boolean": "a boolean",
    "integer": "an integer",
    "number": "a number",
    "string": "a string",
    "array": "an array",
    "object": "an object",
}
_TYPES: tuple[tuple[type[Any], str], ...] = (
    (bool, "boolean"),
    (int, "integer"),
    (float, "number"),
    (str, "string"),
    (list, "array"),
    (dict, "object"),
)
_FORMATS = {
    "date-time": 'a date-time string such as "2026-01-31T12:00:00Z"',
    "date": 'a date string such as "2026-01-31"',
    "time": 'a time string such as "12:00:00"',
    "duration": 'an ISO 8601 duration string such as "PT1H30M"',
    "uuid": "a UUID string",
    "base64url": "a base64url string",
}
_PATTERNS = {
    DECIMAL: 'a decimal string such as "12.50"',
    FRACTION: 'a fraction string such as "1/3"',
}
_BOUNDS = {
    "exclusiveMinimum": ">",
    "minimum": ">=",
    "exclusiveMaximum": "<",
    "maximum": "<=",
    "multipleOf": "divisible by",
}
_MANY = {"character": "characters", "item": "items", "entry": "entries"}
_MOST_CHOICES = 20
_LONGEST_PATTERN = 100
_LONGEST_CHOICE = 60


def kind_of(value: object) -> str:
    """The JSON type of a decoded value: `"integer"`, `"object"`, ..."""
    return next((kind for python, kind in _TYPES if isinstance(value, python)), "null")


def kind_in_words(kind: str) -> str:
    """A JSON type with its article: `an integer`."""
    return _KINDS[kind]


def kinds_asked(node: Node, root: Node) -> set[str]:
    """The JSON types that `node` takes; empty when it takes any."""
    node = resolved(node, root)
    choices = node.get("enum", [node["const"]] if "const" in node else [])
    if choices:
        return {kind_of(choice) for choice in choices}
    if "type" in node:
        return {"integer", "number"} if node["type"] == "number" else {str(node["type"])}
    return {kind for option in options_of(node) for kind in kinds_asked(option, root)}


def options_of(node: Node) -> list[Node]:
    """The alternatives of `node`, if it is a union."""
    return [*node.get("anyOf", ()), *node.get("oneOf", ())]


def described(node: Node, root: Node, *, depth: int = 0) -> str:
    """What `node` asks for, with its article: `an integer > 0`, `"a" or "b"`.

    Items and values of containers are described at the first level only.
    """
    node = resolved(node, root)
    if options := options_of(node):
        return either(described(option, root, depth=depth) for option in options)
    if "const" in node or "enum" in node:
        return either(_choice(choice) for choice in node.get("enum", [node.get("const")]))
    kind = node.get("type", "")
    if kind == "array":
        return _array(node, root, depth)
    if kind == "object":
        return _object(node, root, depth)
    return _string(node) if kind == "string" else _scalar(node, kind)


def either(choices: Iterable[str]) -> str:
    """`a, b or c`, each once, and not more of them than one reads."""
    every = list(dict.fromkeys(choices))
    shown = every[:_MOST_CHOICES]
    if len(every) > len(shown):
        shown.append(f"one of {len(every) - len(shown)} more")
    return " or ".join(part for part in (", ".join(shown[:-1]), *shown[-1:]) if part)


def _choice(value: object) -> str:
    return shortened(json.dumps(value, ensure_ascii=False), _LONGEST_CHOICE)


def _scalar(node: Node, kind: str) -> str:
    bounds = [f"{words} {node[key]}" for key, words in _BOUNDS.items() if key in node]
    return " ".join(part for part in (_KINDS.get(kind, "any value"), " and ".join(bounds)) if part)


def _string(node: Node) -> str:
    if known := _PATTERNS.get(node.get("pattern", "")):
        return known
    text = _FORMATS.get(node.get("format", ""), "a string")
    size = _size(node.get("minLength"), node.get("maxLength"), "character")
    pattern = f"matching {shortened(node['pattern'], _LONGEST_PATTERN)}" if "pattern" in node else ""
    return " ".join(part for part in (text, size, pattern) if part)


def _array(node: Node, root: Node, depth: int) -> str:
    text = " ".join(part for part in ("an array", _size(node.get("minItems"), node.get("maxItems"), "item")) if part)
    if depth:
        return text
    if "prefixItems" in node:
        parts = ", ".join(described(item, root, depth=depth + 1) for item in node["prefixItems"])
        return f"{text} ({parts})"
    return f"{text}{_each('item', node.get('items'), root, depth)}"


def _object(node: Node, root: Node, depth: int) -> str:
    if "properties" in node:
        names = list(node["properties"])
        return f"an object with the fields ({', '.join(names)})" if names else "an object without fields"
    size = _size(node.get("minProperties"), node.get("maxProperties"), "entry")
    text = " ".join(part for part in ("an object", size) if part)
    return text if depth else f"{text}{_each('value', node.get('additionalProperties'), root, depth)}"


def _each(what: str, node: object, root: Node, depth: int) -> str:
    return f" (each {what}: {described(node, root, depth=depth + 1)})" if is_object(node) and node else ""


def _size(least: int | None, most: int | None, what: str) -> str:
    if least is None and most is None:
        return ""
    if most is None:
        return f"of at least {counted(least or 0, what)}"
    if least == most:
        return f"of {counted(most, what)}"
    return f"of {least} to {counted(most, what)}" if least else f"of at most {counted(most, what)}"


def counted(number: int, what: str) -> str:
    """`1 item`, `2 items`."""
    return f"{number} {what if number == 1 else _MANY[what]}"
