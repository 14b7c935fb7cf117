"""The identity of a process: what distinguishes it from every other one, also after its pid has been reused.

A pid names a process only while it runs. With the boot of the kernel, the namespaces in which it counts, and the start
time, it names one process permanently. Where the system does not say, a name proves nothing.
"""

from __future__ import annotations

import os
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

from handrail.process_state import in_forked_process

_STATE, _THREADS, _START = 0, 17, 19
"""Where state, number of threads and start time are in `/proc/PID/stat` after the name of the program: fields 3, 20
and 22 of proc(5), which counts from 1."""
_MOST_DIGITS = 9  # of a process id; Linux gives none above 2**22
_DEAD_STATES = frozenset({"Z", "X", "x"})


@cache
def current_pid() -> int:
    """Returns the id of this process, asked once: in some sandboxes that is as slow as a statement of SQLite."""
    return os.getpid()


class ProcessName(NamedTuple):
    """The name of a process among those of all machines.

    Attributes:
        host: the name of the machine, for people.
        boot: names the boot of the kernel and the namespaces of pid and start time; empty where that is not known.
        pid: the process id.
        start: the start time by the kernel, in its ticks; a random word where the system does not say.
    """

    host: str
    boot: str
    pid: int
    start: str

    def __str__(self) -> str:
        """The name in the form of the store."""
        return f"{self.host} {self.boot or '-'} {self.pid} {self.start}"

    @staticmethod
    def parse(text: str) -> ProcessName | None:
        """Parses what `str` wrote; `None` if it is something else."""
        parts = text.split(" ")
        if len(parts) != len(ProcessName._fields) or not parts[2].isdecimal() or len(parts[2]) > _MOST_DIGITS:
            return None
        host, boot, pid, start = parts
        return ProcessName(host, "" if boot == "-" else boot, int(pid), start)


def process_in_words(process: str) -> str:
    """Describes a stored name of a process, or of a store that it has open; empty if none was stored."""
    name = ProcessName.parse(process) or ProcessName.parse(process.rpartition(" ")[0])
    return process if name is None else f"process {name.pid} on {name.host}"


@cache
def own_name(pid: int | None = None) -> ProcessName:
    """Returns the name of this process; `pid` is its own, where it is known better than by `current_pid`."""
    pid = current_pid() if pid is None else pid
    host = "".join(character if character.isprintable() and character != " " else "_" for character in _host())
    boot, stat = _boot(pid), _stat(pid)
    if not boot or stat is None:
        return ProcessName(host, "", pid, uuid4().hex)
    return ProcessName(host, boot, pid, stat[_START])


in_forked_process(current_pid.cache_clear, own_name.cache_clear)


def process_name(pid: int) -> ProcessName:
    """Returns the name of another process of this machine; what the system does not say is empty."""
    own, stat = own_name(), _stat(pid)
    return ProcessName(own.host, own.boot, pid, "" if stat is None else stat[_START])


def is_running(name: ProcessName) -> bool:
    """Tests whether the process with a name of this boot runs; a zombie does not."""
    try:
        os.kill(name.pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass  # there is one, and it is another user's
    stat = _stat(name.pid)
    if stat is None:
        return True  # it has just ended, or the system does not say
    # A first thread that has ended is a zombie too, while the others run.
    is_dead = stat[_STATE] in _DEAD_STATES and int(stat[_THREADS]) <= 1
    return stat[_START] == name.start and not is_dead


def _stat(pid: int) -> list[str] | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    return fields if len(fields) > _START else None


def _boot(pid: int) -> str:
    with suppress(OSError):
        if str(Path("/proc/self").readlink()) != str(pid):
            return ""  # this /proc shows another PID namespace, so it says nothing of the pids of this one
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return "/".join((boot, str(Path("/proc/self/ns/pid").readlink()), _time_namespace()))
    return ""


def _time_namespace() -> str:
    with suppress(OSError):  # kernels before 5.6 have none
        return str(Path("/proc/self/ns/time").readlink())
    return ""


def _host() -> str:
    from socket import gethostname  # noqa: PLC0415

    return gethostname() or "localhost"
