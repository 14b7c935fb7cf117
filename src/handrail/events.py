"""Event subscription and dispatch.

An event is any object; a `Dispatcher` calls the subscribers of its type, in the order in which they subscribed, in the
thread that dispatches, and returns when all have returned.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, NamedTuple, TypeVar

from handrail.errors import DispatchError

__all__ = ["Dispatcher", "Subscription"]

_Event = TypeVar("_Event")


class _Entry(NamedTuple):
    event_type: type[object]
    subscriber: Callable[[Any], object]  # takes `event_type`, statically known only to the caller of `subscribe`


class Subscription(ExitStack):
    """A subscription; it ends by `close()`, or at the end of a `with` block.

    A dispatch that is in progress still calls the subscriber. Closing is idempotent.
    """


class Dispatcher:
    """Dispatches events to subscribers, by type. Thread-safe; subscribers may dispatch and subscribe.

    The subscribers of an event are those at the start of its dispatch. No lock is held while they run. `is_quiet` says
    that there are no subscribers.
    """

    __slots__ = ("_entries", "_lock", "_matching", "is_quiet")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.is_quiet: bool = True
        self._entries: tuple[_Entry, ...] = ()
        self._matching: dict[type[object], tuple[_Entry, ...]] = {}  # replaced whenever `_entries` is

    def subscribe(self, event_type: type[_Event], subscriber: Callable[[_Event], object]) -> Subscription:
        """Calls `subscriber` with every event of `event_type`, subclasses included; `object` matches every event.

        What the subscriber returns is ignored. One that subscribes twice is called twice.

        Raises:
            TypeError: `event_type` is not supported by `issubclass`.
        """
        issubclass(object, event_type)  # a type that raises here would fail each dispatch
        entry = _Entry(event_type, subscriber)
        with self._lock:
            self._entries = (*self._entries, entry)
            self._matching = {}
            self.is_quiet = False
        subscription = Subscription()
        subscription.callback(self._remove, entry)
        return subscription

    def dispatch(self, event: object) -> None:
        """Calls every subscriber of the event's type, even if an earlier one raised.

        Raises:
            DispatchError: subscribers raised an `Exception`; it contains all of them, and is raised after all were
                called.
            BaseException: what is not an `Exception` (a cancellation, Ctrl-C) propagates immediately; the remaining
                subscribers are not called.
        """
        kind = type(event)
        entries = self._matching.get(kind)
        if entries is None:
            entries = self._match(kind)
        failures: list[tuple[str, Exception]] = []
        for entry in entries:
            try:
                _call(entry.subscriber, event)
            except Exception as error:  # noqa: BLE001  # answered below, when every other subscriber has been called
                failures.append((_name(entry.subscriber), error))
        if failures:
            raise DispatchError(event, failures) from failures[0][1]

    def listens(self, kind: type[object]) -> bool:
        """Returns whether an event of exactly this type has a subscriber."""
        entries = self._matching.get(kind)
        return bool(self._match(kind) if entries is None else entries)

    def _match(self, kind: type[object]) -> tuple[_Entry, ...]:
        with self._lock:
            entries = tuple(entry for entry in self._entries if issubclass(kind, entry.event_type))
            self._matching[kind] = entries
            return entries

    def _remove(self, entry: _Entry) -> None:
        with self._lock:
            self._entries = tuple(other for other in self._entries if other is not entry)
            self._matching = {}
            self.is_quiet = not self._entries


def _call(subscriber: Callable[[Any], object], event: object) -> None:
    value = subscriber(event)
    if value is not None and inspect.iscoroutine(value):
        value.close()
        raise TypeError(
            f"{_name(subscriber)} is asynchronous, but events are dispatched synchronously, so it would not be "
            "awaited. Subscribe a plain function that passes the event on, e.g. queue.put_nowait or "
            "loop.call_soon_threadsafe."
        )


def _name(subscriber: object) -> str:
    return str(getattr(subscriber, "__qualname__", type(subscriber).__qualname__))
