"""Appends to the LOGs of a stored session without opening it, for programs that do not know the classes of its values.

`Session.open` needs every class of which the session holds a value. A command that records what a person has decided
knows only its own classes: it acquires the session, reads what it needs (`known_items`), and appends.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from datetime import timedelta

from handrail.errors import SessionNotFoundError
from handrail.session.persistence.entry_index import EntryIndex, index_of
from handrail.session.persistence.loading import slice_indexes
from handrail.session.persistence.protocol import SessionAppend, SessionEntry, SessionLock, SessionStore
from handrail.session.persistence.stored_types import stored_type
from handrail.transaction import UnitOfWork


@contextmanager
def held_session(store: SessionStore, session_id: str, *, wait: timedelta) -> Generator[SessionLock]:
    """Hold a session for the time of the block; no other process can open it.

    Raises:
        SessionNotFoundError: it does not exist.
        SessionLockedError: another process holds it, and does so for longer than `wait`.
    """
    lock = store.acquire(session_id, wait=wait)
    try:
        # What an opener does: after the release it could not be seen any more that the process before has died.
        if not lock.was_released:
            store.end_leases_of_dead(session_id)
        yield lock
    finally:
        store.release(lock)


def append_to_logs(store: SessionStore, lock: SessionLock, items: Sequence[object]) -> None:
    """Append items to the LOGs of a session that is held, in one unit; they belong to no call.

    Args:
        store: the store.
        lock: the right to write to the session.
        items: in order, each of a class whose slice is a LOG.

    Raises:
        SessionError: an item cannot be stored, or the session has passed to another process. Nothing was written.
        StoreUnavailableError: the store does not answer.
    """
    row = store.find(lock.session_id)
    if row is None:  # deleted by a holder before the lock was acquired
        raise SessionNotFoundError(
            f"{store.url} has no session {lock.session_id!r}; `handrail sessions list` shows those that it has",
            session_id=lock.session_id,
        )
    indexes: dict[str, EntryIndex] = slice_indexes(store, row)
    entries: list[SessionEntry] = []
    for number, item in enumerate(items, row.head + 1):
        stored = stored_type(type(item))
        index = index_of(indexes, stored.name, "log")
        # Without a call: an entry of a LOG that names one is its record.
        entry = SessionEntry(
            number, "", "", "log", stored.name, stored.version, index.length, 0, 1, stored.dump((item,))
        )
        entries.append(entry)
        indexes[stored.name] = index.after(entry)
    store.apply(UnitOfWork((SessionAppend(lock, row.head, tuple(entries)),)))
