"""Blocks that end by raising."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import TypeVar

T = TypeVar("T")


class Stop(Exception):
    """What ends a block in the tests of stores."""


@contextmanager
def failing(block: AbstractContextManager[T]) -> Generator[T]:
    """The block, which raises at its end; the test goes on behind it."""
    with suppress(Stop), block as entered:
        yield entered
        raise Stop
