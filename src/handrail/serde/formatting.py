"""How places, types, names and counts are written in messages: `$.steps[2].title`, `Page[Item]`; the nearest name."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Sequence
from itertools import accumulate, islice
from pathlib import Path

_LONGEST_KEY = 60
_LONGEST_PLACE = 120
_LONGEST_COMPARED = 100
_MOST_NEAR = 10
_LEAST_LIKENESS = 0.4
_MODULES = r"\b(?:\w+\.)*(?:<locals>\.)?(?=\w+\b)"
_SHOWN = json.JSONEncoder(ensure_ascii=False, default=repr)


def format_path(segments: Iterable[str | int]) -> str:
    """The path from the root through `segments`: names follow a dot, positions stand in brackets.

    A key that is not an identifier is quoted, and a long one is cut, because keys may come from a model. Of a path with
    many segments the first and the last ones are shown.
    """
    written = ["$", *(_written(segment) for segment in segments)]
    if sum(map(len, written)) <= _LONGEST_PLACE:
        return "".join(written)
    first, last = _fitting(written, _LONGEST_PLACE // 2), _fitting(written[::-1], _LONGEST_PLACE // 2)
    return "".join((*first, "…", *last[::-1]))


def _fitting(parts: Sequence[str], limit: int) -> list[str]:
    """The first parts that have so many characters together."""
    ends = accumulate(map(len, parts))
    return [part for part, end in zip(parts, ends, strict=True) if end <= limit]


def _written(segment: str | int) -> str:
    if isinstance(segment, int):
        return f"[{segment}]"
    if segment.isidentifier() and len(segment) <= _LONGEST_KEY:
        return f".{segment}"
    return f"[{quote(segment)}]"


def quote(text: str) -> str:
    """`text` as a JSON string of bounded length, every character of which can be printed and sent."""
    return json.dumps(shorten(text, _LONGEST_KEY), ensure_ascii=not text.isprintable())


def shorten(text: str, limit: int) -> str:
    """`text`, cut to `limit` characters; an ellipsis marks the cut."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def quote_value(text: str) -> str:
    """A text of a document as messages show it: quoted, and cut if it is long."""
    return repr(shorten(text, _LONGEST_KEY))


def join_names(faults: Sequence[Exception]) -> str:
    """Several faults of one document as one message, a line each."""
    return f"{len(faults)} faults" + "".join(f"\n  {fault}" for fault in faults)


def nearest(wanted: str, known: Iterable[str]) -> str | None:
    """The name that is most like another one, whatever the case of their letters; `None` if none is like it."""
    from difflib import get_close_matches  # noqa: PLC0415

    names = {name.casefold(): name for name in known}
    # Cut before it is compared: the time of a comparison grows with the square of the length, and a model may send any
    # name.
    near = get_close_matches(shorten(wanted, _LONGEST_COMPARED).casefold(), names, n=1)
    return names[near[0]] if near else None


def enumerated(names: Sequence[str], *, limit: int, wanted: str = "") -> str:
    """Names with commas between them: all of them, or those that fit into `limit` bytes, and how many more there are.

    Args:
        names: the names.
        limit: how many bytes of UTF-8 the text may have; a name longer than 64 characters is cut.
        wanted: where not all fit, the names nearest to this one come first.
    """
    shown = [shorten(name, _LONGEST_KEY + 4) for name in names]
    text = ", ".join(shown)
    if _size(text) <= limit:
        return text
    from difflib import get_close_matches  # noqa: PLC0415

    near = get_close_matches(shorten(wanted, _LONGEST_KEY), shown, n=_MOST_NEAR, cutoff=_LEAST_LIKENESS)
    ordered = [*near, *(name for name in shown if name not in near)]
    # The largest count that may be written, so that the end always fits.
    room = limit - _size(f" and {len(shown):,} more")
    ends = accumulate(_size(name) + len(", ") for name in ordered)
    kept = [name for name, end in zip(ordered, ends, strict=True) if end <= room]
    return f"{', '.join(kept)} and {len(shown) - len(kept):,} more"


def _size(text: str) -> int:
    return len(text.encode(errors="surrogatepass"))


def json_line(value: object) -> str:
    """A value as JSON on one line, for people; what has none as its `repr`."""
    return _SHOWN.encode(value)


def type_name(kind: object) -> str:
    """A type as people write it, without the modules it comes from."""
    if isinstance(kind, type):
        return kind.__name__
    return re.sub(_MODULES, "", str(kind))


def format_size(size: int) -> str:
    """A number of bytes in its largest unit: `40 B`, `1.5 kB`, `23 MB`."""
    if size < 1000:  # noqa: PLR2004 - the units of SI
        return f"{size} B"
    power = min(3, (len(str(size)) - 1) // 3)
    amount = size / 1000**power
    return f"{amount:.1f} {' kMG'[power]}B" if amount < 9.95 else f"{amount:.0f} {' kMG'[power]}B"  # noqa: PLR2004


def count_noun(number: int, noun: str, plural: str = "") -> str:
    """A number with its noun: `1 entry`, `2,000 entries`; without `plural` an `s` makes it, or `ies` of a `y`."""
    several = plural or (f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s")
    return f"{number:,} {noun if number == 1 else several}"


_MOST_NAMES = 1_000  # of a folder that are compared: the time grows with their number
_MOST_LISTED = 4
_LONGEST_SHOWN = 200


def nearest_path(path: Path, *, suffix: str = "", folder: bool = False) -> Path | None:
    """The existing path that is most like one that does not exist; `None` if none is similar.

    Of folders on the way that are not there, the nearest ones are taken.

    Args:
        path: the path, in the form in which it was typed.
        suffix: how the names of such files end, e.g. `.agent`; other files are not proposed.
        folder: whether a folder was meant.
    """
    try:
        if suffix and path.with_name(path.name + suffix).is_file():
            return path.with_name(path.name + suffix)
        if not path.parent.is_dir():
            near_folder = nearest_path(path.parent, folder=True)
            path = (near_folder or path.parent) / path.name
        # Of a large folder only so many names are read, in no order.
        with os.scandir(path.parent) as entries:
            fitting = [each for each in islice(entries, _MOST_NAMES) if each.is_dir() is folder]
    except (OSError, ValueError):  # a folder that is not there or may not be listed, a NUL
        return None
    # All of them end alike, so a typed ending that is right says nothing about the rest.
    ending = suffix if path.name.endswith(suffix) else ""
    stems = {each.name.removesuffix(ending): each.name for each in fitting if each.name.endswith(suffix)}
    near = nearest(path.name.removesuffix(ending), sorted(stems))
    return None if near is None else path.with_name(stems[near])


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
