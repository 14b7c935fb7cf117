"""A slice as programs use it: a look at the values of one type, and the ways to change them."""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar

from handrail.session.changes import Change, Replace
from handrail.session.reducers import Reducer
from handrail.session.slices import SliceView, Version

T = TypeVar("T")
E = TypeVar("E")


class Slices(Protocol):
    """What a slice asks of the session that it belongs to."""

    def version_of(self, kind: type[T]) -> Version[T] | None:
        """The version of a slice that this context sees."""
        ...

    def append(self, kind: type[T], item: T) -> None:
        """Add one item to a slice."""
        ...

    def change(self, kind: type[T], change: Change[T], what: str) -> None:
        """Change one slice."""
        ...

    def register(self, event_type: type[E], reducer: Reducer[T, E], *, into: type[T]) -> None:
        """Let a reducer decide what becomes of a slice."""
        ...


class Slice(SliceView[T], Generic[T]):
    """The values of one type in a session: `session[Plan]`.

    Reading takes no turn; writing follows the session's rules. Items are values: change a slice by giving it others,
    not by changing an item, which nothing could undo.
    """

    __slots__ = ("_kind", "_session")

    def __init__(self, session: Slices, kind: type[T]) -> None:
        """Made by `session[kind]`."""
        self._session = session
        self._kind = kind

    @property
    def version(self) -> Version[T] | None:
        """The version that this context sees now."""
        return self._session.version_of(self._kind)

    def append(self, item: T) -> None:
        """Add one item, past all reducers and subscribers; use `Session.dispatch` for events."""
        self._session.append(self._kind, item)

    def seed(self, *items: T) -> None:
        """Make the slice hold just these items."""
        self._session.change(self._kind, Replace(items), f"seed {self._kind.__name__}")

    def clear(self) -> None:
        """Make the slice empty."""
        self._session.change(self._kind, Replace(()), f"clear {self._kind.__name__}")

    def register(self, event_type: type[E], reducer: Reducer[T, E]) -> None:
        """Let a reducer decide what becomes of this slice; see `Session.register`."""
        self._session.register(event_type, reducer, into=self._kind)
