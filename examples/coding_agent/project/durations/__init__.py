"""Durations as people write them: `1h 30m`."""

from durations.reading import read_duration
from durations.writing import write_duration

__all__ = ["read_duration", "write_duration"]
