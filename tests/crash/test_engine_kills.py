"""Programs in durable engines that are killed between a payment and its record: a short form of `make chaos`."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from chaos.books import Books
from chaos.engines import kills
from chaos.engines.kills import Kind
from chaos.engines.scene import Scene, Way
from tests.extent import FULL

_SOME = (
    Kind("DBOS", "PostgreSQL", "executor"),
    Kind("DBOS", "SQLite", "executor"),
    Kind("DBOS", "SQLite", "toolset"),
    Kind("DBOS", "SQLite", "agent"),
    Kind("Celery", "SQLite", "executor"),
    Kind("DBOS", "SQLite", "capability"),
)
# Restate's server is installed by `make test-more` alone.
_KINDS = kills.KINDS if FULL else _SOME
_KILLS = 20 if FULL else 2


# A kill costs a start of the program.
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", [kind for kind in _KINDS if kind.has_handrail], ids=str)
@pytest.mark.short(1)  # `tests/docs/test_engines.py` kills programs on DBOS over SQLite, and on Celery
def test_no_payment_is_made_twice_or_lost_when_the_engine_runs_it_again(kind: Kind) -> None:
    """What the run was answered and what the bank has paid agree; each run ends."""
    count = kills.play(kind, _KILLS, random.Random(f"0 {kind}"))  # noqa: S311
    assert count.faults == []
    assert (count.twice, count.lost) == (0, 0)
    assert count.kills == _KILLS
    assert count.made + count.unknown - count.had_happened == count.asked > 0


@pytest.mark.timeout(120)  # it starts DBOS
@pytest.mark.parametrize(
    "way, paid, second", [("capability", "0 1", "unknown"), ("toolset", "0 1", "unknown"), ("agent", "0 1 0 1", "done")]
)
@pytest.mark.short(1)
def test_an_agent_that_is_killed_after_its_second_payment(way: Way, paid: str, second: str, tmp_path: Path) -> None:
    """A plain agent makes both payments again; with Handrail it makes none, and one outcome is unknown."""
    scene = Scene(
        folder=str(tmp_path),
        url=f"sqlite:///{tmp_path}/desk.db",
        engine_url=f"sqlite:///{tmp_path}/engine.db",
        way=way,
        runs=1,
        payments=2,
        kills=1,
        deaths={"run-0.1": "after"},
    )
    kills.ENGINES["DBOS"](scene)
    books = Books(tmp_path)
    assert [entry["order"].removeprefix("run-0.") for entry in books.read("paid")] == paid.split()
    assert [entry["outcome"] for entry in books.read("answered")] == ["done", second]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", [kind for kind in _KINDS if not kind.has_handrail], ids=str)
@pytest.mark.short(0)  # as the plain agent above
def test_the_same_program_without_handrail_pays_twice(kind: Kind) -> None:
    """So the kills come between the payment and its record."""
    count = kills.play(kind, _KILLS, random.Random(f"0 {kind}"))  # noqa: S311
    assert count.faults == []
    assert count.twice > 0 == count.unknown
