"""What is removed from stores in tests, and by a process that is killed meanwhile."""

from __future__ import annotations

from datetime import timedelta

from handrail.clock import Clock
from handrail.session.persistence.protocol import Checkpoint, SessionLock
from handrail.store import EffectRow, Store
from handrail.store.sql import statements
from handrail.store.sql.database import Database, finish_deletion, remove_expired
from handrail.store.urls import open as open_store
from tests.store.ledger_stores import running_row
from tests.store.session_rows import NOW, entries, session_row
from tests.store.units import append, insert

ENTRIES = 7
"""How many entries a session of `fill` has."""


def fill(store: Store, clock: Clock, session_id: str = "s1") -> SessionLock:
    """A session that is held: entries, a checkpoint, two effects of its own, one that sessions share."""
    assert store.create(session_row(clock, session_id))
    lock = store.acquire(session_id, wait=NOW)
    append(store, lock, 0, entries(1, ENTRIES - 1), Checkpoint(ENTRIES - 1, b"{}"))
    append(store, lock, ENTRIES - 1, entries(ENTRIES, ENTRIES), None)
    for number, (partition, key) in enumerate(
        ((session_id, "call:r1/c1"), (session_id, "session:pay:1"), ("", f"shop:pay:{session_id}"))
    ):
        insert(store, running_row(clock, key, partition=partition, effect_id=f"{number}{session_id:0>31}"))
    return lock


def ended_row(clock: Clock, number: int, *, expires: timedelta | None) -> EffectRow:
    """An effect that is done."""
    row = running_row(clock, f"session:pay:{number:03}", partition=f"s{number % 3}", effect_id=f"{number:032x}")
    expires_at = None if expires is None else clock.now() + expires
    return row._replace(status="done", lease_until=None, completed_at=clock.now(), expires_at=expires_at, value=b"12")


def delete_in_steps(url: str, session_id: str) -> None:
    """Delete a session, two rows in each transaction; the target of a crash."""
    with open_store(url) as store:
        delete_by_twos(store, store.acquire(session_id, wait=NOW))


def delete_by_twos(store: Store, lock: SessionLock) -> None:
    """Delete a session as its store does, but two rows in each transaction."""
    assert database_of(store).execute(statements.MARK_DELETED, lock[:2])
    assert finish_deletion(database_of(store), lock.session_id, most=2)


def remove_in_steps(url: str) -> None:
    """Remove the expired effects, two in each transaction; the target of a crash."""
    with open_store(url) as store:
        remove_expired(database_of(store), store.now(), page=2)


def database_of(store: object) -> Database:
    """The database of a store."""
    database: object = getattr(store, "_database")  # noqa: B009 - private: only tests take small steps
    assert isinstance(database, Database)
    return database
