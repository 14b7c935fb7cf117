"""Timing of several things in one process, turn by turn, so that what slows the machine slows all of them alike."""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

Sense: TypeAlias = Literal["at most", "at least"]
"""On which side of a bound a measured value holds."""

Unit: TypeAlias = Literal[
    "ms",
    "ms at the longest",
    "ms over its bare evaluation",
    "kB",
    "MB",
    "s",
    "calls/s",
    "% of a core",
    "round trips",
    "times its bytes",
]
"""What a limit is measured in."""


def count(text: str) -> int:
    """The value of an option that says how often something is done.

    Raises:
        argparse.ArgumentTypeError: it is not a whole number, or below one.
    """
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 on")
    return int(text)


_PLACES: Mapping[str, int] = {"s": 0, "calls/s": 0, "% of a core": 0, "round trips": 1}


@dataclass(frozen=True, slots=True)
class Bound:
    """What a benchmark promises: `case` takes at most `factor` times what `floor` takes.

    With the sense "at least": `case` makes at least `factor` times as many calls a second as `floor`.
    """

    case: str
    floor: str
    factor: float
    sense: Sense = "at most"

    @property
    def label(self) -> str:
        """What is compared, for a table."""
        return f"{self.case} / {self.floor}" + (", in calls/s" if self.sense == "at least" else "")


@dataclass(frozen=True, slots=True)
class Ratio:
    """A bound, and what was measured."""

    bound: Bound
    measured: float

    @property
    def met(self) -> bool:
        """Whether the bound holds."""
        return _holds(self.measured, self.bound.sense, self.bound.factor)


@dataclass(frozen=True, slots=True)
class Limit:
    """What a benchmark promises in figures: `case` takes at most `amount` milliseconds, or so much memory or disk.

    Only a case that is measured in "ms" is timed; another one is called once, and returns its figure. A limit without
    an amount promises nothing: its figure is only shown.
    """

    case: str
    amount: float | None
    unit: Unit
    sense: Sense = "at most"

    @property
    def label(self) -> str:
        """What is measured, for a table."""
        return f"{self.case}, in {self.unit}"


@dataclass(frozen=True, slots=True)
class Figure:
    """A limit, and what was measured."""

    limit: Limit
    measured: float

    @property
    def met(self) -> bool:
        """Whether the limit is kept."""
        return self.limit.amount is None or _holds(self.measured, self.limit.sense, self.limit.amount)


@dataclass(frozen=True, slots=True)
class Block:
    """A case that makes many calls each time it is called; it is timed by the call.

    Attributes:
        calls: how many.
        run: makes them.
    """

    calls: int
    run: Callable[[], object]

    def __call__(self) -> object:
        """Make the calls."""
        return self.run()


def measure(
    cases: Mapping[str, Callable[[], object]],
    *,
    rounds: int,
    calls: int,
    take: Callable[[Sequence[float]], float] = statistics.median,
) -> dict[str, float]:
    """Microseconds a call; in each round every case is called `calls` times in a row, and `take` picks a round."""
    for case in cases.values():
        time_calls(case, calls)
    taken: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(rounds):
        for name, case in cases.items():
            taken[name].append(time_calls(case, calls))
    return {name: take(times) for name, times in taken.items()}


def ratios(times: Mapping[str, float], bounds: Sequence[Bound]) -> list[Ratio]:
    """Each bound with the ratio that was measured."""
    found: list[Ratio] = []
    for bound in bounds:
        taken = times[bound.case] / times[bound.floor]
        found.append(Ratio(bound, taken if bound.sense == "at most" else 1 / taken))
    return found


def figures(
    cases: Mapping[str, Callable[[], object]], times: Mapping[str, float], limits: Sequence[Limit]
) -> list[Figure]:
    """Each limit with the figure that was measured.

    Raises:
        TypeError: a case that is not timed returns something else than a number.
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
    """The microseconds that one call takes, of `calls` in a row; a `Block` makes several each time."""
    each = case.calls if isinstance(case, Block) else 1
    gc.collect()
    gc.disable()
    try:
        start = time.perf_counter()
        for _ in range(calls):
            case()
        return (time.perf_counter() - start) / (calls * each) * 1e6
    finally:
        gc.enable()


def formatted(amount: float, unit: str = "") -> str:
    """A figure or a ratio, for a table."""
    return f"{amount:.{_PLACES.get(unit, 2)}f}"


def _holds(measured: float, sense: Sense, wanted: float) -> bool:
    return measured <= wanted if sense == "at most" else measured >= wanted
