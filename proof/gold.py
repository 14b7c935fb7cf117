"""Gold action replay under faults: the calls that solve the tasks of published sets, one of each task struck once.

| row | the state of the task is | the fault |
|---|---|---|
| `SET-in-process` | in the program, as its tools see it | an exception at a line of the function, or after its last |
| `SET-killed` | in the world | SIGKILL to the program, before the struck function or after it |

These are no scores of the sets' own benchmarks: no model is graded.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from proof.desk import LineCountdown
from proof.faults import Kill, NoFault, StopAtLine
from proof.judge import Ends
from proof.model import Model, Place, Step
from proof.sets import Entry, Environment, entries, load_environment

Mode = Literal["in-process", "killed"]
MODES: tuple[Mode, ...] = ("in-process", "killed")

_MANY = 1_000_000
_ATTEMPTS = 2


@dataclass(frozen=True, slots=True)
class Trial:
    """A task with the call that is struck.

    Attributes:
        entry: the task.
        fault: the fault.
        ends: what may be left.
    """

    entry: Entry
    fault: NoFault
    ends: Ends

    def model(self) -> Model:
        """The model: one call a reply."""
        return Model([[Step("act", call._asdict())] for call in self.entry.calls])


def trials(name: str, mode: Mode, every: int) -> Iterator[Trial]:
    """A trial of every so-manieth entry of a set that changes its state; the same in each run."""
    for number, entry in enumerate(entries(name)):
        if number % every == 0 and (changing := _changing(entry)):
            yield _trial(entry, changing, mode)


def identify(function: str, arguments: object) -> str:
    """A call as text that can be counted."""
    return f"{function} {arguments}"


def _trial(entry: Entry, changing: dict[int, int], mode: Mode) -> Trial:
    dice = random.Random(f"{entry.name} {mode}")
    struck = dice.choice([*changing])
    fault: NoFault = StopAtLine(struck, dice.randint(1, changing[struck] + 1))
    if mode == "killed":
        fault = Kill(struck, dice.choice(("before", "after")))
    calls = Counter(identify(*entry.calls[each]) for each in changing)
    ends = Ends(_run(entry).dump(), _run(entry, leave_out=struck).dump(), Place(struck, 0), calls)
    return Trial(entry, fault, ends)


def _changing(entry: Entry) -> dict[int, int]:
    """The calls that change the state, each with its number of lines."""
    environment, lines = load_environment(entry.name), dict[int, int]()
    before = environment.dump()
    for number, call in enumerate(entry.calls):
        countdown = LineCountdown(_MANY, environment.modules)
        traced = sys.gettrace()
        sys.settrace(countdown.enter)
        try:
            environment.act(*call)
        finally:
            sys.settrace(traced)
        after = environment.dump()
        if after != before:
            lines[number] = _MANY - countdown.left
        before = after
    return lines


def _run(entry: Entry, leave_out: int = -1) -> Environment:
    """What the calls leave, or all but one: as the model does, each that fails is tried twice."""
    environment = load_environment(entry.name)
    for number, call in enumerate(entry.calls):
        for _ in range(_ATTEMPTS if number != leave_out else 0):
            try:
                environment.act(*call)
                break
            except Exception:  # noqa: BLE001, S112 - of any function of the sets
                continue
    return environment
