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
from typing_extensions import TypeAliasType

from handrail.errors import ParseError
from handrail.serde import codec, parse
from tests.serde.expected_faults import told
from tests.serde.shapes import Drawing, Json, Plan, Step, Tree
from tests.serde.slips import Wide
from tests.wording import Wording

Whole = TypeAliasType("Whole", int | list[int])

UNIONS: dict[str, tuple[Any, Json]] = {
    "two lists": (Sequence[int] | Sequence[bool], ["b"]),
    "a list and a tuple": (list[Decimal] | tuple[dt.datetime, Sequence[int]], ["2026", "b"]),
    "two mappings": (Mapping[str, int] | dict[str, bool], {"a": "b"}),
    "an alias": (dt.timedelta | Whole, "zz"),
}
"""Types of a field, with data of no member."""


def test_all_faults_of_one_input_are_told_at_once(wording: Wording) -> None:
    """The model can mend its call in one turn."""
    data: Json = {
        "limit": "10",
        "steps": [{"title": "a"}, {}, {"title": "", "status": "finished", "wieght": 2}],
        "note": {},
    }
    assert told(Plan, data) == wording


def test_a_fault_in_a_recursive_dataclass_has_its_whole_path(wording: Wording) -> None:
    """However deep it lies."""
    assert told(Tree, {"name": "a", "kids": [{"name": "b", "kids": [{"nam": "c"}]}]}) == wording


def test_of_a_union_only_the_branch_that_was_meant_is_told(wording: Wording) -> None:
    """A marking field, or a fault within one branch alone, says which."""
    assert told(Drawing, {"shapes": [{"kind": "square"}], "size": [1, "a"]}) == wording
    assert told(Drawing, {"marked": {"kind": "square", "radius": 1}}) == wording
    assert told(Drawing, {"marked": {"kind": "cube"}}) == wording
    assert told(Drawing, {"marked": {"side": 1}}) == wording


def test_where_a_union_leaves_it_open_every_branch_is_told(wording: Wording) -> None:
    """Each fault says what it holds for."""
    empty: dict[str, int] = {}
    assert told(Drawing, {"shapes": [empty]}) == wording


@pytest.mark.parametrize("kind, data", UNIONS.values(), ids=UNIONS)
def test_members_of_unions_are_named_as_python_writes_them(kind: Any, data: Json, wording: Wording) -> None:
    """An abstract collection by the list that it is read as; what a member asks for is its own."""
    box = make_dataclass("Box", [("field", kind)])
    assert told(box, {"field": data}) == wording


@pytest.mark.parametrize("kind", [UUID, dt.date, int, bool, float])
def test_a_wrong_key_is_told_apart_from_a_wrong_value(kind: Any, wording: Wording) -> None:
    """Also where the values are of several types."""
    box = make_dataclass("Box", [("field", dict[kind, Decimal])])
    fault = told(box, {"field": {"a-1": "1.50"}})[0]
    assert fault == wording


@pytest.mark.parametrize("text", ["2026", "-5", "1.5"])
def test_a_number_in_the_place_of_a_date_is_not_taken_for_a_timestamp(text: str, wording: Wording) -> None:
    """Pydantic takes one in seconds."""
    box = make_dataclass("Box", [("field", dt.date)])
    assert told(box, {"field": text}) == wording


@pytest.mark.parametrize("data", ["[1]", "3", "null", '"text"', '"{\\"objective\\": 1}"'])
def test_what_is_no_object_is_told_so(data: str, wording: Wording) -> None:
    """Also an object that was encoded twice."""
    with pytest.raises(ParseError) as raised:
        parse(Plan, data)
    assert str(raised.value) == wording


def test_an_object_encoded_twice_is_told_apart(wording: Wording) -> None:
    """It is a slip that models make."""
    assert told(Plan, json.dumps({"objective": "a"})) == wording


def test_keys_are_shown_shortened_and_printable(wording: Wording) -> None:
    """A key may be anything, so it is quoted, and cut."""
    long, odd = "k" * 500, "a\n\u202eb"
    assert told(Plan, {"objective": "a", long: 1, odd: 2, "notes": {"é è": 1}}) == wording


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
