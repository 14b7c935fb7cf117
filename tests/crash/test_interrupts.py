"""A call that is interrupted at a line: its effect happens at most once, and is not failed if it has happened."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from chaos.interrupts import CASES, Case, play
from tests.extent import step
from tests.store.postgres_server import fresh_url

pytestmark = [
    pytest.mark.usefixtures("ctrl_c"),
    # Of a call that was interrupted before it had begun.
    pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning"),
]


# Every line of one case takes minutes in the full form.
@pytest.mark.timeout(600)
@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("kind", ["memory", "sqlite", "postgres"])
def test_an_interrupt_at_a_line_makes_no_effect_happen_twice(kind: str, case: Case, tmp_path: Path) -> None:
    """`make chaos` interrupts a call at every line; this at some of them."""
    urls = {"memory": "memory:", "sqlite": f"sqlite:///{tmp_path / 'desk.db'}"}
    with ExitStack() as held:
        url = urls[kind] if kind in urls else held.enter_context(fresh_url())
        count = play(url, case, stride=step(4) * 15)
    assert count.lines > 10
    assert count.raised
    assert count.faults == []
