"""Which cases of a test `make test` runs: some of each test; `make test-more` runs all.

A test that is parametrized has many cases, and a run of all takes longer than a person waits. `make test` runs
`CASES` of each test, or as many as its mark `short` says. A mark of 0 leaves the whole test to `make test-more`: it
starts processes, and other tests hold its rule in another way.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pytest

from tests.extent import SHORT, some

CASES: Final = 4
"""How many cases of a test `make test` runs, where no mark says otherwise."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the cases that `make test` does not run."""
    if SHORT and (rest := _left_out(items)):
        config.hook.pytest_deselected(items=rest)
        gone = {id(item) for item in rest}
        items[:] = [item for item in items if id(item) not in gone]


def _left_out(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """The cases that `make test` does not run, of all that were collected; the same in whatever order they are."""
    tests: dict[str, list[pytest.Item]] = {}
    for item in items:
        tests.setdefault(item.nodeid.partition("[")[0], []).append(item)
    rest: list[pytest.Item] = []
    for cases in tests.values():
        mark = cases[0].get_closest_marker("short")
        rest += _but_for(mark.args[0] if mark else CASES, sorted(cases, key=_position))
    return rest


def _but_for(number: int, cases: list[pytest.Item]) -> list[pytest.Item]:
    """All cases but `number` of them, which have as many of the values of each parameter as they can."""
    if len(cases) <= number:
        return []
    spread = some(cases, number) if number > 1 else []
    waiting = spread + [case for case in cases if case not in spread]
    seen: set[tuple[str, int]] = set()
    for _ in range(number):
        best = max(waiting, key=lambda case: len(_values(case) - seen))
        waiting.remove(best)
        seen |= _values(best)
    return waiting


def _position(case: pytest.Item) -> tuple[object, ...]:
    """Where a case stands among those of its test, as they are written."""
    return *(index for _, index in sorted(_values(case))), case.nodeid


def _values(case: pytest.Item) -> set[tuple[str, int]]:
    """The values of the parameters of a case, each by its position among those of the test."""
    assert isinstance(case, pytest.Function)
    return set(case.callspec.indices.items()) if hasattr(case, "callspec") else set()
