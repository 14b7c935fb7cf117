"""What is started for a call, what is recorded of it, and what a running program is for its caller."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from handrail.process_identity import ProcessName, is_running, own_name
from handrail.programs.process_tree import Process, inside, kill_all, look, of_call, running


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramLimits:
    """What the kernel lets a program use, with all that it starts.

    Attributes:
        groups: the files by which it joins control groups: it writes "0" to each.
        most: resource limits, each as its number in the module `resource` and the most of it. One that is lower stays.
    """

    groups: tuple[Path, ...] = ()
    most: tuple[tuple[int, int], ...] = ()


NO_LIMITS = ProgramLimits()
"""As those of the process that starts it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A program to start.

    Attributes:
        call: the id of its call, random, which it gets as `HANDRAIL_CALL`.
        line: the path of the program, and its arguments.
        folder: where it starts.
        environment: the rest of its environment.
        has_input: whether it gets a pipe to read from; else its input is empty.
        errors_apart: whether its error output has a pipe of its own; else it joins the output in the order written.
        namespace: the first process of a PID namespace that the program enters, as a command in a container does; what
            the program leaves there is found by that, and not by its parents. `None` if it enters none.
        limits: what it may use; on Linux alone.
    """

    call: str
    line: tuple[str, ...]
    folder: Path
    environment: Mapping[str, str]
    has_input: bool
    errors_apart: bool = False
    namespace: ProcessName | None = None
    limits: ProgramLimits = NO_LIMITS


@dataclass(frozen=True, slots=True)
class ProgramIdentity:
    """What identifies a program, and all that it starts, for a process that comes later.

    Attributes:
        call: the id of its call.
        program: the process that became the program.
        supervisor: the process that ends what the program leaves; `None` where there is none.
        namespace: the first process of the PID namespace that the program enters: all in it ends with that one.
    """

    call: str
    program: ProcessName
    supervisor: ProcessName | None = None
    namespace: ProcessName | None = None

    def to_json(self) -> bytes:
        """The identity as it is stored."""
        return json.dumps([self.call, *(str(name or "") for name in self._names())]).encode()

    @staticmethod
    def from_json(data: bytes) -> ProgramIdentity | None:
        """The identity that `to_json` wrote; `None` for anything else, such as a part of one."""
        try:
            call, program, *others = json.loads(data)
            supervisor, namespace = map(ProcessName.parse, others)
            name = ProcessName.parse(program)
            return name and ProgramIdentity(str(call), name, supervisor, namespace)
        except (ValueError, TypeError, AttributeError):
            return None

    def is_of_this_boot(self) -> bool:
        """Whether its pids and start times count in this boot and PID namespace; if not, nothing of it runs here."""
        boot = own_name(os.getpid()).boot
        return bool(boot) and boot == self.program.boot and self.program.started.isdecimal()

    def is_supervised(self) -> bool:
        """Whether its supervisor still runs, and so ends what is left."""
        return self.supervisor is not None and self.is_of_this_boot() and is_running(self.supervisor)

    def kill(self) -> set[Process]:
        """Kill the processes that have the id of the call in their environment, their descendants, and the namespace.

        Returns:
            Those that cannot be killed.
        """
        if not self.is_of_this_boot():
            return set()
        since = int(self.program.started)
        return kill_all(lambda: of_call(self.call, since) | self._whole_namespace())

    def kill_inside(self, since: int) -> set[Process]:
        """Kill what the program has left in the namespace that it has entered, and nothing that was there before.

        If a process cannot be killed, the first one is, and the kernel ends the rest.

        Args:
            since: when the program could begin, in ticks since the boot. Its process may be older.

        Returns:
            Those that cannot be killed.
        """
        first = _process(self.namespace) if self.is_of_this_boot() else None
        if first is None or not (left := kill_all(lambda: inside(first, since))):
            return set()
        return kill_all(lambda: {first, *left} & running().keys())

    def _whole_namespace(self) -> set[Process]:
        first = _process(self.namespace)
        return set() if first is None else {first, *inside(first)}

    def _names(self) -> tuple[ProcessName | None, ...]:
        return self.program, self.supervisor, self.namespace


def _process(name: ProcessName | None) -> Process | None:
    """The process of a name of this boot, if it runs."""
    if name is None or not name.started.isdecimal():
        return None
    process = Process(name.pid, int(name.started))
    return process if look(name.pid) == process else None


def processes_of(call: str, namespace: ProcessName | None) -> set[int]:
    """The process ids of what a call runs: with its id in their environment, their descendants, and in a namespace.

    Args:
        call: the id of the call.
        namespace: the first process of a PID namespace that belongs to the call alone while it runs.
    """
    found, first = of_call(call, 0), _process(namespace)
    return {process.pid for process in (found if first is None else found | inside(first))}


class ProgramRecords(Protocol):
    """Where programs are recorded before they run, for a process that comes after the death of this one."""

    def record(self, program: ProgramIdentity) -> None:
        """Record a program that is about to run.

        Raises:
            OSError: it cannot be recorded; it must not run then.
        """
        ...

    def discard(self, program: ProgramIdentity) -> None:
        """Remove the record of a program of which nothing is left.

        Raises:
            OSError: the record stays.
        """
        ...


@dataclass(frozen=True, slots=True)
class ProgramEnd:
    """How a program ended.

    Attributes:
        code: its exit code, negative for the signal that killed it; `None` if what started it was killed.
        left: how many processes that it started cannot be killed.
    """

    code: int | None
    left: int = 0


class RunningProgram(Protocol):
    """A program that is started for one caller. Only `kill` may be called by other threads."""

    def start(self) -> bool:
        """Start it; false, with nothing to close, if it was killed before.

        Raises:
            OSError: it cannot be started; there is nothing to close.
        """
        ...

    @property
    def identity(self) -> ProgramIdentity:
        """What identifies it, once it has started."""
        ...

    @property
    def output(self) -> int:
        """The descriptor to read what it writes: output, and error output unless that is apart."""
        ...

    @property
    def errors(self) -> int | None:
        """The descriptor to read its error output; `None` unless the launch says that it is apart."""
        ...

    @property
    def input(self) -> int | None:
        """The descriptor to write what it reads, until `close_input` is called."""
        ...

    @property
    def woken(self) -> int | None:
        """A descriptor that is readable when it may have ended; `None` where `has_ended` must be asked now and then."""
        ...

    def release(self) -> None:
        """Let it run, if it does not run already."""
        ...

    def close_input(self) -> None:
        """Let it read the end of its input; idempotent."""
        ...

    def has_ended(self) -> bool:
        """Whether it has ended; what it has started may still run.

        Raises:
            OSError: it is not known how it has ended.
        """
        ...

    def kill(self) -> None:
        """Kill it and what it has started, or prevent its start; does not wait, and never raises."""
        ...

    def end(self) -> ProgramEnd:
        """Kill it and what it has started, and wait until they have ended.

        Raises:
            OSError: it could not be started; or it is not known how it has ended.
        """
        ...

    def close(self) -> None:
        """Close the descriptors."""
        ...
