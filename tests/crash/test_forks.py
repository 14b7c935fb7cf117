"""Forked processes stand for new ones: they do the same, and die in the same way."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from handrail import store
from handrail.session import Session
from handrail.testing import Crashed, Finished, run_to_crash
from tests.crash.forks import fork_to_crash, start


def open_session(url: str) -> list[str]:
    """Open a session in a store."""
    with store.open(url) as kept, Session.open(kept, "s"):
        return [row.session_id for row in kept.sessions()]


def main(*words: str) -> None:
    """Say what a process has, and what it is told."""
    sys.stdout.write(" ".join([str(os.getpid()), *words, input()]) + "\n")


def test_a_forked_function_reaches_the_points_that_it_reaches_in_a_new_process(tmp_path: Path) -> None:
    """It returns the same, and is killed at the same one."""
    new, forked = f"sqlite:///{tmp_path}/new.db", f"sqlite:///{tmp_path}/forked.db"
    whole = fork_to_crash(open_session, forked, at=None)
    assert isinstance(whole, Finished)
    ended = run_to_crash(open_session, new, at=None)
    assert (whole.value, whole.reached) == (["s"], ended.reached)
    other = f"sqlite:///{tmp_path}/killed.db"
    killed = fork_to_crash(open_session, other, at="unit-after-commit")
    assert killed == Crashed("unit-after-commit")
    assert killed.reached == whole.reached[: len(killed.reached)]


def test_a_process_reads_and_prints_and_is_killed_with_its_block() -> None:
    """It has a process id of its own, and is gone when the block has ended."""
    with start(__name__, "has") as process:
        process.stdin.write("read\n")
        process.stdin.flush()
        assert process.stdout.readline() == f"{process.pid} has read\n"
    assert process.pid != os.getpid()
    with pytest.raises(ProcessLookupError):
        os.kill(process.pid, 0)
