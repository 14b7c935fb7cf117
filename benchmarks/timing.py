"""Timing of several things in one process, turn by turn, so that what slows the machine slows all of them alike.

The garbage collector is on, as in programs: what a call leaves alive or in cycles is part of what it costs.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Literal, Self, TypeAlias

Sense: TypeAlias = Literal["at most", "at least"]
"""On which side of a bound a measured value holds."""

Unit: TypeAlias = Literal[
    "ms",
    "ms at the longest",
    "ms over its bare evaluation",
    "ms over a direct call",
    "ms in Chromium",
    "x",
    "us over a loop by hand",
    "kB",
    "MB",
    "s",
    "calls/s",
    "runs/s",
    "% of a core",
    "round trips",
    "times its bytes",
]
"""What a limit is measured in."""

Clock: TypeAlias = Literal["time", "processor"]
"""What is compared of two timings."""


def count(text: str) -> int:
    """The value of an option that says how often something is done.

    Raises:
        argparse.ArgumentTypeError: it is not a whole number, or below one.
    """
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 on")
    return int(text)


_PLACES: Mapping[str, int] = {"s": 0, "calls/s": 0, "runs/s": 0, "% of a core": 1, "round trips": 1}


@dataclass(frozen=True, slots=True)
class Bound:
    """What a benchmark promises: `case` takes at most `factor` times what `floor` takes.

    With the sense "at least": `case` makes at least `factor` times as many calls a second as `floor`. With the clock
    "processor" the time that the process uses of its processors is compared, in place of the time that passes.
    """

    case: str
    floor: str
    factor: float
    sense: Sense = "at most"
    clock: Clock = "time"

    @property
    def label(self) -> str:
        """What is compared, for a table."""
        ending = ", processor time" if self.clock == "processor" else ", in calls/s" if self.sense == "at least" else ""
        return f"{self.case} / {self.floor}{ending}"


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
    """A limit, and what was measured.

    Attributes:
        limit: the limit.
        measured: the figure, in its unit.
        collector: milliseconds of it that the garbage collector took; `None` where it is not a time of this process.
    """

    limit: Limit
    measured: float
    collector: float | None = None

    @property
    def met(self) -> bool:
        """Whether the limit is kept."""
        return self.limit.amount is None or _holds(self.measured, self.limit.sense, self.limit.amount)


@dataclass(frozen=True, slots=True)
class Timing:
    """Microseconds that a call takes.

    Attributes:
        time: what passes.
        processor: what this process uses of its processors, on all threads.
        collector: what the garbage collector of this process takes of the time.
    """

    time: float
    processor: float
    collector: float


class Stopwatch:
    """Times its block, and the garbage collections in it."""

    def __init__(self) -> None:
        self._time = self._processor = self._collector = self._collection = 0.0

    def __enter__(self) -> Self:
        gc.callbacks.append(self._time_collection)
        self._processor, self._time = time.process_time(), time.perf_counter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._time, self._processor = time.perf_counter() - self._time, time.process_time() - self._processor
        gc.callbacks.remove(self._time_collection)

    def timing(self, calls: int = 1) -> Timing:
        """The time of one of so many calls, once the block has ended."""
        per_call = 1e6 / calls
        return Timing(self._time * per_call, self._processor * per_call, self._collector * per_call)

    def _time_collection(self, phase: str, _: object) -> None:
        if phase == "start":
            self._collection = time.perf_counter()
        else:
            self._collector += time.perf_counter() - self._collection


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
) -> dict[str, Timing]:
    """What a call takes; in each round every case is called `calls` times in a row, and `take` picks a round."""
    for case in cases.values():
        time_calls(case, calls)
    timings: dict[str, list[Timing]] = {name: [] for name in cases}
    for _ in range(rounds):
        for name, case in cases.items():
            timings[name].append(time_calls(case, calls))
    return {
        name: Timing(
            take([timing.time for timing in of_case]),
            take([timing.processor for timing in of_case]),
            take([timing.collector for timing in of_case]),
        )
        for name, of_case in timings.items()
    }


def ratios(timings: Mapping[str, Timing], bounds: Sequence[Bound]) -> list[Ratio]:
    """Each bound with the ratio that was measured."""
    return [Ratio(bound, _ratio(bound, timings[bound.case], timings[bound.floor])) for bound in bounds]


def _ratio(bound: Bound, case: Timing, floor: Timing) -> float:
    ratio = case.processor / floor.processor if bound.clock == "processor" else case.time / floor.time
    return ratio if bound.sense == "at most" else 1 / ratio


def figures(
    cases: Mapping[str, Callable[[], object]], timings: Mapping[str, Timing], limits: Sequence[Limit]
) -> list[Figure]:
    """Each limit with the figure that was measured.

    Raises:
        TypeError: a case that is not timed returns neither a number nor a `Timing`.
    """
    return [_figure(limit, timings[limit.case] if limit.unit == "ms" else cases[limit.case]()) for limit in limits]


def _figure(limit: Limit, measured: object) -> Figure:
    if isinstance(measured, Timing):
        return Figure(limit, measured.time / 1000, measured.collector / 1000)
    if not isinstance(measured, int | float):
        raise TypeError(f"{limit.case} is measured in {limit.unit}, and its case returns {measured!r}")
    return Figure(limit, measured)


def timed(cases: Mapping[str, Callable[[], object]], limits: Sequence[Limit]) -> dict[str, Callable[[], object]]:
    """The cases that are timed."""
    sizes = {limit.case for limit in limits if limit.unit != "ms"}
    return {name: case for name, case in cases.items() if name not in sizes}


def time_calls(case: Callable[[], object], calls: int) -> Timing:
    """What one call takes, of `calls` in a row; a `Block` makes several each time. What was left before is removed."""
    each = case.calls if isinstance(case, Block) else 1
    gc.collect()
    with Stopwatch() as stopwatch:
        for _ in range(calls):
            case()
    return stopwatch.timing(calls * each)


def formatted(amount: float, unit: str = "") -> str:
    """A figure or a ratio, for a table."""
    return f"{amount:.{_PLACES.get(unit, 2)}f}"


def _holds(measured: float, sense: Sense, wanted: float) -> bool:
    return measured <= wanted if sense == "at most" else measured >= wanted
