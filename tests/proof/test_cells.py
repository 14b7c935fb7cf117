"""Cells of the table by failure, played for real: programs of this environment, killed and started again."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Generator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from proof.cells import play
from proof.faults import EditStore, Kill, NoFault
from proof.judge import Count
from proof.lives import Lives
from proof.model import Model
from proof.rows import ROWS, Row
from proof.world import World

KILLED, KILLED_BEFORE, KILLED_HALFWAY = (
    next(row for row in ROWS if row.name == name) for name in ("killed", "killed-before", "half-way-killed")
)


@pytest.fixture(scope="module", params=["plain", "handrail_plain"])
def lives(request: pytest.FixtureRequest) -> Generator[tuple[str, Lives]]:
    """The program of a column, in the environment of the tests."""
    program: str = request.param
    with Lives(Path(sys.executable), program, {}) as started:
        yield program, started


def test_a_kill_after_the_effect_repeats_it_only_without_handrail(lives: tuple[str, Lives]) -> None:
    """The cell of the table, with one of its kills."""
    program, started = lives
    count = play(replace(KILLED, blows=KILLED.blows[1:2]), started)
    outcome = Count(of=3, unknown=1) if program == "handrail_plain" else Count(of=3, twice=2)
    assert replace(count, asked=0) == outcome


def test_a_kill_before_the_effect_leaves_it_unknown_only_with_handrail(lives: tuple[str, Lives]) -> None:
    """It is said to be unknown, and was not made; without, the payment before it is repeated."""
    program, started = lives
    count = play(replace(KILLED_BEFORE, blows=KILLED_BEFORE.blows[1:2]), started)
    outcome = Count(of=3, unknown=1, unmade=1) if program == "handrail_plain" else Count(of=3, twice=1)
    assert replace(count, asked=0) == outcome


def test_a_kill_between_state_and_files_leaves_a_half_only_without_handrail(lives: tuple[str, Lives]) -> None:
    """With it, both are rolled back, and the state that was there before survives the process."""
    program, started = lives
    count = play(replace(KILLED_HALFWAY, blows=KILLED_HALFWAY.blows[1:2]), started)
    assert replace(count, asked=0) == Count(of=1, wrong=int(program == "plain"))


def test_a_fault_that_does_not_land_makes_the_trial_void(lives: tuple[str, Lives]) -> None:
    """Nothing else is counted of it."""
    _, started = lives
    row = replace(KILLED, replies=KILLED.replies[:1], blows=[lambda: Kill(7)])
    assert play(row, started) == Count(void=1)


def test_without_a_fault_each_order_is_paid_once(lives: tuple[str, Lives]) -> None:
    """So what the table counts comes from the faults."""
    _, started = lives
    assert replace(play(_harmless(), started), asked=0) == Count(of=3)


@pytest.mark.parametrize("pragma", ["journal_mode=WAL", "journal_mode=DELETE"])
def test_stored_arguments_are_changed_wherever_they_are(tmp_path: Path, pragma: str) -> None:
    """In databases, also below base64 and without row ids, and in files; the fault has landed if there was a place."""
    (tmp_path / "pending.json").write_text('{"amount": "10.00"}')
    fault, world = EditStore("10.00", "99.00"), World(tmp_path, Model([]), NoFault())
    with closing(sqlite3.connect(tmp_path / "some.db")) as database:
        database.execute(f"PRAGMA {pragma}")
        database.execute("CREATE TABLE calls (id TEXT PRIMARY KEY, value BLOB) WITHOUT ROWID")
        rows = [("text", "pay 10.00"), ("bytes", b"\x00 10.00"), ("base64", "cGF5IDEwLjAw"), ("number", 1)]
        database.executemany("INSERT INTO calls VALUES (?, ?)", rows)
        database.commit()
        fault.strike("person", {}, world)
        changed = dict(database.execute("SELECT id, value FROM calls"))
    assert changed == {"text": "pay 99.00", "bytes": b"\x00 99.00", "base64": "cGF5IDk5LjAw", "number": 1}
    assert "99.00" in (tmp_path / "pending.json").read_text()
    assert fault.has_landed(world, [0])


def test_a_store_without_the_arguments_makes_the_edit_void(tmp_path: Path) -> None:
    """A program that stores nothing cannot be misled so."""
    fault, world = EditStore("10.00", "99.00"), World(tmp_path, Model([]), NoFault())
    fault.strike("person", {}, world)
    assert not fault.has_landed(world, [0])


def _harmless() -> Row:
    return replace(KILLED, blows=[NoFault])
