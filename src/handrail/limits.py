"""Deadlines, budgets, heartbeats and correlation ids of a run."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timedelta
from types import NoneType
from typing import Self

from handrail.clock import SYSTEM_CLOCK, Clock
from handrail.errors import BudgetExceededError, DeadlineExceededError
from handrail.errors.developer import check_argument

__all__ = ["Budget", "BudgetTracker", "Deadline", "Heartbeat", "RunContext", "TokenUsage", "seconds_left", "time_limit"]

_NO_TIME = timedelta(0)


@dataclass(frozen=True, slots=True)
class Deadline:
    """The moment by which work must have ended: an aware datetime, in any zone.

    Deadlines are compared without their clocks.

    Raises:
        InvalidArgumentError: `expires_at` is not a `datetime`.
        ValueError: `expires_at` is naive.
    """

    expires_at: datetime
    clock: Clock = field(default=SYSTEM_CLOCK, compare=False, repr=False)

    def __post_init__(self) -> None:
        expected = "an aware datetime: datetime.now(UTC) + timedelta(minutes=5)"
        check_argument("Deadline", "expires_at", self.expires_at, datetime, expected)
        # `tzinfo` alone does not decide: a zone may return no offset, and Python treats such a value as naive.
        if self.expires_at.utcoffset() is None:
            raise ValueError(
                f"Deadline needs an aware datetime, and {self.expires_at.isoformat()} has no time zone. Make one with "
                "datetime.now(UTC) + timedelta(minutes=5), or write Deadline.after(timedelta(minutes=5))."
            )

    @classmethod
    def after(cls, span: timedelta, *, clock: Clock = SYSTEM_CLOCK) -> Self:
        """The deadline `span` from now on `clock`; it has already passed if `span` is not positive."""
        check_argument("Deadline.after", "span", span, timedelta, "a span with its unit: timedelta(minutes=5)")
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
    seconds = None if timeout is None else timeout.total_seconds()
    if deadline is None:
        return seconds, False
    remaining = deadline.remaining().total_seconds()
    return (remaining, True) if seconds is None or remaining < seconds else (seconds, False)


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
        InvalidArgumentError: a limit is not a whole number, or `deadline` is not a `Deadline`.
    """

    deadline: Deadline | None = None
    max_total_tokens: int | None = None
    max_input_tokens: int | None = None
    max_output_tokens: int | None = None
    max_tool_calls: int | None = None

    def __post_init__(self) -> None:
        limits = {entry.name: getattr(self, entry.name) for entry in fields(self) if entry.name != "deadline"}
        # All types are checked before the first comparison, which would raise a TypeError without the name of the
        # field.
        check_argument("Budget", "deadline", self.deadline, (Deadline, NoneType), "a Deadline, or None")
        for name, limit in limits.items():
            check_argument("Budget", name, limit, (int, NoneType), "a whole number, or None for no limit")
        # After the types, because text cannot be compared with a number.
        faults = [f"{name}={limit}" for name, limit in limits.items() if limit is not None and limit <= 0]
        if faults:
            raise ValueError(f"a budget's limits are 1 or more, or None for no limit; this one has {', '.join(faults)}")


class BudgetTracker:
    """Counts the usage of one budget. Thread-safe.

    A report replaces the previous one of its evaluation, so reporting is idempotent. The evaluations are added up.
    """

    __slots__ = ("_budget", "_calls", "_lock", "_usage")

    def __init__(self, budget: Budget) -> None:
        check_argument("BudgetTracker", "budget", budget, Budget, "a Budget: Budget(max_total_tokens=10_000)")
        self._budget = budget
        self._lock = threading.Lock()
        # By evaluation and not one sum, because a report replaces the earlier one of its evaluation.
        self._usage: dict[str, TokenUsage] = {}
        self._calls = 0

    @property
    def budget(self) -> Budget:
        """The tracked budget."""
        return self._budget

    def record(self, evaluation_id: str, usage: TokenUsage) -> None:
        """Sets the total usage of an evaluation since its start."""
        with self._lock:
            self._usage[evaluation_id] = usage

    def record_call(self) -> None:
        """Counts one tool call."""
        with self._lock:
            self._calls += 1

    @property
    def consumed(self) -> TokenUsage:
        """The total tokens of all evaluations."""
        with self._lock:
            # Without `start` the sum would begin with the number 0.
            return sum(self._usage.values(), start=TokenUsage())

    @property
    def calls(self) -> int:
        """The number of tool calls."""
        with self._lock:
            return self._calls

    def check(self) -> None:
        """Raises if the budget is exceeded; using exactly the limit is permitted.

        Raises:
            DeadlineExceededError: the budget's deadline has passed. It is checked first.
            BudgetExceededError: a limit is exceeded; the first one in the order of the budget's fields.
        """
        budget = self._budget
        if budget.deadline is not None and budget.deadline.expired:
            raise DeadlineExceededError(f"the budget's deadline, {budget.deadline.expires_at.isoformat()}, has passed")
        # `consumed` and `calls` are read under the lock one after the other. Each limit has one count, so they need not
        # be of the same moment.
        consumed = self.consumed
        usage_and_limits = (
            ("total tokens", consumed.total, budget.max_total_tokens),
            ("input tokens", consumed.input, budget.max_input_tokens),
            ("output tokens", consumed.output, budget.max_output_tokens),
            ("tool calls", self.calls, budget.max_tool_calls),
        )
        for dimension, usage, limit in usage_and_limits:
            if limit is not None and usage > limit:
                raise BudgetExceededError(dimension=dimension, usage=usage, limit=limit)


class Heartbeat:
    """Progress: a worker beats, and a watcher reads the time since the last beat, or registers a callback.

    Thread-safe. Until the first beat, the time counts from the creation of the heartbeat.
    """

    __slots__ = ("_callbacks", "_clock", "_last", "_lock")

    def __init__(self, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._last = clock.monotonic()
        self._callbacks: tuple[Callable[[], object], ...] = ()

    def add_callback(self, callback: Callable[[], object]) -> None:
        """Calls `callback` at every beat from now on, in the thread that beats, after those added before it."""
        with self._lock:
            # A new tuple, because `beat` iterates the old one outside the lock.
            self._callbacks = (*self._callbacks, callback)

    def remove_callback(self, callback: Callable[[], object]) -> None:
        """Removes `callback`, also if it was added twice; does nothing if it was not added."""
        with self._lock:
            # By equality: each access to a bound method makes another object.
            self._callbacks = tuple(other for other in self._callbacks if other != callback)

    def beat(self) -> None:
        """Records a beat, and calls every callback.

        Raises:
            Exception: that of the first failing callback (such as a lost lease), after all have been called; later
                failures are
                added as notes. The beat is recorded in any case.
        """
        with self._lock:
            self._last = self._clock.monotonic()
            callbacks = self._callbacks
        # Outside the lock, because a callback may add or remove another one, or beat again.
        failures: list[Exception] = []
        for callback in callbacks:
            try:
                callback()
            except Exception as error:  # noqa: BLE001  # raised below, when every other callback has been called
                failures.append(error)
        if failures:
            first, *others = failures
            for other in others:
                first.add_note(f"another callback of the heartbeat failed too: {other!r}")
            raise first

    def elapsed(self) -> timedelta:
        """The time since the last beat."""
        with self._lock:
            return timedelta(seconds=self._clock.monotonic() - self._last)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext:
    """Correlation ids of a run. Handrail passes them on and does not interpret them.

    Attributes:
        request_id: the same for every `attempt`; the first attempt is 1.
        worker_id: the process or machine of the run.
        trace_id: as the tracing system writes it, like `span_id`.

    Raises:
        ValueError: `attempt` is less than 1.
    """

    run_id: str | None = None
    request_id: str | None = None
    session_id: str | None = None
    attempt: int = 1
    worker_id: str | None = None
    trace_id: str | None = None
    span_id: str | None = None

    def __post_init__(self) -> None:
        if self.attempt < 1:
            raise ValueError(f"attempts are counted from 1, so attempt={self.attempt} is invalid")

    @classmethod
    def start(cls, new_id: Callable[[], str], *, session_id: str | None = None, worker_id: str | None = None) -> Self:
        """The context of a first attempt, with a run id and a request id from `new_id`."""
        return cls(run_id=new_id(), request_id=new_id(), session_id=session_id, worker_id=worker_id)

    def next_attempt(self, new_id: Callable[[], str]) -> RunContext:
        """The context of the next attempt at the same request, with a new run id from `new_id`."""
        return replace(self, run_id=new_id(), attempt=self.attempt + 1)
