"""Tools whose result is too long for one message, for the tests of every entry point."""

from __future__ import annotations

from handrail import tool

LOG = "".join(f"line {number}\n" for number in range(20_000))
"""A text of 208,890 characters."""


@tool(effect="read")
def fetch() -> str:
    """Fetch a log."""
    return LOG


@tool(effect="read")
def copy() -> str:
    """Fetch the same."""
    return LOG
