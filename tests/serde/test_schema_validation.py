"""Arguments whose schema is data are held to it: as the reference implementation does, with places and cures."""

from __future__ import annotations

import copy
import json
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from handrail.errors import DumpError, ParseError, SchemaError
from handrail.serde.schema_codec import schema_codec
from handrail.serde.schema_validation import JsonSchemaValidator
from tests.extent import examples
from tests.wording import Wording

ORDER: dict[str, Any] = {
    "type": "object",
    "properties": {
        "kind": {"enum": ["new", "old", 1, None]},
        "version": {"const": 1},
        "amount": {"type": "number", "exclusiveMinimum": 0, "maximum": 9, "multipleOf": 0.1},
        "count": {"type": "integer", "minimum": 1, "exclusiveMaximum": 5},
        "name": {"type": ["string", "null"], "minLength": 1, "maxLength": 3, "pattern": "^a"},
        "tags": {"type": "array", "items": {"$ref": "#/$defs/tag"}, "minItems": 1, "maxItems": 2, "uniqueItems": True},
        "pair": {"prefixItems": [{"type": "string"}], "items": {"type": "integer"}, "contains": {"const": 3}},
        "old_pair": {"items": [{"type": "string"}], "additionalItems": False},
        "either": {"anyOf": [{"$ref": "#/$defs/tag"}, {"type": "integer"}]},
        "one": {"oneOf": [{"type": "number"}, {"type": "integer"}]},
        "shape": {
            "oneOf": [
                {"type": "object", "properties": {"r": {"type": "number"}}, "required": ["r"]},
                {"type": "object", "properties": {"w": {"type": "number"}}, "required": ["w"]},
            ]
        },
        "all": {"allOf": [{"type": "integer"}, {"not": {"const": 4}}]},
        "map": {"type": "object", "additionalProperties": {"type": "boolean"}, "propertyNames": {"maxLength": 2}},
        "free": {"type": "object", "patternProperties": {"^x": {"type": "integer"}}, "minProperties": 1},
        "if": {"if": {"type": "integer"}, "then": {"minimum": 3}, "else": {"type": "string"}},
        "child": {"$ref": "#"},
        "never": False,
        "any": True,
        "nothing": {"type": "integer", "nullable": True},
    },
    "required": ["kind"],
    "dependentRequired": {"count": ["amount"]},
    "additionalProperties": False,
    "$defs": {"tag": {"type": "string", "maxLength": 2}},
}

LOOSE: dict[str, Any] = {
    "type": "object",
    "properties": {
        "a": {
            "minLength": 1,
            "maxLength": 2,
            "pattern": "a",
            "minimum": 1,
            "multipleOf": 2,
            "uniqueItems": True,
            "minItems": 1,
            "maxItems": 2,
            "prefixItems": [{"type": "integer"}],
            "items": {"type": "string"},
            "required": ["r"],
            "properties": {"r": {"type": "integer"}},
            "additionalProperties": {"type": "string"},
            "patternProperties": {"^x": True},
            "propertyNames": {"pattern": "^[rwx]"},
            "minProperties": 1,
            "dependentRequired": {"w": ["x"]},
            "contains": {"type": "integer"},
            "maxContains": 1,
        },
        "b": {"enum": [[1], {"r": [1.0]}, {"w": True}, []]},
        "c": {"const": {"r": 1}},
        "d": {"anyOf": [{"anyOf": [{"anyOf": [{"const": 1}]}]}, {"required": ["r"]}, True]},
        "e": {"if": {"type": "array"}, "then": {"minItems": 2}},
        "x~y/z": {"allOf": [{"$ref": "#/properties/x~0y~1z/$defs/0"}], "$defs": {"0": {"type": "null"}}},
    },
}
"""Keywords without a type beside them, which are of values of their type alone."""

FAULTY: list[Any] = [
    {},
    {"kind": "other", "version": True, "mroe": 1, "count": 5},
    {"kind": "new", "amount": "5", "name": 5, "tags": '["a"]', "never": 1},
    {"kind": "new", "amount": 0.35, "count": 2.5, "name": "bbbb"},
    {"kind": "new", "tags": ["a", "a", "abc"], "pair": ["a", "b"], "old_pair": ["a", 1]},
    {"kind": "new", "either": [], "one": 1, "all": 4, "map": {"abc": 1}, "free": {}},
    {"kind": "new", "shape": {"q": 1}, "if": 1, "child": {"kind": 5}},
    {"kind": "new", "shape": {"r": "1"}, "if": None, "free": {"x": "a"}},
    {"kind": "new", "one": "a", "tags": []},
    [],
]


def reference(value: object) -> bool:
    """Whether the reference implementation takes a value; it does not know `nullable`, or arrays of `items`."""
    schema = copy.deepcopy(ORDER)
    schema["properties"]["nothing"] = {"type": ["integer", "null"]}
    schema["properties"]["old_pair"] = {"prefixItems": [{"type": "string"}], "items": False}
    validator: Any = jsonschema.Draft202012Validator(schema)
    return bool(validator.is_valid(value))


VALUES = st.recursive(
    st.sampled_from([None, True, False, 0, 1, 2, 3, 4, 1.0, 0.3, 0.35, -1, "", "a", "ab", "abc", "b", "new"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["r", "w", "x", "abc", "kind"]), inner, max_size=2)
    ),
    max_leaves=4,
)


@settings(max_examples=examples(300))
@given(
    st.dictionaries(st.sampled_from([*ORDER["properties"], "more"]), VALUES, max_size=4),
    st.sampled_from(["new", 1, True, None, "other"]),
)
def test_it_takes_what_the_reference_implementation_takes(value: dict[str, Any], kind: object) -> None:
    """Draft 2020-12, for every keyword that is checked."""
    value = {"kind": kind, **value}
    assert (JsonSchemaValidator(ORDER).faults(value) == ()) is reference(value)


@settings(max_examples=examples(300))
@given(st.dictionaries(st.sampled_from([*LOOSE["properties"]]), VALUES, min_size=1, max_size=3))
def test_a_keyword_is_of_values_of_its_type_alone(value: dict[str, Any]) -> None:
    """Others pass, as the reference implementation has it."""
    validator: Any = jsonschema.Draft202012Validator(LOOSE)
    assert (JsonSchemaValidator(LOOSE).faults(value) == ()) is bool(validator.is_valid(value))


@pytest.mark.parametrize("value", FAULTY)
def test_every_fault_has_its_path_and_its_cure(value: object, wording: Wording) -> None:
    """In the words of other arguments."""
    assert not reference(value)
    with pytest.raises(ParseError) as raised:
        schema_codec(ORDER).parse_json(json.dumps(value))
    assert str(raised.value) == wording


@pytest.mark.parametrize(
    "text",
    ["{", '{"kind": NaN}', '{"kind": "new", "kind": "old"}', '"\ud800"', "[" * 999, "", "null"],
    ids=["syntax", "nan", "twice", "surrogate", "deep", "empty", "null"],
)
def test_what_is_not_json_is_refused(text: str, wording: Wording) -> None:
    """As for other arguments; no text at all is an object without fields."""
    with pytest.raises(ParseError) as raised:
        schema_codec(ORDER).parse_json(text)
    assert str(raised.value) == wording


def test_arguments_that_are_too_large_are_not_read(wording: Wording) -> None:
    """The limit is that of the executor."""
    with pytest.raises(ParseError) as raised:
        schema_codec(ORDER).within(5).parse({"kind": "new"})
    assert str(raised.value) == wording


def test_very_many_faults_are_cut() -> None:
    """Of a hundred one reads no more."""
    schema = {"type": "object", "additionalProperties": False}
    with pytest.raises(ParseError) as caught:
        schema_codec(schema).parse({str(number): 1 for number in range(200)})
    assert len(caught.value.faults) == 100


def test_an_object_is_written_as_it_is_read() -> None:
    """And one that does not fit is refused."""
    codec = schema_codec(ORDER)
    assert codec.dump_json({"kind": "new"}) == b'{"kind":"new"}'
    assert codec.dump({"kind": "new"}) == {"kind": "new"}
    for wrong in ({}, {"kind": float("nan")}):
        with pytest.raises(DumpError):
            codec.dump_json(wrong)


def test_the_schema_is_a_copy() -> None:
    """Whoever gave it may change it."""
    given_schema: dict[str, Any] = {"type": "object", "required": ["a"]}
    codec = schema_codec(given_schema)
    given_schema["required"] = []
    assert codec.schema == {"type": "object", "required": ["a"]}


WRONG: list[Any] = [
    5,
    {},
    {"type": "array"},
    {"type": "object", "unevaluatedProperties": False},
    {"type": "object", "properties": {"a": {"type": "text"}}},
    {"type": "object", "properties": {"a": {"pattern": "("}}},
    {"type": "object", "properties": {"a": {"$ref": "#/$defs/none"}}},
    {"type": "object", "properties": {"a": {"$ref": "https://example.org/schema"}}},
    {"type": "object", "properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}]}}},
    {"type": "object", "properties": {"a": {"minimum": 0, "exclusiveMinimum": True}}},
    {"type": "object", "properties": {"a": {"required": True}}},
    {"type": "object", "properties": {"a": {"multipleOf": 0}}},
    {"type": "object", "properties": {"a": 5}},
    {"type": "object", "properties": [5]},
    {"type": "object", "allOf": [{"type": "object", "minProperties": -1}]},
]


@pytest.mark.parametrize("schema", WRONG)
def test_a_schema_that_cannot_be_checked_is_refused(schema: object, wording: Wording) -> None:
    """With the place in it, as a JSON pointer."""
    with pytest.raises(SchemaError) as raised:
        schema_codec(schema)
    assert str(raised.value) == wording


def test_what_only_describes_is_left_alone() -> None:
    """Of JSON Schema, of OpenAPI, and extensions."""
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "title": "Order",
        "properties": {"at": {"type": "string", "format": "date-time", "default": 5, "x-order": 1, "example": "a"}},
    }
    assert schema_codec(schema).parse_json('{"at": "no date", "more": [1]}') == {"at": "no date", "more": [1]}
