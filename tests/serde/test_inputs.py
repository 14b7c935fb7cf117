"""Text and decoded JSON as a model sends it: malformed, too large, or full of what JSON does not have."""

from __future__ import annotations

import enum
import json
from collections import deque
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from itertools import count
from pathlib import PurePath
from typing import Any
from uuid import UUID

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict

from handrail.errors import ParseError
from handrail.serde import codec, digest, parse
from handrail.serde.json_values import escape_surrogates, escaped_within
from handrail.serde.secrets import partial_json
from tests.kit import raises, refusal
from tests.serde.kit import Json, Loose, Plan, Tree
from tests.wording import Wording


def told(kind: type[object], data: Json, *, max_bytes: int | None = None) -> str:
    """The message for data that does not fit."""
    error = refusal(ParseError, codec(kind).parse, data, max_bytes=max_bytes)
    assert error.faults
    return str(error)


def as_bytearray(text: str) -> bytearray:
    """As a socket may give it."""
    return bytearray(text.encode())


@pytest.mark.parametrize("encoded", [str, str.encode, as_bytearray], ids=["str", "bytes", "bytearray"])
def test_malformed_json_is_told_with_its_position(encoded: Json, wording: Wording) -> None:
    """Whether it comes as text or as bytes."""
    texts = [
        *("", "  ", '{"objective": "a"', '{"objective": "a",}', "{'objective': 'a'}", '{"objective": "a"} {}', "nope")
    ]
    assert [told(Plan, encoded(text)) for text in texts] == wording


@pytest.mark.parametrize(
    "text",
    [
        '{"more": ' + "[" * 100_000 + "]" * 100_000 + "}",
        '{"name": "a", "kids": [' * 100_000 + "]}" * 100_000,
        "[" * 100_000,
        '{"a":' * 100_000,
    ],
    ids=["unknown field", "recursive dataclass", "open brackets", "open braces"],
)
def test_deep_nesting_is_a_fault_and_no_crash(text: str, wording: Wording) -> None:
    """The parser stops at some two hundred levels, long before the stack does."""
    assert told(Tree, text) == wording
    assert told(Loose, text) == wording


@pytest.mark.parametrize("depth", range(190, 210))
def test_around_the_limit_there_is_a_value_or_a_fault(depth: int) -> None:
    """The parser that explains a fault may not know less than the one that found it."""
    assert told(Plan, '{"objective": 1, "more": ' + "[" * depth + "]" * depth + "}")
    assert told(Plan, '{"objective": 1, "more": ' + '{"a":' * depth + "1" + "}" * depth + "}")


def test_lone_surrogates_are_told(wording: Wording) -> None:
    """As an escape in the JSON, in a Python string that holds one, and in bytes that are not UTF-8."""
    texts = ['{"objective": "\\ud800"}', '{"objective": "\ud800"}', b'{"objective": "\xed\xa0\x80"}']
    decoded: list[Json] = [{"objective": "\ud800"}, {"objective": "a", "notes": {"\ud800": "b"}}]
    faults = [told(Plan, data) for data in (*texts, *decoded)]
    assert faults == wording


@pytest.mark.parametrize(
    "number", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999", pytest.param("9" * 400 + ".0", id="long number")]
)
def test_numbers_that_json_does_not_have_are_refused_wherever_they_stand(number: str, wording: Wording) -> None:
    """Where a number is asked for, and where anything is; at every depth."""
    assert told(Loose, f'{{"anything": {number}}}') == wording
    assert told(Loose, f'{{"anything": {number}}}'.encode()) == wording
    assert told(Loose, f'{{"anything": [{{"a": {number}}}]}}') == wording
    assert told(Loose, f'{{"numbers": {{"a": {number}}}}}') == wording


def test_not_a_number_is_refused_in_a_mapping_too(wording: Wording) -> None:
    """A mapping is checked as the JSON that it would be."""
    faults = told(Loose, {"anything": float("nan"), "numbers": {"a": float("inf")}, "exact": "NaN", "more": 1})
    assert faults == wording


def test_a_number_with_too_many_digits_is_told(wording: Wording) -> None:
    """Beyond some thousands of digits a number is an attack on the parser's time."""
    assert told(Plan, '{"objective": "a", "limit": ' + "9" * 5000 + "}") == wording


def test_what_is_too_large_is_not_even_looked_into(wording: Wording) -> None:
    """The message has the size, the limit, and what to do."""
    text = json.dumps({"objective": "a" * 10_000_000})
    assert told(Plan, text, max_bytes=1_000_000) == wording
    assert told(Plan, "[" * 2000, max_bytes=1000) == wording
    assert told(Plan, {"objective": "a" * 2000}, max_bytes=1000) == wording


@pytest.mark.parametrize("text", ['{"objective":"aaaa"}', '{"objective":"éé"}', '{"objective":"😀"}'])
@pytest.mark.parametrize("encoded", [str, str.encode], ids=["str", "bytes"])
def test_the_limit_counts_bytes_and_not_characters(text: str, encoded: Json, wording: Wording) -> None:
    """Twenty bytes each: twenty are taken, nineteen are not enough."""
    assert len(text.encode()) == 20
    assert codec(Plan).parse(encoded(text), max_bytes=20).objective
    assert told(Plan, encoded(text), max_bytes=19) == wording
    assert codec(Plan).parse(encoded(text), max_bytes=10_000).objective


REPEATED = [
    *('{"note":"a","b":"note","note":"c"}', '{"note":"a","\\u006eote":"b"}', '{"b":"x","b":"x"}'),
    '{"note":"a:b:c","note":"a"}',
]
ONCE = [
    *('{"note":"note","b":"note"}', r'{"note":"\"note\":\"b\":","b":"\\"}', '{"note":"a","b":"b: c: d"}'),
    *('{ "note" : "a" , "b" : "" }', '{"note":"\\u006eote"}'),
]


@dataclass(frozen=True)
class Flat:
    note: str = ""
    b: str | None = None


@dataclass(frozen=True)
class Nested:
    note: str = ""
    b: str = ""
    rows: tuple[dict[str, str], ...] = ()


@pytest.mark.parametrize("encode", [str, str.encode])
@pytest.mark.parametrize("cls", [Flat, Nested])
@pytest.mark.parametrize("text", REPEATED)
def test_a_key_that_is_given_twice_is_refused_at_its_place(
    cls: type[Any], text: str, encode: Any, wording: Wording
) -> None:
    """Also where it is spelled with escapes, and whichever value comes last."""
    assert str(refusal(ParseError, codec(cls).parse, encode(text))) == wording
    rows = f'{{"rows":[{{"a":"b"}},{text}]}}'
    assert str(refusal(ParseError, codec(Nested).parse, encode(rows))) == wording


@pytest.mark.parametrize("encode", [str, str.encode])
@pytest.mark.parametrize("cls", [Flat, Nested])
@pytest.mark.parametrize("text", ONCE)
def test_what_only_looks_like_a_key_is_taken(cls: type[Any], text: str, encode: Any) -> None:
    """Names of fields, quotation marks and colons in texts."""
    assert codec(cls).parse(encode(text)) == cls(**json.loads(text))


class Raw(enum.Enum):
    """An enum that JSON writes as base64."""

    ONE = b"one"


@dataclass
class Holder:
    raw: bytes = b""


ROWS: list[tuple[Any, str]] = [(({"weight": b"1"},), "$.steps[0].weight"), (deque([Holder(b"b")]), "$.steps[0].raw")]
BYTES: list[tuple[Json, str]] = [
    *(({"objective": b"abc"}, "$.objective"), ({"objective": Raw.ONE}, "$.objective"), ({b"objective": "a"}, "$")),
    *(({"objective": "a", "notes": {"b c": b"d"}}, '$.notes["b c"]'), ([b"a"], "$[0]")),
    *(({"objective": "a", "steps": rows}, path) for rows, path in ROWS),
    ({"objective": "a", "notes": {b"b": "c"}}, "$.notes"),
]


@pytest.mark.parametrize("data, path", BYTES, ids=count())
def test_bytes_in_a_mapping_are_a_fault(data: Json, path: str, wording: Wording) -> None:
    """Decoded JSON holds none; taken as base64 they would arrive as a string that nobody has sent."""
    error = refusal(ParseError, parse, Plan, data)
    assert [found for found, _ in error.faults] == [path]
    assert str(error) == wording


@pytest.mark.parametrize("value", [datetime(2026, 1, 31, tzinfo=UTC), Decimal(1), UUID(int=1), PurePath("a")], ids=str)
def test_a_value_that_json_does_not_have_is_not_converted(value: object, wording: Wording) -> None:
    """Neither a moment nor a path arrives as a string that nobody has sent."""
    assert str(refusal(ParseError, parse, Plan, {"objective": value})) == wording


def test_bytes_where_bytes_are_asked_for_come_as_base64(wording: Wording) -> None:
    """A mapping says them as JSON does."""
    assert parse(Holder, {"raw": "AP8="}) == Holder(b"\x00\xff")
    assert str(refusal(ParseError, parse, Holder, {"raw": b"AP8="})) == wording


_any_text = st.text(st.characters(exclude_categories=()))
_values = st.recursive(
    st.none() | st.integers() | st.text(),
    lambda some: st.lists(some) | st.dictionaries(st.text(), some) | st.tuples(some, some),
    max_leaves=8,
)


@dataclass
class Line:
    text: Any


@given(_any_text)
def test_an_escaped_text_is_unicode_and_keeps_all_other_characters(text: str) -> None:
    """A text without lone surrogates is the same."""
    shown = escape_surrogates(text)
    assert shown.encode().decode() == shown
    assert shown == "".join(rf"\u{ord(each):04x}" if "\ud800" <= each <= "\udfff" else each for each in text)


@given(_values)
def test_a_value_without_lone_surrogates_is_the_very_same(value: Any) -> None:
    """Nothing of it is copied."""
    assert escaped_within(value) is value
    assert partial_json(value)[1:] == ((), False)


def test_what_has_no_text_is_named_by_its_type() -> None:
    """An object, and a key with more digits than Python writes; a record that lacks a field has the others."""
    assert partial_json(object()) == ("null", ("$ is of type object",), False)
    assert partial_json(object.__new__(Line)) == ("{}", (), False)
    assert partial_json({10**5000: 1}) == ('{"<int>":1}', (), False)


def test_the_texts_and_keys_of_a_value_are_escaped() -> None:
    """Wherever they stand."""
    cyclic: list[Any] = ["\ud800"]
    cyclic.append(cyclic)
    assert escaped_within(cyclic) == [r"\ud800", cyclic]
    shown = {r"\ud800": ["a", [r"\udfff", 1]], "b": r"\ud83d\ude00"}
    assert escaped_within({"\ud800": ["a", ("\udfff", 1)], "b": "\ud83d\ude00"}) == shown
    record = {"\ud800": Line(["a", "\udc00", b"a"])}
    assert partial_json(record) == (r'{"\\ud800":{"text":["a","\\udc00","YQ=="]}}', (), True)


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

    made = st.builds(number, st.sampled_from(["", "-"]), digits, digits, exponent)
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
    with raises(ParseError, wording):
        AMOUNTS.parse_json('{"one": 0.5, "part": 1.0000000000000000001, "many": [1.0], "whole": 5.0}')


def test_an_integer_that_a_float_does_not_hold_is_refused() -> None:
    """Its last digits would be others."""
    assert AMOUNTS.parse_json('{"whole": 9007199254740992.0}').whole == 2**53
    for number in ("9007199254740993.0", "1e9999999999999999999", '9007199254740993.0, "many": [5.0]'):
        refusal(ParseError, AMOUNTS.parse_json, f'{{"whole": {number}}}')


def test_a_float_beside_a_decimal_is_a_float() -> None:
    """Digits in a string, and in a field that is a float, are at no fault."""
    parsed = AMOUNTS.parse_json('{"number": 0.1000000000000000001, "either": "text 0.1000000000000000001", "one": 5.0}')
    assert (parsed.number, parsed.either, parsed.one) == (0.1, "text 0.1000000000000000001", Decimal(5))
