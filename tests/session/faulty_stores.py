"""A store in front of another one, that counts what is read and fails when it is told to."""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import Any, Literal, Self, TypeVar, Unpack, cast

from handrail.clock import Clock
from handrail.errors import StoreUnavailableError
from handrail.session import Session
from handrail.session.calls import CallRef
from handrail.session.persistence import protocol
from handrail.session.session import OpenOptions
from handrail.store import Store
from handrail.store.protocol import EffectChange, EffectInsert, RefusedWrite
from handrail.transaction import UnitOfWork
from handrail.transaction.unit_of_work import Refusal
from handrail.waiting import run_in_thread
from tests.store.stores import STORES

Point = Literal["begin", "begun", "check", "insert", "replace", "append", "commit", "committed", "read"]
"""Where it may fail: before a unit is begun or just after, at a write, before and after a unit is committed; when
entries or records of calls are read."""

F = TypeVar("F", bound=Callable[..., Any])

_POINTS: dict[type[object], Point] = {EffectInsert: "insert", EffectChange: "replace", protocol.SessionAppend: "append"}


@contextmanager
def faulty(kind: str, clock: Clock) -> Generator[FaultyStore]:
    """An empty store of a kind; the connections of what came before it are free again at the end.

    A session that was not closed keeps its store until the garbage is collected.
    """
    yield FaultyStore(STORES[kind](clock))
    if kind == "postgres":
        gc.collect()


def _passed(method: F) -> F:
    """The method of the store behind."""
    name = method.__name__

    def passed(self: FaultyStore, *args: Any, **options: Any) -> Any:
        return getattr(self.behind, name)(*args, **options)

    return cast("F", passed)  # of the same signature


class FaultyStore(Store):
    """Passes everything on, as a connection that may be lost.

    Args:
        store: the store behind it.

    Attributes:
        behind: that store.
        rows_read: how many entries have been read.
        lookups: how often it was asked for the records of calls.
        appended: how many entries have been handed on, repeated ones included.
        holds: the holds that it has given, the newest last.
    """

    def __init__(self, store: Store) -> None:
        self.rows_read = 0
        self.lookups = 0
        self.appended = 0
        self.holds: list[protocol.SessionLock] = []
        self.behind = store
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
        return self.behind.url

    @property
    def poll_every(self) -> timedelta | None:
        return self.behind.poll_every

    @property
    def claim_waits(self) -> bool:
        return self.behind.claim_waits

    @property
    def waits(self) -> bool:
        return self.behind.waits

    def session(self, session_id: str, **options: Unpack[OpenOptions]) -> Session:
        return Session.open(self, session_id, **options)

    close = _passed(Store.close)
    close_async = _passed(Store.close_async)
    check_wait = _passed(Store.check_wait)
    now = _passed(Store.now)
    hash_key = _passed(Store.hash_key)
    process = _passed(Store.process)
    owner_lives = _passed(Store.owner_lives)
    unresolved_slots = _passed(Store.unresolved_slots)
    has_no_slots = _passed(Store.has_no_slots)
    effects_below = _passed(Store.effects_below)
    get = _passed(Store.get)
    rows = _passed(Store.rows)
    rows_by_age = _passed(Store.rows_by_age)
    expired = _passed(Store.expired)
    remove_expired = _passed(Store.remove_expired)
    watch = _passed(Store.watch)
    create = _passed(Store.create)
    find = _passed(Store.find)
    sessions = _passed(Store.sessions)
    release = _passed(Store.release)
    checkpoint = _passed(Store.checkpoint)
    holder = _passed(Store.holder)
    open_claims = _passed(Store.open_claims)
    end_leases_of_dead = _passed(Store.end_leases_of_dead)
    forks = _passed(Store.forks)
    answers = _passed(Store.answers)
    run = _passed(Store.run)
    runs = _passed(Store.runs)
    due_runs = _passed(Store.due_runs)
    held_sessions = _passed(Store.held_sessions)
    delete_session = _passed(Store.delete_session)
    connection = _passed(Store.connection)
    is_committed = _passed(Store.is_committed)
    delete_commit_record = _passed(Store.delete_commit_record)

    def submit(self, unit: UnitOfWork) -> Future[Refusal | None]:
        answer: Future[Refusal | None] = run_in_thread(partial(self.apply, unit))
        return answer

    def apply(self, unit: UnitOfWork) -> RefusedWrite | None:
        points: list[Point | None] = [
            _POINTS.get(type(write)) for write in unit.writes if not isinstance(write, protocol.SessionHeld)
        ]
        if points in (["insert"], ["replace"]):
            self._reach(points[0])
            return self.behind.apply(unit)
        self._reach("begin")
        self._reach("begun")
        for point in points:
            self._reach(point)
        self.appended += sum(len(write.entries) for write in unit.writes if isinstance(write, protocol.SessionAppend))
        self._reach("commit")
        refused = self.behind.apply(unit)
        if refused is None:
            self._reach("committed")
        return refused

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def acquire(self, session_id: str, *, wait: timedelta, evict: bool = False) -> protocol.SessionLock:
        hold = self.behind.acquire(session_id, wait=wait, evict=evict)
        self.holds.append(hold)
        return hold

    def check_lock(self, lock: protocol.SessionLock, head: int) -> None:
        self._reach("check")
        self.behind.check_lock(lock, head)

    def contents(self, row: protocol.SessionRow) -> protocol.SessionContents:
        checkpoint, positions = self.behind.contents(row)
        read = list(positions)
        self.rows_read += len(read)
        return checkpoint, read

    def entries(
        self, session_id: str, *, after: int = 0, until: int | None = None, type_name: str | None = None
    ) -> Iterator[protocol.SessionEntry]:
        self._reach("read")
        for entry in self.behind.entries(session_id, after=after, until=until, type_name=type_name):
            self.rows_read += 1
            yield entry

    def newest_changes(
        self, session_id: str, type_name: str, *, after: int, until: int, limit: int
    ) -> list[protocol.SessionEntry]:
        self._reach("read")
        found = self.behind.newest_changes(session_id, type_name, after=after, until=until, limit=limit)
        self.rows_read += len(found)
        return found

    def recorded_calls(self, session_id: str, *, limit: int) -> list[tuple[CallRef, int]]:
        self.lookups += 1
        self._reach("read")
        return self.behind.recorded_calls(session_id, limit=limit)

    def record_of_call(self, session_id: str, ref: CallRef) -> int | None:
        self.lookups += 1
        self._reach("read")
        return self.behind.record_of_call(session_id, ref)

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


def held(session: Session) -> dict[type[Any], tuple[Any, ...]]:
    """What is in the slices of a session."""
    return {kind: session[kind].all() for kind in session.kinds}


def kept(store: Store, session_id: str = "s") -> dict[type[Any], tuple[Any, ...]]:
    """What is in those of a stored one, as somebody else finds it."""
    with Session.open(store, session_id, wait=timedelta(0)) as session:
        return held(session)
