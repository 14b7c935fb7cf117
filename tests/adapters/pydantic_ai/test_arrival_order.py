"""`handrail.adapters.pydantic_ai.arrival_order`: calls reach the pipeline in the order in which they joined."""

from __future__ import annotations

import asyncio

import pytest

from handrail.adapters.pydantic_ai.arrival_order import ArrivalQueue, leave_queue


@pytest.mark.anyio
async def test_calls_step_up_in_the_order_in_which_they_joined() -> None:
    """The first goes on at once, each other one when all before it have left."""
    line = ArrivalQueue()
    order: list[int] = []

    async def call(number: int) -> None:
        with line.join():
            for _ in range(5 - number):  # the earlier ones take longer to get there
                await asyncio.sleep(0)
            await leave_queue()
            order.append(number)

    await asyncio.gather(*(call(number) for number in range(5)))
    assert order == [0, 1, 2, 3, 4]
    assert line.positions == []


@pytest.mark.anyio
async def test_a_call_in_the_middle_that_leaves_lets_nobody_overtake() -> None:
    """Those behind it still wait for those before it."""
    line = ArrivalQueue()
    with line.join(), line.join(), line.join():
        first, middle, last = line.positions
        middle.leave()
        assert not last.is_first.is_set()
        first.leave()
        assert last.is_first.is_set()


@pytest.mark.anyio
async def test_a_cancelled_call_leaves_the_line() -> None:
    """Nobody waits for a call that will never come."""
    line = ArrivalQueue()

    async def call() -> None:
        with line.join():
            await leave_queue()

    with line.join():
        waiting = asyncio.create_task(call())
        await asyncio.sleep(0)
        assert len(line.positions) == 2
        waiting.cancel()
        await asyncio.wait([waiting])
        assert len(line.positions) == 1


@pytest.mark.anyio
async def test_a_call_that_stands_in_no_line_goes_on() -> None:
    """A toolset without the capability has no line."""
    await leave_queue()


@pytest.mark.anyio
async def test_stepping_up_twice_is_once() -> None:
    """A call made inside another one may find the outer spot, which has left."""
    line = ArrivalQueue()
    with line.join():
        await leave_queue()
        await leave_queue()
    assert line.positions == []
