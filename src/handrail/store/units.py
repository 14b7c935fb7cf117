"""Units of work: what is written in one block is committed atomically.

A unit is open in the thread and in the context in which it was begun: another thread does not write into it, nor does
another task that has its turn meanwhile. A unit inside a unit of the same store joins it; if the inner one raises, what
was written in it alone is undone, and the outer one may continue. Watchers are notified when all of it is committed.

`Watchers` are those who are notified when a row of the ledger changes. `UnresolvedSlots` are the slots of a session
that were not settled by their calls; they are kept in memory, so that a call costs no query to know it. A session is
written by one process at a time, so what this store has read once, and what it has written since, is all that there is.
It is forgotten when the session is acquired anew. A slot that this process has claimed is noted when it becomes
unknown: as long as it is running, its call is too.

A slot that was resolved as happened stays noted for the other calls of its reply: the model asked for them before it
could learn of that.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from contextvars import ContextVar, Token
from threading import get_ident
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar

from handrail.crash_points import reached
from handrail.store.protocol import EffectRow, WatchCallback

_INNERMOST: ContextVar[Unit[Any] | None] = ContextVar("handrail_unit", default=None)

_Identity = tuple[str, str]

Slots = dict[str, tuple[str, str | None]]
"""Keys of slots, each with its tool; and with its reply, if it was resolved as happened."""


class UnitBackend(Protocol):
    """What a kind of store does for one unit. A store may make one for each, or be it itself."""

    def begin(self) -> None:
        """Begin; if it raises, nothing has been begun."""
        ...

    def commit(self) -> None:
        """Make all of it count. If it raises, `rollback` is called next."""
        ...

    def rollback(self) -> None:
        """Undo all of it, as far as that is not done already; raises nothing that a store may raise."""
        ...

    def savepoint(self) -> Any:  # noqa: ANN401 - a savepoint is what the store makes of it
        """Remember this moment."""
        ...

    def rollback_to(self, savepoint: Any) -> None:  # noqa: ANN401 - what `savepoint` returned
        """Undo what was written since then."""
        ...


W = TypeVar("W", bound=UnitBackend)


class Unit(Generic[W]):
    """The block of one unit of work: a context manager, to be entered once.

    Attributes:
        owner: the store, or the part of it, that writes into the unit.
        work: how it is done.
        watchers: which are notified of the rows that it has changed.
    """

    __slots__ = ("_changes", "_open", "_outer", "_thread", "_token", "owner", "watchers", "work")

    _token: Token[Unit[Any] | None]

    def __init__(self, owner: object, work: W, watchers: Watchers) -> None:
        self.owner = owner
        self.work = work
        self.watchers = watchers
        self._open = False
        self._outer: Unit[Any] | None = None
        self._thread = 0
        self._changes: list[tuple[str, str, EffectRow | None]] = []

    def __enter__(self) -> Self:
        """Begin.

        Raises:
            StoreError: the store cannot; nothing has been begun.
        """
        self.work.begin()
        try:
            reached("unit-begun")
        except BaseException:
            self.work.rollback()
            raise
        self._open = True
        self._outer = _INNERMOST.get()
        self._thread = get_ident()
        self._token = _INNERMOST.set(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Commit, or undo all of it if the block raised.

        Raises:
            StoreError: it cannot be committed; nothing counts, unless the connection was lost in that very moment.
        """
        self._open = False
        _INNERMOST.reset(self._token)
        if kind is not None:
            self.work.rollback()
            return
        try:
            reached("unit-before-commit")
            self.work.commit()
        except BaseException:
            self.work.rollback()
            raise
        reached("unit-after-commit")
        for partition, key, row in self._changes:
            self.watchers.notify(partition, key, row)

    def notify(self, partition: str, key: str, row: EffectRow | None) -> None:
        """Notify the watchers of a row of its change, once it is committed."""
        self._changes.append((partition, key, row))

    def savepoint(self) -> tuple[object, int]:
        """Remember this moment, for a unit inside this one."""
        return self.work.savepoint(), len(self._changes)

    def rollback_to(self, savepoint: tuple[object, int]) -> None:
        """Undo what was written since then."""
        self.work.rollback_to(savepoint[0])
        del self._changes[savepoint[1] :]

    def is_open_for(self, owner: object) -> bool:
        """Whether the owner writes into this unit, in this thread."""
        return self.owner is owner and self._open and self._thread == get_ident()

    @property
    def outer(self) -> Unit[Any] | None:
        """The unit, of another store, that was open in this context when this one was begun."""
        return self._outer


class InnerUnit:
    """The block of a unit inside another one of the same store."""

    __slots__ = ("_outer", "_savepoint")

    _savepoint: tuple[object, int]

    def __init__(self, outer: Unit[Any]) -> None:
        self._outer = outer

    def __enter__(self) -> Unit[Any]:
        """Join the outer unit, and return it."""
        self._savepoint = self._outer.savepoint()
        return self._outer

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Leave what was written to the outer unit, or undo it if the block raised."""
        if kind is not None:
            self._outer.rollback_to(self._savepoint)


def open_unit(owner: object) -> Unit[Any] | None:
    """The unit that `owner` writes into in this thread and context; `None` if there is none."""
    unit = _INNERMOST.get()
    while unit is not None and not unit.is_open_for(owner):
        unit = unit.outer
    return unit


class Watchers:
    """Those who watch rows, by the identity of the row.

    Attributes:
        unresolved: the slots that are not settled, as far as they have been asked for.
    """

    __slots__ = ("_lock", "_watching", "unresolved")

    def __init__(self) -> None:
        self.unresolved = UnresolvedSlots()
        self._lock = threading.Lock()
        self._watching: dict[_Identity, dict[object, WatchCallback]] = {}

    def concerns(self, partition: str) -> bool:
        """Whether a change in a partition is reported: it has watchers, or a slot there is not settled."""
        return bool(self._watching or self.unresolved.of(partition))

    def watch(self, partition: str, key: str, wake: WatchCallback) -> Callable[[], None]:
        """Call `wake` after each change of the key's row; returns how to stop that."""
        identity = (partition, key)
        watcher = object()
        with self._lock:
            self._watching.setdefault(identity, {})[watcher] = wake

        def stop() -> None:
            with self._lock:
                watching = self._watching.get(identity, {})
                if watching.pop(watcher, None) is not None and not watching:
                    del self._watching[identity]

        return stop

    def notify(self, partition: str, key: str, row: EffectRow | None) -> None:
        """Notify those who watch a row of its change; no lock is held meanwhile."""
        self.unresolved.note(partition, key, row)
        if not self._watching:
            return
        with self._lock:
            watching = tuple(self._watching.get((partition, key), {}).values())
        for wake in watching:
            wake(row)


class UnresolvedSlots:
    """The slots that were left running, are unknown or were resolved as happened, of partitions that were asked for.

    It has no lock: each access is one operation of a dictionary, which is atomic.
    """

    __slots__ = ("_slots",)

    def __init__(self) -> None:
        self._slots: dict[str, Slots] = {}

    def note(self, partition: str, key: str, row: EffectRow | None) -> None:
        """Take note of a row as a committed change has left it; `None` if it was removed."""
        slots = self._slots.get(partition)
        if slots is None:
            return
        if row is None or row.status == "failed" or (row.status == "done" and not row.was_found_done):
            slots.pop(key, None)
        elif row.is_slot and row.status != "running":
            slots[key] = _noted(row)

    def of(self, partition: str) -> Slots | None:
        """The slots of a partition; `None` if they have not been loaded."""
        return self._slots.get(partition)

    def load(self, partition: str, rows: Iterable[EffectRow]) -> Slots:
        """Take in the rows of a partition that are running, unknown or done; what is written meanwhile is noted."""
        slots = self._slots.setdefault(partition, {})
        slots.update({row.key: _noted(row) for row in rows if row.is_slot})
        return slots

    def keys(self, partition: str, tool: str, reply: str | None) -> list[str]:
        """The slots of a tool that are not resolved, and those of the reply that were resolved as happened."""
        slots = self._slots.get(partition)
        if not slots:
            return []
        return [key for key, (of, found_in) in tuple(slots.items()) if of == tool and found_in in {None, reply}]

    def forget(self, partition: str) -> None:
        """Load a partition anew when it is asked for next: another process may have written it."""
        self._slots.pop(partition, None)


def _noted(row: EffectRow) -> tuple[str, str | None]:
    return row.tool, row.owner.reply if row.status == "done" else None
