"""Forks of sessions: killed at the lines that make one, and days of the refund desk that go on from random calls."""

from __future__ import annotations

import random
import signal
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

import handrail.store
from chaos import forks
from tests.crash import fork_lines
from tests.crash.forks import start
from tests.extent import FULL, SHORT
from tests.store.postgres_server import fresh_url

_LINES = "tests.crash.fork_lines"


@contextmanager
def new_store(kind: str, folder: Path, name: str) -> Generator[str]:
    """The URL of a new store in a database."""
    with ExitStack() as opened:
        yield opened.enter_context(fresh_url()) if kind == "postgres" else f"sqlite:///{folder / name}.db"


@contextmanager
def origin(kind: str, folder: Path, name: str) -> Generator[tuple[str, Path | None]]:
    """The URL of a store with a session to be forked, and the folder of its files, if it has any."""
    files = folder / f"{name}-files" if kind == "files" else None
    if files is not None:
        files.mkdir()
    with new_store(kind, folder, name) as url:
        fork_lines.begin(url, files)
        yield url, files


@pytest.mark.timeout(900)  # in the full form at each line; with files, each eleventh
@pytest.mark.parametrize("kind", ["sqlite", "postgres", "files"])
@pytest.mark.short(2)
def test_fork_that_is_killed_at_a_line_leaves_both_whole(kind: str, tmp_path: Path) -> None:
    """The fork is there with all that it shares, or not at all; the origin goes on, and can be forked again."""
    with origin(kind, tmp_path, "all") as (url, files), start(_LINES, url, "0", str(files or "")) as process:
        lines = int(process.stdout.readline())
    step = (11 if kind == "files" else 1) if FULL else lines // (8 if SHORT else 20)
    made: list[bool] = []
    for place in (*range(1, lines, step), lines):
        with origin(kind, tmp_path, str(place)) as (url, files):
            with start(_LINES, url, str(place), str(files or "")) as process:
                assert process.wait() == -signal.SIGKILL
            with handrail.store.open(url) as store:
                made.append(fork_lines.check(store, files))
    assert made == sorted(made)
    assert (made[0], made[-1]) == (False, True)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", ["memory", "sqlite", "postgres"])
@pytest.mark.short(2)
def test_forks_of_a_day_repeat_no_refund(kind: str, tmp_path: Path) -> None:
    """A short form of `make chaos ARGS="--only forks"`: each has the slices and files of the day in the end."""
    with ExitStack() as opened:
        url = "memory:" if kind == "memory" else opened.enter_context(new_store(kind, tmp_path, "desk"))
        count = forks.play(url, tmp_path, forks=40 if FULL else 8, dice=random.Random(7))  # noqa: S311
    assert count.faults == []
    assert count.replayed > count.forks
