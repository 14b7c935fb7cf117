"""What the files that hold locks have in common."""

from __future__ import annotations

import errno
import os
from pathlib import Path


def forbids_writing(error: OSError) -> bool:
    """Whether an error says that this process may not write there: it lacks the rights, or the disk is read-only."""
    return isinstance(error, PermissionError) or error.errno == errno.EROFS


def is_at(path: Path, file: int) -> bool:
    """Whether an open file is the one that a path names."""
    try:
        return os.path.samestat(path.stat(), os.fstat(file))
    except FileNotFoundError:
        return False
