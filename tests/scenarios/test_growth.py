"""What ten thousand calls leave behind: what they wrote, one event each, and nothing else."""

from __future__ import annotations

import asyncio
import gc
import logging
import weakref
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from handrail.adapters.tool_executor import ToolExecutor
from handrail.filesystem import Filesystem
from handrail.prompt import ToolContext, ToolResult
from handrail.runtime import IdempotencyConfig, ToolInvoked, Transaction
from handrail.runtime.claim import Claim
from handrail.runtime.effects import Claimed
from handrail.runtime.invocation import Invocation
from handrail.turns import Ticket, Turn
from tests.runtime.bench import Note, call, executor, files, scribble, tool

PASSING: tuple[type[Any], ...] = (Transaction, Ticket, Invocation, Claim, Claimed, Turn, asyncio.Future)
"""What is made for a call and must go with it."""


@pytest.fixture(autouse=True)
def no_log() -> Iterator[None]:
    """A log that is captured keeps each exception, and with it the frames of its call."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


def _alive() -> Counter[str]:
    gc.collect()
    return Counter(type(one).__name__ for one in gc.get_objects() if isinstance(one, PASSING))


def _world() -> ToolExecutor:
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
    ]
    return executor(*tools, tool("keep", idempotency=IdempotencyConfig()), resources={Filesystem: files()})


NAMES = ("write", "fail", "pay", "keep", "none", "look")


def test_ten_thousand_calls_leave_what_they_wrote_and_nothing_else() -> None:
    """Transactions, tickets, turns and claims are gone; the ledger gives signs of life for nobody."""
    door = _world()
    quick = NAMES[:5]
    for number in range(10):
        door.execute(call(quick[number % 5], str(number), id=str(number)))
    before = _alive()
    for number in range(10, 10_000):
        door.execute(call(quick[number % 5], str(number % 50), id=str(number)))
    assert _alive() == before
    session = door.environment.session
    assert len(session[ToolInvoked]) == 10_000
    assert session.turn.queue == []


def test_replies_on_an_event_loop_leave_nothing_either() -> None:
    """With many calls in the queue at once, and some of them cancelled."""
    door = _world()

    async def reply(start: int) -> None:
        asked = [call(NAMES[n % 6], str(n % 50), id=str(n)) for n in range(start, start + 60)]
        run = asyncio.ensure_future(door.execute_all_async(asked))
        if start % 120:
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            run.cancel()
        await asyncio.wait([run])

    asyncio.run(reply(0))
    before = _alive()
    for start in range(60, 1_260, 60):
        asyncio.run(reply(start))
    assert _alive() == before
    assert len(door.environment.session[ToolInvoked]) == 1_260
    assert door.environment.session.turn.queue == []


def test_a_thousand_calls_in_one_reply_are_carried_out() -> None:
    """Writers one after the other, reads beside each other, answered in the order asked."""
    door = _world()
    asked = [call("write" if n % 10 == 0 else "look", str(n), id=str(n)) for n in range(1_000)]
    messages = asyncio.run(door.execute_all_async(asked))
    assert [message.call_id for message in messages] == [str(n) for n in range(1_000)]
    assert all(message.success for message in messages)
    assert [note.text for note in door.environment.session[Note]] == [str(n) for n in range(1_000)]


def test_a_ledger_that_nobody_uses_any_more_is_collected() -> None:
    """Its thread does not keep it."""
    door = _world()
    door.execute(call("pay"))
    ledger = weakref.ref(door.environment.effect_ledger)
    del door
    gc.collect()
    assert ledger() is None
