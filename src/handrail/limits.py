"""Deadlines, budgets, heartbeats and correlation ids of a run."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from typing import Self

from handrail.clock import SYSTEM_CLOCK, Clock
from handrail.errors import BudgetExceededError, DeadlineExceededError

__all__ = ["Budget", "BudgetTracker", "Deadline", "Heartbeat", "RunContext", "TokenUsage", "seconds_left", "time_limit"]

_NO_TIME = timedelta(0)


@dataclass(frozen=True, slots=True)
class Deadline:
    """The moment by which work must have ended: an aware datetime, in any zone.

    Deadlines are compared without their clocks.

    Raises:
        ValueError: `expires_at` is naive.
    """

    expires_at: datetime
    clock: Clock = field(default=SYSTEM_CLOCK, compare=False, repr=False)

    def __post_init__(self) -> None:
        # `tzinfo` alone does not decide: a zone may return no offset, and Python treats such a value as naive.
        if self.expires_at.utcoffset() is None:
            raise ValueError(
                f"Deadline needs an aware datetime, and {self.expires_at.isoformat()} has no time zone. Make one with "
                "datetime.now(UTC) + timedelta(minutes=5), or write Deadline.after(timedelta(minutes=5))."
            )

    @classmethod
    def after(cls, span: timedelta, *, clock: Clock = SYSTEM_CLOCK) -> Self:
        """The deadline `span` from now on `clock`; it has already passed if `span` is not positive."""
        return cls(clock.now() + span, clock)

    def remaining(self) -> timedelta:
        """The remaining time; zero once the deadline has passed."""
        # Never negative: it is passed on as a timeout, and -1 means no limit to `threading.Lock.acquire`.
        return max(self.expires_at - self.clock.now(), _NO_TIME)

    @property
    def expired(self) -> bool:
        """True if the deadline has passed, including the moment `expires_at` itself."""
        return self.clock.now() >= self.expires_at


def time_limit(timeout: timedelta | None, deadline: Deadline | None) -> tuple[float | None, bool]:
    """The seconds that a handler has, `None` for no limit, and whether the deadline sets the limit."""
    seconds, remaining = None if timeout is None else timeout.total_seconds(), seconds_left(deadline)
    if remaining is None or (seconds is not None and seconds <= remaining):
        return seconds, False
    return remaining, True


def seconds_left(deadline: Deadline | None) -> float | None:
    """The time until a deadline, in seconds, at least 0; `None` without a deadline."""
    return None if deadline is None else deadline.remaining().total_seconds()


@dataclass(frozen=True, slots=True)
class TokenUsage:
    """The tokens used by requests to a model: `cached` of the `input` tokens came from the provider's cache.

    Raises:
        ValueError: a count is negative.
    """

    input: int = 0
    output: int = 0
    cached: int = 0

    def __post_init__(self) -> None:
        # A negative count would lower the sum of other evaluations and so raise their limit.
        if min(self.input, self.output, self.cached) < 0:
            raise ValueError(f"token counts are 0 or more, but this usage has {self}")

    @property
    def total(self) -> int:
        """Tokens sent and received."""
        return self.input + self.output

    def __add__(self, other: TokenUsage) -> TokenUsage:
        return TokenUsage(self.input + other.input, self.output + other.output, self.cached + other.cached)


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """The limits of a run; `None` means no limit. `max_total_tokens` is of tokens sent and received, together.

    Attributes:
        max_tool_calls: calls requested by the model, whatever their outcome.

    Raises:
        ValueError: a limit is not positive; the message names every such limit.
    """

    deadline: Deadline | None = None
    max_total_tokens: int | None = None
    max_input_tokens: int | None = None
    max_output_tokens: int | None = None
    max_tool_calls: int | None = None

    def __post_init__(self) -> None:
        limits = {entry.name: getattr(self, entry.name) for entry in fields(self) if entry.name != "deadline"}
        faults = [f"{name}={limit}" for name, limit in limits.items() if limit is not None and limit <= 0]
        if faults:
            raise ValueError(f"a budget's limits are 1 or more, or None for no limit; this one has {', '.join(faults)}")


class BudgetTracker:
    """Counts the usage of one `budget`; `calls` is the number of tool calls. Thread-safe.

    A report replaces the previous one of its evaluation, so reporting is idempotent. The evaluations are added up.
    """

    __slots__ = ("_lock", "_usage", "budget", "calls")

    def __init__(self, budget: Budget) -> None:
        self.budget: Budget = budget
        self.calls: int = 0
        self._lock = threading.Lock()
        # By evaluation and not one sum, because a report replaces the earlier one of its evaluation.
        self._usage: dict[str, TokenUsage] = {}

    def record(self, evaluation_id: str, usage: TokenUsage) -> None:
        """Sets the total usage of an evaluation since its start."""
        with self._lock:
            self._usage[evaluation_id] = usage

    def record_call(self) -> None:
        """Counts one tool call."""
        with self._lock:
            self.calls += 1

    @property
    def consumed(self) -> TokenUsage:
        """The total tokens of all evaluations."""
        with self._lock:
            # Without `start` the sum would begin with the number 0.
            return sum(self._usage.values(), start=TokenUsage())

    def check(self) -> None:
        """Raises if the budget is exceeded; using exactly the limit is permitted.

        Raises:
            DeadlineExceededError: the budget's deadline has passed. It is checked first.
            BudgetExceededError: a limit is exceeded; the first one in the order of the budget's fields.
        """
        budget = self.budget
        if budget.deadline is not None and budget.deadline.expired:
            raise DeadlineExceededError(f"the budget's deadline, {budget.deadline.expires_at.isoformat()}, has passed")
        for dimension, usage, limit in self.usage():
            if usage > limit:
                raise BudgetExceededError(dimension=dimension, usage=usage, limit=limit)

    def usage(self) -> Iterator[tuple[str, int, int]]:
        """Each limit of the budget: of what, the usage of it, the limit; in the order of the budget's fields."""
        budget, consumed = self.budget, self.consumed
        rows = (
            ("total tokens", consumed.total, budget.max_total_tokens),
            ("input tokens", consumed.input, budget.max_input_tokens),
            ("output tokens", consumed.output, budget.max_output_tokens),
            ("tool calls", self.calls, budget.max_tool_calls),
        )
        yield from ((dimension, usage, limit) for dimension, usage, limit in rows if limit is not None)


class Heartbeat:
    """Progress: a worker beats, and a watcher reads the time since the last beat. Thread-safe.

    Until the first beat, the time counts from the creation of the heartbeat.
    """

    __slots__ = ("_clock", "_last")

    def __init__(self, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self.beat()

    def beat(self) -> None:
        """Records a beat."""
        self._last = self._clock.monotonic()

    def elapsed(self) -> timedelta:
        """The time since the last beat."""
        return timedelta(seconds=self._clock.monotonic() - self._last)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext:
    """Correlation ids of a run. Handrail passes them on and does not interpret them.

    Attributes:
        request_id: the same for every `attempt`; the first attempt is 1.
        worker_id: the process or machine of the run.
        trace_id: as the tracing system writes it, like `span_id`.
    """

    run_id: str | None = None
    request_id: str | None = None
    session_id: str | None = None
    attempt: int = 1
    worker_id: str | None = None
    trace_id: str | None = None
    span_id: str | None = None
