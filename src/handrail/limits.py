"""What bounds a run, and what names it: deadlines, budgets, heartbeats, correlation ids.

`Deadline`, `Budget`, `TokenUsage` and `RunContext` are values. `BudgetTracker` and `Heartbeat` are the two that change;
each guards itself with a lock of its own and calls nobody while it holds it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Self

from handrail.clock import SYSTEM_CLOCK, Clock
from handrail.errors import BudgetExceededError, DeadlineExceededError
from handrail.errors.developer import check_argument

__all__ = ["Budget", "BudgetTracker", "Deadline", "Heartbeat", "RunContext", "TokenUsage", "seconds_left"]

_NO_TIME = timedelta(0)


@dataclass(frozen=True, slots=True)
class Deadline:
    """The moment by which work must have ended, on the wall clock.

    Attributes:
        expires_at: an aware datetime, in any zone.
        clock: what the deadline is measured against; it takes no part in comparing deadlines.

    Raises:
        InvalidArgumentError: `expires_at` is not a `datetime`.
        ValueError: `expires_at` is naive.
    """

    expires_at: datetime
    clock: Clock = field(default=SYSTEM_CLOCK, compare=False, repr=False)

    def __post_init__(self) -> None:
        expected = "an aware datetime: datetime.now(UTC) + timedelta(minutes=5)"
        check_argument("Deadline", "expires_at", self.expires_at, datetime, expected)
        if self.expires_at.utcoffset() is None:
            message = (
                f"Deadline needs an aware datetime, and {self.expires_at.isoformat()} has no time zone. Make one with "
                "datetime.now(UTC) + timedelta(minutes=5), or write Deadline.after(timedelta(minutes=5))."
            )
            raise ValueError(message)

    @classmethod
    def after(cls, span: timedelta, *, clock: Clock = SYSTEM_CLOCK) -> Self:
        """The deadline that lies `span` from now on `clock`; one that has passed already if `span` is not positive.

        Raises:
            InvalidArgumentError: `span` is not a `timedelta`.
        """
        check_argument("Deadline.after", "span", span, timedelta, "a span with its unit: timedelta(minutes=5)")
        return cls(clock.now() + span, clock)

    def remaining(self) -> timedelta:
        """The time that is left; zero, never less, once the deadline has passed."""
        return max(self.expires_at - self.clock.now(), _NO_TIME)

    @property
    def expired(self) -> bool:
        """Whether the deadline has passed; it has at the very moment `expires_at`."""
        return self.clock.now() >= self.expires_at


def seconds_left(deadline: Deadline | None) -> float | None:
    """The time until a deadline, in seconds, at least 0; `None` without a deadline."""
    return None if deadline is None else deadline.remaining().total_seconds()


@dataclass(frozen=True, slots=True)
class TokenUsage:
    """The tokens that requests to a model took.

    Attributes:
        input: tokens sent, those read from the provider's cache included.
        output: tokens received.
        cached: how many of `input` came from the provider's cache.

    Raises:
        ValueError: a count is negative.
    """

    input: int = 0
    output: int = 0
    cached: int = 0

    def __post_init__(self) -> None:
        if min(self.input, self.output, self.cached) < 0:
            message = f"token counts are 0 or more, but this usage has {self}"
            raise ValueError(message)

    @property
    def total(self) -> int:
        """Tokens sent and received."""
        return self.input + self.output

    def __add__(self, other: TokenUsage) -> TokenUsage:
        return TokenUsage(self.input + other.input, self.output + other.output, self.cached + other.cached)


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What a run may use up; a limit that is `None` does not bind.

    Attributes:
        deadline: the moment by which the run must have ended.
        max_total_tokens: tokens sent and received, together.
        max_input_tokens: tokens sent.
        max_output_tokens: tokens received.
        max_tool_calls: calls asked for by the model, whatever became of them.

    Raises:
        ValueError: a limit is not positive; the message names every such limit.
    """

    deadline: Deadline | None = None
    max_total_tokens: int | None = None
    max_input_tokens: int | None = None
    max_output_tokens: int | None = None
    max_tool_calls: int | None = None

    def __post_init__(self) -> None:
        limits = {
            "max_total_tokens": self.max_total_tokens,
            "max_input_tokens": self.max_input_tokens,
            "max_output_tokens": self.max_output_tokens,
            "max_tool_calls": self.max_tool_calls,
        }
        faults = [f"{name}={limit}" for name, limit in limits.items() if limit is not None and limit <= 0]
        if faults:
            message = f"a budget's limits are 1 or more, or None for no limit; this one has {', '.join(faults)}"
            raise ValueError(message)


class BudgetTracker:
    """Counts what has been used of one budget. Threads may share it.

    Each evaluation reports its own usage so far, and the latest report replaces the one before, so a report that
    arrives twice counts once. The evaluations are added up.
    """

    __slots__ = ("_budget", "_calls", "_lock", "_usage")

    def __init__(self, budget: Budget) -> None:
        check_argument("BudgetTracker", "budget", budget, Budget, "a Budget: Budget(max_total_tokens=10_000)")
        self._budget = budget
        self._lock = threading.Lock()
        self._usage: dict[str, TokenUsage] = {}
        self._calls = 0

    @property
    def budget(self) -> Budget:
        """The budget that is tracked."""
        return self._budget

    def record(self, evaluation_id: str, usage: TokenUsage) -> None:
        """Take `usage` as all that the evaluation has used since it began."""
        with self._lock:
            self._usage[evaluation_id] = usage

    def record_call(self) -> None:
        """Count one tool call."""
        with self._lock:
            self._calls += 1

    @property
    def consumed(self) -> TokenUsage:
        """The tokens that all evaluations have used together."""
        with self._lock:
            return sum(self._usage.values(), start=TokenUsage())

    @property
    def calls(self) -> int:
        """The tool calls that were counted."""
        with self._lock:
            return self._calls

    def check(self) -> None:
        """Raise if more than the budget has been used; using it up to the last token is within it.

        Raises:
            DeadlineExceededError: the budget's deadline has passed. It is looked at first.
            BudgetExceededError: a limit is exceeded; the first one in the order of the budget's fields.
        """
        budget = self._budget
        if budget.deadline is not None and budget.deadline.expired:
            message = f"the budget's deadline, {budget.deadline.expires_at.isoformat()}, has passed"
            raise DeadlineExceededError(message)
        consumed = self.consumed
        used_and_allowed = (
            ("total tokens", consumed.total, budget.max_total_tokens),
            ("input tokens", consumed.input, budget.max_input_tokens),
            ("output tokens", consumed.output, budget.max_output_tokens),
            ("tool calls", self.calls, budget.max_tool_calls),
        )
        for dimension, used, allowed in used_and_allowed:
            if allowed is not None and used > allowed:
                raise BudgetExceededError(dimension=dimension, used=used, allowed=allowed)


class Heartbeat:
    """Says that work goes on: whoever works beats, whoever watches asks for the time since, or is called.

    Threads may share it. The time counts from the making of the heartbeat until the first beat.
    """

    __slots__ = ("_callbacks", "_clock", "_last", "_lock")

    def __init__(self, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._last = clock.monotonic()
        self._callbacks: tuple[Callable[[], object], ...] = ()

    def add_callback(self, callback: Callable[[], object]) -> None:
        """Have `callback` called at every beat from now on, in the thread that beats, after those added before it."""
        with self._lock:
            self._callbacks = (*self._callbacks, callback)

    def remove_callback(self, callback: Callable[[], object]) -> None:
        """Stop calling `callback`; one that was never added is no fault, one added twice is called no more at all."""
        with self._lock:
            self._callbacks = tuple(other for other in self._callbacks if other != callback)

    def beat(self) -> None:
        """Note that work goes on, and call every callback.

        Raises:
            Exception: what the first failing callback raised (a lost lease reaches the worker this way), once all have
                been called; notes on it name the later failures. The beat counts all the same.
        """
        with self._lock:
            self._last = self._clock.monotonic()
            callbacks = self._callbacks
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
    """The ids that tie a run to what surrounds it. Handrail carries them along and reads nothing into them.

    Attributes:
        run_id: one run, from its start to its end.
        request_id: what the run was asked for; it stays the same when the run is tried again.
        session_id: the session that the run works on.
        attempt: 1 for the first try at the request.
        worker_id: the process or machine that runs it.
        trace_id: the trace that the run belongs to, as the tracing system writes it.
        span_id: the span that the run belongs to, as the tracing system writes it.

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
            message = f"attempts are counted from 1, so attempt={self.attempt} is none"
            raise ValueError(message)

    @classmethod
    def start(cls, new_id: Callable[[], str], *, session_id: str | None = None, worker_id: str | None = None) -> Self:
        """The context of a first attempt, with a run id and a request id from `new_id`."""
        return cls(run_id=new_id(), request_id=new_id(), session_id=session_id, worker_id=worker_id)

    def next_attempt(self, new_id: Callable[[], str]) -> RunContext:
        """The context of another try at the same request: a new run id from `new_id`, the attempt after this one."""
        return replace(self, run_id=new_id(), attempt=self.attempt + 1)
