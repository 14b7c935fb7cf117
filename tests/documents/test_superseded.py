"""The table of superseded spellings says nothing that is not so."""

from __future__ import annotations

import pytest

from tests.architecture.sources import listed
from tests.documents.seed_blocks import DOCUMENTS, blocks_of
from tests.documents.superseded import Row, rows
from tests.documents.surroundings import execute, supplied


def test_every_row_can_be_read() -> None:
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
