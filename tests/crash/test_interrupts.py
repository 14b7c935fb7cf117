"""A call that is interrupted or cancelled: its effect happens at most once, and is not failed if it has happened."""

from __future__ import annotations

import random
from collections.abc import Generator
from contextlib import ExitStack
from pathlib import Path

import pytest

from chaos import cancellations, interrupts
from chaos.interrupts import CASES, Case
from tests.extent import FULL, SHORT, step
from tests.store.postgres_server import fresh_url

pytestmark = [
    pytest.mark.usefixtures("ctrl_c"),
    # Of a call that was interrupted before it had begun.
    pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning"),
    # Of a finalizer that Ctrl-C came to: Python says so, and goes on.
    pytest.mark.filterwarnings("ignore:Exception ignored in:pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[str]:
    """The URL of a store of each kind."""
    urls = {"memory": "memory:", "sqlite": f"sqlite:///{tmp_path / 'desk.db'}"}
    with ExitStack() as held:
        yield urls[request.param] if request.param in urls else held.enter_context(fresh_url())


# Every line of one case takes minutes in the full form.
@pytest.mark.timeout(600)
@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.short(8)
def test_an_interrupt_at_a_line_makes_no_effect_happen_twice(url: str, case: Case) -> None:
    """`make chaos` interrupts a call at every line; this at some of them."""
    count = interrupts.play(url, case, stride=step(8 if SHORT else 4) * 15)
    assert count.lines > 10
    assert count.raised
    assert count.faults == []


@pytest.mark.timeout(600)
@pytest.mark.parametrize("entry", cancellations.ENTRIES)
@pytest.mark.short(2)
def test_a_cancellation_at_any_time_makes_no_effect_happen_twice(url: str, entry: cancellations.Entry) -> None:
    """`make chaos` cancels 3,000 calls through each entry over each store; this some."""
    calls = 100 if FULL else 10
    count = cancellations.play(url, entry, calls=calls, dice=random.Random(0))  # noqa: S311
    assert count.cancelled
    assert count.faults == []
