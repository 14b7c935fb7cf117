"""Text on its way to a terminal: what people read of times and durations, and nothing that a terminal obeys."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_SHORT = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}
_PASSWORD = re.compile(r"(?<=//)([^\s/@:]*):\S*@")
_PASSWORD_OPTION = re.compile(r"(password|passfile|sslpassword)=[^\s&'\"]*", re.IGNORECASE)
_STEPS = ((86_400, "d"), (3_600, "h"), (60, "min"))


def clean(text: str) -> str:
    r"""The text in one line, with an escape such as `\x1b` for each character that would steer a terminal.

    Models write keys, messages and tags; none of them may move the cursor, or turn the reading direction about.
    """
    return _CONTROLS.sub(_escaped, text)


def clean_lines(text: str) -> str:
    """The text with its lines, each of them `clean`."""
    return "\n".join(clean(line) for line in text.split("\n"))


def clean_json(document: str) -> str:
    r"""A JSON document without characters that would steer a terminal: in its strings stand `\u` escapes for them."""
    return _CONTROLS.sub(
        lambda found: found.group() if found.group() == "\n" else f"\\u{ord(found.group()):04x}", document
    )


def without_passwords(text: str) -> str:
    """The text without what stands where URLs carry passwords."""
    return _PASSWORD_OPTION.sub(r"\1=***", _PASSWORD.sub(r"\1:***@", text))


def moment(time: datetime) -> str:
    """A time in UTC, to the second."""
    return time.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def span(duration: timedelta) -> str:
    """A duration in its largest unit: `40 s`, `3 min`, `23 h`, `5 d`."""
    seconds = int(abs(duration).total_seconds())
    for size, unit in _STEPS:
        if seconds >= 2 * size:
            return f"{round(seconds / size)} {unit}"
    return f"{seconds} s"


def counted(number: int, noun: str, plural: str = "") -> str:
    """A number with its noun: `1 entry`, `2 entries`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {plural or noun + 's'}"


def _escaped(found: re.Match[str]) -> str:
    character = found.group()
    code = ord(character)
    return _SHORT.get(character) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")  # noqa: PLR2004 - a byte
