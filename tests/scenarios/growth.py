"""Makes thousands of calls in a process of its own and counts what is alive: `python -m tests.scenarios.growth WHAT`.

In the process of the tests, what earlier tests have left alive would be counted too, and may go at any moment. It
prints one JSON object: a `Growth`, or of `durable` what only the garbage collection frees, by type.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from tempfile import TemporaryDirectory
from typing import Any

from handrail import store
from handrail.adapters.tool_executor import ToolExecutor
from handrail.filesystem import Filesystem
from handrail.prompt import ToolContext, ToolResult
from handrail.runtime import IdempotencyConfig, Session, ToolInvoked, Transaction
from handrail.runtime.call import CallState
from handrail.runtime.ledger.effects import Claimed
from handrail.runtime.ledger.replays import Claim
from handrail.turns import Ticket, Turn
from tests.kit import Note, call, executor, files, scribble, tool

PASSING: tuple[type[Any], ...] = (Transaction, Ticket, CallState, Claim, Claimed, Turn, asyncio.Future)
"""What is made for a call and must go with it."""

NAMES = ("write", "fail", "pay", "keep", "none", "look")


@dataclass(frozen=True, slots=True)
class Growth:
    """What was counted.

    Attributes:
        before: objects of `PASSING` by type that were alive after the first few calls.
        during: those that were alive in a handler.
        after: those that were alive after all calls.
        recorded: how many calls the session has recorded.
        queued: how many tickets stand in its queue.
    """

    before: dict[str, int]
    during: dict[str, int]
    after: dict[str, int]
    recorded: int
    queued: int


def world() -> ToolExecutor:
    """An executor with a tool for each way in which a call may end."""

    def fail(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        scribble(params, context=context)
        raise ValueError(params.text)

    async def wait(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        await asyncio.sleep(0)
        return ToolResult.ok(params)

    once: dict[str, Any] = {"effect": "external", "idempotency": IdempotencyConfig()}
    tools = [
        tool("write", scribble),
        tool("fail", fail),
        tool("pay", scribble, **once),
        tool("look", wait, effect="read"),
        tool("count", _count, effect="external", idempotency=IdempotencyConfig()),
    ]
    return executor(*tools, tool("keep", idempotency=IdempotencyConfig()), resources={Filesystem: files()})


def ten_thousand_calls() -> Growth:
    """Calls one after the other on this thread."""
    door = world()
    quick = NAMES[:5]

    def work(first: int, end: int) -> None:
        for number in range(first, end):
            door.execute(call(quick[number % 5], str(number % 50), id=str(number)))

    return _counted(door, lambda: work(0, 10), lambda: work(10, 10_000))


def replies_on_event_loops() -> Growth:
    """Replies of sixty calls, each on a loop of its own, and each second one cancelled."""
    door = world()

    async def reply(start: int) -> None:
        asked = [call(NAMES[n % 6], str(n % 50), id=str(n)) for n in range(start, start + 60)]
        run = asyncio.ensure_future(door.execute_all_async(asked))
        if start % 120:
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            run.cancel()
        await asyncio.wait([run])

    def work(first: int, end: int) -> None:
        for start in range(first, end, 60):
            asyncio.run(reply(start))

    return _counted(door, lambda: work(0, 60), lambda: work(60, 1_260))


WORK = {"calls": ten_thousand_calls, "replies": replies_on_event_loops}


def cycles_of_durable_calls() -> dict[str, int]:
    """Stored calls through both entries: the types of Handrail whose objects refer to themselves after them."""
    noted = tool("note", effect="state")
    paid = tool("pay", effect="external")
    with (
        TemporaryDirectory() as folder,
        store.open(f"sqlite:///{folder}/desk.db") as kept,
        Session.open(kept, "desk") as session,
    ):
        door = executor(noted, paid, session=session)

        async def work(start: int) -> None:
            for number in range(start, start + 10):
                for name in ("note", "pay"):
                    await asyncio.to_thread(door.execute, call(name, "inline", id=f"{name} inline {number}"))
                    await door.execute_async(call(name, "on a loop", id=f"{name} on a loop {number}"))

        asyncio.run(work(0))
        gc.collect()
        gc.disable()
        asyncio.run(work(10))
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
    garbage: list[object] = gc.garbage
    types = [type(one) for one in garbage]
    return dict(Counter(kind.__name__ for kind in types if kind.__module__.startswith("handrail")))


def _alive() -> dict[str, int]:
    gc.collect()
    return dict(Counter(type(one).__name__ for one in gc.get_objects() if isinstance(one, PASSING)))


def _count(params: Note, *, context: ToolContext) -> ToolResult[Note]:
    return ToolResult.ok(Note(json.dumps(_alive())))


def _counted(door: ToolExecutor, begin: Callable[[], None], go_on: Callable[[], None]) -> Growth:
    during = json.loads(door.execute(call("count")).content)
    begin()
    before = _alive()
    go_on()
    session = door.environment.session
    return Growth(before, during, _alive(), len(session[ToolInvoked]) - 1, len(session.turn.queue))


if __name__ == "__main__":
    logging.disable()  # half of the calls fail, as they are meant to
    counted = cycles_of_durable_calls() if sys.argv[1] == "durable" else asdict(WORK[sys.argv[1]]())
    sys.stdout.write(json.dumps(counted))
