"""Fair turns: rules 1, 2 and 5, giving up, and how threads and tasks wait. Nested tickets: `test_nested.py`."""

from __future__ import annotations

from concurrent.futures import CancelledError

import pytest

from handrail.turns import HasTurn, Turn, find_turn, own_turn
from tests.turns.drawing import read, waiter_of, write


def test_a_turn_that_is_named_twice_is_drawn_once() -> None:
    """Two names of one resource are no reason to wait for oneself."""
    turn, other = Turn(), Turn()
    ticket = write(turn, other, turn)
    assert ticket.runs
    assert ticket.turns == (turn, other)
    ticket.release()
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


def test_asking_twice_is_one_wish() -> None:
    """Rule 5: both who ask are told at the same moment."""
    turn = Turn()
    earlier, ticket = read(turn), read(turn)
    asked = ticket.request_first()
    assert asked is not None
    assert ticket.request_first() is asked
    earlier.release()
    assert asked.done()


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


def test_a_participant_for_which_no_turn_can_be_kept_is_refused() -> None:
    """It carries none, and cannot be weakly referenced."""

    class Closed:
        __slots__ = ()

    with pytest.raises(TypeError, match="weak reference"):
        find_turn(Closed())
