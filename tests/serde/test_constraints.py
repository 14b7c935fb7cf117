"""Constraints act, or are refused."""

from __future__ import annotations

import dataclasses
import re
from decimal import Decimal
from itertools import count
from typing import Annotated, Any

import annotated_types
import pytest
from pydantic import Field, StringConstraints

from handrail.errors import ParseError, SchemaError
from handrail.serde import codec
from handrail.serde.constraints import ACTING
from tests.serde.shapes import Json


class Meta:
    """A constraint of another library."""

    def __init__(self, **words: object) -> None:
        """Hold the words as attributes."""
        self.__dict__.update(words)


def held(kind: Any, **metadata: object) -> Any:
    """A dataclass with a field of this type and metadata."""
    return dataclasses.make_dataclass("Held", [("x", kind, dataclasses.field(metadata=metadata))])


BROKEN: dict[str, tuple[Any, Json, str]] = {
    "gt": (int, 1, "1"),
    "ge": (int, 2, "1"),
    "lt": (float, 1, "1"),
    "le": (float, 0.5, "1"),
    "multiple_of": (int, 2, "1"),
    "min_length": (list[int], 2, "[1]"),
    "max_length": (str, 2, '"abc"'),
    "pattern": (str, "^a$", '"b"'),
    "max_digits": (Decimal, 2, '"123"'),
    "decimal_places": (Decimal, 1, '"1.25"'),
}


@pytest.mark.parametrize("word", sorted(ACTING))
def test_a_word_that_acts_refuses_a_value(word: str) -> None:
    """In the metadata of a field, and as an argument of `Field`."""
    kind, bound, text = BROKEN[word]
    arguments: dict[str, Any] = {word: bound}
    for cls in (held(kind, **arguments), held(Annotated[kind, Field(**arguments)])):
        with pytest.raises(ParseError):
            codec(cls).parse_json(f'{{"x":{text}}}')


@pytest.mark.parametrize(
    "cls, cure",
    [
        (held(Annotated[str, {"min_length": 1}]), "Field(min_length=...)"),
        (held(list[Annotated[int, {"minimum": 1}]]), "Field(ge=...)"),
        (held(Annotated[str, Meta(max_length=1)]), "Field(max_length=...)"),
        (held(Annotated[str, re.compile("a")]), "Field(pattern=...)"),
        (held(int, minimum=1), "field(metadata={'ge': ...})"),
        (held(int, exclusiveMaximum=1), "field(metadata={'lt': ...})"),
        (held(list[int], maxItems=1), "field(metadata={'max_length': ...})"),
        (held(list[int], min_items=1), "field(metadata={'min_length': ...})"),
        (held(str, regex="a"), "field(metadata={'pattern': ...})"),
        (held(int, multipleOf=2), "field(metadata={'multiple_of': ...})"),
        (held(int, enum=[1, 2]), "Literal"),
        (held(list[int], uniqueItems=True), "set"),
        (held(str, strip_whitespace=True), "StringConstraints"),
        (held(int, json_schema_extra={"minimum": 1}), "Field(ge=...)"),
        (held(Annotated[int, Field(json_schema_extra={"enum": [1]})]), "Literal"),
        (held(int, pattern="a"), "leave the pattern out"),
        (held(Annotated[int | None, Field(pattern="a")]), "leave the pattern out"),
        (held(int, max_digits=2), "constraint max_digits"),
    ],
    ids=count(),
)
def test_a_word_that_would_not_act_is_refused(cls: Any, cure: str) -> None:
    """At its field, with what to write instead."""
    with pytest.raises(SchemaError) as caught:
        codec(cls)
    assert caught.value.path
    assert caught.value.path.startswith("$.x")
    assert cure in str(caught.value)


@pytest.mark.parametrize(
    "cls",
    [
        held(int, unit="m", widget={"minimum": 1}, secret=True, minimum=None),
        held(Annotated[int, "a note", 7, {"unit": "m"}, Meta(unit="m"), Meta(min_length=None)]),
        held(Annotated[str, annotated_types.Len(1, 2), StringConstraints(to_lower=True)]),
        held(Annotated[int, annotated_types.Interval(gt=0)]),
        held(int, json_schema_extra={"examples": [1]}, title="A title"),
        held(str | None, pattern="^a"),
    ],
    ids=count(),
)
def test_other_metadata_is_left_alone(cls: Any) -> None:
    """It is the program's own."""
    assert codec(cls).schema["properties"]["x"]


@pytest.mark.parametrize("word, value", [("default", 5), ("repr", False), ("union_mode", "smart"), ("gt", "a")])
def test_metadata_that_pydantic_cannot_take_is_told_as_such(word: str, value: object) -> None:
    """With the field and the words, whatever pydantic raises."""
    with pytest.raises(SchemaError, match=rf"^\$\.x: pydantic cannot take its metadata '{word}'"):
        codec(held(int, **{word: value}))
