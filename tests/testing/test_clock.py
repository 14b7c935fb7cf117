"""The clock that stands still."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

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
