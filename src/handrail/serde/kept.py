"""A place to keep what is made once for a key."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final, Generic, TypeVar

V = TypeVar("V")

MOST_KEPT: Final = 1024
"""So many values are kept. What is beyond that has come from types that are made at run time."""


class Kept(Generic[V]):
    """Values by key, each made once; the oldest goes when there are too many. Safe to use from any thread."""

    __slots__ = ("_lock", "_values")

    def __init__(self) -> None:
        self._values: dict[object, V] = {}
        self._lock = threading.RLock()

    def get(self, key: object, make: Callable[[], V]) -> V:
        """The value of `key`; `make` makes it if it is not there. It is not kept if the key cannot be hashed."""
        try:
            value = self._values.get(key)
        except TypeError:  # a part of the type cannot be hashed
            return make()
        if value is not None:
            return value
        with self._lock:
            value = self._values.get(key)
            if value is None:
                value = make()
                while len(self._values) >= MOST_KEPT:
                    self._values.pop(next(iter(self._values)))
                self._values[key] = value
            return value
