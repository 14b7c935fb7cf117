"""What hands runs to workers. It is never believed: what a run is, its session says.

A queue may lose its jobs, hand one out twice, and end one that another worker has. So a run that is open and due gets a
job again; a run is carried out only by who writes itself into its row; and the job of a run that is not due ends at
once.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Awaitable, Callable, Sequence
from itertools import count
from typing import Final, NamedTuple, Protocol, TypeAlias

from handrail.errors import InvalidArgumentError

_POLL_SECONDS: Final = 0.05
_CRON_FIELDS: Final = 5


class QueuedRun(NamedTuple):
    """A run in a queue.

    Attributes:
        session_id: its session.
        priority: the highest comes first.
        has_begun: whether it was begun before, so that it comes before others of its priority.
    """

    session_id: str
    priority: int = 0
    has_begun: bool = False

    @property
    def rank(self) -> int:
        """The priority in the queue: the highest comes first."""
        return 2 * self.priority + self.has_begun


CarryOut: TypeAlias = Callable[[str], Awaitable[object]]
"""Carries out the run of a session, as far as it comes; cancelled, it hands it back."""


class CronEntry(NamedTuple):
    """When a run of an agent is submitted, in the five fields of `crontab`, and what the agent is to do."""

    cron: str
    agent: str
    input: str


def read_cron(text: str) -> CronEntry:
    """Reads an entry such as `0 6 * * * desk Good morning`.

    Raises:
        InvalidArgumentError: it has other parts.
    """
    words = text.split(maxsplit=_CRON_FIELDS + 1)
    if len(words) < _CRON_FIELDS + 2:
        expected = "five fields of crontab, an agent and its input: 0 6 * * * desk Good morning"
        raise InvalidArgumentError(function="cron", argument="entry", value=text, expected=expected)
    return CronEntry(" ".join(words[:_CRON_FIELDS]), *words[_CRON_FIELDS:])


class Queue(Protocol):
    """Hands runs to workers."""

    @property
    def sweep_seconds(self) -> float:
        """The time between two sweeps."""
        ...

    async def work(self, carry_out: CarryOut, stop: asyncio.Event) -> None:
        """Has runs carried out, several at a time, until it is to stop and they have ended.

        If it returns before, or raises a `StoreError`, it is called again.
        """
        ...

    async def sweep(self, due: Sequence[QueuedRun]) -> bool:
        """Adds those of the runs that are due which do not wait in it; returns whether it answers."""
        ...


class LocalQueue:
    """The queue of one process, which the sweep fills; for SQLite.

    Attributes:
        sweep_seconds: the time between two sweeps.
    """

    sweep_seconds: float = _POLL_SECONDS

    def __init__(self, *, concurrency: int, grace: float) -> None:
        self._concurrency = concurrency
        self._grace = grace
        self._numbers = count()
        self._waiting: list[tuple[int, int, QueuedRun]] = []
        self._jobs: set[str] = set()
        self._running: set[asyncio.Task[None]] = set()
        self._has_changed = asyncio.Event()

    async def work(self, carry_out: CarryOut, stop: asyncio.Event) -> None:
        """See `Queue`."""
        stopped = asyncio.ensure_future(stop.wait())
        stopped.add_done_callback(lambda _: self._has_changed.set())
        while not stop.is_set():
            self._has_changed.clear()
            while self._waiting and len(self._running) < self._concurrency:
                run = heapq.heappop(self._waiting)[2]
                task = asyncio.create_task(self._work_on(run, carry_out))
                self._running.add(task)
                task.add_done_callback(self._end)
            await self._has_changed.wait()
        if running := {*self._running}:
            _, late = await asyncio.wait(running, timeout=self._grace)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    async def _work_on(self, run: QueuedRun, carry_out: CarryOut) -> None:
        try:
            await carry_out(run.session_id)
        finally:
            self._jobs.discard(run.session_id)

    def _end(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._has_changed.set()

    async def sweep(self, due: Sequence[QueuedRun]) -> bool:
        """See `Queue`."""
        for run in due:
            if run.session_id not in self._jobs:
                self._jobs.add(run.session_id)
                heapq.heappush(self._waiting, (-run.rank, next(self._numbers), run))
                self._has_changed.set()
        return True
