"""What a filesystem says of one path."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class FileStat:
    """What there is at a path.

    Attributes:
        path: the path, relative to the root, in its shortest form.
        kind: `"file"`, `"folder"`, `"symlink"` where the store has links (it tells of the link, not of its target), or
            `"special"` for a device, socket or fifo, which is neither read nor changed.
        size: bytes of a file's content; 0 for anything else.
    """

    path: str
    kind: Literal["file", "folder", "symlink", "special"]
    size: int
