"""The tables of `tests/documents/README.md`: what the documents ask for is there, and every deviation is a row."""

from __future__ import annotations

import ast
import re

import pytest

from tests.architecture.sources import ROOT, listed
from tests.documents.seed_blocks import DOCUMENTS, Block, all_blocks, blocks_of
from tests.documents.superseded import Row, rows
from tests.documents.surroundings import execute, run, supplied

FOLDER = ROOT / "tests" / "documents"
PAGE = (FOLDER / "README.md").read_text(encoding="utf-8")


def table(heading: str, *columns: str) -> list[list[str]]:
    """The rows of the table below a heading, which begins as given."""
    section = re.search(rf"^## {heading}.*?(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert section is not None
    lines = [line for line in section[0].splitlines() if line.startswith("|")]
    assert lines[0] == f"| {' | '.join(columns)} |"
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[2:]]


def test_each_row_names_code_and_a_test() -> None:
    """Nothing is left for another version."""
    for document in ("000", "001", "002", "003", "004"):
        asked = table(f"{document}: ", "asks for", "lives in", "shown by")
        assert asked
        for what, code, shown in asked:
            assert "](../../src/handrail/" in code, what
            assert re.search(r"\]\([^)]*(test_\w+\.py|docs/[^)]+)\)", shown), what
    assert not re.search(r"not (yet|in this version|implemented|supported)|later version", PAGE)


def test_each_deviation_is_what_its_test_says_that_it_shows() -> None:
    """Rows and tests are the same, in one order; what a row says of Handrail is the docstring of its test."""
    tree = ast.parse((FOLDER / "test_deviations.py").read_text(encoding="utf-8"))
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    docstrings = {node.name: ast.get_docstring(node) or "" for node in functions if node.name.startswith("test_")}
    rules: dict[str, str] = {}
    for documents, there, here, why, shown in table("Deviations", "document", "there", "here", "why", "shown by"):
        assert set(documents.split(", ")) <= {"000", "001", "002", "003", "004"}, there
        assert there, here
        assert why, here
        rules[shown.partition("`")[2].partition("`")[0]] = f"{here[0].upper()}{here[1:]}."
    assert list(rules.items()) == list(docstrings.items())


def test_every_row_of_the_spellings_can_be_read() -> None:
    """A row names known documents, says how it is tested, and spells at least one thing in code."""
    faults = [
        str(row)
        for row in rows()
        if not row.there
        or not set(row.documents) <= set(DOCUMENTS)
        or row.where not in {"code", "sketch", "text"}
        or (row.where != "sketch" and len(row.there) > 1)
    ]
    assert rows()
    assert not faults, listed(faults)


@pytest.mark.requirement("M-01")
def test_every_replaced_spelling_stands_in_a_block() -> None:
    """A row of the kind `code` that replaces nothing in one of its documents is stale."""
    stale = [
        f"{document} {row.there[0]}"
        for row in rows()
        if row.where == "code"
        for document in row.documents
        if not any(row.there[0] in block.code for block in blocks_of(document))
    ]
    assert not stale, listed(stale)


@pytest.mark.parametrize("row", [row for row in rows() if row.where == "text"], ids=lambda row: row.there[0])
@pytest.mark.requirement("M-01")
def test_the_old_spelling_fails_and_the_new_one_works(row: Row) -> None:
    """What stands in running text only is tried as an expression."""
    with pytest.raises((AttributeError, NameError)):
        execute(row.there[0], name="there", names=supplied())
    execute(row.here, name="here", names=supplied())


@pytest.mark.parametrize("block", all_blocks(), ids=lambda block: block.id)
@pytest.mark.requirement("M-01")
def test_every_block_of_the_documents_runs(block: Block) -> None:
    """Only what the table of superseded spellings lists is changed in it."""
    run(block.id)


def test_no_block_has_been_lost() -> None:
    """The data holds as many blocks as the documents have, numbered as they stand there."""
    assert {document: len(blocks_of(document)) for document in DOCUMENTS} == {"000": 20, "001": 3, "003": 7, "004": 1}
    for document in DOCUMENTS:
        assert [one.id for one in blocks_of(document)] == [
            f"{document}.{number:02d}" for number, _ in enumerate(blocks_of(document), start=1)
        ]
