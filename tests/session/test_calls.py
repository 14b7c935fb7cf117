"""Writes of calls, the records of calls, and arguments of sessions."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextvars import Context, copy_context
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail import errors
from handrail.session import Session
from handrail.session.calls import CallRecord, CallRef
from handrail.session.persistence.loading import MANY_ENTRIES, held_session
from handrail.session.persistence.protocol import SessionAppend, SessionEntry, SessionRow
from handrail.session.persistence.stored_types import stored_type
from handrail.store import MemoryStore, Store
from handrail.testing import FakeClock
from handrail.transaction import Transaction, UnitOfWork
from handrail.turns import draw_ticket
from tests.kit import refusal
from tests.session.faulty_stores import FaultyStore
from tests.session.samples import A, B, Happened, Note, Task
from tests.transaction.notebooks import PATIENCE, call
from tests.wording import Wording


def seen(session: Session) -> tuple[Note, ...]:
    """What somebody outside of all calls sees."""
    return Context().run(session[Note].all)


def test_what_a_call_writes_is_seen_inside_it_alone_until_it_commits() -> None:
    """In its slices, its kinds, its snapshots and its forks."""
    session, outside = Session(), Context()
    session.dispatch(A)
    with call(session) as transaction:
        session.dispatch(B)
        session[Task].append(Task("k", "t"))
        assert (session.kinds, outside.run(lambda: session.kinds)) == ((Note, Task), (Note,))
        assert (session.fork()[Note].all(), outside.run(session.fork)[Note].all()) == ((A, B), (A,))
        transaction.commit()
    assert (session.kinds, seen(session)) == ((Note, Task), (A, B))


def test_threads_of_a_call_write_into_it() -> None:
    """They copy its context, so they are inside."""
    session = Session()
    with call(session):
        threads = [threading.Thread(target=copy_context().run, args=(session.dispatch, note)) for note in (A, B)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
        assert {*session[Note]} == {A, B}
        assert seen(session) == ()
    assert session[Note].all() == ()


def test_a_late_write_is_refused_but_for_a_log(wording: Wording) -> None:
    """A handler that outlives its call changes nothing; what it reports is kept."""
    session = Session()
    with call(session):
        session.dispatch(A)
        late = copy_context()
    assert str(refusal(errors.TransactionClosedError, late.run, session.dispatch, B)) == wording
    assert str(refusal(errors.TransactionClosedError, late.run, session[Note].append, B)) == wording
    assert str(refusal(errors.TransactionClosedError, late.run, session[Note].clear)) == wording
    late.run(session.dispatch, Happened("late"))
    assert session.kinds == (Happened,)


def test_a_reading_call_writes_to_logs_alone(wording: Wording) -> None:
    """Until its results are applied."""
    session = Session()
    before = session.snapshot()
    with call(session, tool="look", writes=False) as transaction:
        for write in (session.dispatch, session[Note].append):
            assert str(refusal(errors.ReadOnlyViolation, write, A)) == wording
        assert str(refusal(errors.ReadOnlyViolation, session.restore, before)) == wording
        session.dispatch(Happened("a"))
        transaction.open_for_results(session)
        session.dispatch(B)
        assert (session[Note].all(), seen(session)) == ((B,), ())
        transaction.commit()
    assert session[Note].all() == (B,)


def test_two_reading_calls_do_not_apply_their_results_at_once(wording: Wording) -> None:
    """Both hold the session beside others: the second is told, and undoes nothing of the first."""
    session = Session()
    first, second = Context(), Context()
    transactions = [
        Transaction(name, ticket=draw_ticket((session.turn,), exclusive=False), writes=False) for name in ("one", "two")
    ]
    for context, transaction in zip((first, second), transactions, strict=True):
        context.run(transaction.__enter__)
        transaction.open_for_results(session)
    first.run(session.dispatch, A)
    assert str(refusal(errors.TurnConflictError, second.run, session.dispatch, B)) == wording
    assert second.run(session[Note].all) == ()
    second.run(transactions[1].__exit__, None, None, None)
    transactions[0].commit()
    assert session[Note].all() == (A,)


def test_a_session_that_another_call_uses_is_not_reached(wording: Wording) -> None:
    """Writing is refused, reading shows what is committed."""
    mine, others = Session(), Session()
    with call(others, tool="first"):
        context = Context()
        second = Transaction("second", ticket=context.run(draw_ticket, (mine.turn,), exclusive=True), writes=True)
        context.run(second.__enter__)
        assert str(refusal(errors.TurnConflictError, context.run, others.dispatch, B)) == wording
        others.dispatch(A)
        assert str(refusal(errors.TurnConflictError, context.run, others.dispatch, B)) == wording
        assert context.run(others[Note].all) == ()


def test_a_failing_subscriber_inside_a_call_is_the_calls_matter() -> None:
    """What was taken in stays in the call, whose handler may go on or fail."""
    session = Session()

    def fail(_event: Note) -> None:
        raise ValueError("no")

    session.dispatcher.subscribe(Note, fail)
    with call(session) as transaction:
        refusal(errors.DispatchError, session.dispatch, A)
        transaction.commit()
    assert session[Note].all() == (A,)


def test_readers_never_see_half_a_call() -> None:
    """Real threads: each call writes two slices and half of them are undone; no reader sees one without the other."""
    session, faults, done = Session(), list[str](), threading.Event()

    def read() -> None:
        while not done.is_set():
            fork = session.fork()
            texts = [note.text for note in fork[Note]]
            if texts != [task.text for task in fork[Task]] or "undone" in texts:
                faults.append(repr(texts))
            latest = session[Note].latest()
            if latest is not None and latest.text == "undone":
                faults.append("dirty")

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for number in range(150):
        with call(session) as transaction:
            text = "undone" if number % 2 else str(number)
            session.dispatch(Note(text))
            session.dispatch(Task("k", text))
            if text != "undone":
                transaction.commit()
    done.set()
    for reader in readers:
        reader.join(PATIENCE)
    assert faults == []
    assert len(session[Note]) == 75


def stored(calls: Sequence[CallRef], entries: int = 0) -> FaultyStore:
    """A store with a session of at least so many entries, of which the first record calls."""
    store = FaultyStore(MemoryStore(clock=FakeClock()))
    store.create(SessionRow("s", {}, None, store.now()))
    kind = stored_type(Happened)
    refs = [*calls, *[CallRef(None, "")] * (entries - len(calls))]
    data = [kind.dump((Happened(str(number)),)) for number in range(len(refs) + 1)]
    made = [
        SessionEntry(number, ref.reply or "", ref.call_id, "log", kind.name, 1, number - 1, 0, 1, data[number])
        for number, ref in enumerate(refs, 1)
    ]
    with held_session(store, "s", wait=timedelta(0)) as lock:
        store.apply(UnitOfWork((SessionAppend(lock, 0, tuple(made)),)))
    return store


def test_a_large_session_is_asked_once_for_each_call() -> None:
    """However many calls it has, and also if it has none."""
    store = stored([CallRef(f"r{number}", "1") for number in range(50)], MANY_ENTRIES + 1)
    with Session.open(store, "s", types=[Happened]) as session:
        for _ in range(2):
            for number in range(60):
                found = session.calls.find(CallRef(f"r{number}", "1"))
                assert found == (Happened(str(number + 1)) if number < 50 else None)
        assert store.lookups == 60


def test_the_record_of_a_nested_call_is_not_found() -> None:
    """It may be undone; that of the call itself is newer than what is stored."""
    call = CallRef("r", "1")
    with Session.open(stored([call], MANY_ENTRIES), "s", types=[Happened]) as session:
        session.slices.record(Happened("new"), call)
        session.slices.record(Happened("nested"), CallRef.nested(call, "3"), nested=True)
        assert session.calls.find(call) == Happened("new")
        assert session.calls.find(CallRef.nested(call, "3")) is None


@pytest.mark.parametrize("entries", [MANY_ENTRIES, MANY_ENTRIES + 1])
def test_a_store_that_fails_is_asked_again_for_a_record(entries: int) -> None:
    """No call is taken for a new one because the store could not be read."""
    store = stored([CallRef("r", "1"), CallRef(None, "2")], entries)
    with Session.open(store, "s", types=[Happened]) as session:
        for call, number in ((CallRef("r", "1"), 1), (CallRef(None, "2"), 2)):
            store.go_down("read")
            refusal(errors.StoreUnavailableError, session.calls.find, call)
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
            except errors.StoreUnavailableError:
                assert act == "fail"
            store.come_back()


WRONG: dict[str, Any] = (
    {"a number as id": {"session_id": 7}, "a lone surrogate": {"session_id": "s\ud800"}}
    | {"a lone surrogate as tag": {"tags": {"customer": "\ud800"}}}
    | {"a lone surrogate in the name of a tag": {"tags": {"a\ud800": "7"}}}
    | {"a number as tag": {"tags": {"customer": 7}}, "no tag at all": {"tags": {"customer": None}}}
    | {"a number as the name of a tag": {"tags": {7: "a"}}, "a list of tags": {"tags": ["urgent"]}}
)


@pytest.mark.parametrize("given", WRONG.values(), ids=WRONG)
def test_it_is_refused_for_a_session_in_memory(given: dict[str, Any], wording: Wording) -> None:
    """The message has what was given, and what is expected."""
    error = refusal(errors.InvalidArgumentError, Session, **given)
    assert error.function == "Session"
    assert str(error) == wording


@pytest.mark.parametrize("given", WRONG.values(), ids=WRONG)
def test_it_is_refused_before_a_store_has_the_session(store: Store, given: dict[str, Any]) -> None:
    """A tag that was no text was written, and the session could never be opened again. It is refused as in memory."""
    error = refusal(errors.InvalidArgumentError, Session, **given)
    arguments: dict[str, Any] = {"session_id": "desk", **given}
    with pytest.raises(errors.InvalidArgumentError) as caught:
        Session.open(store, **arguments)
    assert caught.value.argument == error.argument
    assert caught.value.expected == error.expected
    assert caught.value.value_type is error.value_type
    assert store.find("desk") is None
    with Session.open(store, "desk", tags={"customer": "7"}) as session:
        assert session.tags == {"customer": "7"}


def test_children_and_forks_are_held_to_the_same(store: Store, wording: Wording) -> None:
    """They are stored beside their session."""
    wrong: Any = 7
    with Session.open(store, "desk") as session:
        child = refusal(errors.InvalidArgumentError, session.child, session_id="child", tags={"a": wrong})
        assert str(child) == wording
        for session_id in (wrong, "", "a\0b"):
            assert str(refusal(errors.InvalidArgumentError, session.fork, session_id=session_id)) == wording
        assert store.find("child") is None


def test_a_stored_session_is_opened_by_its_id(store: Store, wording: Wording) -> None:
    """In memory a session may make one; a stored one could not be found again."""
    wrong: Any = None
    assert str(refusal(errors.InvalidArgumentError, Session.open, store, wrong)) == wording


STORES_GIVEN: dict[str, Any] = {"a URL": "sqlite:///desk.db", "a path": Path("desk.db"), "nothing": None}


@pytest.mark.parametrize("given", STORES_GIVEN.values(), ids=STORES_GIVEN)
def test_what_is_not_a_store_is_refused(given: Any, wording: Wording) -> None:
    """The message says how to open one."""
    error = refusal(errors.InvalidArgumentError, Session.open, given, "desk")
    assert str(error) == wording
    assert (error.argument, error.value_type) == ("store", type(given))
