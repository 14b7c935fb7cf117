"""JSON with the positions of its parts."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail.errors import DocumentError
from handrail.serde.json_tree import (
    MAX_JSON_TREE_DEPTH,
    JsonArray,
    JsonNode,
    JsonObject,
    JsonScalar,
    node_kind,
    read_json_tree,
)
from tests.wording import Wording

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


def plain(node: JsonNode) -> Any:
    """The value of a tree."""
    if isinstance(node, JsonScalar):
        return node.value
    if isinstance(node, JsonArray):
        return [plain(item) for item in node.items]
    return {key.value: plain(value) for key, value in node.entries}


@given(VALUES, st.sampled_from([None, 2]), st.booleans())
def test_a_tree_has_the_value_of_the_text(value: object, indent: int | None, ascii_only: bool) -> None:
    """Whatever the white space and escapes."""
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    assert plain(read_json_tree(f"\ufeff {text}\r\n", file="f")) == value


def test_every_part_knows_its_line_and_column() -> None:
    """Counted from 1, in characters; a line ends as editors end it."""
    tree = read_json_tree('{"ä": 1,\r\n  "b": [true,\n "c"]}', file="f")
    assert isinstance(tree, JsonObject)
    (first, one), (second, items) = tree.entries
    assert isinstance(items, JsonArray)
    places = [(node.line, node.column) for node in (tree, first, one, second, items, *items.items)]
    assert places == [(1, 1), (1, 2), (1, 7), (2, 3), (2, 8), (2, 9), (3, 2)]


FAULTY = (
    *("", "{", "[1", "[1,]", '{"a" 1}', "{a: 1}", '{"a": 1 "b": 2}', "1 2", "NaN", "'a'", "01", '"a\nb"', r'"\x"'),
    *('"open', "1" * 2000, "[" * 70),
)


@pytest.mark.parametrize("text", FAULTY, ids=range(len(FAULTY)))
def test_what_is_not_json_is_refused_with_its_place(text: str, wording: Wording) -> None:
    """The message says what is due there."""
    with pytest.raises(DocumentError) as caught:
        read_json_tree(text, file="f.json")
    assert caught.value.line is not None
    assert str(caught.value) == wording


def test_values_nest_as_deep_as_is_said() -> None:
    """The deepest is still read."""
    assert isinstance(read_json_tree("[" * MAX_JSON_TREE_DEPTH + "]" * MAX_JSON_TREE_DEPTH, file="f"), JsonArray)


def test_each_kind_of_value_has_its_words(wording: Wording) -> None:
    """As messages name them."""
    texts = ("{}", "[]", '"a"', "1", "null")
    kinds = [node_kind(read_json_tree(text, file="f", refusal=DocumentError)) for text in texts]
    assert kinds == wording
