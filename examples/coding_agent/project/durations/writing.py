"""Writes a duration."""

from __future__ import annotations

from datetime import timedelta

from durations.units import UNITS


def write_duration(duration: timedelta) -> str:
    """A duration in units, the largest first: `26h 5m`. Parts of a second are left out."""
    seconds, parts = int(duration.total_seconds()), list[str]()
    for unit, length in UNITS.items():
        number, seconds = divmod(seconds, length)
        if number:
            parts.append(f"{number}{unit}")
    return " ".join(parts) or "0s"
