"""The table of superseded spellings in `tests/documents/README.md`, and what it makes of a block."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from tests.architecture.sources import ROOT
from tests.documents.seed_blocks import Block

_HEADING = "## Superseded spellings"
_CELLS = re.compile(r"(?<!\\)\|")
_CODE = re.compile(r"`([^`]+)`")


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the table.

    Attributes:
        documents: numbers of the documents that spell it so.
        where: how the row is tested: `"code"`, `"sketch"` or `"text"`.
        there: the spellings in the document; one, but for sketches.
        here: what replaced it; empty for nothing.
    """

    documents: tuple[str, ...]
    where: str
    there: tuple[str, ...]
    here: str


@cache
def rows() -> tuple[Row, ...]:
    """The rows of the table, in their order."""
    text = (ROOT / "tests" / "documents" / "README.md").read_text(encoding="utf-8")
    section = text.partition(f"{_HEADING}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")]
    return tuple(_row(line) for line in lines[1:])  # the first one is the head; the line below it starts with `|-`


def rows_of(document: str, where: str) -> tuple[Row, ...]:
    """The rows about a document that are tested in one way."""
    return tuple(row for row in rows() if document in row.documents and row.where == where)


def translated(block: Block) -> str:
    """The code of a block with the spellings of today; of two that overlap, the longer one is replaced."""
    code = block.code
    for row in sorted(rows_of(block.document, "code"), key=lambda row: -len(row.there[0])):
        code = code.replace(row.there[0], row.here)
    return code


def _row(line: str) -> Row:
    documents, where, there, here, _why = (cell.strip().replace("\\|", "|") for cell in _CELLS.split(line)[1:-1])
    return Row(tuple(documents.split(", ")), where, tuple(_CODE.findall(there)), "".join(_CODE.findall(here)))
