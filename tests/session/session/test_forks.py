"""Sessions made from sessions, and moments to come back to."""

from __future__ import annotations

from handrail.errors import SnapshotError
from handrail.session import Session
from tests.kit import refusal
from tests.session.samples import A, B, C, Happened, Note, Task, Total
from tests.wording import Wording


def test_a_child_is_an_empty_session_with_a_parent() -> None:
    """It is made for work done on behalf of the other; it takes neither state nor rules with it."""
    session = Session(session_id="s", tags={"run": "1"}, new_id=lambda: "made")
    session.install(Total)
    session.dispatch(A)
    child = session.child(tags={"agent": "x"})
    assert (child.session_id, child.parent, child.kinds) == ("made", session, ())
    assert child.tags == {"agent": "x"}
    assert child.turn is not session.turn
    assert session.child(session_id="c").session_id == "c"


def test_a_fork_starts_with_everything_and_goes_its_own_way() -> None:
    """STATE and LOG; neither sees what the other does afterwards."""
    session = Session(tags={"run": "1"}, parent=Session(), new_id=iter(("s", "f")).__next__)
    session.dispatch(A)
    session.dispatch(Happened("a"))
    fork = session.fork()
    session.dispatch(B)
    session.dispatch(Happened("b"))
    fork.dispatch(C)
    fork.dispatch(Happened("c"))
    fork.dispatch(Happened("d"))
    assert (session[Note].all(), fork[Note].all()) == ((A, B), (A, C))
    assert [event.what for event in session[Happened]] == ["a", "b"]
    assert [event.what for event in fork[Happened]] == ["a", "c", "d"]
    assert (fork.session_id, fork.parent, fork.tags) == ("f", session.parent, session.tags)
    assert session.fork(session_id="g").session_id == "g"


def test_nobody_has_subscribed_to_a_fork() -> None:
    """Its dispatcher is its own."""
    session, heard = Session(), list[Note]()
    session.dispatcher.subscribe(Note, heard.append)
    session.fork().dispatch(A)
    assert heard == []


def test_a_snapshot_is_a_moment_to_come_back_to() -> None:
    """As often as one likes, and forwards too; a LOG stays."""
    session = Session()
    session.dispatch(A)
    one = session.snapshot()
    session.dispatch(B)
    session.dispatch(Happened("a"))
    session[Task].append(Task("k", "t"))
    two = session.snapshot()
    session.restore(one)
    assert session.kinds == (Note, Happened)
    assert session[Note].all() == (A,)
    session.dispatch(C)
    assert session[Note].all() == (A, C)
    session.restore(two)
    assert session[Note].all() == (A, B)
    session.restore(one)
    assert session[Note].all() == (A,)


def test_a_snapshot_of_another_session_is_refused(wording: Wording) -> None:
    """Also between a session and its fork; the message names both."""
    session = Session(session_id="s")
    fork = session.fork(session_id="f")
    assert str(refusal(SnapshotError, fork.restore, session.snapshot())) == wording
