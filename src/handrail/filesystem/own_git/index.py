"""The entries of git's index file, without the status of files that git keeps beside them.

Git rewrites the index often only to refresh that status. Two indexes with the same entries stage the same.

The format is that of `gitformat-index(5)`, versions 2 and 3; objects have the 20 bytes of a SHA-1. Other indexes
(version 4, SHA-256, a split index) are not read.
"""

from __future__ import annotations

import hashlib
import os
import struct
from typing import Final, NamedTuple

_HEAD: Final = struct.Struct(">4sII")
_ENTRY: Final = struct.Struct(">24xI12x20sH")  # mode, object, flags
_DIGEST_BYTES: Final = 20
_NAME_BITS: Final = 0x0FFF
_STAGE_BITS: Final = 0x3000
_STAGE_SHIFT: Final = 12
_EXTENDED_BIT: Final = 0x4000
_ALIGNMENT: Final = 8


class IndexEntry(NamedTuple):
    """What is staged at a path.

    Attributes:
        mode: the mode, as git writes it: `0o100644`.
        id: the object.
    """

    mode: int
    id: str


def index_entries(content: bytes) -> dict[tuple[str, int], IndexEntry] | None:
    """What an index stages, by path and stage (0 but for conflicts); `None` if it cannot be read.

    An empty content is an index without entries, as in a new repository.
    """
    if not content:
        return {}
    # Git itself writes the digest; with `index.skipHash` it is zero.
    digest = content[-_DIGEST_BYTES:]
    if len(content) < _HEAD.size + _DIGEST_BYTES or (
        digest not in {bytes(_DIGEST_BYTES), hashlib.sha1(content[:-_DIGEST_BYTES], usedforsecurity=False).digest()}
    ):
        return None
    magic, version, count = _HEAD.unpack_from(content)
    if magic != b"DIRC" or version not in {2, 3}:
        return None
    found: dict[tuple[str, int], IndexEntry] = {}
    at = _HEAD.size
    try:
        for _ in range(count):
            mode, object_id, flags = _ENTRY.unpack_from(content, at)
            start = at + _ENTRY.size + (2 if flags & _EXTENDED_BIT else 0)
            size = flags & _NAME_BITS
            # A longer name than the field can say ends at the first NUL.
            end = start + size if size < _NAME_BITS else content.index(b"\0", start)
            key = (os.fsdecode(content[start:end]), (flags & _STAGE_BITS) >> _STAGE_SHIFT)
            found[key] = IndexEntry(mode, object_id.hex())
            # At least one NUL, up to a multiple of 8.
            at += (end - at + _ALIGNMENT) // _ALIGNMENT * _ALIGNMENT
    except (struct.error, ValueError):
        return None
    # A split index has most of its entries in another file.
    return None if content[at : at + 4] == b"link" else found
