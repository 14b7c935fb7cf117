"""A number keeps every digit from the text to the value, or is refused."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict

from handrail.errors import ParseError
from handrail.serde import codec, digest
from tests.kit import refusal
from tests.wording import Wording


class Inner(BaseModel):
    """A model."""

    model_config = ConfigDict(extra="forbid")

    amount: Decimal


@dataclass(frozen=True)
class Amounts:
    """Amounts wherever a type may hold them."""

    one: Decimal | None = None
    many: tuple[Decimal, ...] = ()
    named: dict[str, Decimal] | None = None
    part: Fraction | None = None
    inner: Inner | None = None
    either: Decimal | str = ""
    number: float | None = None
    whole: int | None = None


AMOUNTS = codec(Amounts)
PLACES = ['{"one": %s}', '{"many": [1, %s]}', '{"named": {"a": %s}}', '{"inner": {"amount": %s}}', '{"either": %s}']


def amount_in(parsed: Amounts) -> Decimal:
    """The one amount that was sent."""
    held: Any = parsed.one, *parsed.many[1:], *(parsed.named or {}).values(), parsed.inner and parsed.inner.amount
    (amount,) = [each for each in (*held, parsed.either) if isinstance(each, Decimal)]
    return amount


def numbers() -> st.SearchStrategy[str]:
    """JSON numbers of up to 40 digits, with exponents."""
    digits = st.text("0123456789", min_size=1, max_size=20)
    exponent = st.integers(-400, 400).map(lambda power: f"e{power}") | st.just("")

    def number(sign: str, whole: str, part: str, power: str) -> str:
        return f"{sign}{whole.lstrip('0') or '0'}.{part}{power}"

    made = st.builds(
        number,
        st.sampled_from(["", "-"]),
        digits,
        digits,
        exponent,
    )
    return made | st.integers(-(10**60), 10**60).map(str)


@given(numbers(), st.sampled_from(PLACES))
@example("0.1000000000000000001", PLACES[0])
@example("1000000000000000.01", PLACES[1])
@example("1e-400", PLACES[2])
@example("-0.0", PLACES[3])
def test_a_number_for_a_decimal_arrives_whole_or_is_refused(number: str, place: str) -> None:
    """At any place of a type."""
    try:
        parsed = AMOUNTS.parse_json(place % number)
    except ParseError:
        return
    assert amount_in(parsed) == Decimal(number)


@given(numbers())
def test_a_number_for_a_fraction_or_an_integer_arrives_whole_or_is_refused(number: str) -> None:
    """Also where a fraction of zero is written."""
    for name in ("part", "whole"):
        try:
            parsed = AMOUNTS.parse_json(f'{{"{name}": {number}}}')
        except ParseError:
            continue
        assert (parsed.part if name == "part" else parsed.whole) == Fraction(number)


@given(st.integers(-(10**40), 10**40), st.integers(0, 20))
def test_an_integer_is_taken_as_a_number_and_a_fraction_as_a_string(digits: int, places: int) -> None:
    """In a text, and decoded."""
    amount = Decimal(f"{digits}e-{places}")
    assert amount_in(AMOUNTS.parse_json(f'{{"one": {digits}}}')) == digits
    assert amount_in(AMOUNTS.parse({"one": digits})) == digits
    assert amount_in(AMOUNTS.parse({"one": str(amount)})) == amount


@given(numbers(), numbers())
def test_two_amounts_that_differ_are_never_one_key(first: str, second: str) -> None:
    """As numbers, and as texts."""
    for form in ('{"one": %s}', '{"one": "%s"}'):
        keys: dict[str, Decimal] = {}
        for number in (first, second, f"{first}1" if "e" not in first and "." in first else first):
            try:
                parsed = AMOUNTS.parse_json(form % number)
                keys.setdefault(digest(parsed), Decimal(number))
            except ParseError:
                continue
            assert keys[digest(parsed)] == Decimal(number)


def test_every_amount_with_a_fraction_that_is_a_number_is_named(wording: Wording) -> None:
    """With what to send instead; no number beside it is made whole then."""
    with pytest.raises(ParseError) as raised:
        AMOUNTS.parse_json('{"one": 0.5, "part": 1.0000000000000000001, "many": [1.0], "whole": 5.0}')
    assert str(raised.value) == wording


def test_an_integer_that_a_float_does_not_hold_is_refused() -> None:
    """Its last digits would be others."""
    assert AMOUNTS.parse_json('{"whole": 9007199254740992.0}').whole == 2**53
    for number in ("9007199254740993.0", "1e9999999999999999999", '9007199254740993.0, "many": [5.0]'):
        refusal(ParseError, AMOUNTS.parse_json, f'{{"whole": {number}}}')


def test_a_float_beside_a_decimal_is_a_float() -> None:
    """Digits in a string, and in a field that is a float, are at no fault."""
    parsed = AMOUNTS.parse_json('{"number": 0.1000000000000000001, "either": "text 0.1000000000000000001", "one": 5.0}')
    assert (parsed.number, parsed.either, parsed.one) == (0.1, "text 0.1000000000000000001", Decimal(5))
