"""What is dumped can be parsed back."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail.serde import codec, dump, parse, result_codec, schema
from tests.serde.shapes import Circle, Everything, Inner, Page, Square, everything, inners


@given(everything())
def test_every_type_survives_a_round_trip(value: Everything) -> None:
    """`parse(type(x), dump(x)) == x`, through Python and through JSON."""
    assert parse(Everything, dump(value)) == value
    parameters = codec(Everything)
    assert parameters.parse_json(parameters.dump_json(value)) == value


@given(everything())
def test_what_is_dumped_is_json(value: Everything) -> None:
    """`dump` gives the Python that the standard library writes and reads without loss."""
    dumped = dump(value)
    assert json.loads(json.dumps(dumped, allow_nan=False)) == dumped


@given(everything())
def test_what_is_dumped_has_the_fields_of_the_schema(value: Everything) -> None:
    """The model is shown exactly the fields that a value has, and is asked for those without a default."""
    shown: dict[str, Any] = schema(Everything)
    assert list(shown["properties"]) == list(dump(value))
    assert set(shown["required"]) == set(dump(value)) - {"nothing", "default"}


@given(st.lists(inners(), max_size=4))
def test_a_generic_dataclass_survives_a_round_trip(items: list[Inner]) -> None:
    """`Page[Inner]` makes its items of type `Inner`, though `Page` alone does not know them."""
    page = Page(items, Page(items))
    assert parse(Page[Inner], dump(page)) == page


@pytest.mark.parametrize(
    "kind, value",
    [
        (dict[str, int], {"a": 1}),
        (list[Circle | Square], [Circle("circle", 1.5), Square("square", 2.0)]),
        (tuple[Circle, ...], (Circle("circle", 1.5),)),
        (str, "text"),
        (frozenset[int], frozenset({1, 2})),
        (Circle | None, None),
        (Page[int], Page([1, 2])),
    ],
)
def test_a_result_survives_a_round_trip(kind: object, value: object) -> None:
    """A result may also be a mapping, a sequence, a set or a string, or nothing."""
    results = result_codec(kind)
    assert results.parse_json(results.dump_json(value)) == value
