"""Documents that people write: files, mappings and lists, and YAML."""

from __future__ import annotations

import importlib
import json
import math
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from handrail.errors import AgentFileError, DocumentError
from handrail.serde import document
from handrail.serde.formatting import quote_value
from tests.kit import refusal
from tests.wording import Wording

WHAT = "a note is a text file"


def refused(path: Path) -> str:
    """Why a file is no document."""
    error = refusal(DocumentError, document.read_document, path, file="note", what=WHAT)
    cause = error.__cause__  # of which Python has other words in each version
    return str(error).replace(str(cause), "<cause>") if type(cause) is ValueError else str(error)


def test_a_document_is_its_text_up_to_the_largest_size(tmp_path: Path) -> None:
    """Line breaks and a byte order mark stay; also through a link."""
    (tmp_path / "note").write_bytes("\ufeffcaf\u00e9\r\n".encode())
    (tmp_path / "link").symlink_to("note")
    (tmp_path / "large").write_bytes(b"x" * document.LARGEST)
    assert document.read_document(tmp_path / "link", file="note", what=WHAT) == "\ufeffcaf\u00e9\r\n"
    assert len(document.read_document(tmp_path / "large", file="note", what=WHAT)) == document.LARGEST


def test_what_is_no_document_is_told_at_once(tmp_path: Path, wording: Wording) -> None:
    """Nobody waits for a pipe, and nothing without an end is read."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "gone").symlink_to("nowhere")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "large").write_bytes(b"x" * (document.LARGEST + 1))
    (tmp_path / "latin").write_bytes(b"a\r\nb\xe9")
    for name in ("", "pipe", "/dev/zero", "none", "gone", "loop", "a\0b", "latin", "large"):
        assert refused(tmp_path / name) == wording


def test_a_huge_key_is_cut_in_messages() -> None:
    """And escaped, if it cannot be printed."""
    assert len(quote_value("k" * 100_000)) < 200
    assert quote_value("a\x1b[2J") == r"'a\x1b[2J'"


def test_a_path_leads_to_its_part() -> None:
    """To the last one above it that there is; a step may be any text."""
    root = document.read_tree('{a: [1, {"b.c": 2}], d: 3}', name="rules")
    assert root is not None
    paths = {"$": 1, "$.a[0]": 6, '$.a[1]["b.c"]': 17, "$.a[1].none": 9, "$.d.e": 25}
    assert {path: document.node_at(root, path).column for path in paths} == paths
    assert document.node_at(root, "$.d", is_key=True).column == 22


def value(tree: document.YamlNode | None) -> object:
    """What a tree says, as JSON has it."""
    if isinstance(tree, document.YamlMap):
        return {str(value(key)): value(found) for key, found in tree.entries}
    if isinstance(tree, document.YamlList):
        return [value(item) for item in tree.items]
    return None if tree is None else tree.value


def longest_key(text: str, *, ascii_only: bool) -> int:
    """How many characters the longest key of a JSON text has, with its quotes; 0 without any."""
    lengths = [0]

    def note(pairs: list[tuple[str, object]]) -> None:
        lengths.extend(len(json.dumps(key, ensure_ascii=ascii_only)) for key, _ in pairs)

    json.loads(text, object_pairs_hook=note)
    return max(lengths)


def yaml_fault(text: str) -> str:
    """The error for a text that is refused."""
    return str(refusal(DocumentError, document.read_tree, text, name="desk"))


VALUES: dict[str, Any] = (
    {text: text for text in ("on", "yes", "2026-01-01", "nULL", "1__0", "0b", "=", "<<")}
    | {"true": True, "~": None, "010": 10, "-0x1F": -31, "0o17": 15, "1_000": "1_000", "1.": 1.0, ".5e1": 5.0}
    | {"-.Inf": -math.inf, '"on"': "on", r'"\ud83d\ude00"': "😀", r'"\0"': "\0"}
)


@pytest.mark.parametrize("text, meant", VALUES.items(), ids=map(repr, VALUES))
def test_plain_text_means_what_the_core_schema_of_yaml_12_says(text: str, meant: object) -> None:
    """What is quoted is text; so are dates and times, which JSON does not have."""
    tree = document.read_tree(text, name="desk")
    assert isinstance(tree, document.YamlScalar)
    assert tree.value == meant
    assert type(tree.value) is type(meant)


LONGEST_KEY = 1024
"""Of a key without a question mark, by YAML 1.2.2, 7.4.2."""

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x85\u2028\u2029"))

FINITE = st.floats(allow_nan=False, allow_infinity=False)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(10**9), 10**9) | FINITE | TEXTS,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
        max_leaves=20,
    ),
    st.booleans(),
)
@example({"k" * 1023: None}, False)
@example([{"\u0315" * 200: 1}], True)
def test_json_is_yaml(data: object, ascii_only: bool) -> None:
    """Whatever JSON says is read as JSON reads it, pairs of surrogates among it, or the limit of YAML is named."""
    text = json.dumps(data, ensure_ascii=ascii_only)
    try:
        tree = document.read_tree(text, name="desk")
    except DocumentError as error:
        if document.first_unprintable(text) is None:  # as DEL and the like are, which JSON has as they are
            assert text[(error.column or 0) - 1] == ":"  # noqa: PT017 - behind a key: JSON has keys of any length
            assert longest_key(text, ascii_only=ascii_only) > LONGEST_KEY
    else:
        assert value(tree) == data


YAML_FAULTS = (
    {"nothing closed": "a: [", "no place of the problem": "a: 'b", "colon": "a: b: c", "tab": "a:\n\t- b"}
    | {"NUL": "a: b\r\nc: \0", "BEL": "a:\rb: \x07", "surrogate": "a: \ud800"}
    | {"half a character": r'a: "\udc00\ud800"', "beyond Unicode": r'a: "\UFFFFFFFF"'}
    | {"beyond Unicode by one": r'a: "\U00110000"', "two documents": "a\n---\nb", "older YAML": "%YAML 1.1\n---\non"}
    | {"tag directive": "%TAG !e! tag:example.com,2026:\n---\na", "tag": "a: !!python/name:os.system"}
    | {"tag of a list": "a: !!set {b}", "long number": "a: " + "9" * 5_000}
    | {"long number of bits": "a: 0x" + "f" * 5_000, "alias": "a: &b [1]\nc: *b"}
    | {"deep list": "a: " + "[" * 100_000}
    | {"deep block": "- " * 100_000, "deep mapping": "{a: " * 100_000}
)


@pytest.mark.parametrize("text", YAML_FAULTS.values(), ids=YAML_FAULTS)
def test_what_is_no_yaml_or_too_much_of_it_is_told_with_its_place(text: str, wording: Wording) -> None:
    """File, line and column, and the cure."""
    assert yaml_fault(text) == wording


@pytest.mark.parametrize(
    "text", ["1" * 200_000 + "x", "1_" * 100_000, "1e" + "1" * 200_000 + "e", "." + "1" * 200_000 + "."]
)
def test_long_text_that_begins_like_a_number_is_text(text: str) -> None:
    """It is told from a number in one pass; going back at every digit would take hours."""
    tree = document.read_tree(text, name="desk")
    assert isinstance(tree, document.YamlScalar)
    assert tree.value == text


def test_values_may_stand_as_deep_as_is_said(wording: Wording) -> None:
    """One level more is refused, however it comes about."""
    assert document.read_tree("[" * document.MAX_YAML_DEPTH + "]" * document.MAX_YAML_DEPTH, name="desk") is not None
    assert yaml_fault("[" * (document.MAX_YAML_DEPTH + 1) + "]" * (document.MAX_YAML_DEPTH + 1)) == wording


def test_a_part_of_a_file_is_told_by_the_lines_of_the_file() -> None:
    """Values and faults, and the errors are the caller's own."""
    tree = document.read_tree("a: b", name="desk", first_line=5)
    assert tree is not None
    assert (tree.line, tree.column) == (5, 1)
    for text in ("a: [", "a: \0", "a: *b"):
        error = refusal(AgentFileError, document.read_tree, text, name="desk", first_line=5, refusal=AgentFileError)
        assert (error.file, error.line) == ("desk", 5)


@given(st.text(st.sampled_from("ab:- [],{}\n\t'\"&*!|>%#?~\\U0x1_.\ud800\x07\r\x85é"), max_size=30) | st.text())
def test_no_text_raises_anything_else(text: str) -> None:
    """A tree, nothing, or the one error."""
    try:
        document.read_tree(text, name="desk")
    except DocumentError as error:
        assert error.line is not None  # noqa: PT017 - most texts raise nothing
        assert error.column is not None  # noqa: PT017


def test_a_missing_ruamel_is_named(monkeypatch: pytest.MonkeyPatch, wording: Wording) -> None:
    """The error says what to install."""
    monkeypatch.delitem(sys.modules, "handrail.serde.document")
    monkeypatch.setitem(sys.modules, "ruamel.yaml", None)
    assert str(refusal(ImportError, importlib.import_module, "handrail.serde.document")) == wording
