"""Processes of a program: how they are found and killed, by parents, variable and PID namespace."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

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
        assert found.start_ticks <= ticks_now()
        assert call_processes("a-call") == call_processes("a-call", found.start_ticks) == {found}
        assert call_processes("a-call", found.start_ticks + 1) == set()
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
    program = Program(
        line=line,
        folder=tmp_path,
        environment={"PATH": "/usr/bin:/bin"},
        input=b"",
        seconds=60,
        max_output_bytes=1000,
        namespace=process_name(space.first.pid),
    )
    started = StartedProgram(program, f"{tmp_path.name}-{os.getpid()}")
    assert os.read(started.output, 10) == b"on\n"
    assert len(namespace_processes(space.first) - found) > 1
    assert started.end() == ProgramEnd(-signal.SIGKILL)
    started.close()
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
