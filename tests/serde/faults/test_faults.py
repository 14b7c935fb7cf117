"""What a model is told of arguments that do not fit."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping, Sequence
from dataclasses import make_dataclass
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from inline_snapshot import snapshot
from typing_extensions import TypeAliasType

from handrail.errors import ParseError
from handrail.serde import codec, parse
from tests.serde.expected_faults import told
from tests.serde.shapes import Drawing, Json, Plan, Step, Tree
from tests.serde.slips import Wide
from tests.wording import Wording

Whole = TypeAliasType("Whole", int | list[int])

UNIONS: list[tuple[Any, Json, list[str]]] = [
    (
        Sequence[int] | Sequence[bool],
        ["b"],
        [
            "$.field[0]: expected an integer, got a string (if meant as list[int])",
            "$.field[0]: expected a boolean, got a string (if meant as list[bool])",
        ],
    ),
    (
        list[Decimal] | tuple[dt.datetime, Sequence[int]],
        ["2026", "b"],
        [
            '$.field[1]: expected a number or a decimal string such as "12.50": it has to be written in the',
            "    digits 0 to 9, with a sign, a decimal point and an exponent where needed, and no blanks,",
            "    commas or underscores (if meant as list[Decimal])",
            '$.field[0]: expected a date-time string such as "2026-01-31T12:00:00Z": input should be written',
            "    as in ISO 8601 (if meant as tuple[datetime, Sequence])",
            "$.field[1]: expected an array (each item: an integer), got a string (if meant as",
            "    tuple[datetime, Sequence])",
        ],
    ),
    (
        Mapping[str, int] | dict[str, bool],
        {"a": "b"},
        [
            "$.field.a: expected an integer, got a string (if meant as dict[str, int])",
            "$.field.a: expected a boolean, got a string (if meant as dict[str, bool])",
        ],
    ),
    (
        dt.timedelta | Whole,
        "zz",
        [
            '$.field: expected an ISO 8601 duration string such as "PT1H30M", an integer or an array (each',
            "    item: an integer), got a string that is none of these",
        ],
    ),
]
"""Types of a field, with data of no member and what is wrong with it."""


def test_all_faults_of_one_input_are_told_at_once() -> None:
    """The model can mend its call in one turn."""
    data: Json = {
        "limit": "10",
        "steps": [{"title": "a"}, {}, {"title": "", "status": "finished", "wieght": 2}],
        "note": {},
    }
    assert told(Plan, data) == snapshot(
        [
            "$.objective: missing field objective; expected a string",
            "$.limit: expected an integer, got a string",
            "$.steps[1].title: missing field title; expected a string of 1 to 40 characters",
            "$.steps[2].title: expected a string of 1 to 40 characters, got one of 0 characters",
            '$.steps[2].status: expected "pending", "in_progress" or "done", got another string',
            "$.steps[2].wieght: unknown field wieght, did you mean weight? known fields: title, status,",
            "    weight",
            "$.note: unknown field note, did you mean notes? known fields: objective, limit, steps, notes",
        ]
    )


def test_a_fault_in_a_recursive_dataclass_has_its_whole_path() -> None:
    """However deep it lies."""
    assert told(Tree, {"name": "a", "kids": [{"name": "b", "kids": [{"nam": "c"}]}]}) == snapshot(
        [
            "$.kids[0].kids[0].name: missing field name; expected a string",
            "$.kids[0].kids[0].nam: unknown field nam, did you mean name? known fields: name, kids",
        ]
    )


def test_of_a_union_only_the_branch_that_was_meant_is_told() -> None:
    """A marking field, or a fault within one branch alone, says which."""
    assert told(Drawing, {"shapes": [{"kind": "square"}], "size": [1, "a"]}) == snapshot(
        [
            "$.shapes[0].side: missing field side; expected a number",
            "$.size[1]: expected an integer, got a string",
        ]
    )
    assert told(Drawing, {"marked": {"kind": "square", "radius": 1}}) == snapshot(
        [
            "$.marked.side: missing field side; expected a number",
            "$.marked.radius: unknown field radius; known fields: kind, side",
        ]
    )
    assert told(Drawing, {"marked": {"kind": "cube"}}) == snapshot(['$.marked.kind: expected "circle" or "square"'])
    assert told(Drawing, {"marked": {"side": 1}}) == snapshot(
        ['$.marked.kind: missing field kind; expected "circle" or "square"']
    )


def test_where_a_union_leaves_it_open_every_branch_is_told() -> None:
    """Each fault says what it holds for."""
    empty: dict[str, int] = {}
    assert told(Drawing, {"shapes": [empty]}) == snapshot(
        [
            '$.shapes[0].kind: missing field kind; expected "circle" (if meant as Circle)',
            "$.shapes[0].radius: missing field radius; expected a number (if meant as Circle)",
            '$.shapes[0].kind: missing field kind; expected "square" (if meant as Square)',
            "$.shapes[0].side: missing field side; expected a number (if meant as Square)",
        ]
    )


@pytest.mark.parametrize("kind, data, expected", UNIONS)
def test_members_of_unions_are_named_as_python_writes_them(kind: Any, data: Json, expected: list[str]) -> None:
    """An abstract collection by the list that it is read as; what a member asks for is its own."""
    box = make_dataclass("Box", [("field", kind)])
    assert told(box, {"field": data}) == expected


@pytest.mark.parametrize("kind", [UUID, dt.date, int, bool, float])
def test_a_wrong_key_is_told_apart_from_a_wrong_value(kind: Any, wording: Wording) -> None:
    """Also where the values are of several types."""
    box = make_dataclass("Box", [("field", dict[kind, Decimal])])
    fault = told(box, {"field": {"a-1": "1.50"}})[0]
    assert fault == wording


@pytest.mark.parametrize("text", ["2026", "-5", "1.5"])
def test_a_number_in_the_place_of_a_date_is_not_taken_for_a_timestamp(text: str) -> None:
    """Pydantic takes one in seconds."""
    box = make_dataclass("Box", [("field", dt.date)])
    assert told(box, {"field": text}) == snapshot(
        [
            '$.field: expected a date string such as "2026-01-31": input should be written as in ISO 8601',
        ]
    )


@pytest.mark.parametrize("data", ["[1]", "3", "null", '"text"', '"{\\"objective\\": 1}"'])
def test_what_is_no_object_is_told_so(data: str, wording: Wording) -> None:
    """Also an object that was encoded twice."""
    with pytest.raises(ParseError) as raised:
        parse(Plan, data)
    assert str(raised.value) == wording


def test_an_object_encoded_twice_is_told_apart() -> None:
    """It is a slip that models make."""
    assert told(Plan, json.dumps({"objective": "a"})) == snapshot(
        [
            "$: expected an object with the fields (objective, limit, steps, notes), got a string; send the",
            "    JSON itself, not a string that holds it",
        ]
    )


def test_keys_are_shown_shortened_and_printable() -> None:
    """A key may be anything, so it is quoted, and cut."""
    long, odd = "k" * 500, "a\n\u202eb"
    faults = told(Plan, {"objective": "a", long: 1, odd: 2, "notes": {"é è": 1}})
    assert faults == snapshot(
        [
            '$.notes["é è"]: expected a string, got an integer',
            '$["kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk…"]: unknown field',
            '    "kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk…"; known fields: objective,',
            "    limit, steps, notes",
            '$["a\\n\\u202eb"]: unknown field "a\\n\\u202eb"; known fields: objective, limit, steps, notes',
        ]
    )


def test_the_number_of_faults_told_is_bounded(wording: Wording) -> None:
    """A hundred are enough to mend; the last line says that there are more."""
    with pytest.raises(ParseError) as caught:
        parse(Plan, {"objective": "a", "notes": {str(number): number for number in range(1000)}})
    assert len(caught.value.faults) == 101
    assert caught.value.faults[-1] == ("$", wording)


def test_nothing_of_what_was_sent_is_repeated() -> None:
    """A value may be a secret, and the error goes into logs; pydantic's own error, which holds it, is not chained."""
    with pytest.raises(ParseError) as caught:
        parse(Wide, {"whole": "s3cret", "code": "S3CRET", "room": "s3cret", "day": "s3cret", "raw": "s3cret!"})
    assert "s3cret" not in str(caught.value).lower()
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def test_unknown_fields_may_be_ignored(wording: Wording) -> None:
    """At every level; what is known is checked as ever."""
    ignoring = codec(Plan, extra="ignore")
    assert ignoring.parse('{"objective": "a", "more": 1, "steps": [{"title": "b", "more": {}}]}') == Plan(
        "a", steps=(Step("b"),)
    )
    with pytest.raises(ParseError) as raised:
        ignoring.parse('{"objective": "a", "more": 1, "limit": "1"}')
    assert str(raised.value) == wording
