"""How processes are found and killed: by parents, by the variable of a call, and never another one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from handrail.programs import (
    CALL_VARIABLE,
    Process,
    call_processes,
    descendants,
    kill_all,
    look,
    running,
    send,
    ticks_now,
)


@contextmanager
def child(call: str) -> Generator[tuple[subprocess.Popen[bytes], Process]]:
    """A process of a call, which waits for the end of its input."""
    with subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", "print(1, flush=True); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={CALL_VARIABLE: call},
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        found = look(process.pid)
        assert found is not None
        try:
            yield process, found
        finally:
            process.kill()


def test_processes_of_a_call_are_found_by_its_variable_and_their_age() -> None:
    """Not one of another call, and not one that is older than the program."""
    with child("a-call") as (_, found), child("a-call-of-another") as (_, other):
        assert found.started <= ticks_now()
        assert call_processes("a-call") == call_processes("a-call", found.started) == {found}
        assert call_processes("a-call", found.started + 1) == set()
        assert call_processes("a-call", also=other.pid) == {found, other}
        assert {found, other} <= descendants([os.getpid()], running())


def test_this_process_and_those_above_it_never_belong_to_a_call() -> None:
    """An agent that is started by a program of a call does not end itself."""
    script = f"""
import sys
sys.path.append({os.fspath(Path(__file__).parents[2] / "src")!r})
from handrail.programs import call_processes
print(call_processes("nested"))
"""
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", script],
        env={CALL_VARIABLE: "nested"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "set()\n"


def test_pid_that_was_reused_is_left_alone() -> None:
    """A process is its pid and its start time."""
    with child("a-call") as (process, found):
        for number in (signal.SIGSTOP, signal.SIGKILL):
            assert send(Process(found.pid, found.started - 1), number)
        assert look(found.pid) == found
        process.kill()
        process.wait()
        assert send(found, signal.SIGKILL)
        assert look(found.pid) is None


def test_zombie_does_not_run() -> None:
    """It cannot be killed again, and is nobody's descendant."""
    with child("a-call") as (process, found):
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert look(process.pid) is None
        assert found not in running()


def test_process_that_may_not_be_signalled_is_told_after_the_others_have_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not tried for ever."""
    denied = Process(-1, 0)

    def send_to_others(process: Process, number: int) -> bool:
        return process != denied

    monkeypatch.setattr("handrail.programs.send", send_to_others)
    assert kill_all(lambda: {denied}) == {denied}
    left = {Process(-2, 0)}
    rounds = list[float]()
    assert kill_all(lambda: left | {denied}, pause=rounds.append) == left | {denied}
    assert len(rounds) > 50


@pytest.mark.parametrize("error, may", [(PermissionError, False), (ProcessLookupError, True)])
def test_process_of_another_user_may_not_be_signalled_and_one_that_ends_meanwhile_may(
    monkeypatch: pytest.MonkeyPatch, error: type[OSError], *, may: bool
) -> None:
    """So it is left, or it has ended."""

    def refused(*_: object) -> None:
        raise error

    own = look(os.getpid())
    assert own is not None
    monkeypatch.setattr(os, "kill", refused)
    assert send(own, signal.SIGCONT) == may
