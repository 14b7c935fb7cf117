"""How the workers of a run collect the tests: each begins with another part of the files, and all have the same list.

In a fresh clone each file of tests is compiled when it is first imported, and the workers start at the same time. If
all read the files in one order, each compiles all of them. So each begins elsewhere, and finds what the others have
compiled when it comes to their part.
"""

from __future__ import annotations

import gc
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import TypeVar

import pytest

T = TypeVar("T")


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Collect with another file first in each worker, and no garbage: what tests are made of is kept."""
    config = session.config
    if (worker := getattr(config, "workerinput", None)) is not None:
        files = [file for argument in config.args for file in files_of(argument)]
        config.args[:] = turned(files, int(worker["workerid"].removeprefix("gw")), worker["workercount"])
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Generator[None]:
    """Bring the files into one order again, before anything else looks at them: workers must agree on the tests."""
    items.sort(key=lambda item: item.path)
    return (yield)


def files_of(argument: str) -> list[str]:
    """The files of tests in a folder; what is not a folder is left as it is."""
    folder = Path(argument)
    return sorted(str(file) for file in folder.rglob("test_*.py")) if folder.is_dir() else [argument]


def turned(items: Sequence[T], worker: int, workers: int) -> list[T]:
    """The items from the part of a worker on, and then those before it."""
    first = len(items) * worker // workers
    return [*items[first:], *items[:first]]
