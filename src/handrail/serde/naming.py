"""How places and types are written in messages: `$.steps[2].title`, `Page[Item]`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

_LONGEST_KEY = 60
_MODULES = re.compile(r"\b(?:\w+\.)*(?:<locals>\.)?(?=\w+\b)")


def place(segments: Iterable[str | int]) -> str:
    """The path from the root through `segments`: names follow a dot, positions stand in brackets.

    A key that is no identifier is quoted, and a long one is cut, because keys may come from a model.
    """
    return "$" + "".join(_written(segment) for segment in segments)


def _written(segment: str | int) -> str:
    if isinstance(segment, int):
        return f"[{segment}]"
    if segment.isidentifier() and len(segment) <= _LONGEST_KEY:
        return f".{segment}"
    return f"[{quoted(segment)}]"


def quoted(text: str) -> str:
    """`text` as a JSON string of bounded length, every character of which can be printed and sent."""
    return json.dumps(shortened(text, _LONGEST_KEY), ensure_ascii=not text.isprintable())


def shortened(text: str, limit: int) -> str:
    """`text`, cut to `limit` characters; an ellipsis says that something is gone."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def type_name(kind: object) -> str:
    """A type as people write it, without the modules it comes from."""
    if isinstance(kind, type):
        return kind.__name__
    return _MODULES.sub("", str(kind))
