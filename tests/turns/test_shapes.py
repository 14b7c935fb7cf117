"""How many steps many tickets take: as many for each, however many there are."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from types import FrameType

import pytest

from handrail.turns import Turn
from tests.turns.drawing import read, waiter_of, write


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
