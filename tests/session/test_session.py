"""Sessions in memory, their forks, and the sessions above them."""

from __future__ import annotations

import threading
from contextvars import Context
from datetime import timedelta
from pathlib import Path
from types import MappingProxyType

import pytest

import handrail.store
from handrail.errors import DispatchError, ReducerError, SessionBusyError, SessionError, SnapshotError
from handrail.events import Dispatcher
from handrail.session import Append, Change, Session, SliceView
from handrail.session.persistence.loading import held_session
from handrail.session.persistence.protocol import SessionStore
from handrail.session.views import UnopenedSession, sessions_above
from handrail.turns import draw_ticket, own_turn
from tests.kit import refusal
from tests.session.samples import A, B, C, D, Happened, Note, Task, Total
from tests.transaction.notebooks import PATIENCE, call
from tests.wording import Wording


def test_a_new_session_is_empty_and_keeps_what_it_is_made_with() -> None:
    """And has an id of its own; tags are copied, and cannot be changed."""
    tags, dispatcher, parent = {"run": "1"}, Dispatcher(), Session()
    session = Session(tags=tags, dispatcher=dispatcher, parent=parent, new_id=lambda: "given")
    tags["run"] = "2"
    assert (session.session_id, session.tags, session.kinds) == ("given", {"run": "1"}, ())
    assert (session[Note].all(), session[Note].latest()) == ((), None)
    assert isinstance(session.tags, MappingProxyType)
    assert session.dispatcher is dispatcher
    assert session.parent is parent
    assert parent.session_id != Session().session_id
    assert Session(session_id="named", new_id=lambda: "unused").session_id == "named"
    assert own_turn(session) is session.turn


def test_a_slice_takes_no_item_of_another_type(wording: Wording) -> None:
    """Nor does it take a part of what it was given."""
    session = Session()
    session[Note].append(A)

    def refused() -> None:
        for write in (session[Note].append, session[Note].seed):
            with pytest.raises(ReducerError) as raised:
                write(Task("k", "t"))  # type: ignore[arg-type, call-overload]  # the fault under test
            assert str(raised.value) == wording

    refused()
    with call(session) as transaction:
        refused()
        transaction.commit()
    assert session[Note].all() == (A,)


def test_a_log_only_grows(wording: Wording) -> None:
    """By events and by items; the message names what it cannot do."""
    session = Session()
    session[Happened].append(Happened("a"))
    session.dispatch(Happened("b"))
    assert str(refusal(SessionError, session[Happened].clear)) == wording
    assert str(refusal(SessionError, session[Happened].seed, Happened("c"))) == wording
    with pytest.raises(ReducerError) as another:
        session[Happened].append(A)  # type: ignore[arg-type]  # the fault under test
    assert str(another.value) == wording
    assert session[Happened].all() == (Happened("a"), Happened("b"))


def test_an_event_is_appended_to_its_own_slice_by_default() -> None:
    """And then subscribers hear of it, who see it there."""
    session, heard = Session(), list[tuple[Note, tuple[Note, ...]]]()
    session.dispatcher.subscribe(Note, lambda event: heard.append((event, session[Note].all())))
    session.dispatch(A)
    session.dispatch(B)
    assert heard == [(A, (A,)), (B, (A, B))]


def test_a_failing_reducer_leaves_nothing_of_the_event() -> None:
    """Also where another reducer had decided already, and nobody hears; its error passes unchanged."""
    session, heard, error = Session(), list[Note](), ValueError("no")

    def fail(_view: SliceView[Task], _event: Note) -> Change[Task]:
        raise error

    session[Note].register(Note, lambda _view, event: Append(event))
    session[Task].register(Note, fail)
    session.dispatcher.subscribe(Note, heard.append)
    with pytest.raises(ValueError, match="no") as caught:
        session.dispatch(A)
    assert caught.value is error
    assert session.kinds == ()
    assert heard == []


def test_a_reducer_that_returns_no_change_is_told(wording: Wording) -> None:
    """Nothing of the event is left."""
    session = Session()
    session[Note].register(Note, lambda _view, event: Append(event))
    session[Task].register(Note, lambda _view, _event: None)  # type: ignore[arg-type,return-value]  # the fault
    assert str(refusal(ReducerError, session.dispatch, A)) == wording
    assert session.kinds == ()


def test_a_reducer_that_writes_itself_is_told(wording: Wording) -> None:
    """It may only say what is to change; what it wrote is undone."""
    session = Session()

    def write(_view: SliceView[Note], event: Note) -> Change[Note]:
        session[Task].append(Task("k", event.text))
        return Append(event)

    session[Note].register(Note, write)
    assert str(refusal(ReducerError, session.dispatch, A)) == wording
    assert session.kinds == ()


def test_reducers_see_the_slice_before_the_event() -> None:
    """Each its own, and neither what the others make of it."""
    session, seen = Session(), list[tuple[int, ...]]()

    def look(view: SliceView[Note], event: Note) -> Change[Note]:
        seen.append((len(view), len(session[Note]), len(session[Task])))
        return Append(event)

    session[Task].register(Note, lambda _view, event: Append(Task("k", event.text)))
    session[Note].register(Note, look)
    session.dispatch(A)
    session.dispatch(B)
    assert seen == [(0, 0, 0), (1, 1, 1)]


def test_a_failing_subscriber_undoes_the_event() -> None:
    """With whatever other subscribers wrote; all of them were called."""
    session, heard = Session(), list[Note]()

    def fail(_event: Note) -> None:
        raise ValueError("no")

    session.dispatcher.subscribe(Note, lambda event: session[Total].append(Total(len(event.text))))
    session.dispatcher.subscribe(Note, fail)
    session.dispatcher.subscribe(Note, heard.append)
    with pytest.raises(DispatchError, match="no"):
        session.dispatch(A)
    assert session.kinds == ()
    assert heard == [A]


def test_an_event_of_a_log_is_kept_whatever_becomes_of_it() -> None:
    """Reducers and subscribers fail, and it stays."""
    session = Session()

    def fail(_event: Happened) -> None:
        raise ValueError("no")

    session.dispatcher.subscribe(Happened, fail)
    refusal(DispatchError, session.dispatch, Happened("a"))
    assert session[Happened].all() == (Happened("a"),)
    session[Note].register(Happened, lambda _view, event: Append(Note(event.what)))
    refusal(DispatchError, session.dispatch, Happened("b"))
    assert session[Happened].all() == (Happened("a"), Happened("b"))
    assert session[Note].all() == ()


def test_an_event_of_a_log_needs_no_turn() -> None:
    """Unless a reducer takes it; even then it is logged before the turn is asked for."""
    session, heard = Session(), list[Happened]()
    session.dispatcher.subscribe(Happened, heard.append)
    draw_ticket((session.turn,), exclusive=True)
    session.dispatch(Happened("a"))
    session[Happened].append(Happened("b"))
    session[Note].register(Happened, lambda _view, event: Append(Note(event.what)))
    refusal(SessionBusyError, session.dispatch, Happened("c"))
    assert session[Happened].all() == (Happened("a"), Happened("b"), Happened("c"))
    assert heard == [Happened("a")]


@pytest.mark.parametrize("exclusive", [True, False])
def test_a_write_from_outside_is_refused_while_a_call_holds_the_session(exclusive: bool, wording: Wording) -> None:
    """The message says where to write; reading goes on."""
    session = Session(session_id="s1")
    session.dispatch(A)
    before = session.snapshot()
    session.dispatch(B)
    ticket = draw_ticket((session.turn,), exclusive=exclusive)
    for write in (session.dispatch, session[Note].append, session[Note].seed):
        error = refusal(SessionBusyError, write, C)
        assert str(error) == wording
        assert error.session_id == "s1"
    refusal(SessionBusyError, session[Note].clear)
    refusal(SessionBusyError, session.restore, before)
    assert session[Note].all() == (A, B)
    assert session.turn.queue == [ticket]
    ticket.release()
    session.dispatch(C)
    assert session[Note].all() == (A, B, C)


def test_writes_from_outside_wait_for_each_other() -> None:
    """Threads that collect events need no lock of their own."""
    session, entered, go_on = Session(), threading.Event(), threading.Event()

    def pause(event: Note) -> None:
        if event is A:
            entered.set()
            assert go_on.wait(PATIENCE)

    session.dispatcher.subscribe(Note, pause)
    threads = [threading.Thread(target=session.dispatch, args=(note,)) for note in (A, B, C, D)]
    threads[0].start()
    assert entered.wait(PATIENCE)
    for thread in threads[1:]:
        thread.start()
    go_on.set()
    for thread in threads:
        thread.join(PATIENCE)
    assert session[Note].latest() is not A
    assert sorted(note.text for note in session[Note]) == ["a", "b", "c", "d"]


def test_a_write_from_outside_inside_another_of_the_same_thread_is_refused() -> None:
    """A subscriber that leaves its context would wait for itself."""
    session = Session()
    session.dispatcher.subscribe(Note, lambda event: Context().run(session[Task].append, Task("k", event.text)))
    with pytest.raises(DispatchError, match="SessionBusyError"):
        session.dispatch(A)
    assert session.kinds == ()


def test_a_child_is_an_empty_session_with_a_parent() -> None:
    """It is made for work done on behalf of the other; it takes neither state nor rules with it."""
    session = Session(session_id="s", tags={"run": "1"}, new_id=lambda: "made")
    session.install(Total)
    session.dispatch(A)
    child = session.child(tags={"agent": "x"})
    assert (child.session_id, child.parent, child.kinds) == ("s/made", session, ())
    assert child.tags == {"agent": "x"}
    assert child.turn is not session.turn
    assert session.child(session_id="c").session_id == "c"


def test_a_fork_starts_with_everything_and_goes_its_own_way() -> None:
    """STATE and LOG; neither sees what the other does afterwards."""
    session = Session(tags={"run": "1"}, parent=Session(), new_id=iter(("s", "f")).__next__)
    session.dispatch(A)
    session.dispatch(Happened("a"))
    fork = session.fork()
    for each, note in ((session, B), (fork, C)):
        each.dispatch(note)
        each.dispatch(Happened(note.text))
    assert (session[Note].all(), fork[Note].all()) == ((A, B), (A, C))
    assert [[event.what for event in each[Happened]] for each in (session, fork)] == [["a", "b"], ["a", "c"]]
    assert (fork.session_id, fork.parent, fork.tags) == ("f", session.parent, session.tags)
    assert session.fork(session_id="g").session_id == "g"


def test_nobody_has_subscribed_to_a_fork() -> None:
    """Its dispatcher is its own."""
    session, heard = Session(), list[Note]()
    session.dispatcher.subscribe(Note, heard.append)
    session.fork().dispatch(A)
    assert heard == []


def test_a_snapshot_of_another_session_is_refused(wording: Wording) -> None:
    """Also between a session and its fork; the message names both."""
    session = Session(session_id="s")
    fork = session.fork(session_id="f")
    assert str(refusal(SnapshotError, fork.restore, session.snapshot())) == wording


def above(store: SessionStore, session_id: str) -> list[str]:
    """The ids of the sessions that a session works for, which is opened alone."""
    with Session.open(store, session_id, create=False) as session:
        found = list(sessions_above(session))
        assert all(isinstance(each, UnopenedSession) for each in found)
        return [each.row.session_id for each in found if isinstance(each, UnopenedSession)]


def test_the_rows_name_the_sessions_above(tmp_path: Path) -> None:
    """A fork works for those for whom its origin works, and not for its origin."""
    with handrail.store.open(f"sqlite:///{tmp_path}/s.db") as store:
        with Session.open(store, "a") as top, top.child(session_id="b") as middle:
            middle.child(session_id="c").close()
            with middle.fork(session_id="fork") as fork:
                assert list(sessions_above(fork)) == [top]
                fork.fork(session_id="again").close()
                fork.child(session_id="d").close()
            top.fork(session_id="early").close()
        assert above(store, "a") == []
        assert above(store, "c") == ["b", "a"]
        assert above(store, "d") == ["fork", "a"]
        assert [above(store, each) for each in ("fork", "again", "early")] == [["a"], ["a"], []]
        for session_id in ("again", "fork"):
            with held_session(store, session_id, wait=timedelta(0)) as lock:
                store.delete_session(lock)
        assert above(store, "d") == []


def test_sessions_that_name_each_other_end() -> None:
    """A deleted session's id may be given to one that is made for its former child."""
    with handrail.store.open("memory:") as store:
        with Session.open(store, "a") as one:
            one.child(session_id="b").close()
            recorder = one.recorder
            assert recorder is not None
            store.delete_session(recorder.session_lock)
        with Session.open(store, "b") as other:
            other.child(session_id="a").close()
        assert above(store, "b") == ["a"]
