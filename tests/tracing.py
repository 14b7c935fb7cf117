"""Which tests run without branch coverage's tracer.

Coverage calls its tracer in every frame, also in those of Hypothesis and of the tests. The tests of the files below
repeat the same code with many inputs or histories, take a third of the time of all tests, and execute almost no line
that no other test executes. They run untraced, with the same inputs and the same assertions.

`no_cover` of pytest-cov is not used: it starts coverage again after each test, and each start registers the patches
of `os.fork` and `os._exit` once more. On Python 3.14 there is no trace function, and nothing is interrupted.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Generator
from functools import cache
from pathlib import Path
from typing import Final

import pytest

TESTS: Final = Path(__file__).parent
UNTRACED: Final = {
    "architecture/test_*.py": "read the sources",
    "docs/test_pages.py": "reads the pages",
    "**/test_machine.py": "state machines",
    "**/test_*_machine.py": "state machines",
    "serde/typed/test_fuzz.py": "many types and values",
    "scenarios/test_bad_input.py": "many values, through every entry point",
    "scenarios/test_growth.py": "thousands of calls",
}
"""The files whose tests run untraced, as globs below `tests`, with what their tests repeat."""


@cache
def untraced() -> frozenset[Path]:
    """The files that the globs match."""
    return frozenset(path for pattern in UNTRACED for path in TESTS.glob(pattern))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Interrupt the tracer in this thread, and in the threads that the test starts."""
    tracer, of_threads = sys.gettrace(), threading.gettrace()
    if tracer is None or item.path not in untraced():
        return (yield)
    sys.settrace(None)
    threading.settrace(None)
    try:
        return (yield)
    finally:
        threading.settrace(of_threads)
        sys.settrace(tracer)
