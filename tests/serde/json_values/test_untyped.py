"""Bytes in what should be decoded JSON."""

from __future__ import annotations

import enum
from collections import deque
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import PurePath
from uuid import UUID

import pytest

from handrail.errors import ParseError
from handrail.serde import parse
from tests.kit import refusal
from tests.serde.shapes import Json, Plan
from tests.wording import Wording


class Raw(enum.Enum):
    """An enum that JSON writes as base64."""

    ONE = b"one"


@dataclass
class Holder:
    raw: bytes = b""


@pytest.mark.parametrize(
    "data, path",
    [
        pytest.param({"objective": b"abc"}, "$.objective", id="bytes"),
        pytest.param({"objective": Raw.ONE}, "$.objective", id="enum"),
        pytest.param({"objective": "a", "notes": {"b c": b"d"}}, '$.notes["b c"]', id="dict"),
        pytest.param({"objective": "a", "steps": ({"weight": b"1"},)}, "$.steps[0].weight", id="item"),
        pytest.param({"objective": "a", "steps": deque([Holder(b"b")])}, "$.steps[0].raw", id="dataclass"),
        pytest.param({"objective": "a", "notes": {b"b": "c"}}, "$.notes", id="key"),
        pytest.param({b"objective": "a"}, "$", id="name of a field"),
        pytest.param([b"a"], "$[0]", id="list"),
    ],
)
def test_bytes_in_a_mapping_are_a_fault(data: Json, path: str, wording: Wording) -> None:
    """Decoded JSON holds none; taken as base64 they would arrive as a string that nobody has sent."""
    with pytest.raises(ParseError) as caught:
        parse(Plan, data)
    assert [found for found, _ in caught.value.faults] == [path]
    assert str(caught.value) == wording


@pytest.mark.parametrize(
    "value",
    [datetime(2026, 1, 31, tzinfo=UTC), Decimal(1), UUID(int=1), PurePath("a")],
    ids=["datetime", "Decimal", "UUID", "PurePath"],
)
def test_a_value_that_json_does_not_have_is_not_converted(value: object, wording: Wording) -> None:
    """Neither a moment nor a path arrives as a string that nobody has sent."""
    assert str(refusal(ParseError, parse, Plan, {"objective": value})) == wording


def test_bytes_where_bytes_are_asked_for_come_as_base64(wording: Wording) -> None:
    """A mapping says them as JSON does."""
    assert parse(Holder, {"raw": "AP8="}) == Holder(b"\x00\xff")
    assert str(refusal(ParseError, parse, Holder, {"raw": b"AP8="})) == wording
