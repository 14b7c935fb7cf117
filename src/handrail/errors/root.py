"""The root of the tree."""

from __future__ import annotations


class HandrailError(Exception):
    """The root of all exceptions that Handrail raises; catch it to catch them all."""
