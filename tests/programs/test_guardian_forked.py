"""The guardian as a fork of this process: each thing that it does is also done where its lines are traced."""

from __future__ import annotations

import errno
import os
import resource
import select
import signal
import socket
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path

import pytest

from chaos.programs import Fifo
from handrail.clock import SYSTEM_CLOCK
from handrail.programs.guardian_messages import KILL, LENGTH, REPORT, REQUEST_FILES
from handrail.programs.launch import Launch, ProgramEnd, ProgramLimits
from handrail.programs.process_tree import running as processes
from handrail.programs.supervised import SupervisedProgram
from tests.programs.starts import LEAVES_EVERYTHING, ForkedGuardian, ended, launch, output_of, supervised, wait_for_end


@pytest.fixture
def forked() -> Generator[ForkedGuardian]:
    """A guardian; it has ended when the test has."""
    guardian = ForkedGuardian()
    yield guardian
    guardian.close()


def test_program_runs_to_its_end(tmp_path: Path, forked: ForkedGuardian) -> None:
    """Its output and its exit code come back."""
    running = supervised("print('on'); raise SystemExit(3)", tmp_path, forked)
    running.release()
    assert output_of(running) == b"on\n"
    assert ended(running) == ProgramEnd(3)


def test_program_and_what_it_leaves_are_ended(tmp_path: Path, fifo: Fifo, forked: ForkedGuardian) -> None:
    """By itself, or when it is killed."""
    running = supervised(LEAVES_EVERYTHING, tmp_path, forked)
    running.release()
    assert fifo.read() == b"on"
    wait_for_end(running)
    assert ended(running) == ProgramEnd(0)
    assert fifo.read() == b""
    running = supervised("import time; time.sleep(600)", tmp_path, forked)
    running.release()
    assert ended(running).code == -signal.SIGKILL


def test_strays_of_a_supervisor_that_was_killed_are_ended(tmp_path: Path, fifo: Fifo, forked: ForkedGuardian) -> None:
    """While the program of another call goes on."""
    other = supervised("import sys; print(sys.stdin.read())", tmp_path, forked)
    running = supervised(LEAVES_EVERYTHING + "time.sleep(600)", tmp_path, forked)
    running.release()
    assert fifo.read() == b"on"
    assert running.identity.supervisor is not None
    os.kill(running.identity.supervisor.pid, signal.SIGKILL)
    assert fifo.read() == b""
    assert ended(running).code is None
    other.release()
    assert output_of(other) == b"\n"
    assert ended(other) == ProgramEnd(0)


def test_program_has_the_limits_of_its_launch(tmp_path: Path, forked: ForkedGuardian) -> None:
    """It joins the control groups; a limit is set with what may raise it, and one that is lower already stays."""
    groups = tmp_path / "one", tmp_path / "another"
    for group in groups:
        group.touch()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    script = "import resource as r; print(*r.getrlimit(r.RLIMIT_FSIZE), *r.getrlimit(r.RLIMIT_NOFILE))"
    most = ((resource.RLIMIT_FSIZE, 1 << 20), (resource.RLIMIT_NOFILE, hard + 1))
    limits = ProgramLimits(groups=groups, most=most)
    running = SupervisedProgram(replace(launch(script, tmp_path), limits=limits), SYSTEM_CLOCK, forked)
    assert running.start()
    running.release()
    assert output_of(running).split() == [b"%d" % number for number in (1 << 20, 1 << 20, hard, hard)]
    assert ended(running) == ProgramEnd(0)
    assert [group.read_text() for group in groups] == ["0", "0"]


def test_program_that_cannot_join_a_group_does_not_run(tmp_path: Path, forked: ForkedGuardian) -> None:
    """As when the group was removed."""
    limits = ProgramLimits(groups=(tmp_path / "none" / "tasks",))
    started = replace(launch("open('ran', 'w')", tmp_path), limits=limits)
    running = SupervisedProgram(started, SYSTEM_CLOCK, forked)
    assert running.start()
    running.release()
    wait_for_end(running)
    with pytest.raises(FileNotFoundError):
        ended(running)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("generation", [1, 2])
@pytest.mark.short(2)
def test_what_waits_for_the_next_program_may_be_killed(tmp_path: Path, forked: ForkedGuardian, generation: int) -> None:
    """The supervisor, or the process that becomes the program: another one is forked."""
    assert ended(supervised("", tmp_path, forked)).code == -signal.SIGKILL
    waiting = [forked.process]
    for _ in range(generation):
        while len(children := _children_of(waiting[-1])) != 1:  # the supervisor of the first program is ending
            select.select([], [], [], 0.01)
        waiting += children
    os.kill(waiting[-1], signal.SIGKILL)
    while _children_of(forked.process) == waiting[1:2]:  # until its supervisor has ended, too
        select.select([], [], [], 0.01)
    running = supervised("print('on')", tmp_path, forked)
    running.release()
    assert output_of(running) == b"on\n"
    assert ended(running) == ProgramEnd(0)


def _children_of(pid: int) -> list[int]:
    return [process.pid for process, parent in processes().items() if parent == pid]


@pytest.mark.parametrize("line, folder, reason", [("/nowhere/x", ".", errno.ENOENT), ("/", ".", errno.EACCES)])
@pytest.mark.short(1)
def test_program_that_cannot_be_executed(
    tmp_path: Path, forked: ForkedGuardian, line: str, folder: str, reason: int
) -> None:
    """The reason is told at its end."""
    wanted = Launch(call="c", line=(line,), folder=tmp_path / folder, environment={}, has_input=True)
    running = SupervisedProgram(wanted, SYSTEM_CLOCK, forked)
    assert running.start()
    running.release()
    wait_for_end(running)
    with pytest.raises(OSError) as caught:
        ended(running)
    assert caught.value.errno == reason


def test_supervisor_ends_its_program_when_the_agent_closes_its_socket(
    tmp_path: Path, fifo: Fifo, forked: ForkedGuardian
) -> None:
    """As it does when the agent dies. Before the request there is nothing to end."""
    running = supervised(
        "import time; held = open('fifo', 'w'); held.write('on'); held.flush(); time.sleep(600)", tmp_path, forked
    )
    running.release()
    assert fifo.read() == b"on"
    running.close()
    assert fifo.read() == b""
    for request in (b"", LENGTH.pack(100) + b"a part", KILL):
        ours, theirs = socket.socketpair()
        with ours, theirs:
            forked.ask([theirs.fileno()] * REQUEST_FILES)
            theirs.close()
            ours.sendall(request)
            ours.shutdown(socket.SHUT_WR)
            assert len(ours.recv(100)) in {0, REPORT.size, 2 * REPORT.size}


def test_request_without_its_files_is_left(tmp_path: Path, forked: ForkedGuardian) -> None:
    """As the operating system delivers it to a process with too many open files."""
    ours, theirs = socket.socketpair()
    with ours:
        forked.ask((theirs.fileno(),))
        theirs.close()
        assert ours.recv(1) == b""
    running = supervised("print('on')", tmp_path, forked)
    running.release()
    assert output_of(running) == b"on\n"
    ended(running)


def test_without_descriptors_of_processes_the_sockets_have_to_do(
    tmp_path: Path, fifo: Fifo, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on an old kernel."""

    def refused(pid: int) -> int:
        raise OSError

    monkeypatch.setattr(os, "pidfd_open", refused)
    guardian = ForkedGuardian()
    running = supervised(LEAVES_EVERYTHING, tmp_path, guardian)
    running.release()
    assert fifo.read() == b"on"
    guardian.close_socket()
    wait_for_end(running)
    assert ended(running) == ProgramEnd(0)
    assert fifo.read() == b""
    guardian.close()


def test_guardian_and_supervisors_end_with_the_agent(tmp_path: Path, fifo: Fifo) -> None:
    """Though another process holds their sockets open."""
    pids, told = os.pipe()
    agent = os.fork()
    if not agent:
        try:
            guardian = ForkedGuardian()
            running = supervised(LEAVES_EVERYTHING + "time.sleep(600)", tmp_path, guardian)
            running.release()
            holder = os.fork()
            if holder:
                os.write(told, str(holder).encode())
            signal.pause()
        finally:
            os._exit(0)
    holder = int(os.read(pids, 100))
    try:
        assert fifo.read() == b"on"
        os.kill(agent, signal.SIGKILL)
        os.waitpid(agent, 0)
        assert fifo.read() == b""
    finally:
        os.kill(holder, signal.SIGKILL)
        os.close(pids)
        os.close(told)


@pytest.mark.parametrize("reason", ["no subreaper", "another agent"])
@pytest.mark.short(1)
def test_guardian_that_cannot_do_its_work_ends(reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that no program is started below it."""
    if reason == "no subreaper":
        monkeypatch.setattr("handrail.programs.guardian._SET_CHILD_SUBREAPER", -1)
    else:
        monkeypatch.setattr(os, "getpid", os.getppid)
    guardian = ForkedGuardian()
    monkeypatch.undo()
    _, status = os.waitpid(guardian.process, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    guardian.close_socket()


def test_child_that_the_system_does_not_show_is_reported_as_left(
    tmp_path: Path, fifo: Fifo, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As that of another user, where `/proc` hides the processes of others."""
    monkeypatch.setattr("handrail.programs.guardian.running", dict)
    monkeypatch.setattr("handrail.programs.guardian.children", set)
    guardian = ForkedGuardian()
    monkeypatch.undo()
    running = supervised(LEAVES_EVERYTHING.replace("b'on'", "b'%d' % os.getpid()"), tmp_path, guardian)
    running.release()
    left = int(fifo.read() or b"")
    wait_for_end(running)
    try:
        assert ended(running) == ProgramEnd(0, left=1)
    finally:
        os.kill(left, signal.SIGKILL)
    guardian.close()
    assert fifo.read() == b""
