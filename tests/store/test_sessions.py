"""What every store promises of sessions, and of the answers of people to their calls, over every store."""

from __future__ import annotations

from datetime import timedelta
from random import Random

import pytest

from handrail.errors import SessionError, SessionLockedError, SessionLostError, SessionNotFoundError, StoreCorruptError
from handrail.session.calls import CallRef
from handrail.session.open_calls import answer_in
from handrail.session.persistence.protocol import AnswerChange, AnswerRow, Checkpoint
from handrail.store import Store
from handrail.store.protocol import RefusedWrite
from handrail.store.sql.tables import read_answer
from handrail.testing import FakeClock
from handrail.transaction import UnitOfWork
from tests.kit import raises
from tests.store.kit import NOW, append, entries, entry, held, refused, session_row, stored
from tests.wording import Wording


def test_all_that_a_session_is_comes_back(store: Store, clock: FakeClock) -> None:
    """Tags with any characters, the parent, and the time to the microsecond."""
    clock.advance(timedelta(microseconds=1))
    row = session_row(clock, "s2", parent="s1")._replace(tags={"ü\0\ud800": "'; --", "": ""})
    store.create(row)
    assert store.find("s2") == row


def test_entries_come_back_in_order(store: Store, clock: FakeClock) -> None:
    """However many: what lies after one number and up to another, all of it or what is of one type."""
    hold = held(store, clock)
    others = [entry(2499, type_name="desk:Other"), entry(2500, items=b"\x00\xff")]
    append(store, hold, 0, entries(1, 2498), None)
    append(store, hold, 2498, others, None)
    assert list(store.entries("s1")) == [*entries(1, 2498), *others]
    assert [one.number for one in store.entries("s1", after=999, until=2001)] == list(range(1000, 2002))
    assert [one.number for one in store.entries("s1", type_name="desk:Note")] == [*range(1, 2499), 2500]
    assert [one.number for one in store.entries("s1", until=3, type_name="desk:Note")] == [1, 2, 3]
    assert list(store.entries("s1", after=2500)) == list(store.entries("nobody")) == []
    row = stored(store, "s1")
    assert row.head == 2500
    assert [one.number for one in store.contents(row)[1]] == list(range(1, 2501))


def test_large_entries_come_back(store: Store, clock: FakeClock) -> None:
    """Of any size, and whether compressing makes them smaller or not."""
    hold = held(store, clock)
    random = Random(7)  # noqa: S311 - no secret
    items = [b"[%s]" % (b"1," * 2046), b"[%s]" % (b"1," * 2047), b"a word " * 20_000, random.randbytes(9000)]
    large = [entry(number, items=data) for number, data in enumerate(items, 1)]
    append(store, hold, 0, large, None)
    assert list(store.entries("s1")) == large
    assert store.newest_changes("s1", "desk:Note", after=0, until=4, limit=2) == large[2:]


def test_entries_that_do_not_follow_are_refused(store: Store, clock: FakeClock, wording: Wording) -> None:
    """Numbers have no gaps, so entries are numbered from `head + 1` on."""
    hold = held(store, clock)
    with raises(SessionError, wording):
        append(store, hold, 0, entries(2, 3), None)
    assert list(store.entries("s1")) == []


ONE, TWO, NO_REPLY = CallRef("r1", "c1"), CallRef("r1", "c2"), CallRef(None, "c1")


def test_record_of_a_call_is_its_newest_entry_in_a_log(store: Store, clock: FakeClock) -> None:
    """Where a fork at a call branches off. The changes of a call do not record it, nor does a LOG item without call."""
    change = entry(5, "c2", "desk:Plan")._replace(role="state", start=0)
    hold = held(store, clock)
    append(store, hold, 0, [entry(1), entry(2, "c2"), entry(3), entry(4, reply=""), change, entry(6, "")], None)
    assert [store.record_of_call("s1", call) for call in (ONE, TWO, NO_REPLY)] == [3, 2, 4]
    assert store.record_of_call("s1", CallRef("r2", "c1")) is None
    assert store.record_of_call("s1", CallRef("r1", "c3")) is None
    assert store.record_of_call("nobody", ONE) is None


def test_newest_checkpoint_that_covers_no_more_is_found(store: Store, clock: FakeClock) -> None:
    """Opening a session starts from its newest checkpoint, a fork from one that lies before it."""
    hold = held(store, clock)
    assert store.checkpoint("s1") is None
    append(store, hold, 0, entries(1, 2), Checkpoint(2, b"two"))
    append(store, hold, 2, entries(3, 5), Checkpoint(5, b"\x00"))
    append(store, hold, 5, entries(6, 6), None)
    assert store.checkpoint("s1") == Checkpoint(5, b"\x00")
    assert store.checkpoint("s1", until=4) == Checkpoint(2, b"two")
    assert store.checkpoint("s1", until=2) == Checkpoint(2, b"two")
    assert store.checkpoint("s1", until=1) is None
    assert store.checkpoint("nobody") is None


# --------------------------------------------------------------------------------------------------------------- holds


def test_second_holder_is_told(store: Store, clock: FakeClock, wording: Wording) -> None:
    """At most one hold of a session is valid; who does not wait is told at once."""
    first = held(store, clock)
    with refused(SessionLockedError, wording, store) as told:
        store.acquire("s1", wait=NOW)
    assert told.value.session_id == "s1"
    store.release(first)
    second = store.acquire("s1", wait=NOW)
    assert second.token != first.token
    store.check_lock(second, 0)


def test_what_is_not_there_cannot_be_held(store: Store, clock: FakeClock, wording: Wording) -> None:
    """The error names the session, and how to make it."""
    with refused(SessionNotFoundError, wording, store):
        store.acquire("nobody", wait=NOW)
    with raises(SessionLostError, wording):
        store.check_lock(held(store, clock)._replace(session_id="nobody", token="0" * 32), 0)


# ----------------------------------------------------------------------------------------------------------- answers


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
