"""The loop guard: a debug mode that raises where a blocking call of Handrail would hold an event loop.

With `HANDRAIL_LOOP_GUARD=1` in the environment, each operation that waits for a disk, a server or another thread checks
where it runs:

| entered through | where the loop of the thread runs | elsewhere |
|---|---|---|
| the asynchronous entry: `execute_async`, PydanticAI's toolset, a run of an agent | `LoopBlockedError` | runs |
| the synchronous entry: `execute`, or a function that the program calls by itself | runs; it is to block | runs |

The asynchronous entry lasts as long as its coroutine, and in what that calls or starts, handlers and policies of the
program included: it is a variable of the context (`contextvars`). The environment is read once, when this module is
imported. Without the variable, an entry is the function itself, and a check is a call that does nothing.

One wait is always refused where a loop runs: that for a call which may need the loop to end (`may_wait_for_calls`).
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import ContextVar
from typing import Any, TypeVar, cast

from handrail.errors import LoopBlockedError

AsyncEntry = TypeVar("AsyncEntry", bound=Callable[..., Coroutine[Any, Any, Any]])
SyncEntry = TypeVar("SyncEntry", bound=Callable[..., Any])
T = TypeVar("T")

VARIABLE = "HANDRAIL_LOOP_GUARD"
"""The variable of the environment that turns the guard on."""

IS_ON: bool = os.environ.get(VARIABLE) == "1"
"""True if the guard is on."""

_ENTERED_ASYNC: ContextVar[bool] = ContextVar("handrail_entered_async", default=False)
_BLOCKS_LOOP: ContextVar[bool] = ContextVar("handrail_blocks_loop", default=False)


def check_blocking(operation: str, of: object = "") -> None:
    """Refuses to block the event loop of this thread, if the guard is on and the asynchronous entry leads here.

    Args:
        operation: completes the sentence "... would block the event loop": `"writing to"`.
        of: what it acts on, behind that; an argument of its own, so that no text is made while the guard is off.

    Raises:
        LoopBlockedError: it would. Nothing was done.
    """
    if IS_ON and _ENTERED_ASYNC.get() and loop_is_running():
        raise LoopBlockedError(f"{operation} {of}".strip())


def asynchronous_entry(entry: AsyncEntry) -> AsyncEntry:
    """Marks a coroutine function as an asynchronous entry; the same function if the guard is off."""
    if not IS_ON:
        return entry

    @functools.wraps(entry)
    async def wrapper(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as those of the entry
        token = _ENTERED_ASYNC.set(True)
        try:
            return await entry(*args, **kwargs)
        finally:
            # A coroutine that is collected is closed in the context of the collection, which has no such token.
            with suppress(ValueError):
                _ENTERED_ASYNC.reset(token)

    return cast("AsyncEntry", wrapper)  # it has the signature of what it wraps


def synchronous_entry(entry: SyncEntry) -> SyncEntry:
    """Marks a function as a synchronous entry, which may block; the same function if the guard is off."""
    if not IS_ON:
        return entry

    @functools.wraps(entry)
    def wrapper(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as above
        token = _ENTERED_ASYNC.set(False)
        try:
            return entry(*args, **kwargs)
        finally:
            _ENTERED_ASYNC.reset(token)

    return cast("SyncEntry", wrapper)


def may_wait_for_calls() -> bool:
    """Tests whether this thread may wait for calls of others: not if it runs an event loop, which they may need."""
    return _BLOCKS_LOOP.get() or not loop_is_running()


def allow_waiting(body: Callable[[], T]) -> T:
    """Calls a function that may wait for calls on an event loop too, as what records the past has to."""
    if not loop_is_running():
        return body()
    token = _BLOCKS_LOOP.set(True)
    try:
        return body()
    finally:
        _BLOCKS_LOOP.reset(token)


def loop_is_running() -> bool:
    """Tests whether this thread runs an event loop."""
    # Not by `get_running_loop`, which raises if there is none; asyncio may not be loaded, or only in part.
    running: Callable[[], object] | None = getattr(sys.modules.get("asyncio"), "_get_running_loop", None)
    return running is not None and running() is not None
