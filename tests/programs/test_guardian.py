"""Real programs that do not want to end, and real kills: of the agent, the supervisor, the guardian, or all three."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import get_args

import pytest

from chaos.programs import Fifo, Kind, play
from handrail.process_identity import process_name
from handrail.programs.guardian_client import Guardians
from handrail.programs.launch import ProgramEnd
from tests.programs.starts import LEAVES_EVERYTHING, ended, output_of, supervised, wait_for_end

RUNS_AWAY = """
import os, time
held = os.open("fifo", os.O_WRONLY)
if os.fork() == 0:
    os.write(held, b"on")
    for _ in range(1_000_000):
        if os.fork():
            os._exit(0)
        os.setsid()
time.sleep(600)
"""
"""Each of its processes starts the next one, in a session of its own, and ends."""

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


@pytest.mark.parametrize("kind", get_args(Kind))
@pytest.mark.short(1)
def test_nothing_of_a_program_outlives_its_call(tmp_path: Path, kind: Kind) -> None:
    """Whatever is killed: the tree is as it was, and no other process is harmed. `make chaos` has 200 rounds of it."""
    assert play(kind, tmp_path).faults == ()


def test_process_that_has_left_everything_ends_with_the_program(
    tmp_path: Path, fifo: Fifo, guardians: Guardians
) -> None:
    """Parent, session and environment: it is still a child of the supervisor."""
    running = supervised(LEAVES_EVERYTHING, tmp_path, guardians)
    running.release()
    assert fifo.read() == b"on"
    wait_for_end(running)
    assert ended(running) == ProgramEnd(0)
    assert fifo.read() == b""


def test_process_that_has_left_everything_is_ended_by_the_guardian_when_the_supervisor_is_killed(
    tmp_path: Path, fifo: Fifo, guardians: Guardians
) -> None:
    """It has become a child of the guardian."""
    running = supervised(LEAVES_EVERYTHING + "time.sleep(600)", tmp_path, guardians)
    running.release()
    assert fifo.read() == b"on"
    assert running.identity.supervisor is not None
    os.kill(running.identity.supervisor.pid, signal.SIGKILL)
    assert ended(running).code is None
    assert fifo.read() == b""


@pytest.mark.parametrize("script", [RUNS_AWAY, MULTIPLIES])
def test_program_that_starts_processes_as_fast_as_it_can_is_ended(
    tmp_path: Path, fifo: Fifo, guardians: Guardians, script: str
) -> None:
    """They are stopped before they are killed, so that none outruns the search."""
    running = supervised(script, tmp_path, guardians)
    running.release()
    assert fifo.read() == b"on"
    assert ended(running).left == 0
    assert fifo.read() == b""


def test_program_does_not_run_before_it_is_released(tmp_path: Path, guardians: Guardians) -> None:
    """Until then it can be recorded; when its caller gives it up, or dies, it has not run."""
    running = supervised("open('ran', 'w')", tmp_path, guardians)
    assert process_name(running.identity.program.pid) == running.identity.program
    assert not running.has_ended()
    assert ended(running).code == -signal.SIGKILL
    assert not (tmp_path / "ran").exists()


def test_program_has_default_signals_and_a_session_of_its_own(tmp_path: Path, guardians: Guardians) -> None:
    """Though its guardian ignores what is sent to a terminal, and Python ignores broken pipes."""
    script = """
import os, signal
line = [text for text in open("/proc/self/status") if text.startswith(("SigIgn", "SigBlk"))]
# Python itself ignores two. What the C library keeps for itself, no program can set: an ancestor may have left it so.
others = sum(1 << number - 1 for number in signal.valid_signals() - {signal.SIGPIPE, signal.SIGXFSZ})
print([int(text.split()[1], 16) & others for text in line], os.getsid(0) == os.getpid())
"""
    running = supervised(script, tmp_path, guardians)
    running.release()
    assert output_of(running) == b"[0, 0] True\n"
    assert ended(running) == ProgramEnd(0)


def test_guardian_ignores_what_is_sent_to_a_terminal(tmp_path: Path, guardians: Guardians) -> None:
    """It ends after the agent, so that it can end what the agent leaves."""
    ended(supervised("", tmp_path, guardians))
    guardian = guardians.pid
    assert guardian is not None
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(guardian, number)
    running = supervised("print('on')", tmp_path, guardians)
    running.release()
    assert output_of(running) == b"on\n"
    assert ended(running) == ProgramEnd(0)
    assert guardians.pid == guardian
