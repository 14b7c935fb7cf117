"""What would not come back from a store as what it is, is refused when it is stored, at its place."""

from __future__ import annotations

import dataclasses
import datetime as dt
import re
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from itertools import count
from pathlib import Path, PurePath, PureWindowsPath
from typing import Annotated, Any

import pytest
from hypothesis import given
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, PlainValidator, model_validator

from handrail.errors import DumpError
from handrail.serde import result_codec, stored_codec
from tests.kit import refusal
from tests.serde.shapes import Base, Card, Everything, Status, everything


@dataclass(frozen=True)
class Node:
    below: Base | Node | None = None
    kids: tuple[Node, ...] = ()


class Word(str):
    __slots__ = ()


class Share(float):
    pass


class Checked(BaseModel):
    """A model whose fields are behind a validator."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    number: int

    @model_validator(mode="before")
    @classmethod
    def check(cls, given: object) -> object:
        """Take it as it is."""
        return given


def held(kind: object) -> Any:
    """A dataclass with one field of a type."""
    return dataclasses.make_dataclass("Held", [("x", kind)], frozen=True)


card = Card("a", 5)
odd = dt.timezone(dt.timedelta(seconds=3601))
HUGE = 10**4300

REFUSED: list[tuple[Any, Any, str]] = [
    (Base, card, "$"),
    (list[Base] | str, [card], "$"),
    (dict[int, int], {True: 1}, "$.x.True"),
    (float, 2**53 + 1, "$"),
    (float, 10**400, "$.x"),
    (int, HUGE, "$.x"),
    (Any, {"a": [HUGE]}, "$.x.a[0]"),
    (dt.date, dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC), "$.x"),
    (dt.datetime, dt.datetime(1900, 1, 1, tzinfo=odd), "$"),
    (list[dt.time], [dt.time(1, tzinfo=odd)], "$"),
    (PurePath, PureWindowsPath("c:\\a"), "$"),
    (re.Pattern[str], re.compile("a", re.IGNORECASE), "$"),
]


@pytest.mark.parametrize("kind, value, path", REFUSED, ids=count())
def test_what_would_come_back_as_something_else_is_refused_at_its_place(kind: Any, value: Any, path: str) -> None:
    """Or what could not be read back. All of it, because the tests set `HANDRAIL_CHECK_STORED`."""
    cls = held(kind)
    assert [found for found, _ in refusal(DumpError, stored_codec(cls).dump_json, cls(value)).faults] == [path]


def test_a_message_shows_what_a_store_refuses() -> None:
    """The model reads the fields of the declared type."""
    cls = held(Base)
    assert result_codec(cls).dump(cls(card)) == {"x": {"name": "a"}}


def _status(value: object) -> Status:
    return Status(value)


TAKEN: list[tuple[Any, Any]] = [
    (Card, card),
    (int | bool, True),
    (float, 2),
    (float | str, 2),
    (Annotated[Decimal, BeforeValidator(Decimal)], Decimal("1.5")),
    (Annotated[Status, BeforeValidator(_status)], Status.DONE),
    (float, 2**60),
    (int, HUGE - 1),
    (Fraction, Fraction(1, 3)),
    (dt.datetime, dt.datetime(2026, 1, 1, tzinfo=dt.timezone(dt.timedelta(minutes=61)))),
    (PurePath, Path("a")),
    (re.Pattern[str], re.compile("(?i)a")),
    (Annotated[int, AfterValidator(abs)], 1),
    (Annotated[int, PlainValidator(int)], 1),
    (Checked, Checked(number=1)),
]


@pytest.mark.parametrize("kind, value", TAKEN, ids=count())
def test_what_comes_back_equal_is_stored(kind: Any, value: Any) -> None:
    """Of the declared type, or of one that Python holds for equal."""
    cls = held(kind)
    stored = stored_codec(cls)
    assert stored.parse_json(stored.dump_json(cls(value))) == cls(value)


@given(everything())
def test_what_was_drawn_of_its_types_is_stored(value: Everything) -> None:
    """No value of exactly its declared types is refused."""
    stored = stored_codec(Everything)
    assert stored.parse_json(stored.dump_json(value)) == value
