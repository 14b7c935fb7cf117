"""How threads and tasks wait for their turn, and whose turn it is that they wait for."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future

import pytest

from handrail.turns import TakesTurns, Ticket, Turn, draw, own_turn, turn_of

PATIENCE = 30.0
"""Seconds after which a thread that waits has been forgotten."""


class Plain:
    """A participant that carries no turn."""


class Carrier:
    """A participant that carries its own turn."""

    def __init__(self) -> None:
        self.turn = Turn()


def write(*turns: Turn) -> Ticket:
    """An exclusive ticket."""
    return draw(turns, exclusive=True)


def read(*turns: Turn) -> Ticket:
    """A shared ticket."""
    return draw(turns, exclusive=False)


def waiter_of(ticket: Ticket) -> Future[None]:
    """The waiter of a ticket that has to wait."""
    waiter = ticket.waiter
    assert waiter is not None
    return waiter


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


def test_a_participant_that_carries_a_turn_takes_it() -> None:
    """It is always the same one."""
    carrier = Carrier()
    assert isinstance(carrier, TakesTurns)
    assert own_turn(carrier) is turn_of(carrier) is carrier.turn


def test_a_turn_is_kept_for_a_participant_that_carries_none() -> None:
    """By identity, and for as long as it lives."""
    one, other = Plain(), Plain()
    turn = turn_of(one)
    assert turn_of(one) is turn
    assert turn_of(other) is not turn
    assert own_turn(one) is None
    del one
    heirs = [Plain() for _ in range(50)]
    assert all(turn_of(heir) is not turn for heir in heirs)


def test_an_attribute_of_that_name_which_is_no_turn_is_not_taken_for_one() -> None:
    """A game has turns of another kind."""

    class Game:
        turn = 3

    game = Game()
    assert own_turn(game) is None
    assert turn_of(game) is turn_of(game)


def test_a_participant_for_which_no_turn_can_be_kept_is_refused() -> None:
    """It carries none, and cannot be weakly referenced."""

    class Closed:
        __slots__ = ()

    with pytest.raises(TypeError, match="weak reference"):
        turn_of(Closed())
