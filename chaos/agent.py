"""One agent: it asks for the calls of its session, one after the other, until each has been carried out."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterator
from itertools import repeat, takewhile

from chaos.desk import applied, call_of, session_name
from chaos.world import World
from handrail.adapters.tool_executor import ToolExecutor
from handrail.runtime import Session, ToolCall, ToolMessage
from handrail.store import Store

REFUSED = "refused"
"""The word for a call that was refused; that for a worker that ended is the name of the exception."""

CANCELLED = "cancelled"
"""The word for a call that was cancelled from outside."""

_PAUSE_SECONDS = 0.02
"""Between a call that was refused and the same call asked again."""

_ROUND = 4
"""After how many calls an agent looks how far the session is that charges the same orders."""

_MOST_AHEAD = 16
"""Entries that a session may have more than that one."""

_LONGEST_WAIT = 10
"""Pauses that an agent waits for it."""

_REFUSALS_IN_A_ROW = 200
"""After so many, a worker takes another life; refusals are to be expected, but not for ever."""

_CANCELLED = 0.05
"""How many calls of an asynchronous agent are cancelled, if they take long enough."""

_SOONEST_SECONDS, _LATEST_SECONDS = 0.0005, 0.1
"""When a call is cancelled."""


class GaveUp(Exception):
    """An agent was refused too often."""


class Agent:
    """The calls of one session.

    Args:
        world: what the workers share.
        number: of the session.
        kept_in: the store of the session.
        session: the session.
        executor: carries the calls out.
        until: how many calls the session is to have taken in; `None` for no end.
    """

    def __init__(  # noqa: PLR0913 - what an agent has
        self, world: World, number: int, kept_in: Store, *, session: Session, executor: ToolExecutor, until: int | None
    ) -> None:
        self._world = world
        self._number = number
        self._kept_in = kept_in
        self._executor = executor
        self._until = until
        self._n = applied(session)
        self._asked_again = 0
        self._refusals = 0

    def run(self, wanted: Callable[[], bool]) -> None:
        """Carry the calls out through the synchronous entry, for as long as somebody wants it.

        Raises:
            GaveUp: too many were refused in a row.
        """
        while wanted() and not self._through():
            for seconds in self._pauses():
                time.sleep(seconds)
            if not self._take(self._executor.execute(self._call(), reply=self._reply())):
                time.sleep(_PAUSE_SECONDS)

    async def run_async(self, wanted: Callable[[], bool], dice: random.Random) -> None:
        """Carry them out through the asynchronous entry; now and then the caller of one is cancelled.

        Raises:
            GaveUp: too many were refused in a row.
        """
        while wanted() and not self._through():
            for seconds in self._pauses():
                await asyncio.sleep(seconds)
            patience = dice.uniform(_SOONEST_SECONDS, _LATEST_SECONDS) if dice.random() < _CANCELLED else None
            try:
                async with asyncio.timeout(patience):
                    message = await self._executor.execute_async(self._call(), reply=self._reply())
            except TimeoutError:  # asked again in the same reply, so what was recorded is the answer
                self._world.tell(CANCELLED, "a call was cancelled by its caller")
                continue
            if not self._take(message):
                await asyncio.sleep(_PAUSE_SECONDS)

    # --------------------------------------------------------------------------------------------------------- private

    def _through(self) -> bool:
        return self._until is not None and self._n >= self._until

    def _call(self) -> ToolCall:
        return call_of(self._number, self._n)

    def _reply(self) -> str:
        return f"reply-{self._n}-{self._asked_again}"

    def _take(self, message: ToolMessage) -> bool:
        """Take a call's message; returns whether the call was carried out."""
        if message.success:
            self._n, self._asked_again, self._refusals = self._n + 1, 0, 0
            return True
        self._asked_again += message.replayed  # the refusal is final, so a model asks again in another reply
        self._world.tell(REFUSED, message.content)
        self._refusals += 1
        if self._refusals == _REFUSALS_IN_A_ROW:
            raise GaveUp(f"{_REFUSALS_IN_A_ROW} calls in a row were refused")
        return False

    def _pauses(self) -> Iterator[float]:
        """How long to wait, each time, for the session that charges the same orders: so both ask at about one time."""
        return takewhile(lambda _: self._is_ahead(), repeat(_PAUSE_SECONDS, _LONGEST_WAIT))

    def _is_ahead(self) -> bool:
        if self._until is not None or self._n % _ROUND:
            return False
        own = self._kept_in.find(session_name(self._number))
        other = self._kept_in.find(session_name(self._number ^ 1))
        return own is not None and other is not None and own.head > other.head + _MOST_AHEAD
