"""A cache of what is made once for a type: codecs, validators, what is known of its fields.

A type that is made at run time, as that of the arguments of a function, would stay in a cache for ever; so a cache has
a bound. The key is the type itself: two types that are equal share what was made of one of them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final, Generic, TypeVar

V = TypeVar("V")

MAX_CACHED: Final = 1024
"""So many values are kept. What is beyond that has come from types that are made at run time."""


class BoundedCache(Generic[V]):
    """Values by key; the oldest goes when there are too many. Safe to use from any thread.

    Threads that ask for a new key at once may each make its value; all of them get the first that was made. A value
    that could not be made is not cached: what raised is asked again the next time, when a name may be defined.
    """

    __slots__ = ("_lock", "_values")

    def __init__(self) -> None:
        self._values: dict[object, V] = {}
        self._lock = threading.Lock()

    def get(self, key: object, make: Callable[[], V]) -> V:
        """The value of `key`; `make` makes it if it is not there. It is not kept if the key cannot be hashed."""
        try:
            value = self._values.get(key)
        # Read without the lock: a `get` of a dict is atomic, and only a key that is new waits for another one.
        except TypeError:  # a part of the type cannot be hashed
            return make()
        if value is not None:
            return value
        # Without the lock: building a codec runs functions of the program, which may ask for another codec, or wait for
        # a thread that does.
        value = make()
        with self._lock:
            value = self._values.setdefault(key, value)
            # The oldest by insertion, and not by use: a `get` without the lock could not record a use safely.
            while len(self._values) > MAX_CACHED:
                self._values.pop(next(iter(self._values)))
        return value
