"""The message of an error of other code, and where in the user's own code it was raised."""

from __future__ import annotations

import sysconfig
from functools import cache
from pathlib import Path
from traceback import walk_tb

import handrail

_LIBRARIES = frozenset({"site-packages", "dist-packages"})
_OURS = (Path(handrail.__file__).parent, Path(sysconfig.get_path("stdlib")))


def error_message(error: BaseException) -> str:
    """The message of an error; its class may fail to say one."""
    try:
        return str(error).strip() or "no message"
    except Exception as failed:  # noqa: BLE001 - a program's class may raise anything here
        return f"its message cannot be had, because __str__ raises {type(failed).__name__}"


def error_location(error: BaseException, folder: Path) -> str:
    """Where in the user's own code an error was raised: `tools.py:12`; empty if its traceback has libraries alone.

    It is the innermost line of the project; without one, the innermost line that belongs to no library.

    Args:
        error: the error, with its traceback.
        folder: the folder of the project, resolved; paths below it are given from there.
    """
    lines = ((frame.f_code.co_filename, line) for frame, line in walk_tb(error.__traceback__))
    own = [(Path(file), line) for file, line in lines if _is_own(file)]
    inside = [(path.relative_to(folder), line) for path, line in own if path.is_relative_to(folder)]
    if not own:
        return ""
    # The innermost line in the project is the one that its author can change.
    path, line = (inside or own)[-1]
    return f"{path.as_posix()}:{line}"


@cache
def _is_own(file: str) -> bool:
    """Whether a file belongs to no library, nor to Python."""
    path = Path(file)
    in_library = any(path.is_relative_to(ours) for ours in _OURS) or not _LIBRARIES.isdisjoint(path.parts)
    return path.is_absolute() and not in_library
