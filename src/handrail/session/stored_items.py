"""The items of a slice whose beginning is in a store until it is read.

A session is opened without reading an item. Most programs look at the newest items of a slice, so what has been read is
always an end of it: asking for an item reads that item and those after it, and a later question for an older one
reads the items in between. No item is read twice.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeAlias, TypeVar, overload

T = TypeVar("T")

ReadItems: TypeAlias = Callable[[int, int], list[T]]
"""Reads the items from a first place up to a last one, without the latter. It may return more: those before the first
place that stand in the same entries."""


class StoredItems(Generic[T]):
    """As much of a list as a slice needs. Items are read when one of them is asked for, from there to the end.

    Appending reads nothing, so a slice of a hundred thousand items costs nothing to a program that only appends. A
    program that goes back from the end, item by item, reads twice as many with each question to the store.

    Args:
        count: how many items are in the store.
        read: reads some of them. If it raises, nothing has changed, and the next caller tries again.
    """

    __slots__ = ("_held", "_lock", "_read", "_taken")

    def __init__(self, count: int, read: ReadItems[T]) -> None:
        self._read = read
        self._lock = threading.RLock()
        self._taken = 0  # how many items have come from the store
        # How many items at the beginning have not been read, and those after them. In one tuple, which is replaced when
        # items are read: an interrupt leaves all of it or nothing, and the length is known without the lock.
        self._held: tuple[int, list[T]] = (count, [])

    @property
    def is_loaded(self) -> bool:
        """Whether nothing is left to be read from the store."""
        return not self._held[0]

    def __len__(self) -> int:
        """How many items there are, read or not."""
        unread, items = self._held
        return unread + len(items)

    def append(self, item: T) -> None:
        """Add an item at the end."""
        with self._lock:
            self._held[1].append(item)

    @overload
    def __getitem__(self, place: int) -> T: ...
    @overload
    def __getitem__(self, place: slice) -> list[T]: ...
    def __getitem__(self, place: int | slice) -> T | list[T]:
        """An item, or a list of those from one place up to another.

        Raises:
            IndexError: there is no item at that place.
            StoreError: items had to be read and could not be.
        """
        if isinstance(place, slice):
            start, stop, _ = place.indices(len(self))
            if start >= stop:
                return []
            unread, items = self._from(start)
            return items[start - unread : stop - unread]
        start = place + len(self) if place < 0 else place
        if start < 0:
            raise IndexError(f"there are {len(self)} items, and none at {place}")
        unread, items = self._from(start)
        return items[start - unread]

    def __delitem__(self, place: slice) -> None:
        """Cut the end off: `del items[length:]`. Nothing is read."""
        with self._lock:
            unread, items = self._held
            if place.start < unread:
                self._held = (place.start, [])
            else:
                del items[place.start - unread :]

    def _from(self, start: int) -> tuple[int, list[T]]:
        """How many items are not read, once those from `start` on are; and the items after these."""
        with self._lock:
            unread, items = self._held
            if start < unread:
                read = self._read(max(min(start, unread - self._taken), 0), unread)
                self._taken += len(read)
                self._held = (unread - len(read), [*read, *items])
            return self._held
