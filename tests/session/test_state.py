"""What keeping and undoing costs, shown by which objects are the same."""

from __future__ import annotations

from contextvars import Context
from typing import Any

import pytest

from handrail.session import Session
from handrail.session.slices import SliceOwner, StateSlices, Version
from handrail.transaction import Transaction
from handrail.turns import draw_ticket
from tests.session.samples import A, B, C, D, Happened, Note, Task
from tests.transaction.notebooks import call

MANY = tuple(Note(str(number)) for number in range(1_000))


def items_of(session: Session, kind: type[Any] = Note) -> list[Any]:
    """The list below a slice."""
    version = session[kind].version
    assert version is not None
    assert isinstance(version.items, list)
    return version.items


def filled() -> Session:
    """A session with a long slice."""
    session = Session()
    session[Note].seed(*MANY)
    return session


def test_a_snapshot_copies_nothing() -> None:
    """Two of one moment are one mapping, however much is in it."""
    session = filled()
    one, other = session.snapshot(), session.snapshot()
    assert one.slices is other.slices
    assert one.slices[Note].items is items_of(session)


def test_appending_grows_the_list_in_place() -> None:
    """Outside of calls, inside, and after a commit."""
    session = filled()
    items = items_of(session)
    session.dispatch(A)
    with call(session) as transaction:
        session.dispatch(B)
        session[Note].append(C)
        transaction.commit()
    session.dispatch(D)
    assert items_of(session) is items
    assert session[Note][len(MANY) :] == (A, B, C, D)


def test_appending_after_a_snapshot_copies_nothing() -> None:
    """The snapshot looks at fewer items of the same list."""
    session = filled()
    items, before = items_of(session), session.snapshot()
    session.dispatch(A)
    assert items_of(session) is items
    session.restore(before)
    assert session[Note].all() == MANY


def test_undoing_cuts_off_what_the_call_appended() -> None:
    """So that the list is as it was, and the next append grows it in place."""
    session = filled()
    items = items_of(session)
    for _ in range(3):
        with call(session):
            session.dispatch(A)
            session.dispatch(B)
        assert items == list(MANY)
    session.dispatch(C)
    assert items_of(session) is items


@pytest.mark.parametrize("hold", [Session.snapshot, Session.fork])
def test_nothing_is_cut_off_that_somebody_inside_the_call_may_hold(hold: Any) -> None:
    """Then the next append copies the list once; after that calls are undone as before."""
    session = filled()
    items = items_of(session)
    with call(session):
        session.dispatch(A)
        held = hold(session)
    session.dispatch(B)
    assert items[len(MANY) :] == [A]
    assert items_of(session) is not items
    copied = items_of(session)
    with call(session):
        session.dispatch(C)
    session.dispatch(D)
    assert items_of(session) is copied
    assert session[Note][len(MANY) :] == (B, D)
    assert held is not None


def test_nothing_is_cut_off_that_a_call_has_gone_back_to() -> None:
    """A snapshot of an earlier call looks at the same list, further than what is committed."""
    session = filled()
    with call(session):
        session.dispatch(A)
        undone = session.snapshot()
    with call(session):
        session.restore(undone)
    session.restore(undone)
    assert session[Note][len(MANY) :] == (A,)


def test_what_somebody_outside_the_call_holds_is_shorter_than_what_is_cut_off() -> None:
    """Snapshots and forks from outside see what is committed, so they cost a call nothing."""
    session = filled()
    items, outside = items_of(session), Context()
    with call(session):
        session.dispatch(A)
        before, fork = outside.run(session.snapshot), outside.run(session.fork)
    assert items == list(MANY)
    session.dispatch(B)
    assert items_of(session) is items
    assert fork[Note].all() == MANY
    session.restore(before)
    assert session[Note].all() == MANY


def test_undoing_leaves_alone_what_was_replaced() -> None:
    """The list of before has not grown since, unless it did before it was replaced; then it is copied."""
    session = filled()
    items = items_of(session)
    with call(session):
        session.dispatch(A)
        session[Note].seed(B)
        session.dispatch(C)
    assert session[Note].all() == MANY
    assert items_of(session) is items
    session.dispatch(D)
    assert session[Note].all() == (*MANY, D)


def test_going_back_and_on_leaves_newer_snapshots_as_they_are() -> None:
    """Going back cuts nothing off: the next append copies."""
    session = filled()
    before = session.snapshot()
    session.dispatch(A)
    after = session.snapshot()
    session.restore(before)
    with call(session):
        session.dispatch(B)
    session.dispatch(C)
    session.restore(after)
    assert session[Note][len(MANY) :] == (A,)


def test_a_reader_that_is_overtaken_by_a_commit_sees_all_of_the_call() -> None:
    """Between its two looks the call writes once more and commits: it sees that too, and not half of the call."""

    class Overtaking(Transaction):
        """Writes and commits when it is asked whether it has been committed."""

        @property
        def committed(self) -> bool:
            state.now = (self, {**state.now[1], Task: after}, state.now[2]) if Task not in state.now[1] else state.now
            return True

        @committed.setter
        def committed(self, _value: bool) -> None:  # pyright: ignore[reportIncompatibleVariableOverride]
            pass

    owner = SliceOwner("me")
    half, after = Version(owner, [A], 1), Version(owner, [Task("k", "t")], 1)
    state = StateSlices(owner, {})
    state.now = (Overtaking("edit", ticket=draw_ticket((), exclusive=True), writes=True), {Note: half}, {})
    assert state.visible() == {Note: half, Task: after}


def test_a_log_is_one_list_whatever_is_undone() -> None:
    """It only grows, and is never copied."""
    session = Session()
    session.dispatch(Happened("a"))
    items = items_of(session, Happened)
    with call(session):
        session.dispatch(Happened("b"))
    session.dispatch(Happened("c"))
    assert items_of(session, Happened) is items
    assert len(session[Happened]) == 3


def test_a_fork_copies_a_log_when_it_adds_to_it() -> None:
    """Once; the other session goes on with its list."""
    session = Session()
    session.dispatch(Happened("a"))
    items, fork = items_of(session, Happened), session.fork()
    assert items_of(fork, Happened) is items
    fork.dispatch(Happened("b"))
    copied = items_of(fork, Happened)
    fork.dispatch(Happened("c"))
    session.dispatch(Happened("d"))
    assert items_of(fork, Happened) is copied
    assert items_of(session, Happened) is items
    assert [event.what for event in fork[Happened]] == ["a", "b", "c"]
    assert [event.what for event in session[Happened]] == ["a", "d"]
