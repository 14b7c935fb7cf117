"""Sessions and entries to put into stores."""

from __future__ import annotations

from datetime import timedelta

from handrail.clock import Clock
from handrail.session import Session
from handrail.session.persistence.protocol import SessionEntry, SessionHeld, SessionLock, SessionRow
from handrail.store import Store

NOW = timedelta(0)


def session_row(clock: Clock, session_id: str = "s1", *, parent: str | None = None, head: int = 0) -> SessionRow:
    """A session with a tag."""
    return SessionRow(session_id, {"desk": "refunds"}, parent, clock.now(), head)


def entry(
    number: int,
    call_id: str = "c1",
    type_name: str = "desk:Note",
    items: bytes = b'[{"text":"x"}]',
    *,
    reply: str = "r1",
) -> SessionEntry:
    """An entry that adds one item to a LOG."""
    return SessionEntry(number, reply, call_id, "log", type_name, 1, number - 1, 0, 1, items)


def entries(first: int, last: int) -> list[SessionEntry]:
    """The entries from `first` to `last`."""
    return [entry(number) for number in range(first, last + 1)]


def held(store: Store, clock: Clock, session_id: str = "s1") -> SessionLock:
    """A new session, held."""
    assert store.create(session_row(clock, session_id))
    return store.acquire(session_id, wait=NOW)


def claim_conditions(session: Session, store: object) -> tuple[SessionHeld, ...]:
    """What a claim of a call of a stored session compares in a store."""
    assert session.recorder is not None
    return session.recorder.claim_conditions(store)
