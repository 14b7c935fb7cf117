"""Which arguments of a call contain text that the session has read from an untrusted source.

What is found is shown to the person who is asked. It does not decide about a call: text that was translated, encoded or
summarized is not found.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator

from handrail.serde.formatting import format_path
from handrail.serde.json_schema import is_array, is_object

SHORTEST_FOUND = 4
"""The fewest characters of an argument that are looked for as a whole."""

LONGEST_PIECE = 24
"""So many characters of a longer argument are looked for at each of its words."""

_WORD = re.compile(r"\S+")
_SPACE = re.compile(r"\s+")


def leaves(
    values: object, path: tuple[str | int, ...] = (), *, names: frozenset[str] = frozenset()
) -> Iterator[tuple[str, str]]:
    """The texts of decoded JSON, each with its path: those of values, and the keys of objects.

    A key has the path of its value.

    Args:
        values: the decoded JSON.
        path: where it stands.
        names: keys that are left out.
    """
    if is_object(values) and values:
        for name, value in values.items():
            if name not in names:
                yield format_path((*path, name)), name
            yield from leaves(value, (*path, name), names=names)
    elif is_array(values) and values:
        for index, value in enumerate(values):
            yield from leaves(value, (*path, index), names=names)
    else:
        yield format_path(path), _text_of(values)


def arguments_from(arguments: Iterable[tuple[str, str]], text: str) -> tuple[str, ...]:
    """The paths of the arguments that contain text of a text that was read, in their order.

    An argument of 4 characters or more is found where it occurs as a whole, and a longer one where 24 characters from
    the beginning of one of its words do. Case and the kind of white space make no difference.

    Args:
        arguments: the texts of the arguments with their paths, as of `leaves`.
        text: what was read.
    """
    read = _folded(text)
    found = [path for path, value in arguments if _occurs(_folded(value), read)]
    return tuple(dict.fromkeys(found))  # a key has the path of its value


def json_text(value: object) -> str:
    """The JSON of a value, in which equal numbers are equal."""
    return json.dumps(_with_whole_numbers(value), sort_keys=True, ensure_ascii=False)


def _folded(text: str) -> str:
    return _SPACE.sub(" ", text).strip().casefold()


def _occurs(value: str, text: str) -> bool:
    if len(value) < SHORTEST_FOUND:
        return False
    if value in text:
        return True
    pieces = (value[word.start() : word.start() + LONGEST_PIECE] for word in _WORD.finditer(value))
    return any(len(piece) == LONGEST_PIECE and piece in text for piece in pieces)


def _text_of(value: object) -> str:
    """The text of a value that has no others in it."""
    return value if isinstance(value, str) else json_text(value)


def _with_whole_numbers(value: object) -> object:
    if is_object(value):
        return {name: _with_whole_numbers(item) for name, item in value.items()}
    if is_array(value):
        return [_with_whole_numbers(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
