"""The Python blocks of the documents, as they stand there.

A file of `blocks/` is one document: its title, then each block below a line `=== <id> <heading>`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

DOCUMENTS = ("000", "001", "003", "004")
"""The documents that have Python blocks."""

_HEAD = re.compile(r"^=== (\S+) (.*)\n", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Block:
    """A block of code: the document's number and the block's own in it, the heading it stands under, and the code."""

    id: str
    heading: str
    code: str

    @property
    def document(self) -> str:
        """The number of the document."""
        return self.id.partition(".")[0]


@cache
def blocks_of(document: str) -> tuple[Block, ...]:
    """The blocks of a document, in their order."""
    text = Path(__file__).with_name("blocks").joinpath(f"{document}.txt").read_text(encoding="utf-8")
    _title, *parts = _HEAD.split(text)
    return tuple(Block(*part) for part in zip(parts[::3], parts[1::3], parts[2::3], strict=True))


def all_blocks() -> tuple[Block, ...]:
    """The blocks of all documents."""
    return tuple(block for document in DOCUMENTS for block in blocks_of(document))


def block(block_id: str) -> Block:
    """The block of that id."""
    return next(one for one in blocks_of(block_id.partition(".")[0]) if one.id == block_id)
