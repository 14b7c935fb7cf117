"""Finds the processes of a call, by the variable of the call and by their parents, and kills all of them.

What is about to be killed is stopped first, until a search finds nothing new: a process that starts others as fast as
it can would outrun a kill, because each kill makes room for another one. A process is named by its pid and its start
time, which are compared before it is signalled, so that no other process is harmed if a pid was reused meanwhile.

It reads `/proc`, as Linux has it: `handrail.posix.has_processes`.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

CALL_VARIABLE = "HANDRAIL_CALL"
"""The environment variable of a program that holds the id of its call."""

_STATE, _PARENT, _THREADS, _START = 0, 1, 17, 19  # in `/proc/PID/stat` behind the name of the program; see proc(5)
_MOST_ROUNDS = 100
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.001, 0.05


class Process(NamedTuple):
    """A process, distinguished from another one that has its pid later.

    Attributes:
        pid: its process id.
        started: when the kernel started it, in ticks since the boot.
    """

    pid: int
    started: int


def ticks_now() -> int:
    """The time, as the start of processes is given: in ticks since the boot."""
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK"))


def running() -> dict[Process, int]:
    """All processes that run, each with the pid of its parent; zombies are not among them."""
    names = os.listdir("/proc")  # noqa: PTH208 - half the time of making a path of each
    return dict(seen for name in names if name.isdecimal() and (seen := _look(int(name))) is not None)


def descendants(of: Iterable[int], among: Mapping[Process, int]) -> set[Process]:
    """The descendants of processes, without these themselves."""
    children: dict[int, list[Process]] = {}
    for process, parent in among.items():
        children.setdefault(parent, []).append(process)
    below, ahead = set[Process](), [*of]
    while ahead:
        for child in children.get(ahead.pop(), ()):
            if child not in below:
                below.add(child)
                ahead.append(child.pid)
    return below


def call_processes(call: str, since: int = 0, also: int = 0) -> set[Process]:
    """The processes that have the id of a call in their environment, and their descendants.

    Never this process or one above it: an agent that a program of a call has started does not end itself.

    Args:
        call: the id.
        since: when its program started: what is older is not looked at.
        also: the pid of a process that belongs to the call, whatever its environment is.
    """
    among, wanted = running(), f"{CALL_VARIABLE}={call}".encode()
    marked = {one for one in among if one.pid == also or (one.started >= since and _has_variable(one.pid, wanted))}
    own, parents = os.getpid(), {process.pid: parent for process, parent in among.items()}
    spared = set[int]()
    while own and own not in spared:
        spared.add(own)
        own = parents.get(own, 0)
    below = descendants((process.pid for process in marked), among)
    return {process for process in marked | below if process.pid not in spared}


def namespace_processes(first: Process) -> set[Process]:
    """The processes in the PID namespace of its first process, and their descendants, without that one.

    The kernel ends all of them when the first one ends. None in the namespace of this process, where others work, too.
    """
    namespace, among = _namespace(first.pid), running()
    if namespace in {"", _namespace(os.getpid())}:
        return set()
    there = {process for process in among if _namespace(process.pid) == namespace}
    inside = (there | descendants((process.pid for process in there), among)) - {first}
    # Last: once the first one has ended, the kernel may give the name of the namespace to another one.
    return inside if look(first.pid) == first else set()


def kill_all(find: Callable[[], set[Process]], *, pause: Callable[[float], object] = time.sleep) -> set[Process]:
    """Stop and then kill processes until none is found; takes a few seconds at most.

    Args:
        find: finds those that still run.
        pause: waits for a number of seconds.

    Returns:
        Those that are left: this process may not signal them, or the kernel does not end them.
    """
    denied, seconds = set[Process](), _SHORTEST_PAUSE
    for _ in range(_MOST_ROUNDS):
        stopped = set[Process]()
        while fresh := find() - stopped - denied:
            denied |= {process for process in fresh if not send(process, signal.SIGSTOP)}
            stopped |= fresh
        if not stopped - denied:
            return find() if denied else set()
        for process in stopped - denied:
            send(process, signal.SIGKILL)
        pause(seconds)
        seconds = min(2 * seconds, _LONGEST_PAUSE)
    return find()


def send(process: Process, number: int) -> bool:
    """Send a signal to a process if it still runs; returns whether this process may."""
    try:
        if look(process.pid) == process:
            os.kill(process.pid, number)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return True


def look(pid: int) -> Process | None:
    """The process that has a pid now; `None` if none runs."""
    seen = _look(pid)
    return None if seen is None else seen[0]


def _look(pid: int) -> tuple[Process, int] | None:
    fields = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    if len(fields) <= _START:
        return None
    # A first thread that has ended is a zombie too, while the others run.
    if fields[_STATE] in {b"Z", b"X", b"x"} and int(fields[_THREADS]) <= 1:
        return None
    return Process(pid, int(fields[_START])), int(fields[_PARENT])


def _has_variable(pid: int, wanted: bytes) -> bool:
    # The environment that a program was started with. One of another user cannot be read, and is empty here.
    return wanted in _read(f"/proc/{pid}/environ").split(b"\0")


def _namespace(pid: int) -> str:
    """The PID namespace of a process; empty if it has ended, or is not ours to look at."""
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")  # noqa: PTH115 - a third of the time of making a path
    except OSError:
        return ""


def _read(path: str) -> bytes:
    """The content of a file of a process; empty if it has ended, or is not ours to look at."""
    try:
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - half the time of making a path
            return file.read()
    except OSError:
        return b""
