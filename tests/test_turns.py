"""Fair turns: rules 1, 2 and 5, giving up, and how threads and tasks wait. Nested tickets: `test_turns_nested.py`."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import CancelledError, Future

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


def test_a_ticket_for_free_turns_runs_at_once() -> None:
    """Rule 2: with nobody before it, it has nothing to wait for."""
    one, other = Turn(), Turn()
    ticket = write(one, other)
    assert ticket.runs
    assert ticket.waiter is None
    assert one.queue == other.queue == [ticket]


def test_reads_run_beside_each_other() -> None:
    """Rule 1: two shared tickets do not conflict."""
    turn = Turn()
    assert all(read(turn).waiter is None for _ in range(3))


def test_a_writer_waits_for_every_reader_before_it() -> None:
    """Rule 1: an exclusive ticket conflicts with shared ones; rule 2: it waits for all that are earlier."""
    turn = Turn()
    readers = [read(turn), read(turn)]
    writer = write(turn)
    waiter = waiter_of(writer)
    readers[1].release()
    assert (writer.runs, waiter.done()) == (False, False)
    readers[0].release()
    assert (writer.runs, waiter.done()) == (True, True)
    assert waiter.result(timeout=0) is None
    assert writer.waiter is None


def test_a_reader_does_not_overtake_a_writer_that_waits() -> None:
    """Rule 2: a stream of reads cannot starve a writer."""
    turn = Turn()
    first, writer, late = read(turn), write(turn), read(turn)
    assert not late.runs
    first.release()
    assert writer.runs
    assert not late.runs
    writer.release()
    assert late.runs


def test_writers_run_one_at_a_time_in_the_order_drawn() -> None:
    """Rule 2: earlier is the order of drawing."""
    turn = Turn()
    writers = [write(turn) for _ in range(5)]
    for place, writer in enumerate(writers):
        assert [other.runs for other in writers[place:]] == [True] + [False] * (4 - place)
        writer.release()
    assert turn.queue == []


def test_neighbouring_reads_all_go_on_when_the_writer_before_them_ends() -> None:
    """Rule 2: nothing earlier conflicts with any of them."""
    turn = Turn()
    writer = write(turn)
    readers = [read(turn) for _ in range(3)]
    waiters = [waiter_of(reader) for reader in readers]
    writer.release()
    assert all(waiter.done() for waiter in waiters)


def test_a_ticket_takes_all_its_turns_at_one_moment() -> None:
    """Rule 2: while it waits for one turn it keeps its place on the other, but does not hold it."""
    one, other = Turn(), Turn()
    holder = write(one)
    both = write(one, other)
    earlier_on_other = [ticket for ticket in other.queue if ticket.runs]
    assert earlier_on_other == []
    behind = write(other)
    assert not behind.runs
    holder.release()
    assert both.runs
    both.release()
    assert behind.runs


def test_tickets_for_turns_in_any_order_never_wait_for_each_other() -> None:
    """Rule 2: there is one order for all turns, so the way a call lists its turns does not matter."""
    one, other = Turn(), Turn()
    first, second = write(one, other), write(other, one)
    assert first.runs
    first.release()
    assert second.runs


def test_a_turn_that_is_named_twice_is_drawn_once() -> None:
    """Two names of one resource are no reason to wait for oneself."""
    turn, other = Turn(), Turn()
    ticket = write(turn, other, turn)
    assert ticket.runs
    assert ticket.turns == (turn, other)
    ticket.release()
    assert turn.queue == []


def test_a_ticket_that_gives_up_lets_those_behind_it_go_on() -> None:
    """A call that is cancelled while it waits leaves the queue."""
    turn = Turn()
    reader, writer, late = read(turn), write(turn), read(turn)
    writer.release()
    assert reader.runs
    assert late.runs
    reader.release()
    late.release()
    assert turn.queue == []


def test_releasing_twice_is_once() -> None:
    """The second release changes nothing, not even the queues of those that came after."""
    turn = Turn()
    first, second = write(turn), write(turn)
    first.release()
    first.release()
    assert first.released
    assert turn.queue == [second]


def test_the_waiter_of_a_ticket_that_is_released_is_cancelled() -> None:
    """Whoever blocks on it is not left to wait for ever."""
    turn = Turn()
    write(turn)
    ticket = write(turn)
    waiter = waiter_of(ticket)
    ticket.release()
    with pytest.raises(CancelledError):
        waiter.result(timeout=0)


def test_a_ticket_whose_waiter_was_cancelled_keeps_its_place() -> None:
    """To cancel a waiter gives up one wait; the next one is told."""
    turn = Turn()
    first, second = write(turn), write(turn)
    given_up = waiter_of(second)
    given_up.cancel()
    waiter = waiter_of(second)
    assert waiter is not given_up
    assert waiter_of(second) is waiter
    first.release()
    assert waiter.done()


def test_a_cancelled_waiter_is_not_told() -> None:
    """A turn that comes when nobody waits any more disturbs nobody."""
    turn = Turn()
    first, second = write(turn), write(turn)
    waiter_of(second).cancel()
    first.release()
    assert second.runs
    assert second.waiter is None


def test_a_reader_that_is_first_need_not_wait_to_be() -> None:
    """Rule 5: nothing stands before it."""
    turn = Turn()
    ticket = read(turn)
    read(turn)
    assert ticket.ask_first() is None


def test_readers_become_first_in_the_order_drawn() -> None:
    """Rule 5: what becomes of reads is applied in the order asked, however they end."""
    turn = Turn()
    readers = [read(turn) for _ in range(3)]
    last, middle = readers[2].ask_first(), readers[1].ask_first()
    assert last is not None
    assert middle is not None
    assert readers[0].ask_first() is None
    readers[0].release()
    assert middle.done()
    assert not last.done()
    assert readers[2].runs
    readers[1].release()
    assert last.done()
    assert readers[2].ask_first() is None


def test_a_writer_that_runs_is_first() -> None:
    """Rule 5: everything before it would conflict with it, so nothing is there."""
    one, other = Turn(), Turn()
    earlier = write(one)
    ticket = write(one, other)
    earlier.release()
    assert ticket.ask_first() is None


def test_asking_twice_is_one_wish() -> None:
    """Rule 5: both who ask are told at the same moment."""
    turn = Turn()
    earlier, ticket = read(turn), read(turn)
    asked = ticket.ask_first()
    assert asked is not None
    assert ticket.ask_first() is asked
    earlier.release()
    assert asked.done()


def test_a_released_ticket_has_no_wish() -> None:
    """Rule 5: it stands in no queue, so nothing stands before it."""
    turn = Turn()
    read(turn)
    ticket = read(turn)
    ticket.release()
    assert ticket.ask_first() is None


def test_who_asks_to_be_first_and_is_released_waits_no_more() -> None:
    """Those before it have nothing left to tell it."""
    turn = Turn()
    earlier, ticket = read(turn), read(turn)
    asked = ticket.ask_first()
    assert asked is not None
    ticket.release()
    assert asked.cancelled()
    earlier.release()
    assert turn.queue == []


def test_a_reader_waits_for_an_earlier_one_that_waits_itself() -> None:
    """Rule 5: what stands before it need not run yet."""
    one, other = Turn(), Turn()
    writer = write(other)
    waiting = read(one, other)
    ticket = read(one)
    asked = ticket.ask_first()
    assert asked is not None
    writer.release()
    assert not asked.done()
    waiting.release()
    assert asked.done()


def test_a_ticket_takes_more_turns_when_they_are_free() -> None:
    """What a call reaches in its course it holds from then on."""
    one, more = Turn(), Turn()
    ticket = write(one)
    assert ticket.extend((more, one, more))
    assert ticket.turns == (one, more)
    behind = write(more)
    assert not behind.runs
    ticket.release()
    assert behind.runs


@pytest.mark.parametrize("awaited", [False, True])
def test_a_ticket_takes_no_turn_that_somebody_holds_or_awaits(awaited: bool) -> None:
    """It would have to wait for it while it holds others; nothing changes."""
    one, free, more = Turn(), Turn(), Turn()
    holder = write(more)
    if awaited:
        elsewhere = Turn()
        write(elsewhere)
        write(elsewhere, more)
        holder.release()
    ticket, queue = write(one), list(more.queue)
    assert not ticket.extend((free, more))
    assert ticket.turns == (one,)
    assert more.queue == queue
    assert free.queue == []


def test_a_released_ticket_takes_no_more_turns() -> None:
    """Nobody would release them."""
    turn = Turn()
    ticket = write()
    ticket.release()
    assert not ticket.extend((turn,))
    assert turn.queue == []


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
