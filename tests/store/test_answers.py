"""What every store promises of the answers of people to calls that wait, over every store."""

from __future__ import annotations

from datetime import timedelta

import pytest

from handrail.errors import StoreCorruptError
from handrail.session.open_calls import answer_in
from handrail.session.persistence.protocol import AnswerChange, AnswerRow
from handrail.store import Store
from handrail.store.protocol import RefusedWrite
from handrail.store.sql.tables import read_answer
from handrail.testing import FakeClock
from handrail.transaction import UnitOfWork
from tests.store.session_rows import entries, held, session_row
from tests.store.units import append

ROW = ("s1", "r1", "c1")


def write(store: Store, seen: AnswerRow | None, row: AnswerRow) -> bool:
    """Write an answer; returns whether it was written."""
    refused = store.apply(UnitOfWork((AnswerChange(seen, row),)))
    assert refused is None or isinstance(refused, RefusedWrite)
    return refused is None


def test_of_two_answers_to_one_call_the_first_stands(store: Store, clock: FakeClock) -> None:
    """Without the right to write to the session; who has seen the first may replace it."""
    held(store, clock)
    first = AnswerRow(*ROW, clock.now(), b'{"a":1}')
    clock.advance(timedelta(microseconds=1))
    second = AnswerRow(*ROW, clock.now(), b"\x00\xff")
    assert write(store, None, first)
    assert not write(store, None, second)
    assert store.answers("s1") == (first,)
    assert write(store, first, second)
    assert not write(store, first, first._replace(answer=b"{}"))
    assert store.answers("s1") == (second,)


def test_an_answer_that_cannot_be_read_is_an_error() -> None:
    """In its columns, or in what they hold."""
    row = AnswerRow(*ROW, FakeClock().now(), b"{}")
    with pytest.raises(StoreCorruptError):
        read_answer(("r1", "c1", 0, "text"), "s1", "desk")
    with pytest.raises(StoreCorruptError):
        answer_in(row, store="desk")


def test_answers_come_oldest_first_and_belong_to_one_session(store: Store, clock: FakeClock) -> None:
    """Also those of calls without a reply; a fork has none of them, and a session that does not exist neither."""
    lock = held(store, clock)
    append(store, lock, 0, entries(1, 1), None)
    later = AnswerRow(*ROW, clock.now() + timedelta(seconds=1), b"{}")
    earlier = AnswerRow("s1", "", "a", clock.now(), b"{}")
    assert write(store, None, later)
    assert write(store, None, earlier)
    assert store.answers("s1") == (earlier, later)
    assert (earlier.call, later.call) == ((None, "a"), ("r1", "c1"))
    assert store.copy("s1", session_row(clock, "s2", head=1))
    assert store.answers("s2") == ()
    assert not write(store, None, earlier._replace(session_id="none"))
    assert store.answers("none") == ()


def test_answers_of_a_unit_are_written_together(store: Store, clock: FakeClock) -> None:
    """Or none of them; a unit that was written already changes nothing."""
    held(store, clock)
    one = AnswerRow(*ROW, clock.now(), b"{}")
    other = one._replace(call_id="c2")
    assert write(store, None, one)
    unit = UnitOfWork((AnswerChange(None, other), AnswerChange(None, one._replace(answer=b"[]"))))
    assert store.apply(unit) is not None
    assert store.answers("s1") == (one,)
    unit = UnitOfWork((AnswerChange(one, one._replace(answer=b"[]")), AnswerChange(None, other)))
    assert store.apply(unit) is None
    assert store.apply(unit) is None
    assert set(store.answers("s1")) == {one._replace(answer=b"[]"), other}


def test_answers_go_with_their_session(store: Store, clock: FakeClock) -> None:
    """A session that is made anew with the same id has none."""
    lock = held(store, clock)
    assert write(store, None, AnswerRow(*ROW, clock.now(), b"{}"))
    store.delete_session(lock)
    store.release(lock)
    assert store.answers("s1") == ()
    assert store.create(session_row(clock, "s1"))
    assert store.answers("s1") == ()
