"""One run of a program: its input and output, its end, and its output while it runs."""

from __future__ import annotations

import errno
import gc
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from chaos.programs import Fifo
from handrail.clock import SYSTEM_CLOCK
from handrail.contrib.tools.shell import process
from handrail.contrib.tools.shell.process import (
    ProgramExit,
    ProgramOutput,
    ProgramRun,
)
from handrail.filesystem.host.recovery import RecordedPrograms
from handrail.programs import Program, ProgramEnd, ProgramRecord, StartedProgram
from tests.open_files import open_files
from tests.wording import Wording

_LONG = 600.0
ROOT = Path(__file__).parents[3]


def program(script: str, folder: Path, **fields: Any) -> Program:
    """A Python script as a program."""
    given: dict[str, Any] = {"input": b"", "seconds": _LONG, "max_output_bytes": 1000}
    given |= {"environment": dict[str, str]()} | fields
    return Program(line=(sys.executable, "-I", "-S", "-c", script), folder=folder, **given)


def ended(script: str, folder: Path, **fields: Any) -> ProgramExit:
    """How a script ends."""
    return ProgramRun(SYSTEM_CLOCK, uuid4().hex).carry_out(program(script, folder, **fields))


@pytest.fixture
def witness(tmp_path: Path) -> Generator[Fifo]:
    """A fifo that a program, and what it starts, hold open: it tells when the last of them has gone."""
    with closing(Fifo(tmp_path / "fifo")) as fifo:
        yield fifo


_FOREVER = """
import os, sys, time
held = open("fifo", "wb", buffering=0)
if os.fork():
    held.write(b"on")
    print("begun", flush=True)
time.sleep(600)
"""


def test_program_reads_its_input_and_writes_to_one_output(tmp_path: Path) -> None:
    """Output and error output come as they are written; the exit code is the program's."""
    script = "import os, sys; os.write(2, b'error '); os.write(1, sys.stdin.read()[::-1].encode()); sys.exit(3)"
    assert ended(script, tmp_path, input=b"abc") == ProgramExit("exited", 3, "error cba", 0)


def test_program_does_not_find_the_terminal_of_its_agent() -> None:
    """Neither as its input nor as its controlling terminal, where it would wait for a person."""
    terminal = [sys.executable, "-c", "import pty, sys; pty.spawn(sys.argv[1:])"]
    test = "from tests.contrib.tools.test_shell_process import *; open('/dev/tty').close()"
    asks = "program('', Path('/')), line=('/bin/sh', '-c', 'read answer < /dev/tty; echo $?'))"
    run = f"{test}; run = ProgramRun(SYSTEM_CLOCK, 'call').carry_out(replace({asks})"
    line = [*terminal, sys.executable, "-c", f"{run}; print(repr(run.output.splitlines()[-1]))"]
    done = subprocess.run(line, stdin=subprocess.DEVNULL, capture_output=True, check=True, text=True, cwd=ROOT)
    assert done.stdout.strip() in {"'1'", "'2'"}


def test_input_may_be_larger_than_a_pipe_and_need_not_be_read(tmp_path: Path) -> None:
    """Reading and writing go on side by side; what is not wanted is no fault."""
    big = b"x" * 1_000_000
    echo = "import shutil, sys; shutil.copyfileobj(sys.stdin.buffer, sys.stdout.buffer)"
    end = ended(echo, tmp_path, input=big)
    assert (end.code, end.left_out) == (0, 999_000)
    assert ended("import os; os.close(0); print('done')", tmp_path, input=big).output == "done\n"
    waits = "import os, time; os.close(0); os.write(1, b'closed'); time.sleep(0.1)"
    assert ended(waits, tmp_path, input=big).output == "closed"


def test_program_has_the_environment_and_the_folder_that_it_is_given(tmp_path: Path) -> None:
    """Beside the id of its call; nothing of this process's own environment, nor any of its open files."""
    script = "import os; print(sorted(os.environ), os.getcwd(), len(os.listdir('/dev/fd')))"
    told = ended(script, tmp_path, environment={"PATH": "/bin", "LANG": "C.UTF-8"}).output.split()
    assert told[:4] == ["['HANDRAIL_CALL',", "'LANG',", "'PATH']", os.fspath(tmp_path.resolve())]
    assert int(told[4]) <= 4


def test_program_is_ended_when_its_time_is_over_with_all_that_it_has_started(tmp_path: Path, witness: Fifo) -> None:
    """What it has written until then is kept."""
    end = ended(_FOREVER, tmp_path, seconds=0.5)
    assert (end.how, end.code, end.output) == ("timeout", -signal.SIGKILL, "begun\n")
    assert witness.read() == b"on"
    assert witness.read() == b""


def test_daemon_that_has_left_group_and_environment_is_not_waited_for(tmp_path: Path, witness: Fifo) -> None:
    """It holds the pipe, and is not found; the test ends it."""
    daemon = "import os, time; os.setsid(); os.write(3, b'%d' % os.getpid()); time.sleep(600)"
    line = f"[sys.executable, '-I', '-S', '-c', {daemon!r}]"
    script = "import os, sys; os.set_inheritable(os.open('fifo', os.O_WRONLY), True)\n"
    script += f"os.fork() or os.execve(sys.executable, {line}, {{}}); os.open('go', os.O_RDONLY)"
    os.mkfifo(tmp_path / "go")
    ends = list[ProgramExit]()
    thread = threading.Thread(target=lambda: ends.append(ended(script, tmp_path)))
    thread.start()
    pid = int(witness.read() or b"")
    (tmp_path / "go").write_text("")
    thread.join()
    assert [end.how for end in ends] == ["exited"]
    os.kill(pid, signal.SIGKILL)
    assert witness.read() == b""


def test_running_program_is_stopped_from_another_thread(tmp_path: Path, witness: Fifo) -> None:
    """As a call is that is cancelled; stopping again, and when it has ended, is no harm."""
    run, ends = ProgramRun(SYSTEM_CLOCK, uuid4().hex), list[ProgramExit]()
    thread = threading.Thread(target=lambda: ends.append(run.carry_out(program(_FOREVER, tmp_path))))
    thread.start()
    assert witness.read() == b"on"
    run.stop()
    run.stop()
    thread.join()
    run.stop()
    (end,) = ends
    assert (end.how, end.code) == ("stopped", -signal.SIGKILL)
    assert witness.read() == b""


def test_program_that_is_stopped_before_it_starts_does_not_start(tmp_path: Path) -> None:
    """There is no moment at which a stop is lost."""
    run = ProgramRun(SYSTEM_CLOCK, uuid4().hex)
    run.stop()
    assert run.carry_out(program("open('ran', 'w')", tmp_path)).how == "stopped"
    assert not (tmp_path / "ran").exists()


def test_no_process_and_no_descriptor_is_left(tmp_path: Path) -> None:
    """However programs end, or if they cannot be started; what other tests have left may be closed meanwhile."""
    ended("", tmp_path)  # what this process keeps is made by the first program
    gc.collect()
    before = len(open_files())
    for line in (("/nowhere/x",), (os.fspath(tmp_path),)):
        with pytest.raises(OSError):
            ProgramRun(SYSTEM_CLOCK, uuid4().hex).carry_out(replace(program("", tmp_path), line=line))
    for script, seconds in (("", _LONG), ("1/0", _LONG), ("import time; time.sleep(600)", 0.3)):
        tells = f"import os; print(os.getpid(), flush=True); {script}"
        process = int(ended(tells, tmp_path, seconds=seconds, input=b"x").output.split()[0])
        with pytest.raises(ChildProcessError):
            os.waitpid(process, os.WNOHANG)
    assert len(open_files()) <= before


class Records(RecordedPrograms):
    """Notes what is recorded of a program, and whether it has run by then."""

    def __init__(self, folder: Path, *, fails: bool = False) -> None:
        self.folder, self.fails = folder, fails
        self.noted: list[tuple[str, bool]] = []

    def record(self, program: ProgramRecord) -> None:
        """A program is about to run."""
        if self.fails:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.noted.append((program.call, (self.folder / "ran").exists()))

    def discard(self, program: ProgramRecord) -> None:
        """Nothing of a program is left."""
        self.noted.append((program.call, (self.folder / "ran").exists()))


def test_program_is_recorded_before_it_runs_and_until_nothing_of_it_is_left(tmp_path: Path) -> None:
    """One that cannot be recorded does not run."""
    script, records = program("open('ran', 'w')", tmp_path), Records(tmp_path)
    assert ProgramRun(SYSTEM_CLOCK, "call").carry_out(script, records).code == 0
    assert records.noted == [("call", False), ("call", True)]
    (tmp_path / "ran").unlink()
    with pytest.raises(OSError):
        ProgramRun(SYSTEM_CLOCK, "call").carry_out(script, Records(tmp_path, fails=True))
    assert not (tmp_path / "ran").exists()


class Stubborn(StartedProgram):
    """A program of which something cannot be killed."""

    def end(self) -> ProgramEnd:
        """End it, and say so."""
        return replace(super().end(), survivors=2)


def test_program_of_which_something_is_left_stays_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next opening tries to end it."""
    monkeypatch.setattr(process, "StartedProgram", Stubborn)
    records = Records(tmp_path)
    assert ProgramRun(SYSTEM_CLOCK, "call").carry_out(program("", tmp_path), records).left_running == 2
    assert records.noted == [("call", False)]


@pytest.mark.parametrize("most", [1, 2, 3, 7, 10, 1000])
@pytest.mark.parametrize("size", [0, 1, 2, 3, 9, 10, 11, 5000])
@pytest.mark.parametrize("step", [1, 4, 5000])
def test_output_keeps_beginning_and_end(most: int, size: int, step: int) -> None:
    """Whatever the pieces in which it comes, all of it is either shown or counted."""
    data = bytes(ord("a") + at % 26 for at in range(size))
    output = ProgramOutput(most)
    for start in range(0, size, step):
        output.add(data[start : start + step])
    assert output.left_out == max(0, size - most)
    if size <= most:
        assert output.text() == data.decode()
    else:
        head, tail = data[: most // 2].decode(), data[size - (most - most // 2) :].decode()
        first, said, last = output.text().split("\n")
        assert (first, f"{size - most:,}" in said, last) == (head, True, tail)


@pytest.mark.parametrize(
    "most, data", [(7, "ééééééé".encode()), (100, b"a\xff\0b"), (4, b"\0\xff" + b"x" * 9 + b"\x80\0")]
)
def test_output_is_text(most: int, data: bytes, wording: Wording) -> None:
    """Cut between characters; bytes that are no UTF-8, and NUL, which stores do not take, have signs in their place."""
    output = ProgramOutput(most)
    output.add(data)
    assert output.text() == wording
