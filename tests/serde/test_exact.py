"""What would not come back from a store as what it is, is refused when it is stored, at its place."""

from __future__ import annotations

import dataclasses
import datetime as dt
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import count
from pathlib import Path, PurePath, PureWindowsPath
from typing import Annotated, Any

import pytest
from hypothesis import given
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    PlainValidator,
    model_validator,
)

from handrail.errors import DumpError
from handrail.serde import result_codec, stored_codec
from tests.serde.shapes import Everything, Level, everything
from tests.wording import Wording


@dataclass(frozen=True)
class Base:
    name: str


@dataclass(frozen=True)
class Card(Base):
    number: int = 0


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
    (Base, card, "$.x"),
    (Base | str, card, "$.x"),
    (list[Base], [Base("a"), card], "$.x[1]"),
    (tuple[Base, ...], (card,), "$.x[0]"),
    (tuple[int, Base], (1, card), "$.x[1]"),
    (dict[str, Base], {"a": card}, "$.x.a"),
    (list[Base] | str, [card], "$.x[0]"),
    (Node, Node(None, (Node(), Node(card))), "$.x.kids[1].below"),
    (int, True, "$.x"),
    (int, Level.LOW, "$.x"),
    (dict[int, int], {True: 1}, "$.x.True"),
    (float, True, "$.x"),
    (float, 2**53 + 1, "$.x"),
    (float, 10**400, "$.x"),
    (int, HUGE, "$.x"),
    (Any, {"a": [HUGE]}, "$.x.a[0]"),
    (dt.date, dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC), "$.x"),
    (dt.datetime, dt.datetime(1900, 1, 1, tzinfo=odd), "$.x"),
    (list[dt.time], [dt.time(1, tzinfo=odd)], "$.x[0]"),
    (PurePath, PureWindowsPath("c:\\a"), "$.x"),
    (re.Pattern[str], re.compile("a", re.IGNORECASE), "$.x"),
]


@pytest.mark.parametrize("kind, value, path", REFUSED, ids=count())
def test_what_would_come_back_as_something_else_is_refused_at_its_place(kind: Any, value: Any, path: str) -> None:
    """Or what could not be read back."""
    cls = held(kind)
    with pytest.raises(DumpError) as caught:
        stored_codec(cls).dump_json(cls(value))
    assert [found for found, _ in caught.value.faults] == [path]


def test_the_error_names_both_types_and_the_cure(wording: Wording) -> None:
    """The declared one, and that of the value."""
    cls = held(list[Base])
    with pytest.raises(DumpError) as caught:
        stored_codec(cls).dump_json(cls([card]))
    assert str(caught.value) == wording


def test_a_message_shows_what_a_store_refuses() -> None:
    """The model reads the fields of the declared type."""
    cls = held(Base)
    assert result_codec(cls).dump(cls(card)) == {"x": {"name": "a"}}


TAKEN: list[tuple[Any, Any]] = [
    (Base | Card, card),
    (Card, card),
    (int | bool, True),
    (float, 2),
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


EXCEPTIONS: list[tuple[Any, Any, Any]] = [
    (Sequence[str], ("a",), ["a"]),
    (str, Word("a"), "a"),
    (float, Share(1.5), 1.5),
    (float, 2, 2.0),
    (dict[str, int], defaultdict(int, a=1), {"a": 1}),
]


@pytest.mark.parametrize("kind, value, back", EXCEPTIONS, ids=count())
def test_a_type_that_says_less_comes_back_as_the_plainest(kind: Any, value: Any, back: Any) -> None:
    """As docs/reference/values.md says: these types are given with others in ordinary programs."""
    cls = held(kind)
    stored = stored_codec(cls)
    found: Any = stored.parse_json(stored.dump_json(cls(value)))
    assert found.x == back
    assert type(found.x) is type(back)


@given(everything())
def test_what_was_drawn_of_its_types_is_stored(value: Everything) -> None:
    """No value of exactly its declared types is refused."""
    stored = stored_codec(Everything)
    assert stored.parse_json(stored.dump_json(value)) == value
