"""How threads and tasks wait for their turn."""

from __future__ import annotations

import asyncio
import threading

import pytest

from handrail.turns import Turn
from tests.turns.drawing import PATIENCE, waiter_of, write


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
