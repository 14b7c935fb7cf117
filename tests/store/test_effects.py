"""What every store promises of the rows of effects that people look at."""

from __future__ import annotations

from datetime import timedelta

from handrail.store import Store
from handrail.store.protocol import EffectStatus
from handrail.testing import FakeClock
from tests.store.kit import insert, running_row


def test_effects_follow_one_another_by_age(store: Store, clock: FakeClock) -> None:
    """Those that are settled and the others are two lists, and each goes on after any effect."""
    statuses: list[EffectStatus] = ["done", "unknown", "running", "failed", "done"]
    for number, status in enumerate(statuses):
        row = running_row(clock, f"session:pay:{number}", effect_id=f"{number:032x}")
        insert(store, row._replace(status=status))
        clock.advance(timedelta(microseconds=1) if number else timedelta(0))  # the first two are of one moment
    settled = [*store.rows_by_age(is_settled=True)]
    assert [row.key[-1] for row in settled] == ["4", "3", "0"]
    assert [row.key[-1] for row in store.rows_by_age(is_settled=False)] == ["2", "1"]
    first = settled[0]
    assert [*store.rows_by_age(is_settled=True, after=(first.created_at, first.effect_id))] == settled[1:]
    assert [*store.rows_by_age(is_settled=True, after=(settled[2].created_at, "1" * 32))] == settled[2:]
    assert [*store.rows_by_age(is_settled=True, after=(settled[2].created_at, settled[2].effect_id))] == []
