"""Death at a named point, as it is armed. Nobody dies here: the killing is handed in."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from handrail import crash_points
from handrail.crash_points import POINTS, reached
from handrail.testing import crash_at
from handrail.testing.crash import CrashTrap
from tests.wording import Wording


@pytest.fixture(autouse=True)
def _disarmed() -> Iterator[None]:
    """Whatever a test has armed, the tests after it live."""
    yield
    crash_points.arm(None)


def test_a_point_that_nobody_has_armed_does_nothing() -> None:
    """The pipeline passes its points at no cost but a comparison."""
    for point in POINTS:
        reached(point)


def test_it_kills_when_the_point_is_reached_for_the_nth_time_and_only_then() -> None:
    """Other points do not count."""
    deaths: list[str] = []
    trap = CrashTrap("after-handler", 2, kill=lambda: deaths.append("now"))
    crash_points.arm(trap)
    for point in ("after-handler", "after-claim", "after-claim"):
        reached(point)
    assert deaths == []
    reached("after-handler")
    assert deaths == ["now"]
    reached("after-handler")
    assert deaths == ["now"]


def test_threads_that_reach_a_point_at_once_are_counted_one_by_one() -> None:
    """There is exactly one nth time."""
    deaths: list[str] = []
    trap = CrashTrap("before-claim", 50, kill=lambda: deaths.append("now"))
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(trap, ["before-claim"] * 100))
    assert deaths == ["now"]


def test_leaving_the_block_takes_the_sentence_back() -> None:
    """This process reaches the point afterwards, and lives."""
    with crash_at("after-handler"):
        reached("before-handler")
    reached("after-handler")


def test_a_point_that_does_not_exist_is_refused_with_the_nearest(wording: Wording) -> None:
    """A mistyped name would never be reached, and a test with it would show nothing."""
    with pytest.raises(ValueError) as raised:
        crash_at("after-handlr")
    assert str(raised.value) == wording
    with pytest.raises(ValueError) as raised:
        crash_at("x")
    assert str(raised.value) == wording
    reached("after-handler")


def test_times_are_counted_from_one(wording: Wording) -> None:
    """There is no zeroth time."""
    with pytest.raises(ValueError) as raised:
        crash_at("after-claim", nth=0)
    assert str(raised.value) == wording
