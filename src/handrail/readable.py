"""Values as people read them, in a terminal or on a page: calls, times, durations; and text without controls."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Characters that control a terminal, or the direction of text."""

_SHORT = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}
_STEPS = ((86_400, "d"), (3_600, "h"), (60, "min"))
_MOST_OF_VALUE = 60


def clean(text: str) -> str:
    r"""The text in one line, with an escape such as `\x1b` for each control character."""
    # The fast path: none of them is printable, and Python finds that out in a fraction of the time.
    return text if text.isprintable() else CONTROLS.sub(_escape, text)


def clean_lines(text: str) -> str:
    """The text with its lines and tabs, and an escape for every other control character."""
    if text.isprintable():
        return text
    return "\n".join("\t".join(map(clean, line.split("\t"))) for line in text.replace("\r\n", "\n").split("\n"))


def format_call(tool: str, arguments: Mapping[str, Any]) -> str:
    """A call on one line, with each of its arguments as JSON, cut to 60 characters: `pay(order="A-17", cents=4990)`."""
    values = ((name, json.dumps(value, ensure_ascii=False, default=repr)) for name, value in arguments.items())
    parts = (f"{name}={fit_text(text, _MOST_OF_VALUE)}" for name, text in values)
    return clean(f"{tool}({', '.join(parts)})")


def format_json(value: object, *, indent: int | None = None) -> str:
    """A value as JSON, for people; what is text already, such as arguments that were cut, stays as it is."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=indent, default=repr)


def format_when(time: datetime | None) -> str:
    """A moment in UTC, to the second; empty if there is none."""
    return "" if time is None else f"{time.astimezone(UTC).replace(tzinfo=None).isoformat(' ', 'seconds')} UTC"


def format_duration(duration: timedelta) -> str:
    """A duration in its largest unit: `40 s`, `3 min`, `23 h`, `5 d`."""
    seconds = int(abs(duration).total_seconds())
    for size, unit in _STEPS:
        # Twice the unit, so that 90 s are not rounded to 1 min or 2 min.
        if seconds >= 2 * size:
            return f"{round(seconds / size)} {unit}"
    return f"{seconds} s"


def _escape(control: re.Match[str]) -> str:
    character = control.group()
    code = ord(character)
    return _SHORT.get(character) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")  # noqa: PLR2004 - a byte


def fit_text(text: str, most: int) -> str:
    """The text, cut to that many characters."""
    # Here, because `handrail --help` does not load `handrail.serde`.
    return text if len(text) <= most else f"{text[: most - 1]}…"
