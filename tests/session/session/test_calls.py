"""Sessions inside calls: who sees what, who may write, and what is undone."""

from __future__ import annotations

import asyncio
import threading
from contextvars import Context, copy_context

import pytest

from handrail.errors import (
    DispatchError,
    ReadOnlyViolation,
    TransactionClosedError,
    TurnConflictError,
)
from handrail.session import Session
from handrail.transaction import Transaction
from handrail.turns import draw_ticket
from tests.kit import refusal
from tests.session.samples import A, B, C, D, Happened, Note, Task
from tests.transaction.notebooks import PATIENCE, call
from tests.wording import Wording


def seen(session: Session) -> tuple[Note, ...]:
    """What somebody outside of all calls sees."""
    return Context().run(session[Note].all)


def test_what_a_call_writes_is_seen_inside_it_alone_until_it_commits() -> None:
    """In its slices, its kinds, its snapshots, its forks and its JSON."""
    session, outside = Session(), Context()
    session.dispatch(A)
    with call(session) as transaction:
        session.dispatch(B)
        session[Task].append(Task("k", "t"))
        assert (session[Note].all(), seen(session)) == ((A, B), (A,))
        assert (session.kinds, outside.run(lambda: session.kinds)) == ((Note, Task), (Note,))
        assert (session.fork()[Note].all(), outside.run(session.fork)[Note].all()) == ((A, B), (A,))
        assert outside.run(session.snapshot).slices is not session.snapshot().slices
        assert '"b"' in session.to_json()
        assert '"b"' not in outside.run(session.to_json)
        transaction.commit()
        assert seen(session) == (A, B)
    assert session.kinds == (Note, Task)


def test_what_a_call_undoes_nobody_has_seen() -> None:
    """STATE goes back, LOG stays."""
    session = Session()
    session.dispatch(A)
    with call(session):
        session.dispatch(B)
        session[Note].seed(C, D)
        session.dispatch(Happened("a"))
        assert seen(session) == (A,)
        assert Context().run(session[Happened].all) == (Happened("a"),)
    assert session[Note].all() == (A,)
    assert session[Happened].all() == (Happened("a"),)


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


@pytest.mark.anyio
async def test_tasks_of_a_call_write_into_it() -> None:
    """A task is created with a copy of the context."""
    session = Session()

    async def work(note: Note) -> None:
        session.dispatch(note)

    with call(session) as transaction:
        await asyncio.gather(work(A), asyncio.create_task(work(B)))
        assert seen(session) == ()
        transaction.commit()
    assert {*session[Note]} == {A, B}


def test_a_late_write_is_refused_but_for_a_log(wording: Wording) -> None:
    """A handler that outlives its call changes nothing; what it reports is kept."""
    session = Session()
    with call(session):
        session.dispatch(A)
        late = copy_context()
    assert str(refusal(TransactionClosedError, late.run, session.dispatch, B)) == wording
    assert str(refusal(TransactionClosedError, late.run, session[Note].append, B)) == wording
    assert str(refusal(TransactionClosedError, late.run, session[Note].clear)) == wording
    late.run(session.dispatch, Happened("late"))
    assert session.kinds == (Happened,)


def test_a_reading_call_writes_to_logs_alone(wording: Wording) -> None:
    """Until its results are applied."""
    session = Session()
    before = session.snapshot()
    with call(session, tool="look", writes=False) as transaction:
        for write in (session.dispatch, session[Note].append):
            assert str(refusal(ReadOnlyViolation, write, A)) == wording
        assert str(refusal(ReadOnlyViolation, session.restore, before)) == wording
        session.dispatch(Happened("a"))
        transaction.open_for_results(session)
        session.dispatch(B)
        assert (session[Note].all(), seen(session)) == ((B,), ())
        transaction.commit()
    assert session[Note].all() == (B,)


def test_reading_calls_side_by_side_see_what_is_committed() -> None:
    """Not what another one is just applying."""
    session = Session()
    first, second = Context(), Context()
    transactions = [
        Transaction(name, ticket=draw_ticket((session.turn,), exclusive=False), writes=False) for name in ("one", "two")
    ]
    first.run(transactions[0].__enter__)
    second.run(transactions[1].__enter__)
    transactions[0].open_for_results(session)
    first.run(session.dispatch, A)
    assert second.run(session[Note].all) == ()
    transactions[0].commit()
    assert second.run(session[Note].all) == (A,)


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
    assert str(refusal(TurnConflictError, second.run, session.dispatch, B)) == wording
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
        assert str(refusal(TurnConflictError, context.run, others.dispatch, B)) == wording
        others.dispatch(A)
        assert str(refusal(TurnConflictError, context.run, others.dispatch, B)) == wording
        assert context.run(others[Note].all) == ()


def test_a_rollback_by_hand_goes_back_inside_the_block_too() -> None:
    """The call sees what was there before it, and writes no more."""
    session = Session()
    session.dispatch(A)
    with call(session) as transaction:
        session.dispatch(B)
        transaction.rollback()
        assert session[Note].all() == (A,)
        refusal(TransactionClosedError, session.dispatch, C)


def test_a_failing_subscriber_inside_a_call_is_the_calls_matter() -> None:
    """What was taken in stays in the call, whose handler may go on or fail."""
    session = Session()

    def fail(_event: Note) -> None:
        raise ValueError("no")

    session.dispatcher.subscribe(Note, fail)
    with call(session) as transaction:
        refusal(DispatchError, session.dispatch, A)
        transaction.commit()
    assert session[Note].all() == (A,)


def test_a_restore_that_fails_shows_nobody_what_was_undone() -> None:
    """Outside, the committed state is what was kept apart for it."""
    session = Session()
    session.dispatch(A)
    with call(session) as transaction:
        session.dispatch(B)
        transaction.state = "ended"  # as if the way back had been lost
    assert seen(session) == (A,)
    session.dispatch(C)
    assert session[Note].all() == (A, C)


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
