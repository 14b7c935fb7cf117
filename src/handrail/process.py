"""The process: its identity, and its open databases.

A process that closes any descriptor of a file loses all its POSIX locks on that file
(https://www.sqlite.org/howtocorrupt.html, section 2.2). So nothing else opens, replaces or removes the files of the
databases that it has open; they are recognised by their status before they are opened:

| entry of a folder | protected if |
|---|---|
| any, under any name | it has the device and inode of a database, its log or its index |
| one in the folder of a database | it has the name of one of its files, even if nothing is there |

A pid names a process only while it runs. With the boot of the kernel, the namespaces in which it counts, and the start
time, it names one process permanently. Where the system does not say, a name proves nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

from handrail.threads import FORKING, in_forked_process

try:
    import fcntl as fcntl  # noqa: PLC0414 - so that it may be imported from here
except ModuleNotFoundError as _error:
    raise ImportError("Handrail needs a POSIX system (Linux, macOS); run it in WSL or in a container") from _error

_STATE, _THREADS, _START = 0, 17, 19
"""Indices in `/proc/PID/stat` after the name of the program: fields 3, 20 and 22 of proc(5), which counts from 1."""
_MOST_DIGITS = 9  # of a process id; Linux gives none above 2**22
_DEAD_STATES = frozenset({"Z", "X", "x"})


@cache
def current_pid() -> int:
    """The id of this process; the system is asked once, because some sandboxes are as slow as a statement of SQLite."""
    return os.getpid()


class ProcessName(NamedTuple):
    """The name of a process among those of all machines.

    Attributes:
        host: the name of the machine, for people.
        boot: names the boot of the kernel and the namespaces of pid and start time; empty where that is not known.
        pid: the process id.
        start: when the kernel started the process, in its ticks; a random word where the system does not say.
    """

    host: str
    boot: str
    pid: int
    start: str

    def __str__(self) -> str:
        return f"{self.host} {self.boot or '-'} {self.pid} {self.start}"

    @staticmethod
    def parse(text: str) -> ProcessName | None:
        """The name that `str` wrote; `None` if it is something else."""
        parts = text.split(" ")
        if len(parts) != len(ProcessName._fields) or not parts[2].isdecimal() or len(parts[2]) > _MOST_DIGITS:
            return None
        host, boot, pid, start = parts
        return ProcessName(host, "" if boot == "-" else boot, int(pid), start)


def process_in_words(process: str) -> str:
    """A stored name of a process, or of a store that it has open, for people; empty if none was stored."""
    name = ProcessName.parse(process) or ProcessName.parse(process.rpartition(" ")[0])
    return process if name is None else f"process {name.pid} on {name.host}"


@cache
def own_name(pid: int | None = None) -> ProcessName:
    """The name of this process; `pid` is its own, where it is known better than by `current_pid`."""
    from socket import gethostname  # noqa: PLC0415

    pid, host = current_pid() if pid is None else pid, gethostname() or "localhost"
    host = "".join(character if character.isprintable() and character != " " else "_" for character in host)
    boot, stat = _boot(pid), _stat(pid)
    if not boot or stat is None:
        return ProcessName(host, "", pid, uuid4().hex)
    return ProcessName(host, boot, pid, stat[_START])


in_forked_process(current_pid.cache_clear, own_name.cache_clear)


def process_name(pid: int) -> ProcessName:
    """The name of another process of this machine; what the system does not say is empty."""
    own, stat = own_name(), _stat(pid)
    return ProcessName(own.host, own.boot, pid, "" if stat is None else stat[_START])


def is_running(name: ProcessName) -> bool:
    """Returns whether the process with a name of this boot runs; a zombie does not."""
    try:
        os.kill(name.pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass  # there is one, and it is another user's
    if (stat := _stat(name.pid)) is None:
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
        time = Path("/proc/self/ns/time")  # kernels before 5.6 have none
        return f"{boot}/{Path('/proc/self/ns/pid').readlink()}/{time.readlink() if time.is_symlink() else ''}"
    return ""


# ------------------------------------------------------------------------------------------------------------ databases


_LOCKED = ("", "-wal", "-shm")
_SUFFIXES = ("", "-wal", "-shm", "-journal", "-holds")


class _Database(NamedTuple):
    connections: int
    folder: tuple[int, int] | None
    files: frozenset[tuple[int, int] | None]
    names: frozenset[bytes]


_NONE = _Database(0, None, frozenset(), frozenset())
# Of the process: the system counts descriptors and POSIX locks of a file by processes, and not by what has opened it.
_open: dict[Path, _Database] = {}


def track_connections(path: Path, change: int) -> None:
    """Protects the files of a database while it has connections; called before one is opened, and after.

    Args:
        path: the database, absolute and without links; it need not exist yet.
        change: the number of connections that are added, negative after some are closed; 0 to look at its files again.
    """
    global _open  # noqa: PLW0603 - replaced as a whole, so that it is read without the lock
    with FORKING:
        before = _open.get(path, _NONE)
        connections = before.connections + change
        # A file stays the database's until the last connection is closed, wherever it is moved.
        files = before.files.union(device_and_inode(f"{path}{suffix}") for suffix in _LOCKED)
        names = frozenset(os.fsencode(f"{path.name}{suffix}") for suffix in _SUFFIXES)
        database = _Database(connections, device_and_inode(path.parent), files, names)
        others = {other: value for other, value in _open.items() if other != path}
        _open = {**others, path: database} if connections else others


def has_open_databases() -> bool:
    """Returns whether anything is protected."""
    return bool(_open)


def is_protected(status: os.stat_result | None, name: bytes = b"", *, at: int = -1) -> bool:
    """Returns whether a status, `None` for nothing, is of a protected file; or a `name` in the folder open as `at`."""
    if not _open:
        return False
    identity = None if status is None else (status.st_dev, status.st_ino)
    return any(
        (identity and identity in database.files)
        or (name in database.names and device_and_inode(at) == database.folder)
        for database in _open.values()
    )


def protected_paths(folder: Path) -> Iterator[str]:
    """The paths below a folder that are protected by their names, relative to it; some may not exist."""
    for path in _open:
        if path.is_relative_to(folder):
            yield from (f"{path.relative_to(folder).as_posix()}{suffix}" for suffix in _SUFFIXES)


def device_and_inode(place: str | Path | int) -> tuple[int, int] | None:
    """Device and inode of a path or an open file; `None` if there is nothing."""
    try:
        status = os.stat(place)  # noqa: PTH116 - also of a descriptor, and quicker than the path's own
    except OSError:
        return None
    return status.st_dev, status.st_ino


def has_processes(processes: Path = Path("/proc")) -> bool:
    """Returns whether the system shows its processes as files, as Linux does."""
    return (processes / "self" / "stat").exists()
