"""Timing of several things in one process, turn by turn, so that what slows the machine slows all of them alike."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Bound:
    """What a benchmark promises: `case` takes at most `factor` times what `floor` takes."""

    case: str
    floor: str
    factor: float


@dataclass(frozen=True, slots=True)
class Ratio:
    """A bound, and what was measured."""

    bound: Bound
    measured: float

    @property
    def met(self) -> bool:
        """Whether the bound holds."""
        return self.measured <= self.bound.factor


@dataclass(frozen=True, slots=True)
class Limit:
    """What a benchmark promises in figures: `case` takes at most `at_most` milliseconds, or so much memory or disk.

    A case that is measured in kilobytes or megabytes is not timed: called once, it returns how many.
    """

    case: str
    at_most: float
    unit: Literal["ms", "kB", "MB"]


@dataclass(frozen=True, slots=True)
class Figure:
    """A limit, and what was measured."""

    limit: Limit
    measured: float

    @property
    def met(self) -> bool:
        """Whether the limit is kept."""
        return self.measured <= self.limit.at_most


def measure(cases: Mapping[str, Callable[[], object]], *, rounds: int, calls: int) -> dict[str, float]:
    """Microseconds a call, the median of `rounds`; in each round every case is called `calls` times in a row."""
    for case in cases.values():
        time_calls(case, calls)
    taken: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(rounds):
        for name, case in cases.items():
            taken[name].append(time_calls(case, calls))
    return {name: statistics.median(times) for name, times in taken.items()}


def ratios(times: Mapping[str, float], bounds: Sequence[Bound]) -> list[Ratio]:
    """Each bound with the ratio that was measured."""
    return [Ratio(bound, times[bound.case] / times[bound.floor]) for bound in bounds]


def figures(
    cases: Mapping[str, Callable[[], object]], times: Mapping[str, float], limits: Sequence[Limit]
) -> list[Figure]:
    """Each limit with the figure that was measured.

    Raises:
        TypeError: a case that is measured in kilobytes or megabytes returns something else than a number.
    """
    found: list[Figure] = []
    for limit in limits:
        measured: object = times[limit.case] / 1000 if limit.unit == "ms" else cases[limit.case]()
        if not isinstance(measured, int | float):
            raise TypeError(f"{limit.case} is measured in {limit.unit}, and its case returns {measured!r}")
        found.append(Figure(limit, measured))
    return found


def timed(cases: Mapping[str, Callable[[], object]], limits: Sequence[Limit]) -> dict[str, Callable[[], object]]:
    """The cases that are timed."""
    sizes = {limit.case for limit in limits if limit.unit != "ms"}
    return {name: case for name, case in cases.items() if name not in sizes}


def time_calls(case: Callable[[], object], calls: int) -> float:
    """The microseconds that one call takes, of `calls` in a row."""
    gc.collect()
    gc.disable()
    try:
        start = time.perf_counter()
        for _ in range(calls):
            case()
        return (time.perf_counter() - start) / calls * 1e6
    finally:
        gc.enable()
