"""A program below a guardian, where guardian or supervisor do not answer."""

from __future__ import annotations

import errno
import os
import signal
import sys
import threading
from collections.abc import Generator
from pathlib import Path

import pytest

from chaos.programs import Fifo
from handrail.clock import SYSTEM_CLOCK
from handrail.programs.guardian_client import Guardians
from handrail.programs.launch import ProgramEnd
from handrail.programs.process_tree import Process
from handrail.programs.supervised import SupervisedProgram
from tests.programs.starts import ended, launch, output_of, supervised, wait_for_end

HOLDS_THE_FIFO = "import time; held = open('fifo', 'wb', buffering=0); held.write(b'on'); time.sleep(600)"


def state_of(pid: int) -> str:
    """The state of a process, as `ps` shows it."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def refuse(process: Process, number: int) -> bool:
    """A signal that may not be sent."""
    return False


def test_guardian_that_ends_at_once_is_tried_twice(
    tmp_path: Path, guardians: Guardians, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where `sys.executable` is not a Python."""
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(OSError) as caught:
        supervised("", tmp_path, guardians)
    assert caught.value.errno in {errno.EAGAIN, errno.EPIPE, errno.ECONNRESET}


def test_guardian_that_cannot_be_started(tmp_path: Path, guardians: Guardians, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason does not name the path of the Python, because a model reads it."""
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(OSError) as caught:
        supervised("", tmp_path, guardians)
    assert caught.value.errno == errno.ENOENT
    assert "nowhere" not in str(caught.value)


def test_supervisor_that_was_stopped_is_continued(tmp_path: Path, guardians: Guardians) -> None:
    """The program may have stopped it: it ends what the program has left all the same."""
    running = supervised("import os, time; os.kill(os.getppid(), 19); time.sleep(600)", tmp_path, guardians)
    running.release()
    supervisor = running.identity.supervisor
    assert supervisor is not None
    while state_of(supervisor.pid) != "T":
        os.sched_yield()
    assert ended(running) == ProgramEnd(-signal.SIGKILL)


def test_supervisor_that_does_not_continue_is_not_waited_for_for_ever(
    tmp_path: Path, fifo: Fifo, guardians: Guardians, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What has the id of the call in its environment is killed without it."""
    running = supervised(HOLDS_THE_FIFO, tmp_path, guardians)
    running.release()
    assert fifo.read() == b"on"
    supervisor = running.identity.supervisor
    assert supervisor is not None
    os.kill(supervisor.pid, signal.SIGSTOP)
    monkeypatch.setattr("handrail.programs.supervised._SECONDS_TO_END", 0.1)
    monkeypatch.setattr("handrail.programs.supervised.send", refuse)
    assert ended(running) == ProgramEnd(None)
    assert fifo.read() == b""
    os.kill(supervisor.pid, signal.SIGCONT)


@pytest.fixture
def stopped(tmp_path: Path, guardians: Guardians) -> Generator[int]:
    """The pid of the guardian, which does not answer."""
    ended(supervised("", tmp_path, guardians))
    pid = guardians.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    os.waitid(os.P_PID, pid, os.WSTOPPED)
    yield pid
    os.kill(pid, signal.SIGCONT)


def test_guardian_that_does_not_answer_is_replaced(
    tmp_path: Path, guardians: Guardians, stopped: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And when it continues it starts nothing: the socket of the call is closed."""
    monkeypatch.setattr("handrail.programs.supervised._SECONDS_TO_START", 0.5)
    running = supervised("open('ran', 'x')", tmp_path, guardians)
    running.release()
    wait_for_end(running)
    assert ended(running) == ProgramEnd(0)
    assert guardians.pid != stopped
    os.kill(stopped, signal.SIGCONT)
    os.waitid(os.P_PID, stopped, os.WEXITED | os.WNOWAIT)


def test_kill_ends_a_start_that_waits_for_the_guardian(tmp_path: Path, guardians: Guardians, stopped: int) -> None:
    """It does not wait itself: the thread that calls it may be that of an event loop."""
    running = SupervisedProgram(launch("open('ran', 'x')", tmp_path), SYSTEM_CLOCK, guardians)
    began = list[bool]()
    thread = threading.Thread(target=lambda: began.append(running.start()))
    thread.start()
    while running.output < 0:  # the request is about to be sent
        os.sched_yield()
    running.kill()
    thread.join()
    assert began == [False]
    assert guardians.pid == stopped
    assert not running.start()
    assert running.output < 0


def test_kill_after_the_end_does_no_harm(tmp_path: Path, guardians: Guardians) -> None:
    """Nor does closing twice."""
    running = supervised("", tmp_path, guardians)
    running.release()
    assert ended(running).left == 0
    running.kill()
    running.release()
    running.close()


def test_a_program_has_no_other_descriptor_of_its_call(tmp_path: Path, guardians: Guardians) -> None:
    """Neither the first one of a guardian, whose supervisor is forked when the call has come, nor those after it."""
    script = "import os; print(sorted(int(each) for each in os.listdir('/dev/fd')))"
    for _ in range(2):
        running = supervised(script, tmp_path, guardians)
        running.release()
        # The last one is that of the folder which is listed.
        assert output_of(running) == b"[0, 1, 2, 3]\n"
        ended(running)
