"""Finds processes by their parents and by the variable of their call, and kills all of them.

What is about to be killed is stopped first, until a search finds nothing new: a process that starts others as fast as
it can would outrun a kill, because each kill makes room for another one. A process is named by its pid and its start
time, and is signalled through a descriptor that is compared with both, so that no other process is harmed if a pid was
reused meanwhile.

The guardian imports this module: it needs only the standard library, and little of it.
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
_CHUNK = 1 << 16
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
    seen = (_look(int(name)) for name in names if name.isdecimal())
    return dict(found for found in seen if found is not None)


def descendants(
    of: Iterable[int], among: Mapping[Process, int], *, spared: Iterable[int] = frozenset()
) -> set[Process]:
    """The descendants of processes, without these themselves, and without those of the `spared` ones."""
    children: dict[int, list[Process]] = {}
    for process, parent in among.items():
        children.setdefault(parent, []).append(process)
    found, passed, ahead = set[Process](), set(spared), [*of]
    while ahead:
        for child in children.get(ahead.pop(), ()):
            if child not in found and child.pid not in passed:
                found.add(child)
                ahead.append(child.pid)
    return found


def children() -> set[Process]:
    """The children of this process, which has one thread; empty on a kernel that does not list them."""
    pids = _read(f"/proc/self/task/{os.getpid()}/children").split()
    return {process for process in map(look, map(int, pids)) if process is not None}


def of_call(call: str, since: int) -> set[Process]:
    """The processes of a call, wherever they stand, and their descendants; never this process or one above it.

    Args:
        call: the id that `HANDRAIL_CALL` holds in their environment.
        since: when the program of the call started: what is older does not belong to it.
    """
    among, own = running(), own_line()
    wanted = f"{CALL_VARIABLE}={call}".encode()
    named = {process for process in among if process.started >= since and _has_variable(process.pid, wanted)}
    found = named | descendants((process.pid for process in named), among)
    return {process for process in found if process.pid not in own}


def inside(first: Process, since: int = 0) -> set[Process]:
    """The processes in the PID namespace of its first process, and their descendants, without that one.

    The kernel ends all of them when the first one ends.

    Args:
        first: the first process of the namespace.
        since: those that started before are left out; in ticks since the boot.
    """
    namespace = _namespace(first.pid)
    if not namespace or look(first.pid) != first:
        return set()
    among = running()
    there = {process for process in among if _namespace(process.pid) == namespace}
    found = there | descendants((process.pid for process in there), among)
    return {process for process in found if process.started >= since} - {first}


def own_line() -> set[int]:
    """The pids of this process and of those above it."""
    line, pid = set[int](), os.getpid()
    while pid and pid not in line:
        line.add(pid)
        found = _look(pid)
        pid = 0 if found is None else found[1]
    return line


def kill_all(
    find: Callable[[], set[Process]],
    *,
    first: Callable[[], set[Process]] = set,
    then: Callable[[], object] = bool,
    pause: Callable[[float], object] = time.sleep,
) -> set[Process]:
    """Stop and then kill processes until none is found; takes a few seconds at most.

    Args:
        find: finds those that still run.
        first: finds some of them in a much shorter time. A process that starts its successor and ends is never found by
            a search that takes longer than its life.
        then: called after each round, to wait for children.
        pause: waits for a number of seconds.

    Returns:
        Those that are left: this process may not signal them, or the kernel does not end them.
    """
    denied, seconds = set[Process](), _SHORTEST_PAUSE
    for _ in range(_MOST_ROUNDS):
        stopped = set[Process]()
        while fresh := (first() - stopped - denied) or (find() - stopped - denied):
            denied |= {process for process in fresh if not send(process, signal.SIGSTOP)}
            stopped |= fresh
        if not stopped - denied:
            break
        for process in stopped - denied:
            send(process, signal.SIGKILL)
        then()
        pause(seconds)
        seconds = min(2 * seconds, _LONGEST_PAUSE)
    return find()


def send(process: Process, number: int) -> bool:
    """Send a signal to a process if it still runs; returns whether this process may."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return True
    except OSError:  # a kernel before 5.3, or a sandbox without the call
        return _send_by_pid(process, number)
    try:
        # After the descriptor was opened: if the process has the start time now, the descriptor is of no other.
        if look(process.pid) == process:
            signal.pidfd_send_signal(descriptor, number)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    finally:
        os.close(descriptor)
    return True


def look(pid: int) -> Process | None:
    """The process that has a pid now; `None` if none runs."""
    found = _look(pid)
    return None if found is None else found[0]


def _send_by_pid(process: Process, number: int) -> bool:
    try:
        if look(process.pid) == process:
            os.kill(process.pid, number)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return True


def _look(pid: int) -> tuple[Process, int] | None:
    fields = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    if len(fields) <= _START:
        return None
    # A first thread that has ended is a zombie too, while the others run.
    if fields[_STATE] in {b"Z", b"X", b"x"} and int(fields[_THREADS]) <= 1:
        return None
    return Process(pid, int(fields[_START])), int(fields[_PARENT])


def _namespace(pid: int) -> str:
    """The PID namespace of a process; empty if it has ended, or is not ours to look at."""
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")  # noqa: PTH115 - a third of the time of making a path
    except OSError:
        return ""


def _has_variable(pid: int, wanted: bytes) -> bool:
    # The environment that the program was started with. One of another user cannot be read, and is empty here.
    return wanted in _read(f"/proc/{pid}/environ").split(b"\0")


def _read(path: str) -> bytes:
    """The content of a file of a process; empty if it has ended, or is not ours to look at."""
    pieces: list[bytes] = []
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            while piece := os.read(descriptor, _CHUNK):
                pieces.append(piece)
        finally:
            os.close(descriptor)
    except OSError:
        return b""
    return b"".join(pieces)
