"""After every prefix of the gold actions of BFCL, AgentDojo and the refund desk, the run is undone.

State, files and world then equal the start, but for what was declared irreversible, and what it has used.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from handrail import store as stores
from tests.architecture.sources import ROOT
from tests.extent import FULL, some
from tests.undo.gold import agentdojo, bfcl, desk
from tests.undo.gold.play import play
from tests.undo.gold.worlds import Entry

PAGE = ROOT / "docs" / "explanation" / "undo.md"
DESK, DISK = "Refund desk", "BFCL, files on disk"
SUITES = ("BFCL", DISK, *(f"AgentDojo: {name}" for name in ("workspace", "travel", "banking", "slack")), DESK)
MOST = 10
"""How many prefixes of a suite are played unless all are."""


@pytest.mark.timeout(900)  # the full form plays 1,142 prefixes of one suite
@pytest.mark.parametrize("suite", SUITES)
@pytest.mark.short(3)
def test_state_files_and_world_are_as_at_the_start_after_each_prefix_is_undone(suite: str, tmp_path: Path) -> None:
    """What is irreversible stays, and so does what it has used; a second plan has nothing to undo."""
    count = Counter[str]()
    with stores.open("memory:") as store:
        for number, (entry, length) in enumerate(some(prefixes(suite, tmp_path), MOST)):
            played = asyncio.run(play(entry, length, store, folder(suite, tmp_path, number)))
            assert (played.differences, played.left) == ([], []), (entry.name, length)
            assert played.outcomes.keys() <= {"restored", "compensated", "impossible", "blocked"}, (entry.name, length)
            count += Counter({**played.outcomes, "prefixes": 1})
    if FULL:
        assert row(suite, count) in PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("suite", SUITES)
def test_comparison_finds_what_is_not_undone(suite: str, tmp_path: Path) -> None:
    """There is a prefix that a plan would undo, and that differs from the start as long as it is not applied."""
    with stores.open("memory:") as store:
        last = enumerate(reversed(prefixes(suite, tmp_path)))
        plays = (
            asyncio.run(play(entry, length, store, folder(suite, tmp_path, number), undoes=False))
            for number, (entry, length) in last
        )
        assert any(played.left and played.differences for played in plays)


def prefixes(suite: str, scene: Path) -> list[tuple[Entry, int]]:
    """Each prefix of each entry of a suite."""
    if suite == DESK:
        of_suite = [desk.entry(scene)]
    else:
        entries = [*bfcl.entries(), *agentdojo.entries()]
        of_suite = [each for each in entries if suite.startswith(each.suite) and (suite != DISK or each.start().files)]
    return [(entry, length) for entry in of_suite for length in range(1, len(entry.calls) + 1)]


def folder(suite: str, scene: Path, number: int) -> Path | None:
    """A new folder for the files of a prefix; `None` if they are in memory."""
    if suite != DISK:
        return None
    made = scene / f"files-{number}"
    made.mkdir()
    return made


def row(suite: str, count: Counter[str]) -> str:
    """A line of the table of the page."""
    figures = [count[each] for each in ("prefixes", "restored", "compensated", "impossible", "blocked")]
    return f"| {suite} | {' | '.join(f'{each:,}' for each in figures)} |"
