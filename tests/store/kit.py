"""What the tests of stores are built on: rows, units of work, calls, and stores with something in them."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from datetime import timedelta
from operator import attrgetter
from pathlib import Path
from typing import TypeVar

import pytest

from handrail import crash_points
from handrail.clock import Clock
from handrail.session import Session
from handrail.session.persistence.protocol import (
    Checkpoint,
    DatabaseConnection,
    SessionAppend,
    SessionEntry,
    SessionHeld,
    SessionLock,
    SessionRow,
)
from handrail.store import EffectRow, LedgerStore, MemoryStore, SqliteStore, Store
from handrail.store.protocol import ClaimOwner, EffectChange, EffectInsert, RefusedWrite, change_effect
from handrail.store.sql.database import Database, remove_expired
from handrail.store.sql.units import Committer
from handrail.store.urls import open as open_store
from handrail.testing import FakeClock
from handrail.transaction import RecordCommit, Transaction, UnitOfWork, UnitStore
from handrail.transaction.unit_of_work import WriteQueue
from handrail.turns import draw_ticket
from tests.wording import Wording

OWNER = ClaimOwner("s1", "reply 1", "call 1", "host - 1 0")
"""Whoever claims the rows here; a process of which nothing is known."""


def running_row(
    clock: Clock, key: str = "session:pay:1", *, partition: str = "s1", effect_id: str = "1" * 32
) -> EffectRow:
    """A running row of a minute's lease, as a first claim writes it."""
    now = clock.now()
    return EffectRow(partition, key, effect_id, "pay", "a" * 64, OWNER, "running", 1, now, now + timedelta(minutes=1))


NOW = timedelta(0)


def session_row(clock: Clock, session_id: str = "s1", *, parent: str | None = None) -> SessionRow:
    """A session with a tag."""
    return SessionRow(session_id, {"desk": "refunds"}, parent, clock.now())


def fork_row(clock: Clock, session_id: str, origin: str, head: int) -> SessionRow:
    """A fork of a session that shares its first entries."""
    return session_row(clock, session_id)._replace(origin=origin, origin_head=head)


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


def stored(store: Store, session_id: str = "s1") -> SessionRow:
    """The row of a session that exists."""
    row = store.find(session_id)
    assert row is not None
    return row


def claim_conditions(session: Session, store: object) -> tuple[SessionHeld, ...]:
    """What a claim of a call of a stored session compares in a store."""
    assert session.recorder is not None
    return session.recorder.claim_conditions(store)


def insert(store: LedgerStore, row: EffectRow) -> EffectRow | None:
    """Add a row; returns the one that stands there already."""
    refused = store.apply(UnitOfWork((EffectInsert(row),)))
    return None if refused is None else refused.present


def replace(store: LedgerStore, before: EffectRow, row: EffectRow) -> bool:
    """Change a row; returns whether it was still the one seen."""
    return change_effect(store, before, row)


def delete(store: LedgerStore, before: EffectRow) -> bool:
    """Remove a row; returns whether it was still the one seen."""
    return change_effect(store, before, None)


def append(
    store: UnitStore, lock: SessionLock, head: int, entries: Sequence[SessionEntry], checkpoint: Checkpoint | None
) -> None:
    """Add entries to a session."""
    assert store.apply(UnitOfWork((SessionAppend(lock, head, tuple(entries), checkpoint),))) is None


def record_commit(store: UnitStore, journal_id: str) -> None:
    """Record that the call of a journal has been committed."""
    assert store.apply(UnitOfWork((RecordCommit(journal_id),))) is None


@contextmanager
def at_point(point: str, act: Callable[[], object]) -> Generator[None]:
    """Have something done each time that this process reaches a crash point within the block."""
    crash_points.arm(lambda reached: act() if reached == point else None)
    try:
        yield
    finally:
        crash_points.arm(None)


def committer_of(store: object) -> Committer:
    """What writes the units of a store in a database, so that a test can hold it, or make a group of units."""
    committer: object = attrgetter("_units._committer")(store)
    assert isinstance(committer, Committer)
    return committer


class WriteByWrite(MemoryStore):
    """A store in memory that does each write of the ledger in a method of its own, so that a test can replace one."""

    def apply(self, unit: UnitOfWork) -> RefusedWrite | None:
        match unit.writes:
            case (EffectInsert(row) as write,):
                present = self.insert(row)
                return None if present is None else RefusedWrite(write, present)
            case (EffectChange(before, row) as write,):
                is_written = self.delete(before) if row is None else self.replace(before, row)
                return None if is_written else RefusedWrite(write, self.get(before.partition, before.key))
            case _:
                return super().apply(unit)

    def insert(self, row: EffectRow) -> EffectRow | None:
        refused = super().apply(UnitOfWork((EffectInsert(row),)))
        return None if refused is None else refused.present

    def replace(self, before: EffectRow, row: EffectRow) -> bool:
        return super().apply(UnitOfWork((EffectChange(before, row),))) is None

    def delete(self, before: EffectRow) -> bool:
        return super().apply(UnitOfWork((EffectChange(before, None),))) is None


def call(tool: str = "pay", *, inside: Transaction | None = None, writes: bool = True) -> Transaction:
    """The transaction of a call, to be entered; inside another one, if it is given."""
    ticket = draw_ticket((), exclusive=writes, inside=None if inside is None else inside.ticket)
    return Transaction(tool, ticket=ticket, writes=writes, parent=inside)


class Record:
    """Something that is settled with a call in the store: the row of the ledger, say."""

    def __init__(self, store: UnitStore, *writes: object, settle: Callable[[], object] = lambda: None) -> None:
        self.store: UnitStore | None = store
        self._writes = writes
        self._settle = settle
        self.queue: WriteQueue | None = None
        self.waits = False
        self.heard: list[str] = []

    def prepare(self) -> None:
        """Nothing has to be looked at."""

    def write(self) -> Sequence[object]:
        self._settle()
        return self._writes

    def after_commit(self) -> None:
        self.heard.append("committed")

    def in_doubt(self) -> None:
        self.heard.append("in doubt")

    def after_rollback(self) -> None:
        self.heard.append("undone")


def with_orders(store: Store) -> Store:
    """The store, whose database has an empty table `orders` now."""
    with call() as transaction:
        connection = store.connection()
        connection.execute("DROP TABLE IF EXISTS orders")
        connection.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT NOT NULL)")
        transaction.commit()
    return store


def items(store: Store) -> list[str]:
    """What is in the table."""
    with call():
        return [item for (item,) in store.connection().execute("SELECT item FROM orders ORDER BY id").fetchall()]


def add(connection: DatabaseConnection, item: str) -> None:
    """Write to the table, as a handler does; the item's name is data for either database."""
    connection.execute(f"INSERT INTO orders (id, item) SELECT COALESCE(MAX(id), 0) + 1, '{item}' FROM orders")  # noqa: S608


T = TypeVar("T")
E = TypeVar("E", bound=BaseException)


class Stop(Exception):
    """What ends a block in the tests of stores."""


@contextmanager
def failing(block: AbstractContextManager[T]) -> Generator[T]:
    """The block, which raises at its end; the test goes on behind it."""
    with suppress(Stop), block as value:
        yield value
        raise Stop


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


def delete_session(url: str, session_id: str) -> None:
    """Delete a session; the target of a crash."""
    with open_store(url) as store:
        store.delete_session(store.acquire(session_id, wait=NOW))


def remove_in_steps(url: str) -> None:
    """Remove the expired effects, two in each transaction; the target of a crash."""
    with open_store(url) as store:
        remove_expired(database_of(store), store.now(), page=2)


def database_of(store: object) -> Database:
    """The database of a store."""
    database: object = getattr(store, "_database")  # noqa: B009 - private: only tests take small steps
    assert isinstance(database, Database)
    return database


NOBODY = 65534
CLOCK = FakeClock()


def filled(path: Path, count: int = 400) -> SqliteStore:
    """A store with rows, a session and entries."""
    store = SqliteStore(path, durability="normal", clock=CLOCK)
    store.apply(UnitOfWork(tuple(EffectInsert(running_row(CLOCK, f"key {number:04}")) for number in range(count))))
    append(store, held(store, CLOCK), 0, entries(1, 5), None)
    return store


@contextmanager
def written(path: Path) -> Generator[None]:
    """Another process that writes to the file during the block."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("ROLLBACK")


def edited(path: Path, sql: str, parameters: tuple[object, ...] = ()) -> SqliteStore:
    """A filled store of which somebody else has changed a row."""
    store = filled(path, 3)
    with closing(sqlite3.connect(path)) as connection, connection:
        assert connection.execute(sql, parameters).rowcount != 0
    return store


@contextmanager
def refused(error: type[E], wording: Wording, store: Store) -> Generator[pytest.ExceptionInfo[E]]:
    """The block raises the error, whose text is the next of `tests/wording.txt`, with `<store>` for the URL."""
    with pytest.raises(error) as raised:
        yield raised
    assert str(raised.value).replace(store.url, "<store>") == wording, "\n".join(wording.explained())


def fail() -> None:
    """Raise what ends a block."""
    raise Stop


@contextmanager
def points() -> Generator[list[str]]:
    """The crash points that are reached within the block."""
    reached: list[str] = []
    crash_points.arm(reached.append)
    try:
        yield reached
    finally:
        crash_points.arm(None)
