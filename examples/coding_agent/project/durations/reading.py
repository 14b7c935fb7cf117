"""Reads a duration."""

from __future__ import annotations

import re
from datetime import timedelta

from durations.units import UNITS

_PART = re.compile(r"(\d+)([hms])")


def read_duration(text: str) -> timedelta:
    """The duration that a text names: numbers with units, the largest unit first, with or without blanks between.

    Raises:
        ValueError: it is not a duration.
    """
    parts = _PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != "".join(text.split()):
        raise ValueError(f"{text!r} is not a duration; write it as 1h 30m")
    order = [list(UNITS).index(unit) for _, unit in parts]
    if order != sorted(set(order)):
        raise ValueError(f"{text!r} has its units out of order; write the largest first, and each once")
    return timedelta(seconds=sum(int(number) * UNITS[unit] for number, unit in parts))
