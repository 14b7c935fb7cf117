"""The values of the tables of `[tool.handrail]`, as messages show them, and the paths among them."""

from __future__ import annotations

import re
from pathlib import PurePosixPath, PureWindowsPath

from handrail.serde.formatting import nearest, shorten

_LONGEST_SHOWN = 100


def shown_setting(value: object) -> str:
    """A value of a configuration, for messages."""
    try:
        return shorten(repr(value), _LONGEST_SHOWN)
    except (RecursionError, ValueError):  # nested too deep, or a number of too many digits
        return f"a {type(value).__name__} that is too large to be shown"


def leaves_folder(path: str) -> bool:
    """Whether a path goes out of the folder that it is taken from."""
    # In the notation of either system, because a project is shared between them: `C:\\x` is an ordinary name on POSIX.
    return PurePosixPath(path).is_absolute() or bool(PureWindowsPath(path).anchor) or ".." in re.split(r"[/\\]", path)


def unknown_key(key: str, known: tuple[str, ...]) -> str:
    """That a table has a key which does not exist, with the nearest one that does, as a sentence."""
    near = nearest(key, known)
    hint = f" Did you mean {near!r}?" if near else ""
    return f"the key {shown_setting(key)} does not exist.{hint} The keys are {', '.join(known)}."
