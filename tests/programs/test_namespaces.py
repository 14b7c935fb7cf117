"""Programs that enter another PID namespace: what they leave there is found by its first process."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

import pytest

from handrail.process_identity import process_name
from handrail.programs.launch import ProgramIdentity, processes_of
from handrail.programs.process_tree import Process, inside, look, ticks_now

_SPACE = (
    "bwrap",
    "--unshare-pid",
    "--ro-bind",
    "/",
    "/",
    "--proc",
    "/proc",
    "--dev",
    "/dev",
    "--as-pid-1",
    "--die-with-parent",
)
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
    with subprocess.Popen((*_SPACE, "/bin/sh", "-c", _INSIDE), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as outer:
        try:
            assert outer.stdout is not None
            assert outer.stdout.readline() == b"ready\n"
            (child,) = Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text().split()
            first = look(int(child))
            assert first is not None
            yield Space(outer, first)
        finally:
            outer.kill()


def identity(first: Process) -> ProgramIdentity:
    """A program that has entered the namespace of a process, and that is older than this one."""
    program = process_name(os.getpid())._replace(started="1")
    return ProgramIdentity("no-such-call", program, None, process_name(first.pid))


def test_processes_inside_are_found_without_the_first(space: Space) -> None:
    """Also those whose parent has ended."""
    found = inside(space.first)
    assert len(found) == 2
    assert space.first not in found
    assert inside(space.first, max(process.started for process in found) + 1) == set()
    assert inside(space.first._replace(started=1)) == set()
    assert processes_of("no-such-call", process_name(space.first.pid)) == {process.pid for process in found}


def test_only_what_is_not_older_than_the_program_is_killed_at_its_end(space: Space) -> None:
    """What was there before belongs to the container."""
    found = inside(space.first)
    newest = max(process.started for process in found)
    assert newest <= ticks_now()
    assert identity(space.first).kill_inside(newest + 1) == set()
    assert inside(space.first) == found
    assert identity(space.first).kill_inside(min(process.started for process in found)) == set()
    assert inside(space.first) == set()
    assert look(space.first.pid) == space.first


def test_recovery_ends_the_whole_namespace(space: Space) -> None:
    """Its first process, and so all others; the record is read back."""
    whole = identity(space.first)
    assert ProgramIdentity.from_json(whole.to_json()) == whole
    found = inside(space.first)
    assert whole.kill() == set()
    assert space.outer.wait(30) != 0
    assert not [process for process in found if look(process.pid) == process]
