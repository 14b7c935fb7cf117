"""What the published JSON Schema takes parses, and comes back as it was; for more than a hundred types of fields."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import count
from typing import Any, Final, cast

import pytest
from hypothesis import HealthCheck, given, settings

from handrail.errors import ParseError, SchemaError
from handrail.serde import codec, stored_codec
from tests.extent import FULL
from tests.serde.field_types import FIELD_TYPES
from tests.serde.schema_values import is_valid, taken_by

EXAMPLES: Final = 15 if FULL else 8
_SLOW: Final = (HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large)
PROBES: Final = [
    *("null", "true", "false", "0", "1", "-1", "2", "5.0", "-0.0", "1.5", "0.5", "1e2", "100000000000000000000", "3"),
    *('""', '"a"', '"b"', '"ab"', '"abc"', '"1"', '"0"', '"1.0"', '"01"', '" 1"', '"1_0"', '"true"', '"yes"', '"NaN"'),
    *('"1/3"', '"1/0"', '"done"', '"in_progress"', '"-1.5e3"', "[]", "[1]", "[1.0]", '["a"]', '["a", "b"]', '["a", 1]'),
    *("[true]", "[null]", "[[1]]", '[1, "a"]', '["a", "b", "c"]', "{}", '{"a": 1}', '{"a": "b"}', '{"a": true}'),
    *('{"1": 1}', '{"01": 1}', '{"1.5": 1}', '{"-0": 1}', '{"true": 1}', '{"True": 1}', '{"done": 1}', '{"1": "a"}'),
    *('{"name": "a"}', '{"name": 1}', '{"name": "a", "more": 1}', '{"1": {"name": "a"}}', '{"a": [1]}', '{"a": null}'),
    *('{"kind": "circle", "radius": 1}', '{"kind": "square", "side": 1.5}', '{"kind": "circle"}', '{"items": []}'),
]
"""JSON of all kinds; no type takes all of it."""


def held(kind: Any) -> Any:
    """A dataclass with a field of this type, and one that may be left out."""
    more = ("y", list[kind], dataclasses.field(default_factory=list[Any]))
    return dataclasses.make_dataclass("Held", [("x", kind), more])


def is_same(one: Any, other: Any) -> bool:
    """Whether two values are equal, and all that is in them is of equal types."""
    return type(one) is type(other) and bool(one == other) and all(map(is_same, iter_parts(one), iter_parts(other)))


def iter_parts(value: Any) -> list[Any]:
    """What a value holds, in an order that is the same for equal values of equal types."""
    if isinstance(value, dt.datetime | dt.time):
        return [value.utcoffset()]
    if dataclasses.is_dataclass(value):
        return [getattr(value, field.name) for field in dataclasses.fields(value)]
    if isinstance(value, Mapping):
        entries = cast("Mapping[object, object]", value)
        return [*entries, *entries.values()]
    if isinstance(value, AbstractSet):
        return sorted(cast("AbstractSet[object]", value), key=repr)
    is_sequence = isinstance(value, Sequence) and not isinstance(value, str | bytes)
    return list(cast("Sequence[Any]", value)) if is_sequence else []


@pytest.mark.parametrize("kind", FIELD_TYPES, ids=count())
def test_what_the_schema_takes_parses_and_comes_back(kind: Any) -> None:
    """With equal types, from the message and from the store, unless that refuses the type."""
    cls = held(kind)
    parameters = codec(cls)
    try:
        stored = stored_codec(cls)
    except SchemaError:
        stored = parameters
    schema = parameters.schema

    @settings(max_examples=EXAMPLES, database=None, suppress_health_check=_SLOW)
    @given(taken_by(schema, schema))
    def holds(drawn: Any) -> None:
        assert is_valid(schema, drawn)
        value = parameters.parse(json.dumps(drawn))
        assert is_same(parameters.parse(parameters.dump(value)), value)
        assert is_same(stored.parse_json(stored.dump_json(value)), value)

    holds()


@pytest.mark.parametrize("kind", FIELD_TYPES, ids=count())
def test_parsing_and_the_schema_agree_on_what_is_taken(kind: Any) -> None:
    """On values of all kinds; where the schema names a format, parsing may take less."""
    parameters = codec(held(kind))
    schema = parameters.schema
    has_formats = '"format"' in json.dumps(schema).replace('"format": "fraction"', "")
    for probe in PROBES:
        data = f'{{"x":{probe}}}'
        valid = is_valid(schema, json.loads(data))
        try:
            parameters.parse_json(data)
        except ParseError:
            assert has_formats or not valid, data
        else:
            assert valid, data
