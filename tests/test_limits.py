"""Deadlines, budgets, heartbeats and the ids of a run."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail.clock import SYSTEM_CLOCK
from handrail.errors import BudgetExceededError, DeadlineExceededError
from handrail.limits import Budget, BudgetTracker, Deadline, Heartbeat, TokenUsage
from handrail.testing import FakeClock
from tests.kit import raises
from tests.wording import Wording

MINUTE = timedelta(minutes=1)
SECOND = timedelta(seconds=1)


@pytest.mark.requirement("M-06q")
def test_naive_deadline_is_refused_with_the_cure(wording: Wording) -> None:
    """A naive datetime says no moment; the message says how to make one that does."""
    naive = datetime(2026, 1, 1, 12, tzinfo=UTC).replace(tzinfo=None)
    with raises(ValueError, wording):
        Deadline(naive)


def test_deadline_counts_down_and_stays_at_zero() -> None:
    """What remains is never negative, so that it can serve as a timeout."""
    clock = FakeClock()
    deadline = Deadline.after(MINUTE, clock=clock)
    seen: list[tuple[timedelta, bool]] = []
    for _ in range(4):
        seen.append((deadline.remaining(), deadline.expired))
        clock.advance(30 * SECOND)
    assert seen == [(MINUTE, False), (30 * SECOND, False), (0 * SECOND, True), (0 * SECOND, True)]


def test_deadline_is_one_moment_in_every_zone() -> None:
    """Zones do not change the moment, and the clock takes no part in comparing."""
    clock = FakeClock()
    there = (clock.now() + MINUTE).astimezone(timezone(timedelta(hours=9)))
    assert Deadline(there, clock).remaining() == MINUTE
    assert Deadline(there, clock) == Deadline(there, SYSTEM_CLOCK) == Deadline.after(MINUTE, clock=clock)


def test_all_limits_at_fault_are_named_together(wording: Wording) -> None:
    """A budget of nothing is a mistake; the message names each such limit."""
    with raises(ValueError, wording):
        Budget(max_total_tokens=0, max_input_tokens=5, max_tool_calls=-2)


@pytest.mark.parametrize("usage", [{"input": -1}, {"output": -1}, {"cached": -1}])
def test_usage_that_is_negative_is_refused(usage: dict[str, int]) -> None:
    """A model gives no tokens back."""
    with pytest.raises(ValueError, match="0 or more"):
        TokenUsage(**usage)


LIMITS = [(Budget(max_total_tokens=12), "total"), (Budget(max_input_tokens=10), "input")]


@pytest.mark.parametrize("budget, dimension", [*LIMITS, (Budget(max_output_tokens=2), "output")])
def test_tokens_may_be_used_up_but_not_exceeded(budget: Budget, dimension: str) -> None:
    """The last token is within the budget, the one after it is not."""
    tracker = BudgetTracker(budget)
    tracker.record("a", TokenUsage(input=10, output=2, cached=7))
    tracker.check()
    tracker.record("a", TokenUsage(input=11, output=3, cached=7))
    with pytest.raises(BudgetExceededError) as caught:
        tracker.check()
    assert (caught.value.usage > caught.value.limit, caught.value.dimension) == (True, f"{dimension} tokens")


def test_tool_calls_may_be_used_up_but_not_exceeded(wording: Wording) -> None:
    """Calls are counted one by one."""
    tracker = BudgetTracker(Budget(max_tool_calls=2))
    for _ in range(2):
        tracker.record_call()
    tracker.check()
    tracker.record_call()
    with raises(BudgetExceededError, wording):
        tracker.check()
    assert tracker.calls == 3


def test_deadline_is_part_of_the_budget_and_looked_at_first() -> None:
    """A run whose time is up is told so, whatever else it has used up."""
    clock = FakeClock()
    tracker = BudgetTracker(Budget(deadline=Deadline.after(MINUTE, clock=clock), max_total_tokens=1))
    tracker.check()
    clock.advance(MINUTE)
    tracker.record("a", TokenUsage(5))
    with pytest.raises(DeadlineExceededError, match="2026-01-01T12:01:00"):
        tracker.check()
    assert tracker.budget.max_total_tokens == 1


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 1000), st.integers(0, 1000)), max_size=20))
def test_usage_is_the_sum_of_the_latest_report_of_each_evaluation(reports: list[tuple[str, int, int]]) -> None:
    """A report replaces the evaluation's one before, so a report that arrives twice counts once."""
    tracker = BudgetTracker(Budget())
    for evaluation, sent, received in reports:
        for _ in range(2):
            tracker.record(evaluation, TokenUsage(sent, received, sent // 2))
    latest = {evaluation: (sent, received) for evaluation, sent, received in reports}
    expected = TokenUsage(
        sum(sent for sent, _ in latest.values()),
        sum(received for _, received in latest.values()),
        sum(sent // 2 for sent, _ in latest.values()),
    )
    assert tracker.consumed == expected
    assert tracker.consumed.total == expected.input + expected.output


def test_reports_of_many_threads_all_count() -> None:
    """Threads may share a tracker."""
    tracker = BudgetTracker(Budget())

    def work(number: int) -> None:
        for done in range(1, 101):
            tracker.record(f"evaluation {number}", TokenUsage(input=done))
            tracker.record_call()

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(work, range(8)))
    assert (tracker.consumed, tracker.calls) == (TokenUsage(input=800), 800)


def test_beat_counts_from_the_last_one() -> None:
    """Until the first beat, the time counts from the creation."""
    clock = FakeClock()
    heartbeat = Heartbeat(clock=clock)
    clock.advance(MINUTE)
    assert heartbeat.elapsed() == MINUTE
    heartbeat.beat()
    clock.advance(SECOND)
    assert heartbeat.elapsed() == SECOND
