"""A call is cancelled at a random time, thousands of times, and what became of its effect is counted.

| entry | how the call is made | how it is cancelled |
|---|---|---|
| blocking | `ToolExecutor.execute` | SIGINT is sent to the process |
| asyncio | `ToolExecutor.execute_async` | its task is cancelled |
| PydanticAI | `PydanticAIAdapter.evaluate_async` | the task of the evaluation is cancelled |

Each call has a session of its own. After that it is made once more: under the same identity, or by the evaluation that
resumes the cancelled one. The effect must have happened at most once, and its row must not be failed while it has
happened.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal, get_args

from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from chaos.interrupts import paying
from handrail import store as stores
from handrail.adapters.pydantic_ai import PydanticAIAdapter
from handrail.adapters.tool_executor import ToolExecutor
from handrail.errors import HandrailError
from handrail.prompt import Prompt, PromptTemplate, ToolsSection
from handrail.runtime import Deadline, Session, ToolCall
from handrail.store import Store

Entry = Literal["blocking", "asyncio", "PydanticAI"]
ENTRIES: tuple[Entry, ...] = get_args(Entry)

_REPLY = "reply"
_TAKES = 0.001
"""Seconds that a handler takes."""

_MOST_MORE = 20
_CALIBRATIONS = 20
_LATER = 0.3
"""Seconds in which a handler that has started late ends."""


@dataclass
class Count:
    """What became of the calls.

    Attributes:
        calls: how many were made.
        cancelled: how many of them ended by the cancellation.
        happened: how many of their effects had happened when the call ended.
        faults: what was wrong, with the order.
    """

    calls: int = 0
    cancelled: int = 0
    happened: int = 0
    faults: list[str] = field(default_factory=list[str])


class _Desk:
    """Makes calls over a store, each in a session of its own, and cancels them.

    Attributes:
        paid: how often each order was paid.
        longest: how many seconds a call has taken that was not cancelled.
    """

    def __init__(self, store: Store, entry: Entry, dice: random.Random) -> None:
        self.paid: Counter[str] = Counter()
        self.longest = 0.0
        self._store = store
        self._entry = entry
        self._dice = dice

    def make(self, order: str, after: float | None) -> bool:
        """Pay an order, and cancel the call after so many seconds; returns whether that ended it."""
        with Session.open(self._store, order) as session:
            if self._entry == "blocking":
                return self._block(session, order, after)
            try:
                asyncio.run(self._cancel(session, order, after))
            except asyncio.CancelledError:
                return True
        return False

    def _block(self, session: Session, order: str, after: float | None) -> bool:
        executor = ToolExecutor(prompt=self._prompt(), session=session, deadline=Deadline.after(timedelta(seconds=4)))
        if after is None:
            begun = time.perf_counter()
            executor.execute(_call(order), reply=_REPLY)
            self.longest = max(self.longest, time.perf_counter() - begun)
            return False
        timer = threading.Timer(after, os.kill, (os.getpid(), signal.SIGINT))
        has_ended = False
        with suppress(KeyboardInterrupt):
            timer.start()
            executor.execute(_call(order), reply=_REPLY)
            has_ended = True
        with suppress(KeyboardInterrupt):
            timer.join()
        with suppress(KeyboardInterrupt):
            time.sleep(0)  # where a signal that came late is raised
        return not has_ended

    async def _cancel(self, session: Session, order: str, after: float | None) -> None:
        task = asyncio.ensure_future(self._started(session, order))
        if after is not None:
            asyncio.get_running_loop().call_later(after, task.cancel)
        begun = time.perf_counter()
        await task
        if after is None:
            self.longest = max(self.longest, time.perf_counter() - begun)

    def _started(self, session: Session, order: str) -> Coroutine[Any, Any, object]:
        if self._entry == "asyncio":
            executor = ToolExecutor(prompt=self._prompt(), session=session)
            return executor.execute_async(_call(order), reply=_REPLY)
        adapter = PydanticAIAdapter(FunctionModel(_replies(order)))
        return adapter.evaluate_async(self._prompt(), session=session, user_prompt=order, finished="return")

    def _prompt(self) -> Prompt[Any]:
        timeout = self._dice.choice([None, timedelta(seconds=30)])
        pay = paying(self.paid, self._dice.choice(["def", "async def"]), timeout=timeout, takes=_TAKES)
        return Prompt(PromptTemplate(ns="chaos", key="c", sections=[ToolsSection(title="Tools", tools=[pay])]))


def _call(order: str) -> ToolCall:
    return ToolCall("call", "pay", {"order": order})


def _replies(order: str) -> Callable[[list[ModelMessage], AgentInfo], ModelResponse]:
    def reply(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        last = messages[-1]
        if isinstance(last, ModelRequest) and any(isinstance(part, ToolReturnPart) for part in last.parts):
            return ModelResponse([TextPart("Done.")])
        return ModelResponse([ToolCallPart("pay", {"order": order}, "call")])

    return reply


def play(url: str, entry: Entry, *, calls: int, dice: random.Random) -> Count:
    """Make calls through an entry over a store, and cancel each of them at a random time; more if none was met."""
    count = Count()
    with stores.open(url) as store:
        desk = _Desk(store, entry, dice)
        # An order of another entry has a record, from which its call would be answered.
        desk.make(f"{entry}: the first, which is slow", None)
        desk.longest = 0.0
        for number in range(_CALIBRATIONS):
            desk.make(f"{entry}: whole {number}", None)
        if desk.paid.total() != _CALIBRATIONS + 1:
            count.faults.append(f"nothing was cancelled: of calls that nobody cancels, {desk.paid.total()} have paid")
        longest = desk.longest
        orders: list[str] = []
        # A call that was slow among those by which the times are drawn has most cancellations come too late.
        while len(orders) < calls or (not count.cancelled and len(orders) < _MOST_MORE * calls):
            order = f"{entry}: order {len(orders)}"
            orders.append(order)
            count.calls += 1
            count.cancelled += desk.make(order, dice.uniform(0, longest))
            count.happened += bool(desk.paid[order])
            # A handler whose effect is not known to have happened may be asked about later; it is not run again.
            with suppress(HandrailError):
                desk.make(order, None)
        time.sleep(_LATER)
        failed = {row.partition for row in store.rows() if row.status == "failed"}
        for order in orders:
            times = desk.paid[order]
            if times > 1:
                count.faults.append(f"{order} happened {times} times")
            elif times and order in failed:
                count.faults.append(f"{order} has happened, and its row is failed")
    return count
