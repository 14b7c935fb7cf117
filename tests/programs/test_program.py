"""Real programs that do not want to end, what is recorded of them, and how their processes are found and killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import pytest

from chaos.programs import Fifo, Kind, play
from handrail import programs
from handrail.process import process_name
from handrail.programs import (
    CALL_VARIABLE,
    Process,
    Program,
    ProgramEnd,
    ProgramRecord,
    StartedProgram,
    call_processes,
    descendants,
    kill_all,
    look,
    namespace_processes,
    running,
    send,
    ticks_now,
)

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


def started(script: str | tuple[str, ...], folder: Path, **fields: Any) -> StartedProgram:
    """A Python script as a program, or a line of its own."""
    line = (sys.executable, "-I", "-S", "-c", script) if isinstance(script, str) else script
    wanted: dict[str, Any] = {"environment": {}, "input": b"", "seconds": 60, "max_output_bytes": 1000, **fields}
    return StartedProgram(Program(line=line, folder=folder, **wanted), f"{folder.name}-{os.getpid()}")


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


def test_programs_run_where_the_kernel_does_not_kill_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


@contextmanager
def child(call: str) -> Generator[tuple[subprocess.Popen[bytes], Process]]:
    """A process of a call, which waits for the end of its input."""
    line, pipe = [sys.executable, "-I", "-S", "-c", "print(1, flush=True); input()"], subprocess.PIPE
    with subprocess.Popen(line, stdin=pipe, stdout=pipe, env={CALL_VARIABLE: call}) as process:
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
        assert found.start_ticks <= ticks_now()
        assert call_processes("a-call") == call_processes("a-call", found.start_ticks) == {found}
        assert call_processes("a-call", found.start_ticks + 1) == set()
        assert call_processes("a-call", also=other.pid) == {found, other}
        assert {found, other} <= descendants([os.getpid()], running())


def test_this_process_and_those_above_it_never_belong_to_a_call() -> None:
    """An agent that is started by a program of a call does not end itself."""
    path = f"import sys; sys.path.append({os.fspath(Path(__file__).parents[2] / 'src')!r})"
    script = f"{path}\nfrom handrail.programs import call_processes\nprint(call_processes('nested'))"
    line = [sys.executable, "-I", "-S", "-c", script]
    assert subprocess.check_output(line, env={CALL_VARIABLE: "nested"}) == b"set()\n"


def test_pid_that_was_reused_is_left_alone() -> None:
    """A process is its pid and its start time."""
    with child("a-call") as (process, found):
        for number in (signal.SIGSTOP, signal.SIGKILL):
            assert send(Process(found.pid, found.start_ticks - 1), number)
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
def test_process_of_another_user_may_not_be_signalled(
    monkeypatch: pytest.MonkeyPatch, error: type[OSError], *, may: bool
) -> None:
    """So it is left; one that ends meanwhile has ended."""

    def refused(*_: object) -> None:
        raise error

    own = look(os.getpid())
    assert own is not None
    monkeypatch.setattr(os, "kill", refused)
    assert send(own, signal.SIGCONT) == may


_SPACE = "bwrap --unshare-pid --ro-bind / / --proc /proc --dev /dev --as-pid-1 --die-with-parent /bin/sh -c"
_INSIDE = "(sleep 600 &) ; (setsid sleep 600 &) ; echo ready; read -r end"


@dataclass(frozen=True)
class Space:
    """A namespace with three processes.

    Attributes:
        outer: the process that has made it.
        first: its first process.
    """

    outer: subprocess.Popen[bytes]
    first: Process


@pytest.fixture
def space() -> Generator[Space]:
    """A namespace."""
    with subprocess.Popen((*_SPACE.split(), _INSIDE), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as outer:
        try:
            assert outer.stdout is not None
            assert outer.stdout.readline() == b"ready\n"
            (child,) = Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text().split()
            first = look(int(child))
            assert first is not None
            yield Space(outer, first)
        finally:
            outer.kill()


def test_processes_inside_are_found_without_the_first(space: Space) -> None:
    """Also those whose parent has ended."""
    found = namespace_processes(space.first)
    assert len(found) == 2
    assert space.first not in found
    assert namespace_processes(space.first._replace(start_ticks=1)) == set()


def test_nothing_is_found_in_the_own_namespace() -> None:
    """All processes of the machine are in it: a container that shares it must not have them killed."""
    own = look(os.getpid())
    assert own is not None
    assert namespace_processes(own) == set()


def test_only_what_was_not_there_before_the_program_is_killed_at_its_end(space: Space, tmp_path: Path) -> None:
    """What was there before belongs to the container; what the program has left there has cleared its environment."""
    found = namespace_processes(space.first)
    enter = ("/usr/bin/nsenter", "--target", str(space.first.pid), "--pid", "--")
    line = (*enter, "/bin/sh", "-c", "(env -i setsid sleep 600 &); echo on; sleep 600")
    environment = {"PATH": "/usr/bin:/bin"}
    running = started(line, tmp_path, environment=environment, namespace=process_name(space.first.pid))
    assert os.read(running.output, 10) == b"on\n"
    assert len(namespace_processes(space.first) - found) > 1
    assert end(running) == ProgramEnd(-signal.SIGKILL)
    assert namespace_processes(space.first) == found
    assert look(space.first.pid) == space.first


def test_recovery_ends_the_whole_namespace(space: Space) -> None:
    """Its first process, and so all others; not that of another boot, whose name is that of another process here."""
    found, name = namespace_processes(space.first), process_name(space.first.pid)
    for other in (name._replace(boot="another"), name._replace(start=""), name._replace(start="1")):
        assert ProgramRecord("no-such-call", other).kill() == set()
    assert namespace_processes(space.first) == found
    assert ProgramRecord("no-such-call", name).kill() == set()
    assert space.outer.wait(30) != 0
    assert not [process for process in found if look(process.pid) == process]


@pytest.fixture
def fifo(tmp_path: Path) -> Generator[Fifo]:
    """A fifo in the folder of the test."""
    fifo = Fifo(tmp_path / "fifo")
    yield fifo
    fifo.close()
