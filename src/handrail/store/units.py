"""Units of work: what is written in one block counts at one stroke, or not at all.

A unit is open in the thread and in the context in which it was begun: another thread does not write into it, nor does
another task that has its turn meanwhile. A unit inside a unit of the same store joins it; if the inner one raises, what
was written in it alone is undone, and the outer one may go on. Who watches rows is told when all of it counts.
"""

from __future__ import annotations

from contextvars import ContextVar, Token
from threading import get_ident
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar

from handrail.crash_points import reached
from handrail.store.protocol import EffectRow
from handrail.store.watching import Watchers


class Work(Protocol):
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

    def mark(self) -> Any:  # noqa: ANN401 - a mark is what the store makes of it
        """Remember this moment."""
        ...

    def back_to(self, mark: Any) -> None:  # noqa: ANN401 - what `mark` returned
        """Undo what was written since then."""
        ...


W = TypeVar("W", bound=Work)


class Unit(Generic[W]):
    """The block of one unit of work: a context manager, to be entered once.

    Attributes:
        owner: the store, or the part of it, that writes into the unit.
        work: how it is done.
        watchers: who is told of the rows that it has changed.
    """

    __slots__ = ("_open", "_outer", "_thread", "_token", "_told", "owner", "watchers", "work")

    _token: Token[Unit[Any] | None]

    def __init__(self, owner: object, work: W, watchers: Watchers) -> None:
        self.owner = owner
        self.work = work
        self.watchers = watchers
        self._open = False
        self._outer: Unit[Any] | None = None
        self._thread = 0
        self._told: list[tuple[str, str, EffectRow | None]] = []

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
        for partition, key, row in self._told:
            self.watchers.tell(partition, key, row)

    def tell(self, partition: str, key: str, row: EffectRow | None) -> None:
        """Have those who watch a row be told of its change, once it counts."""
        self._told.append((partition, key, row))

    def mark(self) -> tuple[object, int]:
        """Remember this moment, for a unit inside this one."""
        return self.work.mark(), len(self._told)

    def back_to(self, mark: tuple[object, int]) -> None:
        """Undo what was written since then."""
        self.work.back_to(mark[0])
        del self._told[mark[1] :]

    def is_open_for(self, owner: object) -> bool:
        """Whether the owner writes into this unit, in this thread."""
        return self.owner is owner and self._open and self._thread == get_ident()

    @property
    def outer(self) -> Unit[Any] | None:
        """The unit, of another store, that was open in this context when this one was begun."""
        return self._outer


class InnerUnit:
    """The block of a unit inside another one of the same store."""

    __slots__ = ("_mark", "_outer")

    _mark: tuple[object, int]

    def __init__(self, outer: Unit[Any]) -> None:
        self._outer = outer

    def __enter__(self) -> Unit[Any]:
        """Join the outer unit, and return it."""
        self._mark = self._outer.mark()
        return self._outer

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Leave what was written to the outer unit, or undo it if the block raised."""
        if kind is not None:
            self._outer.back_to(self._mark)


_INNERMOST: ContextVar[Unit[Any] | None] = ContextVar("handrail_unit", default=None)


def open_unit(owner: object) -> Unit[Any] | None:
    """The unit that `owner` writes into in this thread and context; `None` if there is none."""
    unit = _INNERMOST.get()
    while unit is not None and not unit.is_open_for(owner):
        unit = unit.outer
    return unit
