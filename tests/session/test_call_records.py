"""Which calls of a session have been recorded: what the store is asked for, and how often."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail.errors import StoreUnavailableError
from handrail.session import Session
from handrail.session.calls import CallRecord, CallRef
from handrail.session.persistence.loading import MANY_ENTRIES, held_session
from handrail.session.persistence.protocol import SessionAppend, SessionEntry, SessionRow
from handrail.session.persistence.stored_types import stored_type
from handrail.store import MemoryStore
from handrail.testing import FakeClock
from handrail.transaction import UnitOfWork
from tests.kit import refusal
from tests.session.faulty_stores import FaultyStore
from tests.session.samples import Happened


def stored(calls: Sequence[CallRef], entries: int = 0) -> FaultyStore:
    """A store with a session of at least so many entries, of which the first record calls."""
    store = FaultyStore(MemoryStore(clock=FakeClock()))
    store.create(SessionRow("s", {}, None, store.now()))
    kind = stored_type(Happened)
    refs = [*calls, *[CallRef(None, "")] * (entries - len(calls))]
    made = [
        SessionEntry(
            number,
            ref.reply or "",
            ref.call_id,
            "log",
            kind.name,
            1,
            number - 1,
            0,
            1,
            kind.dump((Happened(str(number)),)),
        )
        for number, ref in enumerate(refs, 1)
    ]
    with held_session(store, "s", wait=timedelta(0)) as lock:
        store.apply(UnitOfWork((SessionAppend(lock, 0, tuple(made)),)))
    return store


def test_the_records_of_a_small_session_are_known_after_one_question() -> None:
    """Then neither an old call nor a new one is asked for; a record is read once."""
    store = stored([CallRef("r", "1"), CallRef("r", "2"), CallRef("r", "1")], MANY_ENTRIES)
    with Session.open(store, "s", types=[Happened]) as session:
        assert not session.calls.is_at_hand(CallRef("r", "1"))
        for _ in range(2):
            assert session.calls.find(CallRef("r", "1")) == Happened("3")
            assert session.calls.find(CallRef("new", "1")) is None
            assert session.calls.find(CallRef(None, "1")) is None
        assert session.calls.is_at_hand(CallRef("r", "1"))
        assert not session.calls.is_at_hand(CallRef("r", "2"))
        assert (store.lookups, store.rows_read) == (1, MANY_ENTRIES + 1)


def test_a_large_session_is_asked_once_for_each_call() -> None:
    """However many calls it has, and also if it has none."""
    store = stored([CallRef(f"r{number}", "1") for number in range(50)], MANY_ENTRIES + 1)
    with Session.open(store, "s", types=[Happened]) as session:
        for _ in range(2):
            for number in range(60):
                found = session.calls.find(CallRef(f"r{number}", "1"))
                assert found == (Happened(str(number + 1)) if number < 50 else None)
        assert store.lookups == 60


def test_what_was_recorded_since_the_opening_is_newer_than_what_is_stored() -> None:
    """Whenever the store is asked; and the record of a nested call, which may be undone, is not found."""
    call = CallRef("r", "1")
    with Session.open(stored([call, CallRef("r", "2")], MANY_ENTRIES), "s", types=[Happened]) as session:
        session.slices.record(Happened("new"), call)
        session.slices.record(Happened("nested"), CallRef.nested(call, "3"), nested=True)
        assert session.calls.find(CallRef("r", "2")) == Happened("2")
        assert session.calls.find(call) == Happened("new")
        assert session.calls.find(CallRef.nested(call, "3")) is None
    assert Session().calls.find(call) is None


@pytest.mark.parametrize("entries", [MANY_ENTRIES, MANY_ENTRIES + 1])
def test_a_store_that_fails_is_asked_again_for_a_record(entries: int) -> None:
    """No call is taken for a new one because the store could not be read."""
    store = stored([CallRef("r", "1"), CallRef(None, "2")], entries)
    with Session.open(store, "s", types=[Happened]) as session:
        for call, number in ((CallRef("r", "1"), 1), (CallRef(None, "2"), 2)):
            store.go_down("read")
            refusal(StoreUnavailableError, session.calls.find, call)
            store.come_back()
            assert session.calls.find(call) == Happened(str(number))


CALLS = st.builds(CallRef, st.sampled_from([None, "a", "b", "c"]), st.sampled_from("123"))


@given(
    calls=st.lists(CALLS, max_size=12),
    entries=st.sampled_from([0, 1]),
    asked=st.lists(st.tuples(st.sampled_from(["find", "add", "fail"]), CALLS), max_size=40),
)
def test_the_newest_record_is_found_whatever_is_asked_before(
    calls: list[CallRef], entries: int, asked: list[tuple[str, CallRef]]
) -> None:
    """As in a dictionary of all records."""
    model: dict[CallRef, CallRecord] = {call: Happened(str(number)) for number, call in enumerate(calls, 1)}
    store = stored(calls, entries)
    with Session.open(store, "s", types=[Happened]) as session:
        for place, (act, call) in enumerate(asked):
            if act == "add":
                model[call] = Happened(f"new {place}")
                session.calls.add(call, model[call])
            elif act == "fail":
                store.go_down("read")
            try:
                assert session.calls.find(call) == model.get(call)
            except StoreUnavailableError:
                assert act == "fail"
            store.come_back()
