"""Lone surrogates become escapes, and nothing else changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail.serde.json_values import escape_surrogates, escaped_within
from handrail.serde.secrets import partial_json

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
    assert escaped_within({"\ud800": ["a", ("\udfff", 1)], "b": "\ud83d\ude00"}) == {
        r"\ud800": ["a", [r"\udfff", 1]],
        "b": r"\ud83d\ude00",
    }


@pytest.mark.parametrize(
    "value, text",
    [
        (Line("\ud800"), r'{"text":"\\ud800"}'),
        ({"\ud800": Line(["a", "\udc00"])}, r'{"\\ud800":{"text":["a","\\udc00"]}}'),
        (("\ud800", b"a"), r'["\\ud800","YQ=="]'),
    ],
)
def test_the_json_of_a_value_has_the_escapes(value: object, text: str) -> None:
    """In keys and texts, wherever they stand."""
    assert partial_json(value) == (text, (), True)
