"""Fair turns: rules 1, 2 and 5, giving up, and how threads and tasks wait. Nested tickets: `test_nested.py`."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import CancelledError

import pytest

from handrail.turns import HasTurn, Turn, find_turn, own_turn
from tests.turns.drawing import PATIENCE, read, waiter_of, write


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
    assert (reader.runs, late.runs) == (True, True)
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


def test_readers_become_first_in_the_order_drawn() -> None:
    """Rule 5: what becomes of reads is applied in the order asked, however they end."""
    turn = Turn()
    readers = [read(turn) for _ in range(3)]
    last, middle = readers[2].request_first(), readers[1].request_first()
    assert last is not None
    assert middle is not None
    assert readers[0].request_first() is None
    readers[0].release()
    assert middle.done()
    assert not last.done()
    assert readers[2].runs
    readers[1].release()
    assert last.done()
    assert readers[2].request_first() is None


def test_asking_twice_is_one_wish() -> None:
    """Rule 5: both who ask are told at the same moment."""
    turn = Turn()
    earlier, ticket = read(turn), read(turn)
    asked = ticket.request_first()
    assert asked is not None
    assert ticket.request_first() is asked
    earlier.release()
    assert asked.done()


def test_a_released_ticket_has_no_wish() -> None:
    """Rule 5: it stands in no queue, so nothing stands before it."""
    turn = Turn()
    read(turn)
    ticket = read(turn)
    ticket.release()
    assert ticket.request_first() is None


def test_who_asks_to_be_first_and_is_released_waits_no_more() -> None:
    """Those before it have nothing left to tell it."""
    turn = Turn()
    earlier, ticket = read(turn), read(turn)
    asked = ticket.request_first()
    assert asked is not None
    ticket.release()
    assert asked.cancelled()
    earlier.release()
    assert turn.queue == []


def test_a_ticket_that_runs_takes_one_more_turn_if_it_is_free() -> None:
    """What a call reaches in its course it holds from then on; neither one that waits nor one that has ended does."""
    one, more = Turn(), Turn()
    ticket, waiting, ended = write(one), write(one), write(Turn())
    ended.release()
    assert (waiting.extend(more), ended.extend(more), ticket.extend(more), ticket.extend(more)) == (0, 0, 1, 0)
    assert ticket.turns == (one, more)
    behind = write(more)
    assert not behind.runs
    ticket.release()
    assert behind.runs


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


class Plain:
    """A participant that carries no turn."""


class Carrier:
    """A participant that carries its own turn."""

    def __init__(self) -> None:
        self.turn = Turn()


def test_a_participant_that_carries_a_turn_takes_it() -> None:
    """It is always the same one."""
    carrier = Carrier()
    assert isinstance(carrier, HasTurn)
    assert own_turn(carrier) is find_turn(carrier) is carrier.turn


def test_a_turn_is_kept_for_a_participant_that_carries_none() -> None:
    """By identity, and for as long as it lives."""
    one, other = Plain(), Plain()
    turn = find_turn(one)
    assert find_turn(one) is turn
    assert find_turn(other) is not turn
    assert own_turn(one) is None
    del one
    heirs = [Plain() for _ in range(50)]
    assert all(find_turn(heir) is not turn for heir in heirs)


def test_an_attribute_of_that_name_which_is_no_turn_is_not_taken_for_one() -> None:
    """A game has turns of another kind."""

    class Game:
        turn = 3

    game = Game()
    assert own_turn(game) is None
    assert find_turn(game) is find_turn(game)


def test_a_participant_for_which_no_turn_can_be_kept_is_refused() -> None:
    """It carries none, and cannot be weakly referenced."""

    class Closed:
        __slots__ = ()

    with pytest.raises(TypeError, match="weak reference"):
        find_turn(Closed())
