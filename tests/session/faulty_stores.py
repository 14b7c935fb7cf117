"""A store in front of another one, that counts what is read and fails when it is told to."""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import partial
from typing import Literal, Self

from handrail.clock import Clock
from handrail.errors import StoreUnavailableError
from handrail.session.call_records import OpenCall
from handrail.session.call_ref import CallRef
from handrail.session.persistence.protocol import (
    AnswerRow,
    Checkpoint,
    DatabaseConnection,
    SessionAppend,
    SessionContents,
    SessionEntry,
    SessionHeld,
    SessionLock,
    SessionRow,
    SessionSize,
)
from handrail.store import EffectRow, Store, WatchCallback
from handrail.store.protocol import EffectChange, EffectInsert, ExpiredEffects, RefusedWrite
from handrail.transaction import UnitOfWork
from handrail.transaction.unit_of_work import Refusal
from handrail.waiting import outlast, run_in_thread
from tests.store.stores import STORES

Point = Literal["begin", "begun", "check", "insert", "replace", "append", "commit", "committed", "read"]
"""Where it may fail: before a unit is begun or just after, at a write, before and after a unit is committed; when
entries or records of calls are read."""

_POINTS: dict[type[object], Point] = {
    EffectInsert: "insert",
    EffectChange: "replace",
    SessionAppend: "append",
}


@contextmanager
def faulty(kind: str, clock: Clock) -> Generator[FaultyStore]:
    """An empty store of a kind; the connections of what came before it are free again at the end.

    A session that was not closed keeps its store until the garbage is collected.
    """
    yield FaultyStore(STORES[kind](clock))
    if kind == "postgres":
        gc.collect()


class FaultyStore(Store):
    """Passes everything on, as a connection that may be lost.

    Args:
        store: the store behind it.

    Attributes:
        rows_read: how many entries have been read.
        lookups: how often it was asked for the records of calls.
        appended: how many entries have been handed on, repeated ones included.
        holds: the holds that it has given, the newest last.
    """

    def __init__(self, store: Store) -> None:
        self.rows_read = 0
        self.lookups = 0
        self.appended = 0
        self.holds: list[SessionLock] = []
        self._store = store
        self._acts: dict[Point, deque[Callable[[], object]]] = {}
        self._down: set[Point] = set()

    def at(self, point: Point, *acts: Callable[[], object]) -> None:
        """Have something done the next times that a point is reached, one act each time."""
        self._acts.setdefault(point, deque()).extend(acts)

    def lose(self, point: Point, times: int = 1) -> None:
        """Lose the connection the next times that a point is reached; after a commit, that leaves it in doubt."""
        self.at(point, *(lambda: self._fail(point) for _ in range(times)))

    def go_down(self, *points: Point) -> None:
        """Fail at these points until `come_back`."""
        self._down |= set(points)

    def come_back(self) -> None:
        """Answer again."""
        self._down.clear()
        self._acts.clear()

    @property
    def url(self) -> str:
        return self._store.url

    @property
    def poll_every(self) -> timedelta | None:
        return self._store.poll_every

    def unresolved_slots(self, root: str, tool: str) -> tuple[EffectRow, ...]:
        return self._store.unresolved_slots(root, tool)

    def effects_below(self, root: str) -> tuple[EffectRow, ...]:
        return self._store.effects_below(root)

    def hash_key(self) -> bytes:
        return self._store.hash_key()

    def process(self) -> str:
        return self._store.process()

    def owner_lives(self, row: EffectRow) -> bool | None:
        return self._store.owner_lives(row)

    @property
    def claim_waits(self) -> bool:
        return self._store.claim_waits

    def now(self) -> datetime:
        return self._store.now()

    @property
    def waits(self) -> bool:
        return self._store.waits

    def submit(self, unit: UnitOfWork) -> Future[Refusal | None]:
        answer: Future[Refusal | None] = run_in_thread(partial(self.apply, unit))
        return answer

    async def apply_async(self, unit: UnitOfWork) -> Refusal | None:
        return await outlast(self.submit(unit))

    def apply(self, unit: UnitOfWork) -> RefusedWrite | None:
        points: list[Point | None] = [
            _POINTS.get(type(write)) for write in unit.writes if not isinstance(write, SessionHeld)
        ]
        if points in (["insert"], ["replace"]):
            self._reach(points[0])
            return self._store.apply(unit)
        self._reach("begin")
        self._reach("begun")
        for point in points:
            self._reach(point)
        self.appended += sum(len(write.entries) for write in unit.writes if isinstance(write, SessionAppend))
        self._reach("commit")
        refused = self._store.apply(unit)
        if refused is None:
            self._reach("committed")
        return refused

    def close(self) -> None:
        self._store.close()

    async def close_async(self) -> None:
        await self._store.close_async()

    def check_wait(self, *, queued: bool) -> None:
        self._store.check_wait(queued=queued)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    # ---------------------------------------------------------------------------------------------------- the ledger

    def get(self, partition: str, key: str) -> EffectRow | None:
        return self._store.get(partition, key)

    def rows(self, key: str | None = None) -> Iterator[EffectRow]:
        return self._store.rows(key)

    def expired(self, now: datetime) -> ExpiredEffects:
        return self._store.expired(now)

    def remove_expired(self, now: datetime) -> int:
        return self._store.remove_expired(now)

    def watch(self, partition: str, key: str, wake: WatchCallback) -> Callable[[], None]:
        return self._store.watch(partition, key, wake)

    # ------------------------------------------------------------------------------------------------------ sessions

    def create(self, row: SessionRow) -> bool:
        return self._store.create(row)

    def find(self, session_id: str) -> SessionRow | None:
        return self._store.find(session_id)

    def sessions(self) -> Iterator[SessionRow]:
        return self._store.sessions()

    def acquire(self, session_id: str, *, wait: timedelta, evict: bool = False) -> SessionLock:
        hold = self._store.acquire(session_id, wait=wait, evict=evict)
        self.holds.append(hold)
        return hold

    def release(self, lock: SessionLock) -> None:
        self._store.release(lock)

    def check_lock(self, lock: SessionLock, head: int) -> None:
        self._reach("check")
        self._store.check_lock(lock, head)

    def contents(self, row: SessionRow) -> SessionContents:
        found = self._store.contents(row)
        positions = list(found.positions)
        self.rows_read += len(positions)
        return found._replace(positions=positions)

    def checkpoint(self, session_id: str, *, until: int | None = None) -> Checkpoint | None:
        return self._store.checkpoint(session_id, until=until)

    def entries(
        self, session_id: str, *, after: int = 0, until: int | None = None, type_name: str | None = None
    ) -> Iterator[SessionEntry]:
        self._reach("read")
        for entry in self._store.entries(session_id, after=after, until=until, type_name=type_name):
            self.rows_read += 1
            yield entry

    def newest_changes(
        self, session_id: str, type_name: str, *, after: int, until: int, limit: int
    ) -> list[SessionEntry]:
        self._reach("read")
        found = self._store.newest_changes(session_id, type_name, after=after, until=until, limit=limit)
        self.rows_read += len(found)
        return found

    def recorded_calls(
        self, session_id: str, *, limit: int, call_id: str | None = None, reply: str | None = None
    ) -> list[tuple[CallRef, int]]:
        self.lookups += 1
        self._reach("read")
        return self._store.recorded_calls(session_id, limit=limit, call_id=call_id, reply=reply)

    def record_of_call(self, session_id: str, ref: CallRef) -> int | None:
        self.lookups += 1
        self._reach("read")
        return self._store.record_of_call(session_id, ref)

    def open_claims(self, session_id: str) -> tuple[OpenCall, ...]:
        return self._store.open_claims(session_id)

    def end_leases_of_dead(self, session_id: str) -> tuple[OpenCall, ...]:
        return self._store.end_leases_of_dead(session_id)

    def copy(self, source: str, row: SessionRow) -> bool:
        return self._store.copy(source, row)

    def answers(self, session_id: str) -> tuple[AnswerRow, ...]:
        return self._store.answers(session_id)

    def held_sessions(self) -> frozenset[str]:
        return self._store.held_sessions()

    def session_size(self, session_id: str) -> SessionSize:
        return self._store.session_size(session_id)

    def delete_session(self, lock: SessionLock) -> None:
        self._store.delete_session(lock)

    def unfinished_deletions(self) -> tuple[str, ...]:
        return self._store.unfinished_deletions()

    def finish_deletion(self, session_id: str) -> bool:
        return self._store.finish_deletion(session_id)

    def connection(self) -> DatabaseConnection:
        return self._store.connection()

    # ----------------------------------------------------------------------------------------------------- decisions

    def is_committed(self, journal_id: str) -> bool:
        return self._store.is_committed(journal_id)

    def delete_commit_record(self, journal_id: str) -> None:
        self._store.delete_commit_record(journal_id)

    def _reach(self, point: Point | None) -> None:
        if point is None:
            return
        acts = self._acts.get(point)
        if acts:
            acts.popleft()()
        elif point in self._down:
            self._fail(point)

    def _fail(self, point: Point) -> None:
        msg = f"the connection was lost at {point}"
        raise StoreUnavailableError(msg, store=self.url, in_doubt=point == "committed")
