"""A guard for tests of what might never end: a deadlock is a failure that says so, not a run that hangs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import Context
from typing import TypeVar

T = TypeVar("T")

PATIENCE = 10.0
"""Seconds after which something that takes no time at all counts as never ending."""


def start(act: Callable[[], T]) -> Future[T]:
    """Begin something on a daemon thread, in an empty context."""
    future: Future[T] = Future()

    def work() -> None:
        try:
            future.set_result(Context().run(act))
        except BaseException as error:  # noqa: BLE001 - raised again where the future is read
            future.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    return future


def in_time(act: Callable[[], T]) -> T:
    """What `act` returns or raises; fails if it never ends."""
    return ended(start(act))


def ended(future: Future[T]) -> T:
    """What came of it; fails if it never ends."""
    try:
        return future.result(PATIENCE)
    except TimeoutError:
        if future.done():
            raise
        raise AssertionError("it waits for ever") from None
