"""Which arguments of a call contain text that the session has read from an untrusted source.

What is found is shown to the person who is asked. It does not decide about a call: text that was translated, encoded or
summarized is not found.
"""

from __future__ import annotations

import re

from handrail.taint.judged_arguments import JudgedArguments

SHORTEST_FOUND = 4
"""The fewest characters of an argument that are looked for as a whole."""

LONGEST_PIECE = 24
"""So many characters of a longer argument are looked for at each of its words."""

_WORD = re.compile(r"\S+")
_SPACE = re.compile(r"\s+")


def arguments_from(arguments: JudgedArguments, text: str) -> tuple[str, ...]:
    """The paths of the arguments that contain text of a text that was read, in their order.

    An argument of 4 characters or more is found where it occurs as a whole, and a longer one where 24 characters from
    the beginning of one of its words do. Case and the kind of white space make no difference.

    Args:
        arguments: the arguments.
        text: what was read.
    """
    read = _folded(text)
    found = [path for path, value in arguments.texts() if _occurs(_folded(value), read)]
    return tuple(dict.fromkeys(found))  # a key has the path of its value


def _folded(text: str) -> str:
    return _SPACE.sub(" ", text).strip().casefold()


def _occurs(value: str, text: str) -> bool:
    if len(value) < SHORTEST_FOUND:
        return False
    if value in text:
        return True
    pieces = (value[word.start() : word.start() + LONGEST_PIECE] for word in _WORD.finditer(value))
    return any(len(piece) == LONGEST_PIECE and piece in text for piece in pieces)
