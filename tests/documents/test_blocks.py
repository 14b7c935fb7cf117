"""Every code block of the documents runs, with the spellings of today."""

from __future__ import annotations

import pytest

from tests.documents.seed_blocks import DOCUMENTS, Block, all_blocks, blocks_of
from tests.documents.surroundings import run


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
