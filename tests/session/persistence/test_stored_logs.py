"""Appending to the LOGs of a session that is not opened: its classes need not be known."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar

import pytest

from handrail.errors import SessionLockedError, SessionLostError, SessionNotFoundError, SessionUseError
from handrail.session import Session, SlicePolicy, stored_as
from handrail.session.persistence.loading import append_to_logs, held_session
from handrail.session.persistence.protocol import SessionEntry, SessionLock, SessionRow
from handrail.store import Store
from tests.kit import refusal
from tests.store.units import append

NOW = timedelta(0)


@stored_as("tests.stored_logs.line")
@dataclass(frozen=True)
class Line:
    """An item of a LOG."""

    slice_policy: ClassVar[SlicePolicy] = SlicePolicy.LOG

    text: str


@stored_as("tests.stored_logs.mark")
@dataclass(frozen=True)
class Mark:
    """An item of another one."""

    slice_policy: ClassVar[SlicePolicy] = SlicePolicy.LOG

    number: int


def written(store: Store, *items: object) -> None:
    """Append items to the session."""
    with held_session(store, "s", wait=NOW) as lock:
        append_to_logs(store, lock, items)


def test_items_are_appended_in_their_order(store: Store) -> None:
    """After those that are there, and before those that come; they belong to no call."""
    with Session.open(store, "s") as session:
        session[Line].append(Line("a"))
    written(store, Line("b"), Mark(1), Line("c"))
    with Session.open(store, "s") as session:
        session[Line].append(Line("d"))
        assert [item.text for item in session[Line]] == ["a", "b", "c", "d"]
        assert list(session[Mark]) == [Mark(1)]
    assert store.recorded_calls("s", limit=10) == []
    with Session.open(store, "s", checkpoint_every=1) as session:
        session[Line].append(Line("e"))
    written(store, Line("f"))
    with Session.open(store, "s") as session:
        assert [item.text for item in session[Line]] == list("abcdef")


def test_classes_of_other_values_need_not_be_known(store: Store) -> None:
    """Such a session cannot be opened here."""
    Session.open(store, "s").close()
    lock = store.acquire("s", wait=NOW)
    append(store, lock, 0, [SessionEntry(1, "", "", "state", "nobody.knows", 1, 0, 0, 1, b'[{"a":1}]')], None)
    store.release(lock)
    written(store, Line("a"))
    assert [entry.type_name for entry in store.entries("s")] == ["nobody.knows", "tests.stored_logs.line"]


def test_session_is_held_meanwhile_and_released_after(store: Store) -> None:
    """Also if the block raises."""
    Session.open(store, "s").close()
    with held_session(store, "s", wait=NOW), pytest.raises(SessionLockedError):
        Session.open(store, "s", wait=NOW)
    with pytest.raises(ZeroDivisionError), held_session(store, "s", wait=NOW):
        raise ZeroDivisionError
    Session.open(store, "s", wait=NOW).close()


def test_session_that_another_holds_or_that_is_not_there_is_refused(store: Store) -> None:
    """Before anything is written."""
    with Session.open(store, "s"), pytest.raises(SessionLockedError):
        written(store, Line("a"))
    with pytest.raises(SessionNotFoundError), held_session(store, "nobody", wait=NOW):
        pass
    with pytest.raises(SessionLostError):
        append_to_logs(store, SessionLock("nobody", "0" * 32, SessionRow("nobody", {}, None, store.now())), [Line("a")])


def test_lock_that_is_not_valid_any_more_writes_nothing(store: Store) -> None:
    """Nor does an item that cannot be stored."""
    Session.open(store, "s").close()
    with held_session(store, "s", wait=NOW) as lock:
        pass
    refusal(SessionLostError, append_to_logs, store, lock, [Line("a")])
    refusal(SessionUseError, written, store, Line("a"), 7)
    assert list(store.entries("s")) == []
