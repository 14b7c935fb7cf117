"""Paths and URLs that were typed: what is there, and how a message describes what cannot be accessed.

An error about a path that cannot be accessed names the path.
"""

from __future__ import annotations

import re
import stat
from pathlib import Path
from typing import Literal

from cyclopts import CycloptsError

GONE = "which does not exist any more"
"""Describes the current folder in messages, if it has been removed."""

_URL = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+):/")
"""The beginning of a URL that was made a path. One letter is a drive of Windows."""

PathStatus = Literal["file", "folder", "other", "nothing"]
"""What stands at a path."""

EXAMPLES = "sqlite:///desk.db, or postgresql://user@host/database"
"""URLs of stores that several processes can open."""


def path_status(path: Path) -> PathStatus:
    """What is at a path, with links followed.

    Raises:
        CycloptsError: it is the URL of something, of which the message shows the scheme alone, because a path does not
            keep its slashes, and a password could not be found in it; or it cannot be accessed: the name is too long,
            or a folder above it may not be searched.
    """
    try:
        mode = path.stat().st_mode
    # Part of the path is a file, so there is nothing at it either.
    except (FileNotFoundError, NotADirectoryError):
        if url := _URL.match(str(path)):
            msg = f"a URL ({url['scheme']}:...) stands where a path is expected; that of a store is given by --store"
            raise CycloptsError(msg=msg) from None
        return "nothing"
    except (OSError, ValueError) as error:
        raise CycloptsError(msg=f"{path} cannot be accessed: {os_error_text(error)}") from error
    if stat.S_ISDIR(mode):
        return "folder"
    return "file" if stat.S_ISREG(mode) else "other"


def folder_here() -> str:
    """The current folder, for messages."""
    try:
        return str(Path.cwd())
    except OSError:
        return GONE


def os_error_text(error: Exception) -> str:
    """Why an operation on a file failed, without the number and the path."""
    return (isinstance(error, OSError) and error.strerror) or str(error)
