"""A program of a call, from its start to the end of what it leaves.

=============================================  =======================================================================
what ends                                      what ends the program
=============================================  =======================================================================
the program                                    what it has left is killed: its process group, and on Linux what has
                                               the id of the call in its environment, with the descendants of that
the call, by a timeout or a cancellation       the same, with the program
the agent, by SIGKILL too                      on Linux the program itself is killed by the kernel (`setpriv`); what
                                               it has started, when the folder is opened next, by the record
=============================================  =======================================================================

The kernel kills a program with the *thread* that has started it, so that thread also waits for its end.

What is about to be killed is stopped first, until a search of `/proc` finds nothing new: each kill would make room for
another process of one that starts them as fast as it can. A process is named by its pid and its start time, which are
compared before it is signalled, because a pid may be reused.
"""

from __future__ import annotations

import errno
import os
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

from handrail.process import ProcessName, has_processes, own_name

CALL_VARIABLE = "HANDRAIL_CALL"
"""The environment variable of a program that holds the id of its call."""

_STATE, _PARENT, _THREADS, _START = 0, 1, 17, 19  # in `/proc/PID/stat` behind the name of the program; see proc(5)
_MOST_ROUNDS = 100
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.001, 0.05

# How often, and how long each time, to wait for the end of a client after what it has started was killed.
_TIMES_TO_LEAVE, _SECONDS_TO_LEAVE = 20, 0.05

_SECONDS_TO_TRY = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A program to be run.

    Attributes:
        line: the path of the program, and its arguments.
        environment: all of its environment, but for `HANDRAIL_CALL`.
        seconds: how long it may take.
        max_output_bytes: how much of its output is returned, which its error output joins in the order written.
        namespace: the first process of a PID namespace that it enters, as a command in a container does. What it leaves
            there is found by that. `None` if it enters none.
    """

    line: tuple[str, ...]
    folder: Path
    environment: Mapping[str, str]
    input: bytes
    seconds: float
    max_output_bytes: int
    namespace: ProcessName | None = None


@dataclass(frozen=True, slots=True)
class ProgramRecord:
    """The record of a program, by which a later process can end what it has started.

    Attributes:
        call: the id of its call, random, which it gets as `HANDRAIL_CALL`.
    """

    call: str
    namespace: ProcessName | None = None

    def kill(self) -> set[Process]:
        """Kills the processes of the call, their descendants, and all of the namespace.

        Returns:
            Those that cannot be killed; none on systems that do not show their processes.
        """
        if not has_processes():
            return set()
        first = _first_process(self.namespace)

        def find() -> set[Process]:
            processes = call_processes(self.call)
            if first is not None and look(first.pid) == first:
                processes |= {first, *namespace_processes(first)}
            return processes

        return kill_all(find)


@dataclass(frozen=True, slots=True)
class ProgramEnd:
    """The end of a program.

    Attributes:
        code: its exit code, negative for the signal that killed it; `None` if other code of this process, or the
            system, has waited for it.
        survivors: how many processes that it started cannot be killed.
    """

    code: int | None
    survivors: int = 0


class StartedProgram:
    """A program that has been started. It is used by the thread that makes it.

    Attributes:
        output: the descriptor to read what it writes: output, and error output.
        input: the descriptor to write what it reads; `None` if there is nothing, and once it is closed.
        pidfd: a descriptor that is readable when it has ended; `None` where `has_ended` must be asked now and then.
    """

    def __init__(self, program: Program, call: str) -> None:
        self._call = call
        self._first = _first_process(program.namespace)
        self._before = set[Process]() if self._first is None else namespace_processes(self._first)
        self._since = ticks_now() if has_processes() else 0
        # What is executed first is `setpriv`, which would report this by an exit code.
        if shutil.which(program.line[0]) is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        self._process = subprocess.Popen(  # noqa: S603 - no shell; rules decide what may be run
            (*killed_with_parent(), *program.line),
            cwd=program.folder,
            env={**program.environment, CALL_VARIABLE: call},
            # Never the input of this process, from which a program would read what a person types.
            stdin=subprocess.PIPE if program.input else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            # Standard error joins the output, so that the order in which a program has written is preserved.
            stderr=subprocess.STDOUT,
            bufsize=0,
            # A group of its own, so that `killpg` reaches its children and not this process; and no terminal.
            start_new_session=True,
        )
        pipes = self._process
        self.pid: int = pipes.pid
        self.output: int = -1 if pipes.stdout is None else pipes.stdout.fileno()
        self.input: int | None = None if pipes.stdin is None else pipes.stdin.fileno()
        self.pidfd: int | None = _open_end(self.pid)

    def close_input(self) -> None:
        """Ends its input; idempotent."""
        self.input = None
        if self._process.stdin is not None:
            self._process.stdin.close()

    def has_ended(self) -> bool:
        """Returns whether it has ended; what it has started may still run."""
        if not hasattr(os, "waitid"):  # pragma: no cover - macOS before Python 3.13
            return self._process.poll() is not None
        try:
            # `WNOWAIT` leaves the program waitable, so that its id, which names its group, is not reused.
            return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:
            return True

    def end(self) -> ProgramEnd:
        """Kills it and what it has started, and waits until they have ended."""
        # The client of a container ends when what it has started there ends; one that is killed itself leaves records
        # of a command that never ends. Each time anew, because it may just be starting something there.
        for _ in range(0 if self._first is None else _TIMES_TO_LEAVE):
            if self.has_ended():
                break
            self._kill_inside()
            select.select([] if self.pidfd is None else [self.pidfd], [], [], _SECONDS_TO_LEAVE)
        survivors = set[Process]()
        if has_processes():
            # Before the group is killed: a process that has lost its parents is found by the variable alone.
            survivors = kill_all(lambda: call_processes(self._call, self._since, self.pid))
        is_left = self.pid in {process.pid for process in survivors}
        self._kill_group()
        survivors |= self._kill_inside()
        return ProgramEnd(None if is_left else self._exit_code(), len(survivors))

    def close(self) -> None:
        """Closes the descriptors."""
        self.close_input()
        if self._process.stdout is not None:  # pragma: no branch - it was requested
            self._process.stdout.close()
        if self.pidfd is not None:
            os.close(self.pidfd)
            self.pidfd = None

    def _kill_inside(self) -> set[Process]:
        first = self._first
        return set() if first is None else kill_all(lambda: namespace_processes(first) - self._before)

    def _kill_group(self) -> None:
        # It has ended, and its group with it; or only ended processes are left (`PermissionError` on macOS).
        with suppress(ChildProcessError, ProcessLookupError, PermissionError):
            if hasattr(os, "waitid"):  # pragma: no branch - as above
                # The id of a process that was waited for may be that of another group.
                os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            os.killpg(self.pid, signal.SIGKILL)

    def _exit_code(self) -> int | None:
        try:
            if hasattr(os, "waitid"):  # pragma: no branch - as above
                os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        except ChildProcessError:
            self._process.wait()  # so that the object does not warn
            return None
        return self._process.wait()


def _first_process(name: ProcessName | None) -> Process | None:
    if name is None or name.boot != own_name().boot or not name.start.isdecimal():
        return None
    process = Process(name.pid, int(name.start))
    return process if look(name.pid) == process else None


def _open_end(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):  # another system than Linux, or a kernel without it
        return None


@cache
def killed_with_parent() -> tuple[str, ...]:
    """The command by which the kernel kills a program with the thread that starts it; empty without one."""
    if (program := shutil.which("setpriv", path=os.defpath)) is None:
        return ()
    line = (program, "--pdeathsig", "KILL", "--")
    try:
        # There are programs of the name without the option.
        subprocess.run((*line, program, "--version"), capture_output=True, timeout=_SECONDS_TO_TRY, check=True)  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return ()
    return line


class Process(NamedTuple):
    """A process, distinguished from another one that has its pid later.

    Attributes:
        pid: its process id.
        start_ticks: when the kernel started it, in ticks since the boot.
    """

    pid: int
    start_ticks: int


def ticks_now() -> int:
    """The time in ticks since the boot, as the start of processes is given."""
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK"))


def running() -> dict[Process, int]:
    """All processes that run, each with the pid of its parent; zombies are not among them."""
    names = os.listdir("/proc")  # noqa: PTH208 - half the time of making a path of each
    return dict(entry for name in names if name.isdecimal() and (entry := _look(int(name))) is not None)


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
    """
    among, entry = running(), f"{CALL_VARIABLE}={call}".encode()
    members = {one for one in among if one.pid == also or (one.start_ticks >= since and _has_variable(one.pid, entry))}
    own, parents = os.getpid(), {process.pid: parent for process, parent in among.items()}
    spared = set[int]()
    while own and own not in spared:
        spared.add(own)
        own = parents.get(own, 0)
    below = descendants((process.pid for process in members), among)
    return {process for process in members | below if process.pid not in spared}


def namespace_processes(first: Process) -> set[Process]:
    """The processes in the PID namespace of its first process, and their descendants, without that one.

    The kernel ends all of them with the first one. Empty for the namespace of this process, where others work, too.
    """
    namespace, among = _namespace(first.pid), running()
    if namespace in {"", _namespace(os.getpid())}:
        return set()
    there = {process for process in among if _namespace(process.pid) == namespace}
    inside = (there | descendants((process.pid for process in there), among)) - {first}
    # Last: once the first one has ended, the kernel may give the name of the namespace to another one.
    return inside if look(first.pid) == first else set()


def kill_all(find: Callable[[], set[Process]], *, pause: Callable[[float], object] = time.sleep) -> set[Process]:
    """Stops and then kills processes until none is found; takes a few seconds at most.

    Returns:
        Those that this process may not signal, or that the kernel does not end.
    """
    denied, seconds = set[Process](), _SHORTEST_PAUSE
    for _ in range(_MOST_ROUNDS):
        targets = set[Process]()
        while fresh := find() - targets - denied:
            denied |= {process for process in fresh if not send(process, signal.SIGSTOP)}
            targets |= fresh
        if not targets - denied:
            return find() if denied else set()
        for process in targets - denied:
            send(process, signal.SIGKILL)
        pause(seconds)
        seconds = min(2 * seconds, _LONGEST_PAUSE)
    return find()


def send(process: Process, number: int) -> bool:
    """Sends a signal to a process if it still runs; returns whether this process may."""
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
    entry = _look(pid)
    return None if entry is None else entry[0]


def _look(pid: int) -> tuple[Process, int] | None:
    fields = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    if len(fields) <= _START:
        return None
    # A first thread that has ended is a zombie too, while the others run.
    if fields[_STATE] in {b"Z", b"X", b"x"} and int(fields[_THREADS]) <= 1:
        return None
    return Process(pid, int(fields[_START])), int(fields[_PARENT])


def _has_variable(pid: int, variable: bytes) -> bool:
    # The environment that a program was started with. One of another user cannot be read, and is empty here.
    return variable in _read(f"/proc/{pid}/environ").split(b"\0")


def _namespace(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")  # noqa: PTH115 - a third of the time of making a path
    except OSError:
        return ""


def _read(path: str) -> bytes:
    try:
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - half the time of making a path
            return file.read()
    except OSError:
        return b""
