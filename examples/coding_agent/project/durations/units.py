"""The units that durations are written in."""

UNITS = {"h": 3600, "m": 60, "s": 1}
"""How many seconds each unit has, the largest first."""
