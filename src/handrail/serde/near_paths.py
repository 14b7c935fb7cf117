"""The path that was probably meant where one leads nowhere: for messages, never to open another one."""

from __future__ import annotations

import os
from difflib import get_close_matches
from itertools import islice
from pathlib import Path

from handrail.serde.formatting import shorten

_MOST_NAMES = 1_000  # of a folder that are compared: the time grows with their number
_LONGEST_COMPARED = 100
_MOST_LISTED = 4
_LONGEST_SHOWN = 200


def nearest_path(path: Path, *, suffix: str = "", folder: bool = False) -> Path | None:
    """The existing path that is most like one that does not exist; `None` if none is similar.

    Each part that is not there is compared with the names in its folder. `path` itself is not looked at again.

    Args:
        path: the path, in the form in which it was typed.
        suffix: how the names of such files end, e.g. `.agent`; other files are not proposed.
        folder: whether a folder was meant.
    """
    try:
        if suffix and path.with_name(path.name + suffix).is_file():
            return path.with_name(path.name + suffix)
        place = Path(path.anchor)
        for number, part in enumerate(path.parts[1:] if path.anchor else path.parts, start=1 + bool(path.anchor)):
            last = number == len(path.parts)
            # Part by part from the left, so that a folder which is misspelled is found even with a right name below it.
            if not last and (place / part).is_dir():
                place /= part
                continue
            near = _nearest(place, part, suffix if last else "", folder=folder or not last)
            if near is None:
                return None
            place /= near
    except (OSError, ValueError):  # a folder that may not be listed, a NUL
        return None
    return place


def _nearest(place: Path, name: str, suffix: str, *, folder: bool) -> str | None:
    """The name in a folder that is most like another one; of those that fit the kind."""
    # Of a large folder only so many names are read, in no order.
    with os.scandir(place) as entries:
        names = [
            entry.name
            for entry in islice(entries, _MOST_NAMES)
            if entry.name.endswith(suffix) and entry.is_dir() is folder
        ]
    # All of them end alike, so a typed ending that is right says nothing about the rest.
    ending = suffix if name.endswith(suffix) else ""
    stems = {each.removesuffix(ending): each for each in sorted(names)}
    near = get_close_matches(name.removesuffix(ending)[:_LONGEST_COMPARED], stems, n=1)
    return stems[near[0]] if near else None


def did_you_mean(path: Path, *, suffix: str = "", folder: bool = False) -> str:
    """A sentence that proposes the nearest path, to be put behind another one; empty if there is none."""
    near = nearest_path(path, suffix=suffix, folder=folder)
    return "" if near is None else f" Did you mean {shorten(str(near), _LONGEST_SHOWN)}?"


def files_in(folder: Path, *, suffix: str) -> str:
    """The files of a folder whose names end so, with commas between them: the first few; empty if there are none."""
    try:
        with os.scandir(folder) as entries:
            names = sorted(entry.name for entry in islice(entries, _MOST_NAMES) if entry.name.endswith(suffix))
    except OSError:
        return ""
    more = f" and {len(names) - _MOST_LISTED:,} more" if len(names) > _MOST_LISTED else ""
    return ", ".join(shorten(str(folder / name), _LONGEST_SHOWN) for name in names[:_MOST_LISTED]) + more
