"""How threads and tasks wait for their turn."""

from __future__ import annotations

import asyncio
import threading

import pytest

from handrail.turns import Turn
from tests.turns.drawing import PATIENCE, waiter_of, write


def test_a_thread_blocks_until_its_turn_comes() -> None:
    """A waiter is a future on which a thread blocks."""
    turn, drawn, order = Turn(), threading.Event(), list[str]()
    first = write(turn)

    def work() -> None:
        ticket = write(turn)
        drawn.set()
        waiter_of(ticket).result(timeout=PATIENCE)
        order.append("second")
        ticket.release()

    thread = threading.Thread(target=work)
    thread.start()
    assert drawn.wait(PATIENCE)
    order.append("first")
    first.release()
    thread.join(PATIENCE)
    assert order == ["first", "second"]
    assert turn.queue == []


def test_many_threads_write_one_at_a_time() -> None:
    """Rules 1 and 2 under real threads: no two are ever inside, and every one gets in."""
    turn, inside, done = Turn(), list[int](), list[int]()

    def work(number: int) -> None:
        for _ in range(50):
            ticket = write(turn)
            waiter = ticket.waiter
            if waiter is not None:
                waiter.result(timeout=PATIENCE)
            inside.append(number)
            done.append(len(inside))
            inside.remove(number)
            ticket.release()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert done == [1] * 400
    assert turn.queue == []


@pytest.mark.anyio
async def test_tasks_wait_for_their_turn_without_blocking_the_loop() -> None:
    """A waiter is a future that a task awaits wrapped."""
    turn, order = Turn(), list[int]()
    first = write(turn)

    async def work(number: int) -> None:
        ticket = write(turn)
        await asyncio.wrap_future(waiter_of(ticket))
        order.append(number)
        ticket.release()

    tasks = [asyncio.create_task(work(number)) for number in range(3)]
    await asyncio.sleep(0)
    assert len(turn.queue) == 4
    first.release()
    await asyncio.gather(*tasks)
    assert order == [0, 1, 2]
    assert turn.queue == []


@pytest.mark.anyio
async def test_a_task_that_is_cancelled_while_it_waits_leaves_the_queue() -> None:
    """Its place is given up where it is caught, and those behind it go on."""
    turn = Turn()
    first = write(turn)

    async def work() -> None:
        ticket = write(turn)
        try:
            await asyncio.wrap_future(waiter_of(ticket))
        finally:
            ticket.release()

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    last = write(turn)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert turn.queue == [first, last]
    first.release()
    assert last.runs
