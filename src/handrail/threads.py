"""The threads of the process for what may block, and its forks.

| when | what happens |
|---|---|
| a body is to be run | the daemon thread that became idle last takes it; if none is idle, another one is started |
| a body has ended | its thread is idle, and ends after ten seconds; what the body referred to is released at once |
| the interpreter ends | idle threads end; one that is busy is stopped; a later body runs in the thread of its caller |
| the program calls `join` before that | idle threads end, and those that are busy are waited for |
| the process forks | the child has none of the threads |

It is not a pool: a pool runs out of threads when bodies hang or wait for each other, and prevents the process from
exiting. A body has an empty context (`contextvars`).

A value of a module that changes is the process's, and not that of a session, a store or an executor, only where two of
these have to see each other, where a thread or an event loop has one, or where the system counts by processes. It says
so in its docstring, or the comment above it, which begins with "Of the process" and has the reason. A test finds the
values that do not (`tests/architecture/test_process_state.py`).

| what | in a forked process |
|---|---|
| locks, open files and connections | those of the parent: closed without an effect on it |
| threads, and calls that run on them | gone, so what names them is cleared |
| names of types, settings, caches | as in the parent |
"""

from __future__ import annotations

import atexit
import os
import threading
from collections import deque
from collections.abc import Callable
from contextvars import Context
from datetime import timedelta
from queue import Empty, SimpleQueue
from typing import TypeAlias
from weakref import WeakSet

FORKING = threading.RLock()
"""Of the process: held while it forks, and so by the opener or closer of what the child has to know of; never for long.

A finalizer may take it in a thread that has it.
"""

ASSIGNING = threading.Lock()
"""Of the process: held for a few assignments that decide something once, because a lock of each object costs each call.

No other lock is acquired while it is held.
"""

# Of the process: it forks as a whole.
_forks = 0


def forks() -> int:
    """The number of forks of this process; does not change while `FORKING` is held."""
    return _forks


def in_forked_process(*acts: Callable[[], object]) -> None:
    """Registers functions that a forked process calls as it begins, in their order; it has one thread then."""
    for act in acts:
        os.register_at_fork(after_in_child=act)


def _count_fork() -> None:
    global _forks  # noqa: PLW0603 - one process has one number
    _forks += 1


# What is registered first is called last before a fork, so the last one is acquired first.
os.register_at_fork(before=_count_fork)
for _lock in (ASSIGNING, FORKING):
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)


Body: TypeAlias = Callable[[], object]
"""The code that a thread runs."""

IDLE = timedelta(seconds=10)
"""The time that a thread waits for another body before it ends."""

_JOIN_SECONDS = 0.1

NAME = "handrail-call"
"""The name of each thread."""


class ThreadCache:
    """Runs bodies on threads, and owns those that are idle; `idle` is the time that a thread waits for another body."""

    __slots__ = ("_idle", "_idle_seconds", "_is_closed", "_lock", "_retired", "_threads")

    def __init__(self, idle: timedelta = IDLE) -> None:
        self._idle_seconds = idle.total_seconds()
        self._idle: deque[_Worker] = deque()
        self._lock = threading.Lock()
        self._retired = 0
        self._threads: WeakSet[threading.Thread] = WeakSet()
        self._is_closed = False

    def run(self, body: Body) -> None:
        """Runs a body on a thread, in an empty context; `RuntimeError` if none is idle, and none can be started."""
        try:
            worker = self._idle.pop()
        except IndexError:
            worker = _Worker(self, self._idle_seconds, self._retired)
            worker.bodies.put(body)
            try:
                thread = threading.Thread(target=worker.work, name=NAME, daemon=True)
                thread.start()
                self._threads.add(thread)
            except RuntimeError:
                # From Python 3.12 on none can be started when the interpreter has begun to end.
                if threading.main_thread().is_alive():
                    raise
                Context().run(body)
        else:
            worker.bodies.put(body)

    def retire(self) -> None:
        """Ends the threads that are idle, and the others when their bodies have ended."""
        with self._lock:
            self._retired += 1
            idle, self._idle = self._idle, deque()
        while idle:
            idle.pop().bodies.put(None)

    def close(self) -> None:
        """As `retire`; threads that are started from now on run one body each."""
        self._is_closed = True
        self.retire()

    def join(self) -> None:
        """As `retire`, and waits until all threads have ended: that is, all bodies. Signals are handled meanwhile."""
        self.retire()
        while busy := [thread for thread in list(self._threads) if thread.is_alive()]:
            # With a timeout, because not every version of Python handles signals during a wait without one.
            busy[0].join(_JOIN_SECONDS)

    def forked(self) -> None:
        """Forgets the threads of the process that this one was forked off."""
        self._lock = threading.Lock()
        self._idle = deque()
        self._threads = WeakSet()
        self._retired += 1

    def keep(self, worker: _Worker) -> bool:
        """Keeps a worker for another body; returns false if its threads have been retired."""
        with self._lock:
            if self._is_closed or worker.started_at != self._retired:
                return False
            self._idle.append(worker)
        return True

    def withdraw(self, worker: _Worker) -> bool:
        """Removes a worker from the idle ones; returns false if it has a body by now, or is about to."""
        with self._lock:
            try:
                self._idle.remove(worker)
            except ValueError:
                return False
        return True


class _Worker:
    """One thread."""

    __slots__ = ("_cache", "_idle_seconds", "bodies", "started_at")

    def __init__(self, cache: ThreadCache, idle_seconds: float, started_at: int) -> None:
        self._cache = cache
        self._idle_seconds = idle_seconds
        self.bodies: SimpleQueue[Body | None] = SimpleQueue()
        self.started_at: int = started_at

    def work(self) -> None:
        while (body := self._next()) is not None:
            Context().run(body)
            del body  # what it refers to does not live as long as this thread is idle
            if not self._cache.keep(self):
                return

    def _next(self) -> Body | None:
        try:
            return self.bodies.get(timeout=self._idle_seconds)
        except Empty:
            return None if self._cache.withdraw(self) else self.bodies.get()


THREADS = ThreadCache()
"""Of the process: all executors take the same idle threads, and the interpreter waits for them when it ends."""

# Registered when this module is imported, so called after what is registered later, which may still run bodies.
atexit.register(THREADS.close)
in_forked_process(THREADS.forked)
