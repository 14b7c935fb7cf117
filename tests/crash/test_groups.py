"""A process is killed while a group of units is written: see "What is left of a group" of `crash-points.md`."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Generator
from pathlib import Path

import pytest

from handrail.testing import run_to_crash
from tests.crash.groups import SESSIONS, ask, charges, crash, ledger
from tests.crash.pages import GROUP, rows
from tests.store.postgres_server import fresh_url

LEAST = 2
"""A group has as many members at least; in the page's table are those of the group that was being written."""

EARLIER = {"claims are written": ("running", 0), "commits are written": ("done", 1)}
"""What is known of the calls of an earlier group, and how often their effects have happened."""

LATER = {"claims are written": ("absent", 0), "commits are written": ("running", 1)}
"""The same of the calls whose units still waited."""


@pytest.fixture
def schema() -> Generator[str]:
    """An empty database on the shared server: the clients of a group are killed, and no process of the server."""
    with fresh_url() as url:
        yield url


@pytest.mark.parametrize("row", rows(GROUP), ids=" ".join)
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
@pytest.mark.short(2)
def test_a_group_that_is_killed_is_written_whole_or_not_at_all(
    row: tuple[str, ...], kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Each member is what the page says, each effect happens once at most, and none that has happened is forgotten."""
    phase, point, status, times, answer = row
    url = f"sqlite:///{tmp_path / 'desk.db'}" if kind == "sqlite" else request.getfixturevalue("schema")
    with pytest.raises(subprocess.CalledProcessError) as ended:
        run_to_crash(crash, url, str(tmp_path), phase, point, at=None)
    assert ended.value.returncode == -signal.SIGKILL

    before, happened = ledger(url), charges(tmp_path)
    members = [name for name in SESSIONS if (before[name], happened[name]) == (status, int(times))]
    others = [name for name in SESSIONS if (before[name], happened[name]) in {EARLIER[phase], LATER[phase]}]
    assert len(members) >= LEAST
    assert {*members, *others} == set(SESSIONS)

    told, after = ask(url, tmp_path), charges(tmp_path)
    said, _, count = answer.partition(": ")
    for name in members:
        assert (told[name].success, told[name].replayed) == (said != "unknown", said == "replays")
        assert after[name] == int(count)
    assert all(times <= 1 for times in after.values())
    assert ask(url, tmp_path).keys() == told.keys()
    assert charges(tmp_path) == after
