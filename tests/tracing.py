"""What branch coverage traces: what tests, fixtures and imports execute, and not the machinery around them.

Coverage calls its tracer for every function and every line, also for those of pytest, pytest-xdist and Hypothesis. They
take more of the time of a small test than Handrail does. So the tracer is interrupted from the start of the collection
to the end of the run, and resumed for the function of a test, for each fixture and for the teardown. In a test with
`@given` it is resumed for the inner function alone, and not for what makes the examples. All modules of Handrail are
imported before the collection, so what they execute when they are imported is traced, and a module that no test imports
is reported. The process that only hands out tests to workers is not traced.

The tests of the files below repeat the same code with many inputs or histories, take a third of the time of all tests,
and execute almost no line that no other test executes. They run untraced, with the same inputs and the same assertions.

On Python 3.14 there is no trace function, and nothing is interrupted.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import is_hypothesis_test

TESTS: Final = Path(__file__).parent
UNTRACED: Final = {
    "architecture/test_*.py": "read the sources",
    "docs/test_pages.py": "reads the pages",
    "docs/test_texts.py": "reads the sources and the pages",
    "**/test_machine.py": "state machines",
    "**/test_*_machine.py": "state machines",
    "serde/test_fuzz.py": "many types and values",
    "scenarios/test_bad_input.py": "many values, through every entry point",
    "scenarios/test_growth.py": "thousands of calls",
}
"""The files whose tests run untraced, as globs below `tests`, with what their tests repeat."""


@functools.cache
def untraced() -> frozenset[Path]:
    """The files that the globs match."""
    return frozenset(path for pattern in UNTRACED for path in TESTS.glob(pattern))


class Tracing:
    """The tracer of coverage in the main thread, and in the threads that it starts."""

    def __init__(self) -> None:
        self._tracers = _tracers()

    @contextmanager
    def interrupted(self) -> Generator[None]:
        """Trace nothing inside."""
        before = _tracers()
        if before[0] is not None:
            self._tracers = before
        with _traced_by(None, None):
            yield

    @contextmanager
    def resumed(self) -> Generator[None]:
        """Trace inside as before the interruption."""
        with _traced_by(*self._tracers):
            yield


def _tracers() -> tuple[Any, Any]:
    return sys.gettrace(), threading.gettrace()


@contextmanager
def _traced_by(here: Any, of_threads: Any) -> Generator[None]:
    before = _tracers()
    _trace(here, of_threads)
    try:
        yield
    finally:
        _trace(*before)


def _trace(here: Any, of_threads: Any) -> None:
    threading.settrace(of_threads)
    sys.settrace(here)


_tracing = Tracing()


@pytest.hookimpl(wrapper=True)
def pytest_sessionstart(session: pytest.Session) -> Generator[None, object, object]:
    """Start the threads that talk to workers untraced; in a worker, coverage starts here."""
    with nullcontext() if hasattr(session.config, "workerinput") else _tracing.interrupted():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Import all of Handrail traced, then collect the tests untraced."""
    plugins = session.config.pluginmanager
    if plugins.hasplugin("_cov") and not plugins.hasplugin("dsession"):  # which hands out tests to workers
        # Not at the head: a worker imports this module before it starts coverage.
        package = importlib.import_module("handrail")
        for module in pkgutil.walk_packages(package.__path__, "handrail."):
            if not module.name.endswith("__main__"):  # which runs the command
                importlib.import_module(module.name)
    with _tracing.interrupted():
        return (yield)


@pytest.hookimpl(wrapper=True, trylast=True)  # inside of pytest-cov's, which stops coverage afterwards
def pytest_runtestloop() -> Generator[None, object, object]:
    """Interrupt the tracer for what is between the tests."""
    with _tracing.interrupted():
        return (yield)


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_fixture_setup() -> Generator[None, object, object]:
    """Trace a fixture, for whichever test it is made."""
    with _tracing.resumed():
        return (yield)


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_teardown() -> Generator[None, object, object]:
    """Trace the ends of fixtures."""
    with _tracing.resumed():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Trace the function of a test; of one with `@given`, the inner function."""
    if pyfuncitem.path in untraced():
        return (yield)
    test: Any = pyfuncitem.obj
    if not is_hypothesis_test(test) or inspect.iscoroutinefunction(test.hypothesis.inner_test):
        with _tracing.resumed():
            return (yield)
    inner = test.hypothesis.inner_test
    test.hypothesis.inner_test = _traced(inner)
    try:
        return (yield)
    finally:
        test.hypothesis.inner_test = inner


def _traced(function: Callable[..., object]) -> Callable[..., object]:
    @functools.wraps(function)
    def traced(*arguments: Any, **named: Any) -> object:
        with _tracing.resumed():
            return function(*arguments, **named)

    return traced
