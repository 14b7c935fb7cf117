"""What lives as long as the process, and what a forked process makes of it.

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

import os
import threading
from collections.abc import Callable

_at_fork: Callable[..., object] = getattr(os, "register_at_fork", dict[str, object])  # Windows has no fork

FORKING = threading.RLock()
"""Of the process: held while it forks, and so by who opens or closes what the child has to know of; never for long.

A finalizer may take it in a thread that has it.
"""

ASSIGNING = threading.Lock()
"""Of the process: held for a few assignments that decide something once, because a lock of each object costs each call.

No other lock is acquired while it is held.
"""

# Of the process: it forks as a whole.
_forks = 0


def forks() -> int:
    """How often this process has forked; does not change while `FORKING` is held."""
    return _forks


def in_forked_process(*acts: Callable[[], object]) -> None:
    """Have a forked process call some functions as it begins, in their order; it has one thread then."""
    for act in acts:
        _at_fork(after_in_child=act)


def _count_fork() -> None:
    global _forks  # noqa: PLW0603 - one process has one number
    _forks += 1


# What is registered first is called last before a fork, so the last one is acquired first.
_at_fork(before=_count_fork)
for _lock in (ASSIGNING, FORKING):
    _at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)
