"""The tables of `tests/documents/README.md`: all that the documents ask for is there, and is shown by a test."""

from __future__ import annotations

import re

from tests.architecture.sources import ROOT

PAGE = (ROOT / "tests" / "documents" / "README.md").read_text(encoding="utf-8")
DOCUMENTS = ("000", "001", "002", "003", "004")


def asked(document: str) -> list[list[str]]:
    """The rows of the table of a document: what it asks for, where that is, and what shows it."""
    section = re.search(rf"^## {document}: .*?(?=^## )", PAGE, re.MULTILINE | re.DOTALL)
    assert section is not None
    lines = [line for line in section[0].splitlines() if line.startswith("|")]
    assert lines[0] == "| asks for | lives in | shown by |"
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[2:]]


def test_each_row_names_code_and_a_test() -> None:
    """Nothing is left for another version."""
    for document in DOCUMENTS:
        rows = asked(document)
        assert rows
        for what, code, shown in rows:
            assert "](../../src/handrail/" in code, what
            assert re.search(r"\]\([^)]*(test_\w+\.py|docs/[^)]+)\)", shown), what
    assert not re.search(r"not (yet|in this version|implemented|supported)|later version", PAGE)
