"""Fair turns: the rules of `handrail.turns`, giving up, how threads and tasks wait, and calls made inside calls."""

from __future__ import annotations

from concurrent.futures import CancelledError

import pytest

from handrail.errors import TurnConflictError
from handrail.turns import Turn, find_turn, own_turn
from tests.turns.drawing import read, waiter_of, write
from tests.wording import Wording


def test_a_turn_that_is_named_twice_is_drawn_once() -> None:
    """Two names of one resource are no reason to wait for oneself."""
    turn, other = Turn(), Turn()
    ticket = write(turn, other, turn)
    assert (ticket.runs, ticket.turns) == (True, (turn, other))
    ticket.release()
    assert turn.queue == []


def test_releasing_twice_is_once() -> None:
    """The second release changes nothing, not even the queues of those that came after."""
    turn = Turn()
    first, second = write(turn), write(turn)
    first.release()
    first.release()
    assert (first.released, turn.queue) == (True, [second])


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


def test_a_nested_ticket_goes_ahead_of_those_that_wait() -> None:
    """Rule 3: the one that waits may be waiting for the call that this one is a part of."""
    session, files = Turn(), Turn()
    outer = write(session)
    waiting = write(session, files)
    nested = write(files, inside=outer)
    assert (nested.runs, files.queue) == (True, [nested, waiting])
    outer.release()
    assert not waiting.runs
    nested.release()
    assert waiting.runs


def test_a_circle_is_refused_and_leaves_the_queues_as_they_were(wording: Wording) -> None:
    """Rule 4: each holds what the other waits for, so one is told, and the other goes on."""
    left, right = Turn(), Turn()
    one, other = write(Turn()), write(Turn())
    in_one, in_other = write(left, inside=one), write(right, inside=other)
    deeper = write(right, inside=in_one)
    queues = [list(left.queue), list(right.queue)]
    with pytest.raises(TurnConflictError) as raised:
        write(left, inside=in_other)
    assert (str(raised.value), [left.queue, right.queue]) == (wording, queues)
    in_other.release()
    assert deeper.runs
    for ticket in (deeper, in_one, one, other):
        ticket.release()
    assert left.queue == right.queue == []


def test_a_ticket_that_would_wait_for_its_own_caller_is_refused() -> None:
    """Rule 4: the shortest circle. What a caller holds is joined, not drawn."""
    turn = Turn()
    outer = read(turn)
    with pytest.raises(TurnConflictError):
        write(turn, inside=outer)
    assert turn.queue == [outer]
    assert read(turn, inside=outer).runs


def test_a_request_is_not_for_those_that_wait_for_the_wisher() -> None:
    """Rule 5: it would wait for ever; order gives way to going on."""
    session, files = Turn(), Turn()
    earlier, reader = read(session), read(session, files)
    nested = write(files, inside=earlier)
    assert not nested.runs
    assert reader.request_first() is None
    reader.release()
    assert nested.runs


def test_a_request_is_taken_back_when_it_becomes_a_circle() -> None:
    """Rule 5: a call that an agent makes does not fail because a read waits for the agent to end."""
    session, files = Turn(), Turn()
    agent, reader = read(session), read(session, files)
    asked = reader.request_first()
    assert asked is not None
    nested = write(files, inside=agent)
    assert asked.done()
    assert reader.waiter is None
    assert not nested.runs
    reader.release()
    assert nested.runs


def test_a_call_that_leans_on_another_is_part_of_the_graph(wording: Wording) -> None:
    """Rule 6: what waits for the one waits for the other, so the circle is refused where it would close."""
    session, files = Turn(), Turn()
    one, other = write(session), write(files)
    one.wait_on(other)
    with pytest.raises(TurnConflictError) as raised:
        write(session, inside=other)
    assert str(raised.value) == wording
    with pytest.raises(TurnConflictError):
        other.wait_on(one)
    one.stop_waiting_on(other)
    one.stop_waiting_on(other)
    assert not write(session, inside=other).runs


def test_a_released_nested_ticket_is_no_part_of_its_caller() -> None:
    """A call that makes thousands of others holds on to none of them, and nobody waits for what has ended."""
    left, right = Turn(), Turn()
    one, other = write(left), write(right)
    given_up = write(right, inside=one)
    assert one.inside == {given_up}
    given_up.release()
    assert not one.inside
    assert not write(left, inside=other).runs


def test_nothing_waits_for_a_call_that_has_ended() -> None:
    """Rule 6: also where the wait for it has not been ended."""
    one, other, third = write(Turn()), write(Turn()), write(Turn())
    one.wait_on(other)
    other.wait_on(third)
    other.release()
    third.wait_on(one)
    one.stop_waiting_on(other)
    third.stop_waiting_on(one)
    one.wait_on(third)


def test_a_request_gives_way_where_the_circle_leads_over_a_call_that_waits() -> None:
    """Rules 4 and 5: the caller holds what that one waits for, and the nested call what the request holds back."""
    session, files, orders = Turn(), Turn(), Turn()
    caller, waiting, reader = write(session), read(session, orders), read(orders, files)
    asked = reader.request_first()
    assert asked is not None
    nested = write(files, inside=caller)
    assert asked.done()
    reader.release()
    assert (nested.runs, waiting.runs) == (True, False)
