"""A test fails that leaves a thread of AnyIO behind, because no process ends before its threads.

Such a thread ends with the task that is at the root of its event loop. It stays where a loop is left with that task
unfinished, and where an exception comes between the start of the thread and the line that ties it to the task.
"""

from __future__ import annotations

import threading
from collections.abc import Generator
from typing import Any

import pytest

_SECONDS_TO_END = 10.0


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None]:
    """Wait for the threads that are about to end, and end those that are left."""
    yield
    for thread in threading.enumerate():
        if type(thread).__module__.startswith("anyio."):
            thread.join(_SECONDS_TO_END)
            if thread.is_alive():
                left: Any = thread
                left.stop()
                pytest.fail(f"{item.nodeid} has left a thread of AnyIO, of {left.root_task!r}", pytrace=False)
