"""The tables of `docs/reference/values.md` are what the code does."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import json
import re
from collections import OrderedDict, deque
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from pathlib import Path, PosixPath, PurePath, PurePosixPath, PureWindowsPath
from typing import Annotated, Any, Literal
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from pydantic import Field, SecretBytes, SecretStr, StringConstraints
from typing_extensions import TypedDict

from handrail.errors import DumpError, ParseError, SchemaError
from handrail.serde import codec, stored_codec
from handrail.serde.json_schema import ACTING, WORDS
from tests.docs.kit import DOCS
from tests.serde.field_types import FIELD_TYPES, is_valid
from tests.serde.kit import Approve, Circle, Level, Reject, Square, Status, held


@dataclasses.dataclass(frozen=True)
class Ground:
    """A class that another extends."""

    name: str


@dataclasses.dataclass(frozen=True)
class Card(Ground):
    """Has a field more."""

    number: int = 0


class Address(TypedDict):
    """A value of it may have other keys."""

    street: str


@dataclasses.dataclass(frozen=True)
class Percent:
    """Holds a `float`."""

    amount: float


@dataclasses.dataclass(frozen=True)
class Cents:
    """Holds an `int` of the same name."""

    amount: int


class Color(enum.StrEnum):
    """Members are strings."""

    RED = "red"


def nested(levels: int) -> list[Any]:
    """A list in a list, with the dataclass around them so many levels deep."""
    made: list[Any] = []
    for _ in range(levels - 2):
        made = [made]
    return made


_CLASSES: tuple[type[Any], ...] = (
    *(Decimal, Fraction, PurePosixPath, UUID, Level, Status, Approve, Reject, dt.datetime, dt.date, dt.time),
    *(dt.timedelta, Ground, Card, Address, Percent, Cents, Color, dt.timezone, OrderedDict, deque, SecretStr),
    *(SecretBytes, Path, PurePath, PureWindowsPath, PosixPath, re.Pattern, StringConstraints, ZoneInfo, Circle, Square),
)
_FORMS: dict[str, Any] = {"Annotated": Annotated, "Any": Any, "Literal": Literal, "Sequence": Sequence}
_OTHERS: dict[str, Any] = {"Field": Field, "compile": re.compile, "IGNORECASE": re.IGNORECASE, "nested": nested}
NAMES = {cls.__name__: cls for cls in _CLASSES} | _FORMS | _OTHERS
BOUNDS: dict[str, Any] = {"pattern": "^a$"}
LEVELS = 250


def rows(first_column: str, *, after: str = "# Values") -> list[list[str]]:
    """The rows of a table of the page; `after` is a heading that stands before it."""
    head = f"| {first_column} |"
    text = (DOCS / "reference" / "values.md").read_text(encoding="utf-8").partition(f"{after}\n")[2]
    lines = text.partition(f"\n{head}")[2].partition("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def code_in(cell: str) -> list[str]:
    """What a cell shows as code."""
    return [code.replace(r"\|", "|") for code in re.findall(r"`([^`]+)`", cell)]


def evaluated(code: str) -> Any:
    """A type or a value that a cell names."""
    return eval(code, dict(NAMES))  # noqa: S307 - a page of this repository


def each(first_column: str, **where: str) -> list[Any]:
    """The rows, as parameters of a test."""
    return [pytest.param(*row, id=f"{number} {row[0]}") for number, row in enumerate(rows(first_column, **where))]


@pytest.mark.parametrize("kind, as_json, refused", each("type of the field"))
def test_types_are_written_as_the_page_shows(kind: str, as_json: str, refused: str) -> None:
    """Read, written again, and distinguished from what looks like it."""
    parameters = codec(held(evaluated(code_in(kind)[0])))
    (text,) = code_in(as_json)
    value = parameters.parse_json(f'{{"x": {text}}}')
    assert parameters.dump(value) == {"x": json.loads(text)}
    assert code_in(refused)
    for wrong in code_in(refused):
        with pytest.raises(ParseError):
            parameters.parse_json(f'{{"x": {wrong}}}')


def values_for(after: str) -> list[Any]:
    """The rows of a table of values below the heading about what is stored."""
    return each("type of the field", after=after)


@pytest.fixture
def _unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """As without `HANDRAIL_CHECK_STORED`."""
    for module in ("json_values", "typed"):
        monkeypatch.setattr(f"handrail.serde.{module}.CHECKS_ALL", False)


@pytest.mark.parametrize("kind, value, why", values_for("## What is stored comes back"))
@pytest.mark.usefixtures("_unchecked")
def test_values_that_would_not_come_back_are_refused(kind: str, value: str, why: str) -> None:
    """Without `HANDRAIL_CHECK_STORED` too."""
    cls = held(evaluated(code_in(kind)[0]))
    with pytest.raises(DumpError):
        stored_codec(cls).dump_json(cls(evaluated(code_in(value)[0])))
    assert why


@pytest.mark.parametrize(
    "kind, value, back",
    values_for("Where the declared type says less than the value, what comes back is of the declared type:"),
)
@pytest.mark.usefixtures("_unchecked")
def test_values_come_back_as_the_page_shows(kind: str, value: str, back: str) -> None:
    """Of the type that is declared; without `HANDRAIL_CHECK_STORED`."""
    cls = held(evaluated(code_in(kind)[0]))
    stored = stored_codec(cls)
    found = stored.parse_json(stored.dump_json(cls(evaluated(code_in(value)[0])))).x
    expected = evaluated(code_in(back)[0])
    assert (type(found), found) == (type(expected), expected)


@pytest.mark.parametrize("_by, kinds", each("two members are distinguished by"))
def test_members_that_the_page_says_are_distinguished_are_stored(_by: str, kinds: str) -> None:
    """In a field."""
    for kind in code_in(kinds):
        stored_codec(held(evaluated(kind)))


@pytest.mark.parametrize("kind, why", each("refused where it is stored"))
def test_members_that_the_page_says_are_not_distinguished_are_refused(kind: str, why: str) -> None:
    """With those that it names beside."""
    for each_kind in (*code_in(kind), *(code for code in code_in(why) if "|" in code)):
        with pytest.raises(SchemaError):
            stored_codec(held(evaluated(each_kind)))


def test_the_words_that_constrain_are_those_that_act() -> None:
    """The page lists all of them."""
    assert {code_in(row[0])[0] for row in rows("word")} == ACTING


@pytest.mark.parametrize("word, kinds, keywords", each("word"))
def test_a_word_reaches_the_schema_as_the_page_shows(word: str, kinds: str, keywords: str) -> None:
    """By its keyword; those of decimals have none."""
    (name,) = code_in(word)
    published = code_in(keywords)
    for number, kind in enumerate(code_in(kinds)):
        cls = held(evaluated(kind), **{name: BOUNDS.get(name, 2)})
        (node,) = codec(cls).schema["properties"].values()
        if published:
            assert node[published[number]] == BOUNDS.get(name, 2)
        else:
            assert node == codec(held(evaluated(kind))).schema["properties"]["x"]


@pytest.mark.parametrize("word", sorted(WORDS - ACTING))
def test_a_word_that_does_not_act_is_refused(word: str) -> None:
    """As the page says."""
    with pytest.raises(SchemaError):
        codec(held(int, **{word: 1}))


@pytest.mark.parametrize("_name, kind, text, _why", each("exception"))
def test_schema_takes_what_exception_shows_and_parsing_does_not(_name: str, kind: str, text: str, _why: str) -> None:
    """As a common validator of JSON Schema reads it."""
    parameters = codec(held(evaluated(code_in(kind)[0])))
    (shown,) = code_in(text)
    data = f'{{"x": {shown.replace("[[…]]", "[" * LEVELS + "]" * LEVELS)}}}'
    assert is_valid(parameters.schema, json.loads(data))
    with pytest.raises(ParseError):
        parameters.parse_json(data)


@pytest.mark.parametrize("union, written, parsed, shown, again", each("union", after="## Where the schema takes more"))
def test_a_member_that_is_shown_may_be_read_as_another(
    union: str, written: str, parsed: str, shown: str, again: str
) -> None:
    """As the page shows; a store refuses the union."""
    cls = held(evaluated(code_in(union)[0]))
    parameters = codec(cls)
    value = parameters.parse_json(f'{{"x": {code_in(written)[0]}}}')
    first, second = evaluated(code_in(parsed)[0]), evaluated(code_in(again)[0])
    assert (type(value.x), value.x) == (type(first), first)
    assert parameters.dump(value) == {"x": evaluated(code_in(shown)[0])}
    read = parameters.parse(parameters.dump(value)).x
    assert (type(read), read) == (type(second), second)
    with pytest.raises(SchemaError):
        stored_codec(cls)


def test_the_tables_are_there_and_the_number_of_types_is_that_of_the_test() -> None:
    """None of them is read as empty."""
    (number,) = re.findall(r"\[(\d+) types of fields\]", (DOCS / "reference" / "values.md").read_text(encoding="utf-8"))
    assert int(number) == len(FIELD_TYPES) > 100
    assert all(map(rows, ("type of the field", "word", "exception", "union")))
