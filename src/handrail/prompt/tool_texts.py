"""The name of a tool and its descriptions, as the APIs of models take them."""

from __future__ import annotations

import re
from typing import Final

from handrail.serde.json_values import escape_surrogates

# What the APIs of OpenAI and Anthropic take.
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")

LONGEST_DESCRIPTION: Final = 8_000
"""Characters of the description of a tool or of an example."""


def name_fault(name: object) -> str:
    """Why it cannot be the name of a tool, as text that follows the name; empty if it can."""
    is_name = isinstance(name, str) and _NAME.fullmatch(name)
    return "" if is_name else "is not 1 to 64 letters, digits, '_' and '-'"


def near_name(name: object) -> str:
    """A similar name that can be that of a tool; empty if there is none."""
    return re.sub(r"[^A-Za-z0-9_-]+", "_", str(name)).strip("_")[:64]


def description_fault(text: str) -> str:
    """Why a text cannot be the description of a tool, as text that follows what it is; empty if it can."""
    # The APIs take UTF-8: one lone surrogate would fail every request of the run.
    if escape_surrogates(text) is not text:
        return "has a lone surrogate, which is not Unicode; leave it out"
    length = len(text.strip())
    if not 1 <= length <= LONGEST_DESCRIPTION:
        return f"has {length} characters; it must have 1 to {LONGEST_DESCRIPTION}"
    return ""
