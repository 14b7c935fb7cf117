"""What goes wrong in the external handlers of a worker: they raise before the effect and after it, or end too late.

An exception of `PROOFS` is raised only before the effect, because the ledger believes it. One of `DOUBTS` is raised
before the effect and after it: it proves nothing, so the effect must be unknown in either case.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import timedelta
from typing import NamedTuple, TypeAlias

from handrail.errors import EffectNotApplied, EffectUncertain, ToolValidationError

MARK = "(chaos)"
"""Stands in the message of each exception, so that the notes of the ledger say which effects are unknown for one."""

TIMEOUT = timedelta(milliseconds=30)
"""How long a handler may take."""

NOT_APPLIED_ON = (ConnectionRefusedError,)
"""What the tools declare as `External.not_applied_on`."""

_LONGEST_DELAY = 4
"""Timeouts that a late handler takes at most; the call that it belongs to is asked again before that, or after."""

Failure: TypeAlias = Callable[[], Exception]

PROOFS: dict[str, Failure] = {
    "ToolValidationError": lambda: ToolValidationError(f"the order is not for sale {MARK}"),
    "EffectNotApplied": lambda: EffectNotApplied(f"the shop is closed {MARK}"),
    "ConnectionRefusedError": lambda: ConnectionRefusedError(f"nobody listens {MARK}"),
    "group of proofs": lambda: ExceptionGroup(
        f"two servers {MARK}", [ConnectionRefusedError("nobody listens"), EffectNotApplied("the shop is closed")]
    ),
}
"""Exceptions that prove that nothing happened."""

DOUBTS: dict[str, Failure] = {
    "TimeoutError": lambda: TimeoutError(f"read timed out {MARK}"),
    "ConnectionResetError": lambda: ConnectionResetError(f"the connection was lost {MARK}"),
    "ConnectionError": lambda: ConnectionError(f"no connection {MARK}"),
    "KeyError": lambda: KeyError(f"receipt {MARK}"),
    "ValueError": lambda: ValueError(f"what was answered is not JSON {MARK}"),
    "EffectUncertain": lambda: EffectUncertain(f"no answer {MARK}"),
    "group of both": lambda: ExceptionGroup(
        f"two servers {MARK}", [ConnectionRefusedError("nobody listens"), TimeoutError("read timed out")]
    ),
}
"""Exceptions that prove nothing."""


class Plan(NamedTuple):
    """What one run of a handler does beside its effect.

    Attributes:
        wait_before: how many seconds it takes before the effect; 0 for none.
        before: what it raises then, before the effect, if it does.
        wait_after: how many seconds it takes after the effect.
        after: what it raises then, if it does.
    """

    wait_before: float = 0.0
    before: Failure | None = None
    wait_after: float = 0.0
    after: Failure | None = None

    def enter(self) -> None:
        """Come to the effect, after `wait_before`.

        Raises:
            Exception: what the plan says.
        """
        if self.before is not None:
            raise self.before()

    def leave(self) -> None:
        """Come to the end, after `wait_after`.

        Raises:
            Exception: what the plan says.
        """
        if self.after is not None:
            raise self.after()


class Faults:
    """Draws a plan for each run of a handler.

    Args:
        seed: where chance begins.
    """

    def __init__(self, seed: int) -> None:
        self._dice = random.Random(seed)

    def plan(self) -> Plan:
        """What the next run of a handler does; every second one is without a fault."""
        dice = self._dice
        delay = dice.choice(("none", "none", "none", "none", "before", "after"))
        seconds = TIMEOUT.total_seconds() * (1 + (_LONGEST_DELAY - 1) * dice.random() ** 2)  # mostly a little too late
        failures = ("", "", "", "", "proof", "doubt", "after", "after")
        before, after = seconds * (delay == "before"), seconds * (delay == "after")
        match dice.choice(failures):
            case "proof":
                return Plan(before, dice.choice([*PROOFS.values()]), after)
            case "doubt":
                return Plan(before, dice.choice([*DOUBTS.values()]), after)
            case "after":
                return Plan(before, None, after, dice.choice([*DOUBTS.values()]))
            case _:
                return Plan(before, None, after)
