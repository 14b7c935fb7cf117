"""Programs that enter another PID namespace: what they leave there is found by its first process."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

import pytest

from handrail.process import process_name
from handrail.programs import Process, Program, ProgramEnd, ProgramRecord, StartedProgram, look, namespace_processes

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
    assert namespace_processes(space.first._replace(started=1)) == set()


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
