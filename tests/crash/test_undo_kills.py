"""Undo whose process is killed: `make chaos` in short."""

from __future__ import annotations

import random

import pytest

from chaos.undo import kills
from chaos.undo.desk import CALLS
from chaos.undo.kills import Database
from tests.extent import FULL, SHORT


@pytest.mark.timeout(300)  # of the full form: each round starts a program, and some kills wait for a lease
@pytest.mark.parametrize("database", ["sqlite", "postgres"])
@pytest.mark.short(1)
def test_undo_that_is_killed_and_asked_again_undoes_each_call_once(database: Database) -> None:
    """Nothing is refunded twice or left out; plan, report and conversation are those of an undisturbed undo."""
    count = kills.play(database, 60 if FULL else 3 if SHORT else 6, random.Random(f"0 {database}"))  # noqa: S311 - no secret
    assert count.faults == []
    assert (count.twice, count.left_out) == (0, 0)
    assert count.kills.total() > 0
    assert count.calls == count.rounds * len(CALLS)
