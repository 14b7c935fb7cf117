"""Entries of calls, changes and LOGs in a store, and who else writes to a session at the same time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from threading import Event, Thread
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail import errors
from handrail.session import Append, Session, SliceView, stored_as
from handrail.session.calls import CallRef
from handrail.session.persistence.recorder import SliceDifference, slice_difference
from handrail.session.slices import SliceOwner, StoredItems, Version
from handrail.store import MemoryStore
from handrail.testing import FakeClock
from tests.kit import refusal
from tests.session.faulty_stores import FaultyStore, Point, kept
from tests.session.samples import NOTES, A, Add, B, Happened, Note, Task
from tests.store.kit import claim_conditions
from tests.transaction.notebooks import PATIENCE, call, raising
from tests.wording import Wording

NOW = timedelta(0)


def reopened(store: FaultyStore) -> Session:
    """The session as somebody else finds it."""
    return Session.open(store, "s", wait=NOW)


# ----------------------------------------------------------------------------------------------------- what is written


def test_an_entry_tells_what_it_is(store: FaultyStore) -> None:
    """The call, the slice, the place in it and the items; a checkpoint after as many as were wished."""
    with Session.open(store, "s", checkpoint_every=3) as session:
        with call(session) as transaction:
            session[Note].seed(Note("a"), Note("b"))
            session.dispatch(Happened("x"))
            session.slices.record_with(Happened("closed"), CallRef("reply-1", "call-1"), transaction)
            transaction.commit()
        assert [entry[:9] for entry in store.entries("s")] == [
            (1, "", "", "log", "tests.session.samples:Happened", 1, 0, 0, 1),
            (2, "reply-1", "call-1", "state", "tests.session.samples:Note", 1, 0, 0, 2),
            (3, "reply-1", "call-1", "log", "tests.session.samples:Happened", 1, 1, 0, 1),
        ]
        checkpoint = store.checkpoint("s")
        assert checkpoint is not None
        assert checkpoint.number == 3
        session[Note].seed(Note("a"))
        assert [entry[6:9] for entry in store.entries("s", after=3)] == [(0, 2, 1)]


@pytest.mark.parametrize(
    "call_id", ["\ud800", "a\0b", "x" * 501, None, 7], ids=["no Unicode", "a null", "too long", "none", "a number"]
)
def test_an_id_that_no_store_can_look_up_is_replaced_by_its_digest(store: FaultyStore, call_id: Any) -> None:
    """Models send what they like; the call is recorded all the same, and so are those after it."""
    with Session.open(store, "s") as session:
        with call(session) as transaction:
            session[Note].append(Note("a"))
            session.slices.record_with(Happened("closed"), CallRef(None, call_id), transaction)
            transaction.commit()
        session.slices.record(Happened("failed"), CallRef(None, call_id))
        session[Note].append(Note("b"))
    with reopened(store) as again:
        assert (len(again[Note]), len(again[Happened])) == (2, 2)
    names = {entry.call_id for entry in store.entries("s")} - {""}
    assert len(names) == (call_id is not None)
    assert all(name.startswith("sha256-") for name in names)
    assert names <= {recorded.call_id for recorded, _ in store.recorded_calls("s", limit=9)}


@dataclass(frozen=True, slots=True)
class LongNote(Note):
    """A note that would come back as another one."""


def test_what_would_come_back_as_something_else_undoes_its_call(store: FaultyStore, wording: Wording) -> None:
    """In a LOG it is refused before it is kept."""

    @dataclass(frozen=True, slots=True)
    class BigNews(Happened):
        pass

    with Session.open(store, "s") as session:
        assert str(refusal(errors.SessionError, session[Note].append, LongNote("x"))) == wording
        assert str(refusal(errors.SessionError, session[Happened].append, BigNews("x"))) == wording
        assert (session[Note].all(), session[Happened].all()) == ((), ())
        session[Note].append(Note("y"))
    assert kept(store) == {Note: (Note("y"),)}


def test_two_classes_of_one_name_are_told_apart_by_a_name(store: FaultyStore, wording: Wording) -> None:
    """The second one is refused, and its call undone."""

    def make() -> type[Any]:
        @dataclass(frozen=True)
        class Local:
            a: int

        return Local

    first, second = make(), make()
    with Session.open(store, "s") as session:
        session[first].append(first(1))
        assert str(refusal(errors.SessionError, session[second].append, second(1))) == wording
        session[stored_as("tests.second")(second)].clear()
        session[first].append(first(2))


# --------------------------------------------------------------------------------------------------- a store that fails


def test_what_is_logged_between_two_attempts_goes_with_the_next_unit(store: FaultyStore) -> None:
    """The second attempt repeats the first one exactly, so that the store knows it again."""
    with Session.open(store, "s") as session:

        def log_and_lose() -> None:
            session.dispatch(Happened("between"))
            raise errors.StoreUnavailableError("lost", store="it", in_doubt=True)

        with call(session) as transaction:
            session[Note].append(Note("a"))
            store.at("committed", log_and_lose)
            transaction.commit()
        session[Note].append(Note("b"))
        assert [entry.role for entry in store.entries("s")] == ["state", "log", "state"]
    assert kept(store) == {Note: (Note("a"), Note("b")), Happened: (Happened("between"),)}


def test_a_log_that_cannot_be_stored_goes_with_the_next_unit(
    store: FaultyStore, caplog: pytest.LogCaptureFixture, wording: Wording
) -> None:
    """Nobody who logs is kept from it; an outage is logged once."""
    with Session.open(store, "s") as session, Session.open(store, "other") as other:
        store.go_down("begin")
        session.dispatch(Happened("x"))
        assert caplog.messages == wording
        other.dispatch(Happened("x"))
        assert len(caplog.messages) == 1
        assert session[Happened].all() == (Happened("x"),)
        store.come_back()
        session[Note].append(Note("a"))
        assert [entry.role for entry in store.entries("s")] == ["log", "state"]
        store.go_down("begin")
        other.dispatch(Happened("x"))
        assert len(caplog.messages) == 2
        store.come_back()


@pytest.mark.parametrize("logs", [True, False])
def test_a_commit_in_doubt_ends_the_session(store: FaultyStore, logs: bool, wording: Wording) -> None:
    """It must be opened anew, and then holds what the store says; a store that stays away cannot tell."""
    session = Session.open(store, "s")
    store.lose("committed")
    store.at("begin", lambda: None)
    store.go_down("begin")
    if logs:
        session.dispatch(Happened("x"))
    else:
        refusal(errors.CommitInDoubtError, session[Note].append, Note("a"))
    store.come_back()
    assert str(refusal(errors.SessionError, claim_conditions, session, None)) == wording
    assert str(refusal(errors.SessionError, session.dispatch, Happened("y"))) == wording
    session.close()
    with reopened(store) as again:
        assert (len(again[Note]), len(again[Happened])) == (0 if logs else 1, 1 if logs else 0)


@pytest.mark.parametrize("point", ["begin", "append", "commit", "committed"])
def test_an_interrupt_while_a_unit_is_written_loses_nothing(store: FaultyStore, point: Point) -> None:
    """It goes on when the commit has come to its end: this process and the store hold the same."""
    session = Session.open(store, "s")
    store.at(point, raising(KeyboardInterrupt()))
    refusal(KeyboardInterrupt, session[Note].append, Note("a"))
    store.at(point, raising(KeyboardInterrupt()))
    refusal(KeyboardInterrupt, session.dispatch, Happened("x"))
    session[Note].append(Note("b"))
    held = (session[Note].all(), session[Happened].all())
    assert held == ((Note("a"), Note("b")), (Happened("x"),))
    session.close()
    with reopened(store) as again:
        assert (again[Note].all(), again[Happened].all()) == held


OWNER = SliceOwner("s")
notes = st.lists(st.sampled_from(NOTES), max_size=8)


def version(items: Sequence[Note]) -> Version[Note]:
    """A slice of these items."""
    return Version(OWNER, list(items), len(items))


@given(before=notes, after=notes)
def test_a_difference_makes_the_one_of_the_other(before: list[Note], after: list[Note]) -> None:
    """And there is none between what is the same."""
    found = slice_difference(version(before), version(after))
    assert (found is None) == (before == after)
    if found is not None:
        before[found.start : found.start + found.removed_count] = found.items
    assert before == after


@given(items=notes, first=st.integers(0, 8), second=st.integers(0, 8))
def test_versions_of_one_list_differ_in_their_ends(items: list[Note], first: int, second: int) -> None:
    """Nothing is compared: the list has only grown between the two."""
    first, second = min(first, len(items)), min(second, len(items))
    found = slice_difference(Version(OWNER, items, first), Version(OWNER, items, second))
    if first == second:
        assert found is None
    else:
        shorter = min(first, second)
        assert found is not None
        assert (found.start, found.removed_count, [*found.items]) == (shorter, first - shorter, items[shorter:second])


def test_what_nobody_has_read_is_not_read_to_compare() -> None:
    """It is replaced as a whole."""

    def load(_start: int, _stop: int) -> list[Note]:
        raise AssertionError("it was read")

    unread: StoredItems[Note] = StoredItems(3, load)
    assert slice_difference(Version(OWNER, unread, 3), version([A])) == SliceDifference(0, 3, [A])
    unread.append(B)
    assert slice_difference(Version(OWNER, unread, 3), Version(OWNER, unread, 4)) == SliceDifference(3, 0, [B])


def beside(act: Callable[[], object]) -> Thread:
    """Another thread that does something."""
    thread = Thread(target=act, daemon=True)
    thread.start()
    return thread


def over(thread: Thread) -> None:
    """Wait for it."""
    thread.join(PATIENCE)
    assert not thread.is_alive()


def test_a_session_that_was_taken_over_is_told(
    store: FaultyStore, caplog: pytest.LogCaptureFixture, wording: Wording
) -> None:
    """Nothing of the new holder is written over; what is logged raises too, so it is not lost silently."""
    session = Session.open(store, "s")
    session[Note].append(Note("a"))
    store.release(store.holds[-1])
    with reopened(store) as other:
        other[Note].append(Note("b"))
        refusal(errors.SessionLostError, claim_conditions, session, None)
        refusal(errors.SessionLostError, session[Note].append, Note("c"))
        refusal(errors.SessionLostError, session.dispatch, Happened("x"))
        assert caplog.messages == wording
        assert session[Note].all() == (Note("a"),)
        other[Note].append(Note("d"))
    session.close()
    with reopened(store) as again:
        assert again[Note].all() == (Note("a"), Note("b"), Note("d"))
        assert again[Happened].all() == ()


def test_a_unit_of_this_session_is_not_taken_for_somebody_else(store: FaultyStore) -> None:
    """A LOG may be written, or a call that ran beside this one be committed, while the store is being asked."""
    with Session.open(store, "s") as session:
        store.at("check", lambda: session.dispatch(Happened("x")))
        claim_conditions(session, None)


def test_who_logs_waits_for_the_unit_that_is_being_written(store: FaultyStore) -> None:
    """And the other way round; the unit is tried again meanwhile, and the other thread holds nothing that it needs."""
    threads: list[Thread] = []
    with Session.open(store, "s") as session:

        def log_beside_and_fail() -> None:
            threads.append(beside(lambda: session.dispatch(Happened("x"))))
            while not session[Happened].all():
                pass
            raise errors.StoreUnavailableError("busy", store="it")

        store.at("commit", log_beside_and_fail)
        settled = beside(lambda: session[Note].append(Note("a")))
        over(settled)
        over(threads[0])
    assert kept(store) == {Note: (Note("a"),), Happened: (Happened("x"),)}


def test_a_reducer_may_read_from_the_store_while_somebody_logs(store: FaultyStore) -> None:
    """Whoever writes in a unit waits for nobody who may be waiting for the store."""
    with Session.open(store, "s") as session:
        session[Note].append(Note("a"))
    in_unit, in_reducer = Event(), Event()

    def read(view: SliceView[Note], event: Add) -> Append[Note]:
        in_reducer.set()
        return Append(Note(f"{len(view.all())} {event.amount}"))

    with reopened(store) as session:
        session[Note].register(Add, read)

        def wait() -> None:
            in_unit.set()
            in_reducer.wait(PATIENCE)

        store.at("begun", wait)
        logging = beside(lambda: session.dispatch(Happened("x")))
        assert in_unit.wait(PATIENCE)
        reducing = beside(lambda: session.dispatch(Add(7)))
        over(reducing)
        over(logging)
        assert session[Note].all() == (Note("a"), Note("1 7"))


def test_many_threads_write_at_once(store: FaultyStore) -> None:
    """Each event is there once, in the order in which the session has them."""
    with Session.open(store, "s", checkpoint_every=3) as session:
        threads = [beside(partial(_write, session, who)) for who in range(4)]
        for thread in threads:
            over(thread)
        logged, tasks = session[Happened].all(), session[Task].all()
    assert (len(logged), len(tasks)) == (40, 10)
    assert kept(store) == {Happened: logged, Task: tasks}


def _write(session: Session, who: int) -> None:
    for number in range(10):
        session.dispatch(Happened(f"{who} {number}"))
        if who == 0:
            session[Task].append(Task("k", str(number)))


def test_a_late_writer_is_in_memory_and_in_the_store_or_in_neither(store: FaultyStore) -> None:
    """What a thread of the handler writes while its call is being settled is refused."""
    refused: list[BaseException] = []
    with Session.open(store, "s") as session, call(session) as transaction:

        def late() -> None:
            try:
                session[Note].append(Note("late"))
            except Exception as error:  # noqa: BLE001 - looked at below
                refused.append(error)

        session[Note].append(Note("in time"))
        store.at("append", late)
        transaction.commit()
        assert [type(error).__name__ for error in refused] == ["TransactionClosedError"]
    assert kept(store) == {Note: (Note("in time"),)}


def test_a_call_settles_all_the_sessions_that_it_wrote_to() -> None:
    """In one unit of the store."""
    store = FaultyStore(MemoryStore(clock=FakeClock()))
    units: list[str] = []
    with Session.open(store, "s") as one, Session.open(store, "t") as two:
        store.at("begin", *[lambda: units.append("begun")] * 9)
        with call(one, two) as transaction:
            one[Note].append(Note("a"))
            two[Note].append(Note("b"))
            two.dispatch(Happened("x"))
            transaction.commit()
    assert units == ["begun"]
    with Session.open(store, "t") as again:
        assert (again[Note].all(), again[Happened].all()) == ((Note("b"),), (Happened("x"),))
