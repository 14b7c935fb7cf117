"""A test that does not end a minute after its timeout ends its process, and so does one that has failed and still runs.

The timeout raises an exception in the test. It is of no use where the test catches it, where the event loop of the test
waits for a task that does not end, and where a fixture waits in its teardown, which runs without a timeout when the
test has failed. The process shows where its threads are. Where it is a worker, the test fails; with forked workers, the
run goes on without it. A run in one process ends there, without its summary.

So does a process that waits for a thread when all is done.
"""

from __future__ import annotations

import faulthandler
import os
from typing import Final, Protocol

import pytest

_STDERR: Final = pytest.StashKey[int]()


class _Settings(Protocol):
    """What pytest-timeout, which has no types, says of a test."""

    timeout: float


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that says how long a test may take to end."""
    parser.addoption(
        "--test-end", type=float, default=60.0, metavar="S", help="end a worker S seconds after its test should end"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Keep the standard error of the process, which is captured during a test."""
    config.stash[_STDERR] = os.dup(2)


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """Begin to wait for the end of the process; a worker is ended by the one that has started it."""
    if not hasattr(config, "workerinput"):
        _end_after(0.0, config)


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: _Settings) -> None:
    """Begin to wait with the timeout of the test."""
    _end_after(settings.timeout, item.config)


@pytest.hookimpl(trylast=True)
def pytest_exception_interact(node: pytest.Item | pytest.Collector) -> None:
    """Begin to wait for the end of a test that has failed: pytest has cancelled every timer."""
    if isinstance(node, pytest.Item) and not node.config.option.usepdb:
        _end_after(0.0, node.config)


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_cancel_timer() -> None:
    """The test has ended, or failed."""
    faulthandler.cancel_dump_traceback_later()


def _end_after(seconds: float, config: pytest.Config) -> None:
    left: float = config.option.test_end
    faulthandler.dump_traceback_later(seconds + left, exit=True, file=config.stash[_STDERR])
