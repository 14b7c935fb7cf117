"""The clock that stands still."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta, timezone

import pytest

from handrail.clock import Clock
from handrail.testing import FakeClock
from tests.wording import Wording


def test_time_passes_only_when_told() -> None:
    """Both ways of telling the time stand still, and advance by the same span."""
    fake = FakeClock()
    clock: Clock = fake
    moment, seconds = clock.now(), clock.monotonic()
    assert (clock.now(), clock.monotonic()) == (moment, seconds)
    fake.advance(timedelta(milliseconds=1500))
    assert clock.now() - moment == timedelta(seconds=1.5)
    assert clock.monotonic() - seconds == 1.5


def test_every_clock_starts_at_the_same_moment_unless_told_otherwise() -> None:
    """A test that prints the time prints the same at every run."""
    assert FakeClock().now() == FakeClock().now()


def test_start_in_any_zone_is_told_in_utc() -> None:
    """`now` is in UTC, as `Clock` promises."""
    start = datetime(2026, 3, 1, 9, tzinfo=timezone(timedelta(hours=2)))
    assert FakeClock(start).now().isoformat() == "2026-03-01T07:00:00+00:00"


def test_naive_start_is_refused_with_the_cure(wording: Wording) -> None:
    """A moment without a zone is no moment."""
    naive = datetime(2026, 3, 1, 9, tzinfo=UTC).replace(tzinfo=None)
    with pytest.raises(ValueError) as raised:
        FakeClock(naive)
    assert str(raised.value) == wording


def test_clock_does_not_go_back(wording: Wording) -> None:
    """A refused step leaves the time unchanged."""
    clock = FakeClock()
    moment = clock.now()
    with pytest.raises(ValueError) as raised:
        clock.advance(timedelta(seconds=-1))
    assert str(raised.value) == wording
    assert clock.now() == moment


def test_steps_of_many_threads_all_count() -> None:
    """Threads may share a clock."""
    clock = FakeClock()

    def work() -> None:
        for _ in range(200):
            clock.advance(timedelta(seconds=1))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert clock.monotonic() == 1600
