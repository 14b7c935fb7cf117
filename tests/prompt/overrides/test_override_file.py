"""The JSON form of overrides."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail.errors import InvalidArgumentError, OverridesError
from handrail.prompt.overrides import Override, PromptOverrides, TextKey, dump_overrides, parse_overrides
from tests.wording import Wording

NAMES = st.text("abc.-", min_size=1, max_size=4)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
SECTION_KEYS = st.builds(TextKey, st.just("section"), NAMES, st.sampled_from(["body", "summary"]))
TOOL_KEYS = st.builds(TextKey, st.just("tool"), NAMES, st.just("description")) | st.builds(
    TextKey, st.just("tool"), NAMES, st.sampled_from(["parameter", "example"]), NAMES
)
OVERRIDES = st.builds(Override, SECTION_KEYS | TOOL_KEYS, st.text("0af", min_size=64, max_size=64), TEXTS)

FAULTY = """{
  "version": 2,
  "ns": "shop", "key": 5,
  "sections": {
    "guide": {"body": {"sha256": "abc", "text": "A"}, "title": "New"},
    "guide": {"body": []},
    "rules": {"bdy": {}, "summary": {"sha256": 1, "text": ["A", 1]}}
  },
  "tools": {
    "lookup": {"description": {"text": "Finds."}, "effect": "read", "policies": [], "parameters": {"$.a": "A"}},
    "send": 1
  },
  "more": {}
}
"""


@given(st.lists(OVERRIDES, unique_by=lambda each: each.key, max_size=6))
def test_what_is_written_is_read_back(found: list[Override]) -> None:
    """Equal, whatever the order in which it was given."""
    overrides = PromptOverrides(ns="shop/a", key="desk", tag="stable", overrides=tuple(found))
    assert parse_overrides(dump_overrides(overrides), file="f.json") == overrides


def test_all_faults_are_reported_at_once(wording: Wording) -> None:
    """Each with line and column; what only the code declares is named as such."""
    with pytest.raises(OverridesError) as caught:
        parse_overrides(FAULTY, file="stable.json")
    assert all((fault.line, fault.column) != (None, None) for fault in caught.value.problems)
    assert str(caught.value) == wording


def test_an_override_knows_where_it_stands() -> None:
    """By line and column, for faults that only the prompt shows; they do not count when overrides are compared."""
    text = '{"version": 1, "ns": "a", "key": "b", "tag": "c",\n "tools": {"t": {"description":\n  %s}}}'
    leaf = f'{{"sha256": "{"0" * 64}", "text": ["A", "", "B"]}}'
    (found,) = parse_overrides(text % leaf, file="f.json").overrides
    assert (found.line, found.column, found.text) == (3, 3, "A\n\nB")
    assert found == Override(TextKey("tool", "t", "description"), "0" * 64, "A\n\nB")


@pytest.mark.parametrize("version", ["true", "1.0", "2"])
def test_another_version_is_refused(version: str, wording: Wording) -> None:
    """Also what Python holds equal to 1."""
    with pytest.raises(OverridesError) as raised:
        parse_overrides(f'{{"version": {version}, "ns": "a", "key": "b", "tag": "c"}}', file="f.json")
    assert str(raised.value) == wording


@pytest.mark.parametrize(
    "owner, part", [("section", "effect"), ("section", "parameter"), ("tool", "body"), ("a", "body")]
)
def test_a_key_of_no_text_is_refused(owner: Any, part: Any) -> None:
    """When it is made, because a program may make it."""
    with pytest.raises(InvalidArgumentError) as caught:
        TextKey(owner, "desk", part)
    assert caught.value.argument == ("owner" if owner == "a" else "part")


def test_two_overrides_of_one_text_are_refused(wording: Wording) -> None:
    """Only one of them could be applied."""
    twice = [Override(TextKey("section", "desk", "body"), "0" * 64, text) for text in "AB"]
    with pytest.raises(InvalidArgumentError) as raised:
        PromptOverrides(ns="a", key="b", tag="c", overrides=tuple(twice))
    assert str(raised.value) == wording


@pytest.mark.parametrize("text", ["[]", "1", '"a"', "null", "true", "2.5"])
def test_a_document_of_another_kind_is_refused(text: str) -> None:
    """At its beginning."""
    with pytest.raises(OverridesError) as caught:
        parse_overrides(text, file="f.json")
    assert (caught.value.line, caught.value.column) == (1, 1)
