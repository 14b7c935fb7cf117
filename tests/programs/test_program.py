"""Real programs that do not want to end, and what is recorded of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from chaos.programs import Fifo, Kind, play
from handrail import programs
from handrail.programs import Process, Program, ProgramEnd, ProgramRecord, StartedProgram

LEAVES_THE_GROUP = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
held = os.open("fifo", os.O_WRONLY)
ready, left = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.setsid()
        os.write(held, b"on")
        os.write(left, b"x")
        time.sleep(600)
    os._exit(0)
os.read(ready, 1)
"""
"""Ignores SIGTERM, and leaves a process without parent and session, which holds the fifo."""

LEAVES_THE_VARIABLE = """
import os, sys
os.set_inheritable(os.open("fifo", os.O_WRONLY), True)
script = "import os, time; os.write(3, b'on'); time.sleep(600)"
if os.fork() == 0:
    os.execve(sys.executable, [sys.executable, "-I", "-S", "-c", script], {})
if os.read(os.open("go", os.O_RDONLY), 1):
    sys.exit()
"""
"""Leaves a process in its group that has cleared its environment, and ends when it reads from another fifo."""

MULTIPLIES = """
import os, time
held = os.open("fifo", os.O_WRONLY)
if os.fork() == 0:
    os.write(held, b"on")
    for _ in range(8):
        if os.fork() == 0:
            os.setsid()
time.sleep(600)
"""
"""It becomes 256 processes as fast as it can, each in a session of its own."""


def started(script: str, folder: Path) -> StartedProgram:
    """A Python script as a program."""
    line = (sys.executable, "-I", "-S", "-c", script)
    wanted = Program(line=line, folder=folder, environment={}, input=b"", seconds=60, max_output_bytes=1000)
    return StartedProgram(wanted, f"{folder.name}-{os.getpid()}")


def end(running: StartedProgram) -> ProgramEnd:
    """The end of a program, whose descriptors are closed then."""
    try:
        return running.end()
    finally:
        running.close()


@pytest.mark.parametrize("kind", get_args(Kind))
@pytest.mark.short(1)
def test_nothing_of_a_program_outlives_its_call_or_the_next_opening(tmp_path: Path, kind: Kind) -> None:
    """The tree is as it was, and no other process is harmed. `make chaos` has 200 rounds of it."""
    assert play(kind, tmp_path).faults == ()


@pytest.mark.parametrize("script", [LEAVES_THE_GROUP + "time.sleep(600)", MULTIPLIES])
def test_processes_with_the_variable_of_the_call_end_with_it(tmp_path: Path, fifo: Fifo, script: str) -> None:
    """Wherever they stand: they are stopped before they are killed, so that none outruns the search."""
    running = started(script, tmp_path)
    assert fifo.read() == b"on"
    assert end(running) == ProgramEnd(-signal.SIGKILL)
    assert fifo.read() == b""


def test_processes_of_the_group_end_without_the_variable(tmp_path: Path, fifo: Fifo) -> None:
    """By the group, though their program has ended."""
    os.mkfifo(tmp_path / "go")
    running = started(LEAVES_THE_VARIABLE, tmp_path)
    assert fifo.read() == b"on"
    (tmp_path / "go").write_text("x")
    os.waitid(os.P_PID, running.pid, os.WEXITED | os.WNOWAIT)
    assert end(running) == ProgramEnd(0)
    assert fifo.read() == b""


@pytest.mark.filterwarnings("ignore:subprocess:ResourceWarning")
def test_program_that_cannot_be_killed_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is counted among what is left, and its exit code is not known."""
    running = started("import time; time.sleep(600)", tmp_path)
    pid = running.pid

    def refused(find: object) -> set[Process]:
        return {Process(pid, 1)}

    monkeypatch.setattr(programs, "kill_all", refused)
    assert end(running) == ProgramEnd(None, 1)
    assert os.waitpid(pid, 0)[1] == signal.SIGKILL


def test_programs_run_where_the_kernel_cannot_be_asked_to_kill_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without `setpriv`, with another program of the name, and without descriptors of processes."""

    def unknown(pid: int) -> int:
        raise OSError

    with monkeypatch.context() as patched:
        patched.setattr(os, "pidfd_open", unknown)
        for found in ("", "#!/bin/sh\nexit 1\n"):
            (tmp_path / "setpriv").write_text(found)
            (tmp_path / "setpriv").chmod(0o755 if found else 0o644)
            patched.setattr(os, "defpath", str(tmp_path))
            programs.killed_with_parent.cache_clear()
            running = started("print('on')", tmp_path)
            assert running.pidfd is None
            while not running.has_ended():
                os.sched_yield()
            assert end(running) == ProgramEnd(0)
    programs.killed_with_parent.cache_clear()
    assert programs.killed_with_parent()[1:] == ("--pdeathsig", "KILL", "--")


def test_system_that_shows_no_processes_has_the_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And ends nothing of a dead process."""

    def shows_none() -> bool:
        return False

    monkeypatch.setattr(programs, "has_processes", shows_none)
    assert end(started("import time; time.sleep(600)", tmp_path)) == ProgramEnd(-signal.SIGKILL)
    with subprocess.Popen(["sleep", "600"], env={"HANDRAIL_CALL": "a-call", "PATH": "/usr/bin:/bin"}) as process:
        assert ProgramRecord("a-call").kill() == set()
        assert process.poll() is None
        process.kill()
