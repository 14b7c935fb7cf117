"""What stands at a path that was typed; that it cannot be looked at is told with the path."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Literal

from cyclopts import CycloptsError

GONE = "which is gone"
"""What is said of the folder in which the command was typed, if it has been removed."""

Found = Literal["file", "folder", "other", "nothing"]
"""What stands at a path."""


def found_at(path: Path) -> Found:
    """What stands at a path, links followed.

    Raises:
        CycloptsError: that cannot be found out: the name is too long, or a folder on the way may not be searched.
    """
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return "nothing"
    except (OSError, ValueError) as error:
        raise CycloptsError(msg=f"{path} cannot be looked at: {why(error)}") from error
    if stat.S_ISDIR(mode):
        return "folder"
    return "file" if stat.S_ISREG(mode) else "other"


def folder_here() -> str:
    """The folder in which the command was typed, for messages."""
    try:
        return str(Path.cwd())
    except OSError:
        return GONE


def why(error: Exception) -> str:
    """Why an operation on a file failed, without the number and the path."""
    return (isinstance(error, OSError) and error.strerror) or str(error)
