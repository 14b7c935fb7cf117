"""Arguments whose JSON Schema is data."""

from __future__ import annotations

import importlib
import json
import sys
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from pydantic import Field

from handrail.errors import DumpError, ParseError, SchemaError
from handrail.serde import codec
from handrail.serde.schema_codec import schema_codec
from tests.extent import examples
from tests.kit import refusal
from tests.wording import Wording

ORDER: dict[str, Any] = {
    "type": "object",
    "properties": {
        "kind": {"enum": ["new", "old", 1, None]},
        "amount": {"type": "number", "exclusiveMinimum": 0, "maximum": 90, "multipleOf": 0.01},
        "name": {"type": ["string", "null"], "minLength": 1, "maxLength": 3, "pattern": "^a"},
        "tags": {"type": "array", "items": {"$ref": "#/$defs/tag"}, "maxItems": 2, "uniqueItems": True},
        "either": {"anyOf": [{"$ref": "#/$defs/tag"}, {"type": "integer"}]},
        "one": {"oneOf": [{"type": "number"}, {"type": "integer"}]},
        "shape": {"oneOf": [{"$ref": "#/$defs/circle"}, {"$ref": "#/$defs/square"}]},
        "map": {"type": "object", "additionalProperties": {"type": "boolean"}, "propertyNames": {"maxLength": 2}},
        "free": {"type": "object", "patternProperties": {"^x": {"type": "integer"}}, "minProperties": 1},
        "child": {"$ref": "#"},
        "never": False,
        "nothing": {"type": "integer", "nullable": True},
    },
    "required": ["kind"],
    "dependentRequired": {"name": ["amount"]},
    "additionalProperties": False,
    "$defs": {
        "tag": {"type": "string", "maxLength": 2},
        "circle": {"type": "object", "properties": {"form": {"const": "circle"}, "r": {"type": "number"}}},
        "square": {"properties": {"form": {"const": "square"}, "w": {"type": "integer"}}, "required": ["form", "w"]},
    },
}

FAULTY: list[Any] = [
    {},
    [],
    {"kind": "other", "mroe": 1, "name": "bbbb"},
    {"kind": "new", "amount": "5", "name": 5, "tags": '["a"', "never": 1},
    {"kind": "new", "amount": 19.991, "tags": ["a", "a", "abc"], "either": [], "one": 1},
    {"kind": "new", "map": {"abc": 1}, "free": {}, "child": {"kind": 5}},
    {"kind": "new", "shape": {"form": "square", "w": "1"}, "free": {"x": "a"}},
    {"kind": "new", "shape": {"form": "line"}},
    {"kind": "new", "shape": {"r": "1"}},
]


@pytest.mark.parametrize("value", FAULTY)
def test_every_fault_has_its_path_and_its_cure(value: object, wording: Wording) -> None:
    """In the words of other arguments; nothing that was sent is repeated."""
    assert str(refusal(ParseError, schema_codec(ORDER).parse_json, json.dumps(value))) == wording


@pytest.mark.parametrize(
    "text",
    [
        *("{", '{"kind": NaN, "amount": 1e999}', '{"kind": "new", "kind": "old"}', '"\ud800"', "[" * 999, "null"),
        f'{{"kind": "new", "amount": {10**400}}}',
    ],
    ids=["syntax", "nan", "twice", "surrogate", "deep", "null", "digits"],
)
def test_what_is_not_json_is_refused(text: str, wording: Wording) -> None:
    """As for other arguments."""
    assert str(refusal(ParseError, schema_codec(ORDER).parse_json, text)) == wording


def test_numbers_are_those_that_were_written() -> None:
    """No cent is lost to a float, and no digit of an integer."""
    made = schema_codec({"type": "object", "additionalProperties": {"type": "number", "multipleOf": 0.01}})
    assert made.parse_json('{"a": 19.99, "b": 1e22}') == {"a": 19.99, "b": 1e22}
    assert made.parse_json(f'{{"a": {10**400 + 1}}}') == {"a": 10**400 + 1}


def test_an_object_is_written_as_it_is_read() -> None:
    """And one that does not fit is refused."""
    made = schema_codec(ORDER)
    assert made.dump_json({"kind": "new"}) == b'{"kind":"new"}'
    assert made.dump({"kind": "new"}) == {"kind": "new"}
    for wrong in ({}, {"kind": float("nan")}):
        refusal(DumpError, made.dump_json, wrong)


def test_nullable_of_openapi_is_a_type() -> None:
    """Models know no `nullable`."""
    made = schema_codec(ORDER)
    assert made.schema["properties"]["nothing"]["type"] == ["integer", "null"]
    assert made.parse({"kind": "new", "nothing": None}) == {"kind": "new", "nothing": None}


def test_the_schema_names_its_draft() -> None:
    """Of draft 7 too, in which an array of items is that of the first ones."""
    pair: dict[str, Any] = {"items": [{"type": "string"}], "additionalItems": False}
    schema = {"type": "object", "properties": {"pair": pair, "child": {"$ref": "#"}}}
    made = schema_codec({"$schema": "http://json-schema.org/draft-07/schema#", **schema})
    assert made.parse({"child": {"pair": ["a"]}}) == {"child": {"pair": ["a"]}}
    assert "$schema" in made.schema
    refusal(ParseError, made.parse, {"child": {"pair": ["a", "b"]}})
    assert refusal(SchemaError, schema_codec, schema).path == "#/properties/pair/items"


def test_what_only_describes_is_left_alone() -> None:
    """Of JSON Schema, of OpenAPI, and extensions."""
    at = {"type": "string", "format": "date-time", "default": 5, "x-order": 1, "example": "a"}
    schema = {"type": "object", "title": "Order", "properties": {"at": at}}
    assert schema_codec(schema).parse_json('{"at": "no date", "more": [1]}') == {"at": "no date", "more": [1]}


WRONG: list[Any] = [
    5,
    {},
    {"type": "object", "properties": {"a": {"type": "text"}}},
    {"type": "object", "properties": {"a": {"pattern": "("}}},
    {"type": "object", "properties": {"a/b": {"minimum": "0"}}},
    {"type": "object", "properties": {"a": {"$ref": "#/$defs/none"}}},
    {"type": "object", "properties": {"a": {"$ref": "#/title"}}, "title": "x"},
    {"type": "object", "properties": {"a": {"$ref": "https://example.org/schema"}}},
    {"type": "object", "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}]}}},
    {"type": "object", "allOf": [{"$ref": "#"}]},
]


@pytest.mark.parametrize("schema", WRONG)
def test_a_schema_that_cannot_be_checked_is_refused(schema: object, wording: Wording) -> None:
    """With the place in it, as a JSON pointer."""
    error = refusal(SchemaError, schema_codec, schema)
    assert str(error).startswith(f"{error.path}: ")
    assert str(error) == wording


def test_a_schema_that_has_no_end_for_a_value_is_harmless(wording: Wording) -> None:
    """Where no reading of the schema shows it, the arguments are refused."""
    endless = {"if": {"type": "null"}, "else": {"$ref": "#/$defs/a"}}
    made = schema_codec({"type": "object", "properties": {"a": endless}, "$defs": {"a": endless}})
    assert made.parse({"a": None}) == {"a": None}
    assert str(refusal(ParseError, made.parse, {"a": 5})) == wording


def test_a_missing_jsonschema_is_named(monkeypatch: pytest.MonkeyPatch, wording: Wording) -> None:
    """The error says what to install."""
    monkeypatch.delitem(sys.modules, "handrail.serde.schema_codec")
    monkeypatch.setitem(sys.modules, "jsonschema", None)
    assert str(refusal(ModuleNotFoundError, importlib.import_module, "handrail.serde.schema_codec")) == wording


@dataclass(frozen=True, slots=True)
class Step:
    """A step, which may have others."""

    title: Annotated[str, Field(min_length=1, max_length=3)]
    done: bool = False
    steps: list[Step] = field(default_factory=list["Step"])


@dataclass(frozen=True, slots=True)
class Plan:
    """A plan."""

    kind: Literal["new", "old"]
    count: Annotated[int, Field(ge=1, lt=4)] | None = None
    steps: Annotated[list[Step], Field(max_length=2)] = field(default_factory=list[Step])
    weights: dict[str, float] = field(default_factory=dict[str, float])
    either: int | str | None = None


_NAMES = ("kind", "count", "steps", "weights", "either", "title", "done", "more")
_VALUES: st.SearchStrategy[Any] = st.recursive(
    st.sampled_from([None, True, 0, 1, 3, 4, 2.0, 0.5, "", "a", "abcd", "new"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_NAMES), inner, max_size=4),
    max_leaves=8,
)
_TITLES: dict[str, Any] = {"title": st.sampled_from(["a", "abcd", 1]), "steps": _VALUES}
_STEPS: st.SearchStrategy[Any] = st.lists(st.fixed_dictionaries({}, optional=_TITLES))
_LIKELY: dict[str, Any] = {"kind": st.just("new"), "title": st.just("a"), "steps": _STEPS}


@settings(max_examples=examples(300))
@given(
    st.sampled_from([Plan, Step]),
    st.dictionaries(st.sampled_from(_NAMES), _VALUES, max_size=6),
    st.fixed_dictionaries({}, optional=_LIKELY),
)
def test_it_takes_what_jsonschema_takes(cls: type[Any], value: dict[str, Any], likely: dict[str, Any]) -> None:
    """Of the schemas of dataclasses."""
    schema, value = codec(cls).schema, {**value, **likely}
    reference: Any = Draft202012Validator(schema)  # its own types are only partly known
    checked = schema_codec(schema)
    if reference.is_valid(value):
        assert checked.parse(value) == value
        return
    refusal(ParseError, checked.parse, value)
