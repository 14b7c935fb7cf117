"""A stored session as programs use it: closing, forks, children, and what it says of what it cannot do."""

from __future__ import annotations

import gc
from dataclasses import dataclass
from datetime import timedelta

import pytest

from handrail.errors import InvalidArgumentError, SessionError, SessionNotFoundError
from handrail.session import Session, SlicePolicy, replace_latest
from handrail.session.calls import CallRef
from handrail.session.persistence.protocol import SessionRow
from handrail.store import MemoryStore
from handrail.testing import FakeClock
from tests.kit import refusal
from tests.session.faulty_stores import FaultyStore
from tests.session.samples import Add, Happened, Note, Task, Total
from tests.store.session_rows import claim_conditions
from tests.transaction.notebooks import call
from tests.wording import Wording

NOW = timedelta(0)


@pytest.fixture
def memory() -> FaultyStore:
    """A store in memory, for what no store has a part in."""
    return FaultyStore(MemoryStore(clock=FakeClock()))


def test_a_session_in_memory_has_no_store(wording: Wording) -> None:
    """Closing it, checking it and recording in it are nothing special."""
    with Session() as session:
        assert session.store is None
        assert session.recorder is None
        with call(session) as transaction:
            session.slices.record_with(Happened("closed"), CallRef(None, "c"), transaction)
            transaction.commit()
        session.slices.record(Happened("x"), CallRef(None, "c"))
        assert str(refusal(SessionError, session.connection)) == wording
        assert str(refusal(SessionError, session.fork, at=(None, "c"))) == wording
    session[Note].append(Note("a"))
    assert session[Happened].all() == (Happened("x"),)


def test_a_closed_session_can_be_read_and_not_written(store: FaultyStore, wording: Wording) -> None:
    """Closing twice is closing once; the store has it free."""
    session = Session.open(store, "s")
    session[Note].append(Note("a"))
    session.close()
    session.close()
    with Session.open(store, "s", wait=NOW):
        assert session[Note].all() == (Note("a"),)
        for act in (
            lambda: claim_conditions(session, None),
            session[Note].clear,
            lambda: session.dispatch(Happened("x")),
        ):
            assert str(refusal(SessionError, act)) == wording
        assert session[Happened].all() == ()


def test_a_call_whose_session_was_closed_meanwhile_is_undone(store: FaultyStore, wording: Wording) -> None:
    """It could not be recorded; that it was made is kept in memory."""
    session = Session.open(store, "s")
    with call(session) as transaction:
        session[Note].append(Note("a"))
        session.close()
        assert str(refusal(SessionError, transaction.commit)) == wording
    session.slices.record(Happened("failed"), CallRef(None, "c"))
    assert (session[Note].all(), session[Happened].all()) == ((), (Happened("failed"),))


def test_closing_writes_what_was_logged_while_the_store_was_down(store: FaultyStore) -> None:
    """It is the last chance."""
    session = Session.open(store, "s")
    store.go_down("begin")
    session.dispatch(Happened("x"))
    store.come_back()
    session.close()
    with Session.open(store, "s", wait=NOW) as again:
        assert again[Happened].all() == (Happened("x"),)


def test_a_session_that_nobody_refers_to_is_let_go(memory: FaultyStore) -> None:
    """When the garbage is collected; closing it is sooner."""
    session = Session.open(memory, "s")
    session[Note].append(Note("a"))
    del session
    gc.collect()
    Session.open(memory, "s", wait=NOW).close()


def test_reducers_are_registered_anew_and_not_run_again(store: FaultyStore) -> None:
    """What they made of the events stands in the store."""
    with Session.open(store, "s") as session:
        session.install(Total, initial=lambda: Total(0))
        session.dispatch(Add(3))
    with Session.open(store, "s", wait=NOW) as again:
        assert again[Total].all() == (Total(3),)
        again.install(Total)
        again.dispatch(Add(4))
        assert again[Total].latest() == Total(7)


def test_an_emptied_slice_may_become_a_log(store: FaultyStore, wording: Wording) -> None:
    """And the session can be opened again."""
    with Session.open(store, "s") as session:
        session[Note].seed(Note("a"))
        session[Note].clear()
        session.declare(Note, SlicePolicy.LOG)
        session.dispatch(Note("b"))
    with Session.open(store, "s", wait=NOW) as again:
        assert again[Note].all() == (Note("b"),)
        assert str(refusal(SessionError, again[Note].clear)) == wording


def test_the_policy_of_a_slice_is_that_of_the_store(store: FaultyStore) -> None:
    """What a program has declared need not be declared again."""
    with Session.open(store, "s") as session:
        session.declare(Note, SlicePolicy.LOG)
        session.dispatch(Note("a"))
    with Session.open(store, "s", wait=NOW) as again, call(again):
        again.dispatch(Note("b"))
    with Session.open(store, "s", wait=NOW) as again:
        assert again[Note].all() == (Note("a"), Note("b"))


# --------------------------------------------------------------------------------------------------- forks and children


def three_calls(session: Session) -> None:
    """Three calls that each append a note, with a LOG between."""
    for number in range(3):
        with call(session) as transaction:
            session[Note].append(Note(str(number)))
            session.slices.record_with(Happened(f"closed {number}"), CallRef(None, f"call-{number}"), transaction)
            transaction.commit()
        session.dispatch(Happened(f"after {number}"))


def test_a_fork_holds_what_there_was_when_a_call_had_been_recorded(store: FaultyStore) -> None:
    """It goes its own way, under its own id, with the tags of the other and its id as parent."""
    with Session.open(store, "s", tags={"a": "b"}, checkpoint_every=2) as session:
        session[Note].register(Note, replace_latest)
        three_calls(session)
        with session.fork(at=(None, "call-1"), session_id="f") as fork:
            assert fork[Note].all() == (Note("0"), Note("1"))
            assert fork[Happened].all()[-1] == Happened("closed 1")
            assert dict(fork.tags) == {"a": "b"}
            fork.dispatch(Note("own"))
            assert fork[Note].all() == (Note("own"),)
        assert session[Note].all() == (Note("0"), Note("1"), Note("2"))
    row = store.find("f")
    assert row is not None
    assert row.parent == "s"
    with Session.open(store, "f", wait=NOW) as again:
        assert again[Note].all() == (Note("own"),)


def test_a_fork_holds_what_was_logged_while_the_store_was_down(store: FaultyStore) -> None:
    """It is written before the entries are copied."""
    with Session.open(store, "s") as session:
        store.go_down("begin")
        session.slices.record(Happened("x"), CallRef(None, "c"))
        store.come_back()
        with session.fork(at=(None, "c")) as fork:
            assert fork[Happened].all() == (Happened("x"),)


def test_a_fork_without_a_call_holds_everything(store: FaultyStore) -> None:
    """Under an id of its own."""
    with Session.open(store, "s") as session:
        three_calls(session)
        with session.fork() as fork:
            assert fork.session_id != "s"
            assert fork[Happened].all() == session[Happened].all()


def test_a_fork_knows_the_classes_of_its_origin(store: FaultyStore) -> None:
    """Also those that no module knows, and that the origin has no values of any more."""

    @dataclass(frozen=True)
    class Local:
        a: int

    with Session.open(store, "s") as session:
        with call(session) as transaction:
            session[Local].seed(Local(1))
            session.slices.record_with(Happened("closed"), CallRef(None, "c"), transaction)
            transaction.commit()
        session[Local].clear()
        with session.fork(at=(None, "c")) as fork:
            assert fork[Local].all() == (Local(1),)


def test_a_fork_that_cannot_be_made_says_why(store: FaultyStore, wording: Wording) -> None:
    """Nothing is left of it."""
    with Session.open(store, "s") as session:
        three_calls(session)
        for at in ((None, "call-7"), (None, "")):
            assert str(refusal(SessionError, session.fork, at=at, session_id="f")) == wording
        with pytest.raises(InvalidArgumentError):
            session.fork(at=("c",), session_id="f")  # type: ignore[arg-type]
        with pytest.raises(InvalidArgumentError):
            session.fork(at="c", session_id="f")  # type: ignore[arg-type]
        assert str(refusal(SessionError, session.fork, session_id="s")) == wording
        with call(session), pytest.raises(SessionError) as raised:
            session.fork(session_id="f")
        assert str(raised.value) == wording
    assert [row.session_id for row in store.sessions()] == ["s"]


class Emptied(MemoryStore):
    """Somebody has removed all sessions."""

    emptied = False

    def find(self, session_id: str) -> SessionRow | None:
        return None if self.emptied else super().find(session_id)


def test_a_session_that_is_gone_from_its_store_cannot_be_forked(wording: Wording) -> None:
    """Somebody has removed it."""
    inner = Emptied(clock=FakeClock())
    session = Session.open(inner, "s")
    inner.emptied = True
    with pytest.raises(SessionNotFoundError) as caught:
        session.fork()
    assert str(caught.value) == wording
    assert caught.value.session_id == "s"
    session.close()


@pytest.mark.parametrize("create", [True, False])
def test_a_child_is_stored_beside_its_parent(store: FaultyStore, create: bool) -> None:
    """However the parent was opened; it names it."""
    Session.open(store, "s").close()
    with Session.open(store, "s", create=create) as session, session.child(tags={"a": "b"}) as child:
        assert child.parent is session
        child[Note].append(Note("a"))
        row = store.find(child.session_id)
        assert row is not None
        assert (row.parent, dict(row.tags)) == ("s", {"a": "b"})
    with Session.open(store, child.session_id, wait=NOW) as again:
        assert again[Note].all() == (Note("a"),)
    with Session.open(store, "s") as session, session.child(session_id="named") as named:
        assert named.session_id == "named"


def test_a_session_opened_in_a_call_is_settled_with_it(memory: FaultyStore, wording: Wording) -> None:
    """Its changes are the call's; left before the call has ended, it can take none."""
    with Session.open(memory, "s") as session:
        with call(session) as transaction:
            other = Session.open(memory, "t")
            other[Task].append(Task("k", "x"))
            transaction.commit()
        assert other[Task].all() == (Task("k", "x"),)
        other.close()
        with call(session) as transaction:
            with Session.open(memory, "t") as other:
                other[Task].append(Task("k", "y"))
            assert str(refusal(SessionError, transaction.commit)) == wording
    with Session.open(memory, "t", wait=NOW) as again:
        assert again[Task].all() == (Task("k", "x"),)
