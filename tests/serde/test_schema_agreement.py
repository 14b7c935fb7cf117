"""What the published JSON Schema takes parses, and comes back as what it was; for more than a hundred types of fields."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import count
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from jsonschema import Draft202012Validator

from handrail.serde import codec, stored_codec
from tests.serde.field_types import FIELD_TYPES
from tests.serde.schema_values import taken_by

EXAMPLES: Final = 15


def held(kind: Any) -> Any:
    """A dataclass with a field of this type, and one that may be left out."""
    return dataclasses.make_dataclass("Held", [("x", kind), ("y", list[kind], dataclasses.field(default_factory=list))])


def is_same(one: Any, other: Any) -> bool:
    """Whether two values are equal, and all that is in them is of equal types."""
    if type(one) is not type(other) or one != other:
        return False
    if isinstance(one, dt.datetime | dt.time):
        return bool(one.utcoffset() == other.utcoffset())
    if dataclasses.is_dataclass(one):
        return all(is_same(getattr(one, f.name), getattr(other, f.name)) for f in dataclasses.fields(one))
    if isinstance(one, Mapping):
        return all(map(is_same, one, other)) and all(map(is_same, one.values(), other.values()))
    if isinstance(one, AbstractSet):
        return sorted(map(repr, one)) == sorted(map(repr, other))
    if isinstance(one, Sequence) and not isinstance(one, str | bytes):
        return all(map(is_same, one, other))
    return True


@pytest.mark.parametrize("kind", FIELD_TYPES, ids=count())
def test_what_the_schema_takes_parses_and_comes_back(kind: Any) -> None:
    """With equal types, from the message and from the store."""
    cls = held(kind)
    parameters, stored = codec(cls), stored_codec(cls)
    schema = parameters.schema
    validator = Draft202012Validator(schema)

    @settings(max_examples=EXAMPLES, database=None, suppress_health_check=list(HealthCheck))
    @given(taken_by(schema, schema))
    def holds(drawn: Any) -> None:
        assert validator.is_valid(drawn)
        value = parameters.parse(json.dumps(drawn))
        assert is_same(parameters.parse(parameters.dump(value)), value)
        assert is_same(stored.parse_json(stored.dump_json(value)), value)

    holds()
