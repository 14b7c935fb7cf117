"""The names that a Python tool's arguments go by beside those in its schema.

The schema has the name that a model writes. What runs may have another one: of the parameter, of a field that has an
alias, of a parameter that PydanticAI leaves out because it is the only one. Approval rules look at both.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, cast, get_type_hints

from pydantic import PydanticUserError, TypeAdapter
from pydantic_ai import RunContext

_WITH_FIELDS: Final = frozenset({"model", "model-fields", "dataclass", "dataclass-args", "typed-dict"})
_RENAMING: Final = frozenset({"function-before", "function-wrap", "function-plain"})
_ALIASES: Final = ("alias", "validation_alias", "serialization_alias")


def names_of_parameters(function: Callable[..., Any]) -> frozenset[str] | None:
    """The names of a function's parameters, and of all fields in them; `None` if they cannot be known."""
    try:
        parameters = inspect.signature(function).parameters
        hints = get_type_hints(function, include_extras=True)
    except (TypeError, ValueError, NameError, AttributeError):
        return None
    names = set(parameters)
    for name in parameters:
        hint: object = hints.get(name, Any)
        if hint is RunContext or getattr(hint, "__origin__", None) is RunContext:
            continue
        found = names_of_fields(hint)
        if found is None:
            return None
        names |= found
    return frozenset(names)


def names_of_fields(kind: Any) -> frozenset[str] | None:  # noqa: ANN401 - any type
    """The names and aliases of all fields in a type; `None` if a validator of its own may take others."""
    try:
        schema: object = TypeAdapter(kind).core_schema
    except (PydanticUserError, TypeError, NameError):
        return None
    found = list(_names(schema))
    return None if None in found else frozenset(name for name in found if name is not None)


def _names(schema: object) -> Iterator[str | None]:
    """The names in a core schema; `None` where a validator may rename what is in a model."""
    to_visit = [schema]
    while to_visit:
        part = to_visit.pop()
        if isinstance(part, list | tuple):
            to_visit.extend(cast("list[object]", part))
            continue
        if not isinstance(part, Mapping):
            continue
        node = cast("Mapping[str, Any]", part)  # a core schema is made of dicts with keys of text
        if node.get("type") in _RENAMING and _type_of(node.get("schema")) in _WITH_FIELDS:
            yield None
        fields: object = node.get("fields")
        if isinstance(fields, Mapping):
            yield from map(str, cast("Mapping[object, object]", fields))
        if isinstance(node.get("name"), str) and "schema" in node:
            yield str(node["name"])
        for key in _ALIASES:
            yield from _aliases(node.get(key))
        to_visit.extend(value for key, value in node.items() if key not in {"cls", "metadata", "ref"})


def _type_of(schema: object) -> object:
    return cast("Mapping[str, object]", schema).get("type") if isinstance(schema, Mapping) else None


def _aliases(alias: object) -> Iterator[str]:
    """The names in an alias: a text, a path, or a list of paths."""
    if isinstance(alias, str):
        yield alias
    elif isinstance(alias, list | tuple):
        for part in cast("list[object]", alias):
            yield from _aliases(part)
