"""Fair turns: the rules of `handrail.turns`, giving up, how threads and tasks wait, and calls made inside calls."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from types import FrameType

import pytest

from handrail.errors import TurnConflictError
from handrail.turns import Ticket, Turn, draw_ticket, find_turn, own_turn
from tests.kit import raises
from tests.wording import Wording


def write(*turns: Turn, inside: Ticket | None = None) -> Ticket:
    """An exclusive ticket."""
    return draw_ticket(turns, exclusive=True, inside=inside)


def read(*turns: Turn, inside: Ticket | None = None) -> Ticket:
    """A shared ticket."""
    return draw_ticket(turns, exclusive=False, inside=inside)


def waiter_of(ticket: Ticket) -> Future[None]:
    """The waiter of a ticket that has to wait."""
    waiter = ticket.waiter
    assert waiter is not None
    return waiter


def test_a_turn_that_is_named_twice_is_drawn_once() -> None:
    """Two names of one resource are no reason to wait for oneself."""
    turn, other = Turn(), Turn()
    ticket = write(turn, other, turn)
    assert (ticket.runs, ticket.turns) == (True, (turn, other))
    ticket.release()
    assert turn.queue == []


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
    with raises(TurnConflictError, wording):
        write(session, inside=other)
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


def reads_behind_a_slow_one(number: int) -> None:
    """The first ends last, and the others have asked to be first meanwhile."""
    turn = Turn()
    slow, *others = [read(turn) for _ in range(number)]
    waiters = [other.request_first() for other in others]
    slow.release()
    for other, waiter in zip(others, waiters, strict=True):
        assert waiter is not None
        assert waiter.done()
        other.release()


def reads_that_end_in_reverse_order(number: int) -> None:
    """The last asks to be first before all others do."""
    turn = Turn()
    readers = [read(turn) for _ in range(number)]
    for reader in reversed(readers):
        reader.request_first()
    for reader in readers:
        assert reader.waiter is None
        reader.release()


def writers_that_wait(number: int) -> None:
    """Each waits for the one before it."""
    turn = Turn()
    writers = [write(turn) for _ in range(number)]
    for writer in writers:
        assert writer.runs
        writer.release()


def writers_that_give_up(number: int) -> None:
    """Every other one, the last first; then the first, and all others in turn."""
    turn = Turn()
    writers = [write(turn) for _ in range(number)]
    waiters = [waiter_of(writer) for writer in writers[1:]]
    for writer in reversed(writers[1::2]):
        writer.release()
    for writer in writers[::2]:
        assert writer.runs
        writer.release()
    assert all(waiter.done() for waiter in waiters)


def reads_and_writers_by_turns(number: int) -> None:
    """Ten reads, a writer, ten reads, and so on, on two turns."""
    turns = Turn(), Turn()
    tickets = [read(*turns) if place % 11 else write(*turns) for place in range(number)]
    for ticket in tickets:
        assert ticket.runs
        ticket.release()


def nested_writers_of_one_call(number: int) -> None:
    """A handler that makes many calls at once: they take turns among themselves, while reads wait for the call.

    Elsewhere a read asks to be first, and a nested ticket waits.
    """
    turn, inner, other = Turn(), Turn(), Turn()
    asking = read(other), read(other)
    asking[1].request_first()
    write(other, inside=write(Turn()))
    outer = write(turn)
    readers = [read(turn) for _ in range(number)]
    nested = [write(inner, inside=outer) for _ in range(number)]
    for ticket in (*nested, outer, *readers):
        assert ticket.runs
        ticket.release()


SHAPES = [
    reads_behind_a_slow_one,
    reads_that_end_in_reverse_order,
    writers_that_wait,
    writers_that_give_up,
    reads_and_writers_by_turns,
    nested_writers_of_one_call,
]


@pytest.mark.parametrize("shape", SHAPES)
def test_three_times_as_many_tickets_take_three_times_as_many_steps(shape: Callable[[int], None]) -> None:
    """A step is a call of a function, also of one of Python's own; a quadratic shape would take nine times as many."""
    few, many = steps(shape, 110), steps(shape, 330)
    assert many < 3.3 * few


def steps(shape: Callable[[int], None], number: int) -> int:
    """How many functions are called by a shape with so many tickets."""
    counted = 0

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal counted
        counted += event in {"call", "c_call"}

    gc.collect()  # tickets that other tests have left in their turns
    before = sys.getprofile()
    sys.setprofile(count)
    try:
        shape(number)
    finally:
        sys.setprofile(before)
    return counted
