"""The queue in which the calls of a reply reach the pipeline: in the order asked, whatever hooks run before.

A call joins the queue when PydanticAI starts it, which it does in the order asked, and leaves it when it is queued in
the pipeline, or ends before that. It continues only when all calls before it have left.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar


class ArrivalQueue:
    """The calls of one run that have not reached the pipeline yet. It belongs to one event loop.

    Attributes:
        positions: their positions, in order.
    """

    __slots__ = ("positions",)

    def __init__(self) -> None:
        """Make an empty queue."""
        self.positions: list[QueuePosition] = []

    @contextmanager
    def join(self) -> Generator[None]:
        """Join at the end; a call that has not reached the pipeline by the end of the block leaves then."""
        position = QueuePosition(self)
        self.positions.append(position)
        # If the queue was empty, this call is the first one, and would wait forever without this.
        self.advance()
        token = _CURRENT.set(position)
        try:
            yield
        finally:
            _CURRENT.reset(token)
            # A call that was refused or cancelled before the pipeline leaves here; otherwise all calls after it would
            # wait forever.
            position.leave()

    def advance(self) -> None:
        """Let the first call continue."""
        if self.positions:
            self.positions[0].is_first.set()


class QueuePosition:
    """The position of one call.

    Attributes:
        is_first: set when no call is before it.
    """

    __slots__ = ("_queue", "is_first")

    def __init__(self, queue: ArrivalQueue) -> None:
        """Create a position of a queue; `ArrivalQueue.join` adds it."""
        self.is_first: asyncio.Event = asyncio.Event()
        self._queue = queue

    def leave(self) -> None:
        """Leave the queue. Idempotent."""
        if self in self._queue.positions:
            self._queue.positions.remove(self)
            self._queue.advance()


_CURRENT: ContextVar[QueuePosition | None] = ContextVar("handrail_queue_position", default=None)


async def leave_queue() -> None:
    """Wait until all calls before this one have left the queue, and leave it too.

    Nothing may be awaited between this and queuing in the pipeline, or another call could overtake this one.
    """
    position = _CURRENT.get()
    # Calls outside of a capability have no position: a bare toolset cannot see the order of a reply.
    if position is not None:
        await position.is_first.wait()
        position.leave()
