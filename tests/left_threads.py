"""A test fails that leaves a thread for which its process would wait at its end.

A thread of AnyIO ends with the task that is at the root of its event loop. It stays where a loop is left with that task
unfinished, and where an exception comes between the start of the thread and the line that ties it to the task.
"""

from __future__ import annotations

import threading
from collections.abc import Generator
from typing import Any, Final

import pytest

_OF_POOLS = ("asyncio_", "ThreadPoolExecutor-")
"""How the names of threads begin that Python tells to end before it waits for them."""

_BEFORE: Final = pytest.StashKey[set[threading.Thread]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that says how long a thread may outlive its test."""
    parser.addoption("--thread-end", type=float, default=10.0, metavar="S", help="wait S seconds for threads of a test")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    """Note the threads that run before the test: those of fixtures may outlive it."""
    item.stash[_BEFORE] = {*threading.enumerate()}
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None]:
    """Wait for the threads that are about to end, and fail for those that do not."""
    yield
    before = item.stash.get(_BEFORE, {*threading.enumerate()})
    for thread in threading.enumerate():
        is_of_anyio = type(thread).__module__.startswith("anyio.")
        is_its_own = not (thread.daemon or thread in before or thread.name.startswith(_OF_POOLS))
        if is_of_anyio or is_its_own:
            thread.join(item.config.option.thread_end)
            if thread.is_alive():
                pytest.fail(f"{item.nodeid} has left {_named(thread) if is_of_anyio else thread}", pytrace=False)


def _named(thread: threading.Thread) -> str:
    """End a thread of AnyIO, and say which task it was to end with."""
    left: Any = thread
    left.stop()
    return f"a thread of AnyIO, of {left.root_task!r}"
