"""`handrail.session.views`: for which sessions another one works."""

from __future__ import annotations

from pathlib import Path

import handrail.store
from handrail.session import Session
from handrail.session.persistence.protocol import ForkedFrom, SessionStore
from handrail.session.views import UnopenedSession, sessions_above


def above(store: SessionStore, session_id: str) -> list[str]:
    """The ids of the sessions that a session works for, which is opened alone."""
    with Session.open(store, session_id, create=False) as session:
        found = list(sessions_above(session))
        assert all(isinstance(each, UnopenedSession) for each in found)
        return [each.row.session_id for each in found if isinstance(each, UnopenedSession)]


def test_the_rows_name_the_sessions_above(tmp_path: Path) -> None:
    """A fork works for those for whom its origin works, also once that is deleted, and not for its origin."""
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
        with Session.open(store, "fork") as fork:
            fork.reset()
            recorder = fork.recorder
            assert recorder is not None
            store.delete_session(recorder.session_lock)
        assert above(store, "again") == ["a"]
        assert above(store, "d") == []


def test_a_row_without_a_note_is_that_of_a_child(tmp_path: Path) -> None:
    """A fork of a version that wrote none is asked about once too often, rather than never."""
    with handrail.store.open(f"sqlite:///{tmp_path}/s.db") as store:
        with Session.open(store, "a") as top:
            row = store.find("a")
            assert row is not None
            store.copy("a", row._replace(session_id="old", parent="a"))
            assert list(sessions_above(top)) == []
        assert above(store, "old") == ["a"]


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


def test_the_note_of_a_fork_survives_a_reset(tmp_path: Path) -> None:
    """Else it would become a child of its origin."""
    with handrail.store.open(f"sqlite:///{tmp_path}/s.db") as store:
        with Session.open(store, "a") as top, top.fork(session_id="b") as fork:
            fork.reset()
            assert fork[ForkedFrom].all() == (ForkedFrom("b", None),)
        assert above(store, "b") == []
