"""What an evaluation returns to the agent, as JSON of bounded size.

====================  =================================================================================================
field                 value
====================  =================================================================================================
`value`               the value of the last line as text; absent if it has none, or if it is `None`
`form`                `"json"` if the text is all of it as JSON, `"repr"` for its `repr`, or what was not cut off of it
`printed`             what was printed, with a line in the middle where something is left out
`left_out`            how many characters of it are left out
`error`               absent if there was none; else `type`, `message`, and `line` or `null`
`ends`                whether the process ends with it, and is not to be asked again
====================  =================================================================================================
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any, cast

from handrail.python_worker.channel import WorkerMessage

_MOST_ERROR = 2_000
_MOST_DEPTH = 100
"""How deep a value is looked into; deeper ones are shown by their `repr`."""


class Printed:
    """The beginning and the end of what code prints."""

    __slots__ = ("_head", "_most_head", "_most_tail", "_tail", "_total")

    def __init__(self, most_characters: int) -> None:
        """Store at most so many characters of it, half of them from its end."""
        self._most_head = most_characters // 2
        self._most_tail = most_characters - self._most_head
        self._head = ""
        self._tail = ""
        self._total = 0

    @property
    def left_out(self) -> int:
        """How many characters are left out."""
        return max(0, self._total - self._most_head - self._most_tail)

    def write(self, text: str) -> int:
        """Add text; returns its length, as files do."""
        self._total += len(text)
        room = self._most_head - len(self._head)
        self._head += text[:room]
        # Cut before it is added: a single text may be as large as the memory allows.
        self._tail += text[room:][-2 * self._most_tail :] if len(text) > room else ""
        if len(self._tail) > 2 * self._most_tail:
            self._tail = self._tail[-self._most_tail :]
        return len(text)

    def flush(self) -> None:
        """Does nothing: interpreters expect a file."""

    def text(self) -> str:
        """The stored text, with a line for what is left out."""
        if not self.left_out:
            return self._head + self._tail
        return f"{self._head}\n[... {self.left_out:,} characters left out ...]\n{self._tail[-self._most_tail :]}"


def success(value: object, printed: Printed, most_characters: int) -> WorkerMessage:
    """What code that has run to its end returns."""
    result = _with_printed(printed)
    if value is not None:
        result["value"], result["form"] = text_and_form(value, most_characters)
    return result


def failure(
    kind: str, message: str, line: int | None, printed: Printed | None = None, *, ends: bool = False
) -> WorkerMessage:
    """What code that has raised or was stopped returns.

    Args:
        kind: the name of the exception.
        message: its text.
        line: where it was raised, in the code; `None` if that is not known.
        printed: what was printed before.
        ends: whether the process ends now.
    """
    result = _with_printed(printed)
    result["error"] = {"type": kind[:_MOST_ERROR], "message": _cut(message, _MOST_ERROR), "line": line}
    if ends:
        result["ends"] = True
    return result


def timed_out(seconds: float, printed: Printed | None = None) -> WorkerMessage:
    """What code that took too long returns."""
    return failure("TimeoutError", f"it has taken more than {seconds:g} s and was stopped", None, printed)


def text_and_form(value: object, most_characters: int) -> tuple[str, str]:
    """A value as text, and the form of the text: JSON where that is all of the value, else its `repr`."""
    try:
        if _is_json(value, _MOST_DEPTH):
            text = json.dumps(value, ensure_ascii=False)
            if len(text) <= most_characters:
                return text, "json"
        return _cut(repr(value), most_characters), "repr"
    except (RecursionError, ValueError) as error:  # nested too deeply; an integer of too many digits
        return f"<{type(value).__name__} that cannot be shown: {error}>"[:most_characters], "repr"


def _is_json(value: object, depth: int) -> bool:
    # By exact type: a subclass, and a tuple, would be another value once it was read again.
    if value is None or type(value) in {bool, int, str}:
        return True
    if type(value) is float:
        return math.isfinite(value)
    if not depth:
        return False
    if type(value) is list:
        return all(_is_json(item, depth - 1) for item in cast("list[object]", value))
    if type(value) is dict:
        pairs = cast("dict[object, object]", value).items()
        return all(type(key) is str and _is_json(item, depth - 1) for key, item in pairs)
    return False


def _with_printed(printed: Printed | None) -> dict[str, Any]:
    return {} if printed is None else {"printed": printed.text(), "left_out": printed.left_out}


def _cut(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    half = most // 2
    return f"{text[:half]}[... {len(text) - 2 * half:,} characters left out ...]{text[len(text) - half :]}"


def line_of(lines: Sequence[int | None]) -> int | None:
    """The last of some line numbers that is known."""
    return next((line for line in reversed(lines) if line), None)
