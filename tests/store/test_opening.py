"""What a store in a database refuses: after its close, in a forked process, and opened for reading alone."""

from __future__ import annotations

import shutil
from datetime import timedelta
from pathlib import Path

import pytest

import handrail.store
from handrail.errors import SessionLockedError, StoreError, StoreReadOnlyError
from handrail.session import Session
from handrail.testing import FakeClock
from tests.store.kit import NOW, filled, held, refused, session_row
from tests.store.kit import call as a_call
from tests.store.processes import refusal_in_fork
from tests.wording import Wording

CLOCK = FakeClock()


def test_closed_store_says_so(url: str, wording: Wording) -> None:
    """To each use, also by a call; closing it again is no fault."""
    store = handrail.store.open(url)
    store.close()
    store.close()
    with refused(StoreError, wording, store):
        list(store.rows())
    with a_call(), refused(StoreError, wording, store):
        store.connection().execute("SELECT 1")


def test_process_that_is_forked_off_opens_the_store_anew(url: str, wording: Wording) -> None:
    """A connection cannot be shared; the parent keeps the session that it has."""
    with handrail.store.open(url) as store, handrail.store.open(url) as other:
        held(store, CLOCK)
        assert refusal_in_fork(store, lambda: list(store.rows())) == wording
        assert list(store.rows()) == []
        with pytest.raises(SessionLockedError):
            other.acquire("s1", wait=NOW)


def test_store_opened_for_reading_is_not_written_to(url: str, wording: Wording) -> None:
    """Nor made; a session of it is neither opened nor waited for."""
    with pytest.raises(StoreError) as raised:
        handrail.store.open(url, read_only=True)
    assert str(raised.value).replace(raised.value.store, "<store>") == wording
    handrail.store.open(url).close()
    with handrail.store.open(url, read_only=True) as store, handrail.store.open(url) as writable:
        assert list(store.sessions()) == []
        with refused(StoreReadOnlyError, wording, store):
            store.create(session_row(CLOCK))
        held(writable, CLOCK)
        for session_id in ("s1", "s2"):
            with refused(StoreReadOnlyError, wording, store):
                Session.open(store, session_id, wait=timedelta(hours=1))


def test_no_lock_is_made_where_a_store_is_opened_for_reading(tmp_path: Path) -> None:
    """The folder stays as it was."""
    filled(tmp_path / "desk.db", 3).close()
    shutil.rmtree(tmp_path / "desk.db-holds")
    with handrail.store.open(f"sqlite:///{tmp_path}/desk.db", read_only=True) as store:
        before = sorted(tmp_path.rglob("*"))
        with pytest.raises(StoreReadOnlyError):
            Session.open(store, "s1")
        assert sorted(tmp_path.rglob("*")) == before
