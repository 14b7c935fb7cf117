"""The line in which the calls of a reply reach the pipeline: in the order asked, whatever stands in between.

A call joins the line when PydanticAI starts it, which it does in the order asked, and leaves it when it draws its place
in the pipeline, or ends before it gets there. It steps up only when all those before it have left.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar


class Line:
    """The calls of one run that have not reached the pipeline yet. It belongs to one event loop.

    Attributes:
        spots: where they stand, the first one first.
    """

    __slots__ = ("spots",)

    def __init__(self) -> None:
        """Make a line in which nobody stands."""
        self.spots: list[Spot] = []

    @contextmanager
    def join(self) -> Generator[None]:
        """Stand behind all others; who has not reached the pipeline by the end of the block leaves the line there."""
        spot = Spot(self)
        self.spots.append(spot)
        self.advance()
        token = _CURRENT.set(spot)
        try:
            yield
        finally:
            _CURRENT.reset(token)
            spot.leave()

    def advance(self) -> None:
        """Let the first in the line go on."""
        if self.spots:
            self.spots[0].is_first.set()


class Spot:
    """Where one call stands.

    Attributes:
        is_first: set when nobody stands before it.
    """

    __slots__ = ("_line", "is_first")

    def __init__(self, line: Line) -> None:
        """Make a spot of that line; `Line.join` puts it there."""
        self.is_first = asyncio.Event()
        self._line = line

    def leave(self) -> None:
        """Leave the line. Doing it twice is once."""
        if self in self._line.spots:
            self._line.spots.remove(self)
            self._line.advance()


_CURRENT: ContextVar[Spot | None] = ContextVar("handrail_spot", default=None)


async def step_up() -> None:
    """Wait until all calls before this one have left the line, and leave it too.

    Nothing may be awaited between this and the drawing of the place, or another call could come in between.
    """
    spot = _CURRENT.get()
    if spot is not None:
        await spot.is_first.wait()
        spot.leave()
