"""`handrail.serde.document`: mappings, lists and texts of a document, and their faults."""

from __future__ import annotations

import pytest

from handrail.errors import ApprovalRulesError, DocumentError
from handrail.serde.document import DocumentReader, YamlNode, read_tree
from handrail.serde.formatting import join_names, quote_value
from tests.kit import refusal
from tests.wording import Wording

KNOWN = ("allow", "ask", "deny")


def tree(text: str) -> YamlNode:
    """The tree of a text that holds something."""
    found = read_tree(text, name="rules")
    assert found is not None
    return found


def told(text: str, faults: list[DocumentError] | None = None) -> str:
    """The error that a mapping of lists of texts raises."""
    reader = DocumentReader("rules", faults=faults)
    return str(refusal(DocumentError, read, reader, text))


def read(reader: DocumentReader, text: str) -> dict[str, tuple[str, ...] | None]:
    """Reads a mapping of lists of texts."""
    keys = reader.mapping(tree(text), "the file", KNOWN)
    return {key: reader.read(keys, key, lambda found: reader.items(found, "a rule", reader.text)) for key in KNOWN}


def test_a_document_is_read_key_by_key() -> None:
    """Nothing is the empty text, a number is text as it is written, and a key that is not there is None."""
    assert read(DocumentReader("rules"), "allow: [a, 010, ~]\nask: []") == {
        "allow": ("a", "010", ""),
        "ask": (),
        "deny": None,
    }


def test_a_mapping_without_known_keys_takes_any() -> None:
    """Each once."""
    assert list(DocumentReader("rules").mapping(tree("{x: 1, y: 2}"), "this")) == ["x", "y"]


FAULTS = {
    "no mapping": "[a]",
    "no list": "allow: a",
    "no text": "allow: [[a]]",
    "no text for a key": "? [a]\n: b",
    "near": "alow: []",
    "far": "x: []",
    "twice": "ask: []\nask: []",
}


@pytest.mark.parametrize("text", FAULTS.values(), ids=FAULTS)
def test_the_first_fault_is_raised_with_its_place(text: str, wording: Wording) -> None:
    """Where no list of faults is given."""
    assert told(text) == wording


def test_a_huge_key_is_cut_in_messages() -> None:
    """And escaped, if it cannot be printed."""
    assert len(told(f"{'k' * 100_000}: []")) < 200
    assert quote_value("a\x1b[2J") == r"'a\x1b[2J'"


def test_with_a_list_of_faults_reading_goes_on(wording: Wording) -> None:
    """What is at fault is left out, and all the rest is read."""
    faults: list[DocumentError] = []
    text = "alow: []\nask: [a, [b], {c: d}, e]\nask: []\n? [k]\n: v\ndeny: none"
    assert read(DocumentReader("rules", faults=faults), text) == {"allow": None, "ask": ("a", "e"), "deny": None}
    assert [(fault.line, fault.column) for fault in faults] == [(1, 1), (3, 1), (4, 3), (2, 10), (2, 15), (6, 7)]
    assert join_names(faults[:2]) == wording


def test_a_document_that_is_no_mapping_ends_the_reading_all_the_same(wording: Wording) -> None:
    """There is nothing to go on with."""
    assert told("[a]", faults=[]) == wording


def test_the_errors_are_the_callers_own() -> None:
    """Of the class that it asks for."""
    with pytest.raises(ApprovalRulesError, match="rules:1:1: no") as caught:
        DocumentReader("rules", refusal=ApprovalRulesError).fail(tree("a"), "no")
    assert (caught.value.file, caught.value.line, caught.value.column) == ("rules", 1, 1)
