"""Which schemas a provider takes as strict, and why it does not take another one.

With `strict` a provider lets the model write only what fits the schema of a tool. It takes a part of JSON Schema for
that, and refuses a request with any other schema. So a tool is strict only if its schema is taken as it is.

| | OpenAI | Anthropic |
|---|---|---|
| an object | has no further properties | has no further properties |
| a property | is required | may be optional |
| a bound on a number, a text or a list | is taken | is not taken, but for a list of at least one |
| a default | is not taken | is taken |
| a type that contains itself | is taken | is not taken |

Sources: OpenAI, "Structured model outputs", supported schemas; Anthropic, "Structured outputs", JSON Schema limitations
(both of November 2026), and what the SDKs of both make of a schema. What neither says is not taken here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from handrail.serde.json_schema import Node, is_array, is_object

_NAMES = {"$defs", "$ref", "additionalProperties", "description", "properties", "required", "title", "type"}
_KEYWORDS = frozenset(_NAMES | {"anyOf", "const", "enum", "format", "items", "minItems", "pattern"})
_BOUNDS = {"exclusiveMaximum", "exclusiveMinimum", "maxItems", "maxLength", "maximum", "minLength", "minimum"}
_FORMATS = frozenset({"date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "uuid"})
_TYPED_BY = {"$ref", "anyOf", "const", "enum", "type"}
_DEFINITIONS = "#/$defs/"

_find_costly_regex = re.compile(r"\(\?[=!<]|\\[bB1-9]").search
"""Lookarounds, word boundaries and back references."""


@dataclass(frozen=True, slots=True)
class StrictRules:
    """What a provider takes of JSON Schema.

    Attributes:
        keywords: the keywords.
        formats: the values of `format`.
        all_required: whether each property has to be required.
        recursive: whether a definition may refer to itself.
        most_min_items: the greatest value of `minItems`; `None` for any.
    """

    keywords: frozenset[str]
    formats: frozenset[str]
    all_required: bool
    recursive: bool
    most_min_items: int | None


OPENAI: Final = StrictRules(
    _KEYWORDS | _BOUNDS | {"multipleOf"}, _FORMATS, all_required=True, recursive=True, most_min_items=None
)
"""The rules of OpenAI."""

ANTHROPIC: Final = StrictRules(
    _KEYWORDS | {"default"}, _FORMATS | {"uri"}, all_required=False, recursive=False, most_min_items=1
)
"""The rules of Anthropic."""

RULES: Final = {"openai": OPENAI, "anthropic": ANTHROPIC}
"""The rules of each provider, by the name of its adapter."""


def strict_faults(schema: Node, rules: StrictRules) -> list[str]:
    """Why a provider does not take the schema of a tool as strict, each with its place; empty if it does.

    A place is written as in the errors about arguments: `$.limit is not required`.
    """
    return list(dict.fromkeys(_Check(schema, rules).walk("$", schema, ())))  # two choices may have the same fault


class _Check:
    def __init__(self, root: Node, rules: StrictRules) -> None:
        self._definitions: Node = root.get("$defs", {})
        self._rules = rules
        self._checked: set[str] = set()

    def walk(self, place: str, node: Any, within: tuple[str, ...]) -> Iterator[str]:  # noqa: ANN401 - decoded JSON
        """The faults of a node; `within` are the definitions that it is in."""
        rules = self._rules
        unknown = sorted(node.keys() - rules.keywords) if is_object(node) else []
        yield from (f"{place} has the keyword {word}" for word in unknown)
        if not is_object(node) or not _TYPED_BY & node.keys():
            if not unknown:
                yield f"{place} allows values of any type"
            return
        if node.get("format", "date") not in rules.formats:
            yield f"{place} has the format {node['format']}"
        if _find_costly_regex(str(node.get("pattern", ""))):
            yield f"{place} has a pattern with a lookaround, a word boundary or a back reference"
        if rules.most_min_items is not None and node.get("minItems", 0) > rules.most_min_items:
            yield f"{place} has minItems above {rules.most_min_items}"
        yield from self._walk_object(place, node)
        yield from self._walk_inner(place, node, within)

    def _walk_object(self, place: str, node: Node) -> Iterator[str]:
        if not (place == "$" or _has_type(node, "object")):
            return
        if node.get("additionalProperties") is not False:
            yield f"{place} takes further properties"
        if self._rules.all_required:
            names, required = node.get("properties", {}), node.get("required", ())
            yield from (f"{place}.{name} is not required" for name in names if name not in required)
            if not names and "required" not in node:
                yield f"{place} has no list of required properties"

    def _walk_inner(self, place: str, node: Node, within: tuple[str, ...]) -> Iterator[str]:
        if "anyOf" in node and place == "$":
            yield "$ is a choice"
        for name, inner in node.get("properties", {}).items():
            yield from self.walk(f"{place}.{name}", inner, within)
        if _has_type(node, "array"):
            yield from self.walk(f"{place}[*]", node.get("items"), within)
        for inner in node.get("anyOf", ()):
            yield from self.walk(place, inner, within)
        if "$ref" in node:
            yield from self._walk_reference(place, node, within)

    def _walk_reference(self, place: str, node: Node, within: tuple[str, ...]) -> Iterator[str]:
        name = str(node["$ref"]).removeprefix(_DEFINITIONS)
        if len(node) > 1:
            yield f"{place} has keywords beside a reference"
        if name not in self._definitions:
            yield f"{place} refers to {node['$ref']}"
        elif name in within:
            if not self._rules.recursive:
                yield f"{place} contains itself, as {name}"
        elif name not in self._checked:
            self._checked.add(name)
            yield from self.walk(place, self._definitions[name], (*within, name))


def _has_type(node: Node, name: str) -> bool:
    types = node.get("type")
    return name in types if is_array(types) else name == types
