"""What parses, and what does not, is what the JSON Schema says."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import json
from collections import Counter, OrderedDict
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from itertools import count
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest
from pydantic import Field

from handrail.errors import ParseError
from handrail.serde import codec, stored_codec
from tests.kit import refusal
from tests.wording import Wording


class Digit(enum.IntEnum):
    ZERO = 0
    ONE = 1


class Share(enum.Enum):
    HALF = 0.5
    WHOLE = 1.0


class Mixed(enum.Enum):
    WORD = "a"
    NUMBER = 2

    @classmethod
    def _missing_(cls, value: object) -> Mixed | None:
        return cls.NUMBER if value == "two" else None


class Folding(enum.StrEnum):
    """Takes capitals too, which the schema does not say."""

    LOW = "a"

    @classmethod
    def _missing_(cls, value: object) -> Folding | None:
        return cls.LOW if value == "A" else None


Positive = Annotated[dt.datetime, Field(gt=dt.datetime(2000, 1, 1, tzinfo=dt.UTC))]


def parsed(kind: Any, text: str) -> Any:
    """What a field of this type makes of the text."""
    cls: Any = dataclasses.make_dataclass("Held", [("x", kind)])
    return codec(cls).parse_json(f'{{"x":{text}}}').x


NOON = dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC)

TAKEN: list[tuple[Any, str, Any]] = [
    (dt.datetime, '"2026-01-31T12:00:00Z"', NOON),
    (dt.datetime, '"2026-01-31 13:00:00+01:00"', NOON),
    (Positive, '"2026-01-31t12:00:00z"', NOON),
    (dt.date, '"2026-01-31"', NOON.date()),
    (dt.timedelta, '"PT1H30M"', dt.timedelta(minutes=90)),
    (int, "5.0", 5),
    (int, "1e2", 100),
    (int | float, "5.0", 5.0),
    (Literal[1, 2], "2.0", 2),
    (Digit, "1.0", Digit.ONE),
    (Share, "1", Share.WHOLE),
    (Decimal, "1.0", Decimal(1)),
    (Decimal, '"-1.50e3"', Decimal("-1.50e3")),
    (Decimal | int, "2", 2),
    (Decimal | int, '"2"', Decimal(2)),
    (Digit | int, "1", 1),
    (Fraction, '"-1/3"', Fraction(-1, 3)),
    (Fraction, "2e1", Fraction(20)),
    (dict[int, str], '{"1": "a", "-10": "b"}', {1: "a", -10: "b"}),
    (dict[UUID, int], '{"00000000-0000-0000-0000-000000000001": 1}', {UUID(int=1): 1}),
    (Counter[int], '{"1": 2}', Counter({1: 2})),
]


@pytest.mark.parametrize("kind, text, value", TAKEN, ids=count())
def test_what_the_schema_says_is_taken(kind: object, text: str, value: object) -> None:
    """With a value of the type, not of one that Python holds for equal."""
    found = parsed(kind, text)
    assert found == value
    assert type(found) is type(value)


REFUSED: list[tuple[Any, str]] = [
    *((dt.datetime, text) for text in ('"2024"', '"1.5"', '"-1"', '"2026-01-31"', '"2026-01-31_12:00"', "1", "true")),
    (dt.datetime, '"2026-02-30T12:00:00Z"'),
    (Positive, '"1999-01-01T00:00:00Z"'),
    *((dt.date, text) for text in ('"1704067200"', '"2026-01-31T00:00:00"', "1")),
    *((dt.timedelta, text) for text in ('"01:00"', '"1 day, 00:00:00"', '"1d"', "3", '"P"')),
    *((int, text) for text in ("5.5", '"5"', "true", "1e400", '"5.0"')),
    *((Literal[1], text) for text in ("true", '"1"', "2", "[1]")),
    *((Literal[True], text) for text in ("1", "1.0")),
    *((Digit, text) for text in ("true", "false", "2", '"1"', "{}")),
    *((Share, text) for text in ("true", '"0.5"')),
    *((Mixed, text) for text in ('"b"', "true", "2.5", '"two"')),
    *((kind, '"A"') for kind in (Folding, Folding | None, list[Folding], Folding | int)),
    (dict[Folding, int], '{"A": 1}'),
    *((Decimal, text) for text in ('" 1"', '"1_000"', '"\u0661"', '"NaN"', '"Infinity"', "true", '""', '"1,5"')),
    (Annotated[Decimal, Field(gt=1)], '"1"'),
    *((kind, '" 1"') for kind in (Decimal | None, Decimal | int, list[Decimal])),
    *((kind, text) for kind in (Decimal, Fraction) for text in ("0.5", "1e-2", "1.0000000000000000001")),
    *((Fraction, text) for text in ('" 1/3"', '"1/0"', '"1_0/3"', '"one"', "true")),
    *((dict[int, str], text) for text in ('{"01": ""}', '{" 1": ""}', '{"1.0": ""}', '{"+1": ""}', '{"1_0": ""}')),
    (dict[int, str], '{"-0": ""}'),
    (OrderedDict[int, str], '{"1.0": ""}'),
    (dict[Annotated[int, Field(gt=1)], str], '{"1": ""}'),
    (dict[dt.date, str], '{"1704067200": ""}'),
    *((dict[UUID, str], f'{{"{text}": ""}}') for text in (f"{UUID(int=10)}".upper(), UUID(int=10).hex)),
]


@pytest.mark.parametrize("kind, text", REFUSED, ids=count())
def test_what_the_schema_does_not_say_is_refused(kind: object, text: str) -> None:
    """Though pydantic's strict mode takes it."""
    refusal(ParseError, parsed, kind, text)


@dataclass
class Prices:
    by_size: dict[int, Decimal]
    weights: OrderedDict[UUID, str] = field(default_factory=OrderedDict[UUID, str])
    codes: dict[Annotated[str, Field(pattern="^[a-z]$")], int] = field(default_factory=dict[str, int])
    counts: Counter[dt.date] = field(default_factory=Counter[dt.date])


def test_the_form_of_keys_and_numbers_is_published() -> None:
    """So that a model writes them as they are read."""
    shown: dict[str, Any] = codec(Prices).schema["properties"]
    assert {name: node.get("propertyNames") for name, node in shown.items()} == {
        "by_size": {"pattern": "^(0|-?[1-9][0-9]*)$"},
        "weights": {"format": "uuid", "pattern": "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"},
        "codes": {"pattern": "^[a-z]$"},
        "counts": {"format": "date"},
    }
    assert shown["codes"]["additionalProperties"] == {"type": "integer"}
    pattern = r"^[-+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?$"
    price = [{"type": "integer"}, {"type": "string", "pattern": pattern}]
    assert shown["by_size"]["additionalProperties"] == {"anyOf": price}


@pytest.mark.parametrize("kind, text, value", [(Folding, '"A"', Folding.LOW), (Mixed, '"two"', Mixed.NUMBER)])
def test_what_an_enum_makes_of_other_values_is_taken_from_a_store(kind: Any, text: str, value: object) -> None:
    """A store may hold the values of an older version of the enum; a model has the published ones."""
    cls: Any = dataclasses.make_dataclass("Held", [("x", kind)])
    assert stored_codec(cls).parse_json(f'{{"x":{text}}}').x is value


@pytest.mark.parametrize("text", [" 1", "1 ", "1_0", "", "x", "1,5", "\u0661", "1/3", "--1"])
def test_a_decimal_in_another_form_is_told_what_the_form_is(text: str, wording: Wording) -> None:
    """In the words of the pattern, whatever pydantic says of it."""
    assert refusal(ParseError, parsed, Decimal, json.dumps(text)).faults[0][1] == wording
