"""Fair turns for calls made inside calls: rules 3 and 4, and what becomes of the wishes of rule 5."""

from __future__ import annotations

import pytest

from handrail.errors import TurnConflictError
from handrail.turns import Turn
from tests.turns.drawing import read, write
from tests.wording import Wording


def test_a_nested_ticket_goes_ahead_of_those_that_wait() -> None:
    """Rule 3: the one that waits may be waiting for the call that this one is a part of."""
    session, files = Turn(), Turn()
    outer = write(session)
    waiting = write(session, files)
    nested = write(files, inside=outer)
    assert nested.runs
    assert files.queue == [nested, waiting]
    outer.release()
    assert not waiting.runs
    nested.release()
    assert waiting.runs


def test_two_calls_that_hold_a_session_share_files_while_a_writer_waits_for_both() -> None:
    """Rules 3 and 4, the diamond: the calls inside them take turns on the files, and all come to their end."""
    session, files = Turn(), Turn()
    one, other = read(session), read(session)
    writer = write(session, files)
    in_one, in_other = write(files, inside=one), write(files, inside=other)
    assert (in_one.runs, in_other.runs, writer.runs) == (True, False, False)
    in_one.release()
    assert (in_other.runs, writer.runs) == (True, False)
    one.release()
    in_other.release()
    assert (in_other.runs, writer.runs) == (True, False)
    other.release()
    assert writer.runs
    writer.release()
    assert session.queue == files.queue == []


def test_a_circle_is_refused_and_leaves_the_queues_as_they_were(wording: Wording) -> None:
    """Rule 4: each holds what the other waits for, so one is told, and the other goes on."""
    left, right = Turn(), Turn()
    one, other = write(Turn()), write(Turn())
    in_one, in_other = write(left, inside=one), write(right, inside=other)
    deeper = write(right, inside=in_one)
    queues = [list(left.queue), list(right.queue)]
    with pytest.raises(TurnConflictError) as raised:
        write(left, inside=in_other)
    assert str(raised.value) == wording
    assert [left.queue, right.queue] == queues
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


def test_a_wish_is_not_for_those_that_wait_for_the_wisher() -> None:
    """Rule 5: it would wait for ever; order gives way to going on."""
    session, files = Turn(), Turn()
    earlier, reader = read(session), read(session, files)
    nested = write(files, inside=earlier)
    assert not nested.runs
    assert reader.request_first() is None
    reader.release()
    assert nested.runs


def test_a_wish_is_taken_back_when_it_becomes_a_circle() -> None:
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


def test_a_wish_for_others_stays_when_one_is_taken_back() -> None:
    """Rule 5: only what has become a circle is given up."""
    session, files = Turn(), Turn()
    first, agent, reader = read(session), read(session), read(session, files)
    asked = reader.request_first()
    assert asked is not None
    write(files, inside=agent)
    assert not asked.done()
    first.release()
    assert asked.done()


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
    assert list(one.links.inside) == [given_up]
    given_up.release()
    assert not one.links.inside
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


def test_a_nested_reader_is_first_before_a_reader_that_waits() -> None:
    """Rules 3 and 5: it stands before it, so what becomes of it is applied earlier."""
    session, files = Turn(), Turn()
    outer = write(session)
    waiting = read(session, files)
    nested = read(files, inside=outer)
    assert nested.request_first() is None
    outer.release()
    assert waiting.runs
    asked = waiting.request_first()
    assert asked is not None
    nested.release()
    assert asked.done()


def test_a_reader_runs_beside_a_nested_reader() -> None:
    """Rules 1 and 3: they do not conflict, whichever was drawn first."""
    session, files = Turn(), Turn()
    read(files, inside=write(session))
    assert read(files).runs
    assert not write(files).runs


def test_readers_behind_a_nested_wish_are_first_after_it() -> None:
    """Rules 3 and 5: a nested reader asks to be first too, and those that stand behind it wait for it."""
    session, files = Turn(), Turn()
    earlier, outer = read(files), write(session)
    nested = read(files, inside=outer)
    later = read(files)
    asked, last = nested.request_first(), later.request_first()
    assert asked is not None
    assert last is not None
    earlier.release()
    assert (asked.done(), last.done()) == (True, False)
    nested.release()
    assert last.done()
