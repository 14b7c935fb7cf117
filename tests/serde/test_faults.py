"""Faults of data that does not fit, and names and paths that are near."""

from __future__ import annotations

import pytest

from handrail.errors import ParseError
from handrail.serde import parse
from tests.kit import refusal
from tests.serde.kit import SLIPS, Drawing, Json, Plan, Wide, told
from tests.wording import Wording


def test_all_faults_of_one_input_are_told_at_once(wording: Wording) -> None:
    """The model can mend its call in one turn."""
    data: Json = {
        "limit": "10",
        "steps": [{"title": "a"}, {}, {"title": "", "status": "finished", "wieght": 2}],
        "note": {},
    }
    assert told(Plan, data) == wording


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


@pytest.mark.parametrize("data", ["null", '"text"', '"{\\"objective\\": 1}"'])
def test_what_is_no_object_is_told_so(data: str, wording: Wording) -> None:
    """Also an object that was encoded twice."""
    assert str(refusal(ParseError, parse, Plan, data)) == wording


def test_keys_are_shown_shortened_and_printable(wording: Wording) -> None:
    """A key may be anything, so it is quoted, and cut."""
    long, odd = "k" * 500, "a\n\u202eb"
    assert told(Plan, {"objective": "a", long: 1, odd: 2, "notes": {"é è": 1}}) == wording


def test_nothing_of_what_was_sent_is_repeated() -> None:
    """A value may be a secret, and the error goes into logs; pydantic's own error, which holds it, is not chained."""
    with pytest.raises(ParseError) as caught:
        parse(Wide, {"whole": "s3cret", "code": "S3CRET", "room": "s3cret", "day": "s3cret", "raw": "s3cret!"})
    assert "s3cret" not in str(caught.value).lower()
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


@pytest.mark.parametrize("name", SLIPS)
def test_every_slip_is_told_with_its_path_and_what_would_be_right(name: str, wording: Wording) -> None:
    """No value that was sent is among the words, and no address of documentation."""
    assert [line for value in SLIPS[name] for line in told(Wide, {name: value})] == wording
