"""Timing of several things in one process, turn by turn, so that what slows the machine slows all of them alike."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass


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
