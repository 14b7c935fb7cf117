"""`handrail overrides`: the texts of a prompt that are replaced from files."""

from __future__ import annotations
