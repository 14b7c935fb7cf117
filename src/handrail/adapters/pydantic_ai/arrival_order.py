"""The queue in which the calls of a reply reach the pipeline: in the order asked, whatever stands in between.

A call joins the queue when PydanticAI starts it, which it does in the order asked, and leaves it when it draws its
place in the pipeline, or ends before it gets there. It goes on only when all those before it have left.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar


class ArrivalQueue:
    """The calls of one run that have not reached the pipeline yet. It belongs to one event loop.

    Attributes:
        positions: where they stand, the first one first.
    """

    __slots__ = ("positions",)

    def __init__(self) -> None:
        """Make an empty queue."""
        self.positions: list[QueuePosition] = []

    @contextmanager
    def join(self) -> Generator[None]:
        """Stand behind all others; a call that has not reached the pipeline by the end of the block leaves there."""
        position = QueuePosition(self)
        self.positions.append(position)
        self.advance()
        token = _CURRENT.set(position)
        try:
            yield
        finally:
            _CURRENT.reset(token)
            position.leave()

    def advance(self) -> None:
        """Let the first call go on."""
        if self.positions:
            self.positions[0].is_first.set()


class QueuePosition:
    """Where one call stands.

    Attributes:
        is_first: set when no other stands before it.
    """

    __slots__ = ("_queue", "is_first")

    def __init__(self, queue: ArrivalQueue) -> None:
        """Make a position of a queue; `ArrivalQueue.join` puts it there."""
        self.is_first = asyncio.Event()
        self._queue = queue

    def leave(self) -> None:
        """Leave the queue. Leaving twice is leaving once."""
        if self in self._queue.positions:
            self._queue.positions.remove(self)
            self._queue.advance()


_CURRENT: ContextVar[QueuePosition | None] = ContextVar("handrail_queue_position", default=None)


async def leave_queue() -> None:
    """Wait until all calls before this one have left the queue, and leave it too.

    Nothing may be awaited between this and the drawing of the place, or another call could come in between.
    """
    position = _CURRENT.get()
    if position is not None:
        await position.is_first.wait()
        position.leave()
