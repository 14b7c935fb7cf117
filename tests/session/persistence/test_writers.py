"""Who else writes to a session at the same time: other threads, other units, and another holder."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from threading import Event, Thread

import pytest

from handrail.errors import SessionLostError, StoreUnavailableError
from handrail.session import Append, Session, SliceView
from handrail.store import MemoryStore
from handrail.testing import FakeClock
from tests.kit import refusal
from tests.session.faulty_stores import FaultyStore
from tests.session.samples import Add, Happened, Note, Task
from tests.store.kit import claim_conditions
from tests.transaction.notebooks import PATIENCE, call
from tests.wording import Wording

NOW = timedelta(0)


def reopened(store: FaultyStore) -> Session:
    """The session as somebody else finds it."""
    return Session.open(store, "s", wait=NOW)


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
        refusal(SessionLostError, claim_conditions, session, None)
        refusal(SessionLostError, session[Note].append, Note("c"))
        refusal(SessionLostError, session.dispatch, Happened("x"))
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
            raise StoreUnavailableError("busy", store="it")

        store.at("commit", log_beside_and_fail)
        settled = beside(lambda: session[Note].append(Note("a")))
        over(settled)
        over(threads[0])
    with reopened(store) as again:
        assert (again[Note].all(), again[Happened].all()) == ((Note("a"),), (Happened("x"),))


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
    with reopened(store) as again:
        assert (again[Happened].all(), again[Task].all()) == (logged, tasks)


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
    with reopened(store) as again:
        assert again[Note].all() == (Note("in time"),)


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
