"""What tells whether a file has changed since somebody looked at it.

A content is identified by its SHA-256, up to a size that is hashed in a fraction of a second. Beyond that a file on
disk is identified by its size, the time of its last change and its inode, so that a large file is never read to be
identified: what replaces its content sets another time, or is another file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from os import stat_result

MOST_HASHED_BYTES = 64 * 1024 * 1024
"""The largest content that is hashed to identify it, in bytes: 64 MiB."""


def digest_of(chunks: Iterable[bytes]) -> str:
    """The SHA-256 of a content that comes in pieces, as 64 hexadecimal digits."""
    digest = hashlib.sha256()
    for chunk in chunks:
        digest.update(chunk)
    return digest.hexdigest()


def identity_of_status(status: stat_result) -> str:
    """What identifies a file on disk that is too large to be hashed: size in bytes, time in nanoseconds, inode."""
    return f"{status.st_size}-{status.st_mtime_ns}-{status.st_ino}"
