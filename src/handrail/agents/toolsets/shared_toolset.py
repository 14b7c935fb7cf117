"""One resource for all who share a toolset: opened by the first one who enters, closed by the last one who leaves.

PydanticAI enters a toolset in each run that has it, also while another run holds it. A toolset that opens on entry and
closes on exit, and counts nothing, would be closed by the inner run under the outer one. `shared` counts for it.

The toolset is `closed`, `moving` (a task opens or closes it right now) or `open`. A task that comes while it moves
waits until that is over and looks again. The state is guarded by a lock that is not held while waiting, and a task that
waits has a future of their own: tasks of several event loops, on several threads, may share a toolset, and when one of
them is cancelled it does not concern others.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from threading import Lock
from typing import Any, Literal, Self

from pydantic_ai import RunContext
from pydantic_ai.toolsets import AbstractToolset, WrapperToolset
from typing_extensions import override  # pydantic brings it; `typing` has it from Python 3.12 on

from handrail.errors import AgentError


class SharedToolset(WrapperToolset[Any]):
    """A toolset that stays open until the last one who entered it has left. Made by `shared`.

    What is shared is this very object: a run that enters it gets the wrapped toolset as it is.
    """

    def __init__(self, wrapped: AbstractToolset[Any]) -> None:
        """Share a toolset; nothing is opened yet."""
        super().__init__(wrapped)
        self._holders = _Holders()

    @property
    @override
    def id(self) -> str | None:
        """The id of the wrapped toolset."""
        return self.wrapped.id

    @override
    async def for_run(self, ctx: RunContext[Any]) -> SharedToolset:
        """This object.

        Raises:
            AgentError: the wrapped toolset makes a copy of itself for each run, so that there is nothing to share.
        """
        return self._itself(await self.wrapped.for_run(ctx))

    @override
    async def for_run_step(self, ctx: RunContext[Any]) -> SharedToolset:
        """This object.

        Raises:
            AgentError: the wrapped toolset is replaced by another one, so that there is nothing to share.
        """
        return self._itself(await self.wrapped.for_run_step(ctx))

    @override
    async def __aenter__(self) -> Self:
        if await self._holders.come():
            try:
                await self.wrapped.__aenter__()
            # A cancelled entry leaves nothing open either, so the next task has to open the toolset again.
            except BaseException:
                self._holders.settle(opened=False)
                raise
            self._holders.settle(opened=True)
        return self

    @override
    async def __aexit__(self, *args: object) -> bool | None:
        # Between `go` and `settle` the state is `moving`, so no other task can open while this one closes.
        if not self._holders.go(self.label):
            return None
        try:
            return await self.wrapped.__aexit__(*args)
        # Closed even if the exit raises: there is nothing better to do than to open it anew.
        finally:
            self._holders.settle(opened=False)

    def _itself(self, of_run: AbstractToolset[Any]) -> SharedToolset:
        # Only the object that was entered is open; a copy for one run would show tools that are not connected.
        if of_run is not self.wrapped:
            raise AgentError(
                f"{self.wrapped.label} cannot be shared: it makes a toolset of its own for each run or step. Use it "
                "without shared(...), or share the toolsets in it."
            )
        return self


def shared(toolset: AbstractToolset[Any]) -> SharedToolset:
    """Have a toolset opened once for all runs that hold it at the same time.

    Write `TOOLSETS = {"browser": shared(browser)}` for a toolset that opens something when it is entered, closes it
    when it is left, and does not count how often.
    """
    return SharedToolset(toolset)


class _Holders:
    """How many hold a toolset, and who waits while it is opened or closed."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._state: Literal["closed", "moving", "open"] = "closed"
        self._count = 0
        self._waiting: list[Future[None]] = []

    async def come(self) -> bool:
        """Hold the toolset, once it does not move. `True` for the one who opens it, and says `settle` after."""
        # A loop, because another task may have been first after the wait.
        while True:
            with self._lock:
                if self._state == "open":
                    self._count += 1
                    return False
                if self._state == "closed":
                    self._state = "moving"
                    return True
                # A `Future` of `concurrent.futures`, because waiting tasks may belong to event loops on other threads.
                settled = Future[None]()
                self._waiting.append(settled)
            # Outside of the lock: a thread lock that is held across an `await` blocks the event loop.
            await asyncio.wrap_future(settled)

    def go(self, label: str) -> bool:
        """Hold the toolset no longer. `True` for the one who closes it, and says `settle` after.

        Raises:
            AgentError: no run holds it.
        """
        with self._lock:
            if self._state != "open":
                raise AgentError(f"{label} is left by a run that did not enter it.")
            self._count -= 1
            if self._count:
                return False
            self._state = "moving"
            return True

    def settle(self, *, opened: bool) -> None:
        """Note that the toolset no longer moves: the task that moved it holds it now, or none does."""
        with self._lock:
            # State and count change together, so that no task sees an open toolset without a holder.
            self._state = "open" if opened else "closed"
            self._count = int(opened)
            waiting, self._waiting = self._waiting, []
        # Outside of the lock: a callback of a future may call this object again.
        for settled in waiting:
            if settled.set_running_or_notify_cancel():  # not for a task that was cancelled while it waited
                settled.set_result(None)
