"""The descriptions of the parameters of a tool, by their paths in the arguments: `$.address.street`, `$.steps[].title`.

A name that is not an identifier is quoted, `$["user-id"]`. A path leads through objects, the items of lists, and a
type or null. It does not lead into a union of several types, where two members may have one path, nor a second time
into a type that holds itself.

A type that is used in two places stands once in the schema. A description that is replaced in one of the places is
replaced there alone: the type is copied to that place.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from typing import Any, cast

Schema = dict[str, Any]
"""A JSON Schema, or a part of one."""

_REF = "#/$defs/"


def parameter_descriptions(schema: Schema) -> dict[str, str]:
    """The description of each parameter by its path, in the order of the schema; empty for one without."""
    return {path: str(node.get("description", "")) for path, node in _parameters(schema, schema, "$", ())}


def with_descriptions(schema: Schema, texts: Mapping[str, str]) -> Schema:
    """The schema with other descriptions.

    Args:
        schema: the schema, which is not changed.
        texts: the descriptions by path, each a path that `parameter_descriptions` has.
    """
    changed = copy.deepcopy(schema)
    wanted = dict(texts)
    # A type that is copied to a place is a part of the schema from then on, so the walk below goes through the copy.
    for path, node in _parameters(changed, changed, "$", (), opened=frozenset(texts)):
        if path in wanted:
            node["description"] = wanted.pop(path)
    return changed


def _parameters(
    node: Schema, root: Schema, path: str, within: tuple[str, ...], opened: frozenset[str] = frozenset()
) -> Iterator[tuple[str, Schema]]:
    """The parameters below a node of the schema, with their paths.

    Args:
        node: the node.
        root: the whole schema.
        path: the path of the node.
        within: the types that the path has led through.
        opened: the paths on whose way types are copied to their places.
    """
    inner, inside = _resolved(node, root, path, within, opened)
    if inner is None:
        return
    for name, child in cast("dict[str, Schema]", inner.get("properties", {})).items():
        below = f"{path}.{name}" if name.isidentifier() else f"{path}[{json.dumps(name, ensure_ascii=False)}]"
        yield below, child
        yield from _parameters(child, root, below, inside, opened)
    items = inner.get("items")
    if isinstance(items, dict):
        yield from _parameters(cast("Schema", items), root, f"{path}[]", inside, opened)


def _resolved(
    node: Schema, root: Schema, path: str, within: tuple[str, ...], opened: frozenset[str]
) -> tuple[Schema | None, tuple[str, ...]]:
    """The node that has the properties: the type referred to, or the one member that is not null."""
    inner = node
    while True:
        options = [cast("Schema", one) for one in inner.get("anyOf", ()) if one.get("type") != "null"]
        if "oneOf" in inner or len(options) > 1:
            return None, within
        if options:
            inner = options[0]
            continue
        ref = inner.get("$ref")
        if not isinstance(ref, str):
            return inner, within
        name = ref.removeprefix(_REF)
        target = root.get("$defs", {}).get(name)
        if target is None or name in within:
            return None, within
        within = (*within, name)
        if any(_is_below(each, path) for each in opened):
            # The description beside the reference is that of the parameter, not of its type.
            beside = {key: value for key, value in inner.items() if key != "$ref"}
            inner.clear()
            inner.update({**copy.deepcopy(target), **beside})
        else:
            inner = target


def _is_below(path: str, above: str) -> bool:
    return path.startswith((f"{above}.", f"{above}["))
