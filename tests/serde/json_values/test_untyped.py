"""Bytes in what should be decoded JSON."""

from __future__ import annotations

import enum
from collections import deque
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import PurePath
from types import MappingProxyType
from uuid import UUID

import pytest

from handrail.errors import ParseError
from handrail.serde import parse
from tests.serde.shapes import Drawing, Json, Loose, Plan
from tests.wording import Wording


class Raw(enum.Enum):
    """An enum that JSON writes as base64."""

    ONE = b"one"


@dataclass
class Holder:
    raw: bytes = b""


@pytest.mark.parametrize(
    "data, fault",
    [
        ({"objective": b"abc"}, "$.objective: expected a string, got {}"),
        ({"objective": bytearray(b"abc")}, "$.objective: expected a string, got {}"),
        ({"objective": b"\xff"}, "$.objective: expected a string, got {}"),
        ({"objective": b""}, "$.objective: expected a string, got {}"),
        ({"objective": Raw.ONE}, "$.objective: expected a string, got {}"),
        ({"objective": "a", "limit": b"1"}, "$.limit: expected an integer, got {}"),
        ({"objective": "a", "notes": {"b c": b"d"}}, '$.notes["b c"]: expected a string, got {}'),
        ({"objective": "a", "notes": MappingProxyType({"b": b"c"})}, "$.notes.b: expected a string, got {}"),
        (
            {"objective": "a", "steps": ({"weight": b"1"},)},
            "$.steps[0].weight: expected an integer > 0, got {}",
        ),
        ({"objective": "a", "steps": deque([Holder(b"b")])}, "$.steps[0].raw: got {}"),
        ({"objective": "a", "notes": {b"b": "c"}}, "$.notes: wrong key: expected a string, got {}"),
        ({b"objective": "a"}, "$: wrong key: expected a string, got {}"),
        ({"objective": "a", "more": [{"b": b"c"}]}, "$.more[0].b: got {}"),
        ([b"a"], "$[0]: got {}"),
    ],
)
@pytest.mark.parametrize("extra", ["forbid", "ignore"])
def test_bytes_in_a_mapping_are_a_fault(data: Json, fault: str, extra: Json) -> None:
    """Decoded JSON holds none; taken as base64 they would arrive as a string that nobody has sent."""
    with pytest.raises(ParseError) as caught:
        parse(Plan, data, extra=extra)
    assert str(caught.value) == fault.format("bytes, which JSON does not have")


@pytest.mark.parametrize(
    "value, name",
    [
        (datetime(2026, 1, 31, tzinfo=UTC), "datetime"),
        (Decimal(1), "Decimal"),
        (UUID(int=1), "UUID"),
        (PurePath("a"), r"\w+Path"),
    ],
)
def test_a_value_that_json_does_not_have_is_not_converted(value: object, name: str, wording: Wording) -> None:
    """Neither a moment nor a path arrives as a string that nobody has sent."""
    with pytest.raises(ParseError) as raised:
        parse(Plan, {"objective": value})
    assert str(raised.value) == wording


@pytest.mark.parametrize(
    "data, faults",
    [
        ({"shapes": [{"kind": "circle", "radius": b"1"}]}, [("$.shapes[0].radius", "a number")]),
        ({"marked": {"kind": b"circle"}}, [("$.marked.kind", '"circle" or "square"')]),
        ({"size": b"1"}, [("$.size", "an integer, an array (each item: an integer) or null")]),
        ({"size": [1, b"2", b"3"]}, [("$.size[1]", "an integer"), ("$.size[2]", "an integer")]),
    ],
)
def test_bytes_inside_a_union_are_told_with_all_that_could_stand_there(data: Json, faults: Json) -> None:
    """Every one of them, with its path."""
    with pytest.raises(ParseError) as caught:
        parse(Drawing, data)
    expected = [(path, f"expected {what}, got bytes, which JSON does not have") for path, what in faults]
    assert list(caught.value.faults) == expected


def test_bytes_where_bytes_are_asked_for_come_as_base64(wording: Wording) -> None:
    """A mapping says them as JSON does."""
    assert parse(Holder, {"raw": "AP8="}) == Holder(b"\x00\xff")
    with pytest.raises(ParseError) as caught:
        parse(Holder, {"raw": b"AP8="})
    assert str(caught.value) == wording


def test_bytes_where_anything_may_stand_are_a_fault(wording: Wording) -> None:
    """There is no telling there what base64 would mean."""
    with pytest.raises(ParseError) as caught:
        parse(Loose, {"anything": b"a"})
    assert str(caught.value) == wording
    with pytest.raises(ParseError) as caught:
        parse(Loose, {"anything": {"a": [b"b"]}})
    assert str(caught.value) == wording


def test_of_very_many_bytes_in_a_mapping_a_hundred_are_told() -> None:
    """The message stays short enough to be read."""
    with pytest.raises(ParseError) as caught:
        parse(Plan, {"objective": "a", "steps": [b"b"] * 1000})
    assert len(caught.value.faults) == 100
