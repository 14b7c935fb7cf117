"""How far the long tests go: `make test-more` runs the full forms of them, every other run short ones.

A crash matrix has a cell for each point at which a process is killed, and a cell takes a process. The full form has
all cells; the short form has some of them, evenly spread, and nothing is in it alone. A state machine and a property
have fewer examples.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final, TypeVar

T = TypeVar("T")

FULL: Final = os.environ.get("HANDRAIL_TESTS") == "full"
"""Whether the long tests are run in full."""

SHORT: Final = os.environ.get("HANDRAIL_TESTS") == "short"
"""Whether some of the cases of each test are run, as `make test` does."""


def some(items: Sequence[T], number: int) -> list[T]:
    """All items in the full form; else `number` of them, evenly spread, the first and the last among them."""
    return list(items) if FULL else evenly(items, number)


def evenly(items: Sequence[T], number: int) -> list[T]:
    """All items, or `number` of them, evenly spread, the first and the last among them, in the full form too."""
    if len(items) <= number:
        return list(items)
    last = len(items) - 1
    return [items[round(position * last / (number - 1))] for position in range(number)]


def step(number: int) -> int:
    """The distance between the cases of a loop: 1 in the full form, else `number`."""
    return 1 if FULL else number


def examples(number: int) -> int:
    """How many examples Hypothesis makes: `number` in the full form, else a quarter of them, at least five.

    `make test` makes an eighth.
    """
    return number if FULL else max(5, number // (8 if SHORT else 4))
