"""Which schemas providers take as strict: by a table, and by what their SDKs and PydanticAI make of a schema."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from typing import Annotated, Any, Literal

import pytest
from anthropic import transform_schema
from pydantic import AnyUrl, BaseModel, Field, SecretStr
from pydantic_ai.profiles.openai import OpenAIJsonSchemaTransformer
from typing_extensions import TypedDict

from handrail import tool
from handrail.adapters.strict_schemas import ANTHROPIC, OPENAI, strict_faults
from handrail.prompt import Tool
from handrail.serde.json_schema import is_array, is_object
from tests.wording import Wording


@dataclass(frozen=True)
class Place:
    """A part of the parameters below."""

    street: str
    number: int


@dataclass(frozen=True)
class Tree:
    """A type that contains itself."""

    name: str
    below: list[Tree]


class Options(TypedDict, total=False):
    """Optional keys."""

    fast: bool


class Open(BaseModel, extra="forbid"):
    """A model of pydantic."""

    texts: Annotated[list[str], Field(min_length=1)]


def plain(text: str, count: int, share: float, is_new: bool, day: date) -> str:
    """All types that need no more."""
    return text


def nested(place: Place, places: list[Place], kind: Literal["a", "b"], maybe: str | None) -> str:
    """Types of the program."""
    return kind


def bounded(count: Annotated[int, Field(ge=1)], name: Annotated[str, Field(max_length=5)]) -> str:
    """Bounds."""
    return name


def listed(texts: Annotated[list[str], Field(min_length=1)], more: Annotated[list[str], Field(min_length=2)]) -> str:
    """Lists with lengths."""
    return texts[0]


def optional(text: str, count: int = 1) -> str:
    """An optional parameter."""
    return text


def nothing() -> str:
    """No parameter."""
    return ""


def keyed(prices: dict[str, int]) -> str:
    """An object whose keys are not known."""
    return ""


def anything(value: Any, values: list[Any]) -> str:
    """Values of any type."""
    return ""


def pair(position: tuple[int, int]) -> str:
    """A list of fixed types."""
    return ""


def link(url: AnyUrl) -> str:
    """A format that one provider has."""
    return ""


def secret(password: SecretStr) -> str:
    """A secret."""
    return ""


def recursive(tree: Tree) -> str:
    """A definition that refers to itself."""
    return ""


def partial_keys(options: Options) -> str:
    """An object with optional keys."""
    return ""


def model(parameters: Open) -> str:
    """A model of pydantic."""
    return ""


def matching(code: Annotated[str, Field(pattern=r"^[A-Z]{2}$")], word: Annotated[str, Field(pattern=r"\bx\b")]) -> str:
    """Patterns."""
    return code


def described(place: Annotated[Place, Field(description="where")]) -> str:
    """A description beside a reference."""
    return ""


FUNCTIONS: tuple[Callable[..., str], ...] = (
    *(plain, nested, bounded, listed, optional, nothing, keyed, anything, pair, link, secret, recursive),
    *(partial_keys, model, matching, described),
)
SCHEMAS = {function.__name__: tool(function).parameters_schema for function in FUNCTIONS}
STRICT = {
    "plain": "both",
    "nested": "both",
    "bounded": "openai",
    "listed": "openai",
    "optional": "anthropic",
    "nothing": "anthropic",
    "recursive": "openai",
    "partial_keys": "anthropic",
    "model": "both",
}
"""Who takes a schema as strict; any other is taken by nobody."""


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_schema_is_taken_or_it_is_said_where_it_is_not(name: str, wording: Wording) -> None:
    """All faults of a schema together."""
    faults = {"openai": strict_faults(SCHEMAS[name], OPENAI), "anthropic": strict_faults(SCHEMAS[name], ANTHROPIC)}
    taken_by = STRICT.get(name, "")
    assert {who for who, found in faults.items() if not found} == (
        {*faults} if taken_by == "both" else {taken_by} - {""}
    )
    assert [f"{who}: {fault}" for who, found in faults.items() for fault in found] == wording


SCHEMAS_AS_DATA: list[Any] = [
    {"type": "object", "anyOf": [{"type": "object", "properties": {}}]},
    {"type": "object", "properties": {"a": {"type": ["object", "null"]}}, "required": ["a"]},
    {"type": "object", "properties": {"a": {"$ref": "https://example.org/a"}}, "additionalProperties": False},
    {"type": "object", "properties": {"a": {"oneOf": [{"type": "string"}]}}, "additionalProperties": False},
    {"type": "object", "properties": {"a": {"type": "array"}, "b": True}, "additionalProperties": False},
    {"type": "object", "properties": {"a": {"type": "string", "format": "iban"}}, "required": ["a"]},
]


@pytest.mark.parametrize("schema", SCHEMAS_AS_DATA)
def test_a_schema_that_is_data_is_checked_too(schema: dict[str, Any], wording: Wording) -> None:
    """It may have any word of JSON Schema."""
    faults = [f"{name}: {fault}" for name, rules in RULES for fault in strict_faults(schema, rules)]
    assert faults == wording


RULES = [("openai", OPENAI), ("anthropic", ANTHROPIC)]


@pytest.mark.parametrize("name", SCHEMAS)
def test_what_is_strict_needs_no_change(name: str) -> None:
    """The SDK of Anthropic, and PydanticAI for OpenAI, would send it as it is."""
    schema: Any = SCHEMAS[name]
    if not strict_faults(schema, OPENAI):
        transformer = OpenAIJsonSchemaTransformer(copy.deepcopy(schema))
        transformer.walk()
        assert transformer.is_strict_compatible or name == "bounded"  # lengths are taken since it was written
    if not strict_faults(schema, ANTHROPIC):
        changed = transform_schema(copy.deepcopy(schema))
        assert without(changed, {"default", "description"}) == without(schema, {"default", "description"})


def without(node: Any, words: set[str]) -> Any:
    """A schema without some keywords, which the SDK moves into descriptions, without an empty list, and a type."""
    if is_object(node):
        words = words | {"type"} if "enum" in node else words  # the choices say the type
        return {key: without(item, words) for key, item in node.items() if key not in words and item != []}
    return [without(item, words) for item in node] if is_array(node) else node


def test_a_tool_without_a_schema_of_its_own() -> None:
    """One without parameters is not strict for OpenAI, which wants a list of the required ones."""
    assert strict_faults(Tool[None, None](name="x", description="X.").parameters_schema, OPENAI)
