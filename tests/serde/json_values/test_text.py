"""Text that is not JSON, too much of it, or full of what JSON does not have."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest

from handrail.errors import ParseError
from handrail.serde import codec, parse
from tests.kit import refusal
from tests.serde.shapes import Json, Loose, Plan, Tree
from tests.wording import Wording


def told(kind: type[object], data: Json, *, max_bytes: int | None = None) -> str:
    """The message for data that does not fit."""
    with pytest.raises(ParseError) as caught:
        codec(kind).parse(data, max_bytes=max_bytes)
    assert caught.value.faults
    return str(caught.value)


def as_bytearray(text: str) -> bytearray:
    """As a socket may give it."""
    return bytearray(text.encode())


@pytest.mark.parametrize("encoded", [str, str.encode, as_bytearray], ids=["str", "bytes", "bytearray"])
def test_malformed_json_is_told_with_its_position(encoded: Json, wording: Wording) -> None:
    """Whether it comes as text or as bytes."""
    texts = [
        "",
        "  ",
        '{"objective": "a"',
        '{"objective": "a",}',
        "{'objective': 'a'}",
        '{"objective": "a"} {}',
        "nope",
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
    faults = [
        told(Plan, '{"objective": "\\ud800"}'),
        told(Plan, '{"objective": "\ud800"}'),
        told(Plan, b'{"objective": "\xed\xa0\x80"}'),
        told(Plan, {"objective": "\ud800"}),
        told(Plan, {"objective": "a", "notes": {"\ud800": "b"}}),
    ]
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


@pytest.mark.parametrize(
    "number", ["NaN", "-Infinity", "1e999", "-5E+999", pytest.param("9" * 309 + ".0", id="long number")]
)
def test_such_numbers_are_refused_in_large_texts_too(number: str, wording: Wording) -> None:
    """Large texts are searched in another way, which finds the same."""
    expected = told(Loose, f'{{"anything": ["", {number}]}}')
    assert expected == wording
    for filler in ("word 0e1 NaN ", "ä" * 5):
        text = f'{{"anything": ["{filler * 1000}", {number}]}}'
        for data in (text, text.encode(), bytearray(text.encode())):
            assert told(Loose, data) == expected
        assert parse(Loose, f'{{"anything": "{filler * 1000} {number}"}}').anything


def test_not_a_number_is_refused_in_a_mapping_too(wording: Wording) -> None:
    """A mapping is checked as the JSON that it would be."""
    faults = told(Loose, {"anything": float("nan"), "numbers": {"a": float("inf")}, "exact": "NaN", "more": 1})
    assert faults == wording


def test_words_that_only_look_like_such_numbers_are_taken() -> None:
    """In a string they are words; `1e5` and a long integer are numbers that JSON has."""
    value = parse(Loose, '{"anything": ["NaN", "Infinity", 1e5, ' + "9" * 400 + "]}")
    assert value.anything == ["NaN", "Infinity", 1e5, int("9" * 400)]


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
    '{"note":"a","b":"note","note":"c"}',
    '{"note":"a","\\u006eote":"b"}',
    '{"b":"x","b":"x"}',
    '{"note":"a:b:c","note":"a"}',
]
ONCE = [
    '{"note":"note","b":"note"}',
    r'{"note":"\"note\":\"b\":","b":"\\"}',
    '{"note":"a","b":"b: c: d"}',
    '{ "note" : "a" , "b" : "" }',
    '{"note":"\\u006eote"}',
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
