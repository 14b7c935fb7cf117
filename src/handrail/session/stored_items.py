"""The items of a slice whose beginning lies in the store until somebody looks at it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar, overload

T = TypeVar("T")


class StoredItems(Generic[T]):
    """As much of a list as a slice needs. Its first items are read when one of them is asked for, all at once.

    Adding to the end reads nothing, so a slice of a hundred thousand items costs nothing to those who only add.

    Args:
        count: how many items are in the store.
        load: reads them. What it raises passes to whoever asked, and the next one who asks tries again.
    """

    __slots__ = ("_count", "_items", "_load", "_lock")

    def __init__(self, count: int, load: Callable[[], list[T]]) -> None:
        self._count = count
        self._load = load
        self._lock = threading.RLock()
        self._items: list[T] = []

    @property
    def is_loaded(self) -> bool:
        """Whether nothing is left to be read from the store."""
        return not self._count

    def __len__(self) -> int:
        """How many items there are, read or not."""
        with self._lock:
            return self._count + len(self._items)

    def append(self, item: T) -> None:
        """Add an item at the end."""
        with self._lock:
            self._items.append(item)

    @overload
    def __getitem__(self, place: int) -> T: ...
    @overload
    def __getitem__(self, place: slice) -> list[T]: ...
    def __getitem__(self, place: int | slice) -> T | list[T]:
        """An item, or a list of some."""
        with self._lock:
            start = place.start or 0 if isinstance(place, slice) else place
            if start < self._count:
                self._read()
            elif isinstance(place, slice):
                stop = None if place.stop is None else place.stop - self._count
                return self._items[start - self._count : stop]
            else:
                return self._items[place - self._count]
            return self._items[place]

    def __delitem__(self, place: slice) -> None:
        """Cut the end off: `del items[length:]`."""
        with self._lock:
            if place.start < self._count:
                self._read()
            del self._items[place.start - self._count :]

    def _read(self) -> None:
        self._items[:0] = self._load()
        self._count = 0
