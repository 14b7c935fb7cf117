"""Ready feedback providers: a fixed text, the time left, the budget left."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta

from handrail.errors import InvalidArgumentError
from handrail.limits import BudgetTracker
from handrail.prompt.hooks import Feedback, FeedbackContext, FeedbackTrigger

_WRAP_UP = ("Do what matters most first.", "Leave a summary of what is done and of what is not.")


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticFeedback:
    """A fixed text.

    Attributes:
        text: what the model reads.
        trigger: when it reads it.
        name: the name of the provider.

    Raises:
        InvalidArgumentError: the text is not text, or is empty.
    """

    text: str
    trigger: FeedbackTrigger
    name: str = "note"

    def __post_init__(self) -> None:
        Feedback(self.text)  # which checks it

    def provide(self, context: FeedbackContext, /) -> Feedback:  # noqa: ARG002 - the interface's
        """The text."""
        return Feedback(self.text)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadlineFeedback:
    """The time that is left until the deadline of the run. Without a deadline there is nothing to say.

    Attributes:
        trigger: when the model reads it; by default every minute, so not in a run that is shorter.
        warn_below: with less time left, the model is also advised to come to an end.
        name: the name of the provider.
    """

    trigger: FeedbackTrigger = field(default=FeedbackTrigger(every=timedelta(minutes=1)))
    warn_below: timedelta = timedelta(minutes=2)
    name: str = "deadline"

    def provide(self, context: FeedbackContext, /) -> Feedback | None:
        """The time left as hours, minutes and seconds, rounded down."""
        if context.deadline is None:
            return None
        left = context.deadline.remaining()
        if not left:
            return Feedback("The deadline has passed.", ("Give your answer now.",))
        seconds = timedelta(seconds=int(left.total_seconds()))
        return Feedback(f"Time left (h:mm:ss): {seconds}.", _WRAP_UP if left <= self.warn_below else ())


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetFeedback:
    """What is left of the budget of the run: its tokens and its tool calls. Without a budget there is nothing to say.

    Attributes:
        trigger: when the model reads it; by default after every 10 calls.
        warn_at: from this part of a limit on, the model is also advised to come to an end; from 0 to 1.
        name: the name of the provider.

    Raises:
        InvalidArgumentError: `warn_at` is not from 0 to 1.
    """

    trigger: FeedbackTrigger = field(default=FeedbackTrigger(every_calls=10))
    warn_at: float = 0.8
    name: str = "budget"

    def __post_init__(self) -> None:
        if type(self.warn_at) not in {int, float} or not 0 <= self.warn_at <= 1:
            expected = "the part of a limit, from 0 to 1, such as 0.8"
            raise InvalidArgumentError(
                function="BudgetFeedback", argument="warn_at", given=self.warn_at, expected=expected
            )

    def provide(self, context: FeedbackContext, /) -> Feedback | None:
        """What is left of each limit."""
        tracker = context.budget_tracker
        used = () if tracker is None else tuple(_used(tracker))
        if not used:
            return None
        left = ", ".join(f"{max(allowed - count, 0):,} of {allowed:,} {what}" for what, count, allowed in used)
        is_short = any(count >= self.warn_at * allowed for _, count, allowed in used)
        return Feedback(f"Budget left: {left}.", _WRAP_UP if is_short else ())


def _used(tracker: BudgetTracker) -> Iterator[tuple[str, int, int]]:
    """What is limited, how much of it is used, and how much is allowed."""
    budget, consumed = tracker.budget, tracker.consumed
    limits = (
        ("tokens", consumed.total, budget.max_total_tokens),
        ("input tokens", consumed.input, budget.max_input_tokens),
        ("output tokens", consumed.output, budget.max_output_tokens),
        ("tool calls", tracker.calls, budget.max_tool_calls),
    )
    for what, used, allowed in limits:
        if allowed is not None:
            yield what, used, allowed
