"""Sandboxes: their protocol and limits, the sandbox of one run, and the sandboxes of bubblewrap.

A `SandboxEngine` starts a `RunningSandbox` over a workspace, which gives the command of the host that runs a command
inside. Such a command is a program of its call as any other: `handrail.programs` starts, records and ends it. What it
leaves inside is found by the PID namespace, if the sandbox lives longer than the call.

Below bubblewrap each command is a process with namespaces of its own, and read-only programs of the host:

=============================  =======================================================================================
what a command has             by what
=============================  =======================================================================================
no other process, no network,  namespaces of the kernel, of which it cannot make others; all in the PID namespace ends
no user or capability          with its first process, which ends with the command and with what has started it
programs and libraries         `/usr` and what `folders` names, read-only; nothing of `/etc` but what programs load by
`/workspace`                   the files; their `.git` is read-only, and the files of open databases are empty
`/tmp`, `/dev/shm`             file systems in memory, of limited size, new for each command
`/proc`                        that of the namespace, read-only, because files of the kernel belong to the superuser
limits                         resource limits of the program `prlimit`: memory for each process apart, and no limit
                               of processors; the kernel does not count the processes of a superuser
=============================  =======================================================================================

System calls are not filtered: a fault of the kernel is within reach.
"""

from __future__ import annotations

import os
import posixpath
import shutil
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from datetime import timedelta
from pathlib import Path
from stat import S_ISSOCK
from typing import Protocol

from handrail.contrib import limit_faults, timeout_faults
from handrail.errors import SandboxError
from handrail.filesystem import HostFilesystem
from handrail.filesystem.paths import is_inside
from handrail.process import ProcessName, protected_paths

WORKSPACE = "/workspace"
"""Where the files of the filesystem are inside."""

USER = 1000
"""The user and the group of commands inside. They are those of the agent outside, so files belong to the agent."""

INSIDE: Mapping[str, str] = {"HOME": "/tmp", "LANG": "C.UTF-8"}  # noqa: S108 - inside, it is a file system of its own
"""The environment inside, beside what the engine and the section add."""

UNREADABLE = ("acpi", "kallsyms", "kcore", "keys", "kmsg", "kpagecgroup", "kpagecount", "kpageflags", "latency_stats")
"""Entries of `/proc` that describe the host, and that its superuser may read without a capability."""

_CURE_OF_LINK = "Give a workspace whose .git is a folder or a file, or that has none."
_MIB = 1024 * 1024

LEAST_SANDBOX_BYTES = 16 * _MIB
"""The least memory that a sandbox can be given: 16 MiB."""

LEAST_PROCESSES = 4
"""The fewest processes that a sandbox can be given: a shell and what it starts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxLimits:
    """The limits of a sandbox.

    Attributes:
        memory_bytes: memory, with that of its temporary files; below bubblewrap that of each process. At least 16 MiB.
        processes: how many processes and threads there may be at a time; at least 4. Below bubblewrap the kernel does
            not count those of a superuser.
        cpus: how many processors it may use; 0.5 is the half of one. Below bubblewrap there is no limit.
        file_bytes: how large one file may become. With a larger one no later command is started, unless git ignores it
            or the filesystem has a higher `max_untracked_bytes`: the tree could not be saved.
        tmp_bytes: the size of each of `/tmp` and `/dev/shm`.
        timeout: how long a command may take; then it is killed, and the call fails.
        max_output_bytes: how much of the output the model is shown.
        max_kept_bytes: how much of it the result holds, so that `read_result` reads it.
    """

    memory_bytes: int = 1024 * _MIB
    processes: int = 128
    cpus: float = 1.0
    file_bytes: int = 100 * _MIB
    tmp_bytes: int = 64 * _MIB
    timeout: timedelta = timedelta(seconds=60)
    max_output_bytes: int = 20_000
    max_kept_bytes: int = 1_000_000

    def faults(self) -> Iterator[str]:
        """The faults of the limits, each as a clause."""
        for name in (field.name for field in fields(self) if field.name not in {"timeout", "cpus"}):
            least = {"memory_bytes": LEAST_SANDBOX_BYTES, "processes": LEAST_PROCESSES}.get(name, 1)
            yield from limit_faults(
                f"limits.{name}", getattr(self, name), unit=name.partition("_")[2] or name, least=least
            )
        yield from timeout_faults(self.timeout, usual=60, name="limits.timeout")
        if not 0.01 <= self.cpus <= 1024:  # noqa: PLR2004
            yield f"limits.cpus is {self.cpus!r}; give a number of processors, at least 0.01"


@dataclass(frozen=True, slots=True)
class SandboxWorkspace:
    """The folder `root` that is `/workspace` inside, with the limits and the environment of commands."""

    root: Path
    limits: SandboxLimits
    environment: Mapping[str, str]

    def git(self, engine: str) -> Path:
        """The `.git` of the root, which is read-only inside; where there is none, an empty folder is made.

        A rollback does not restore it, and it can name programs, which git outside would run.
        """
        git = self.root / ".git"
        if git.is_symlink():
            raise SandboxError(
                engine, "the .git of the workspace is a link, and cannot be read-only", cure=_CURE_OF_LINK
            )
        if not git.exists():
            git.mkdir(exist_ok=True)
        return git

    @property
    def hidden(self) -> tuple[str, ...]:
        """The open databases and Unix sockets in the root, by their paths inside, where a command finds empty files.

        A server of this machine that listens at a socket is a way out, which no namespace of the network closes.
        """
        databases = [path_inside(path) for path in protected_paths(self.root) if (self.root / path).exists()]
        sockets = sorted(path_inside(os.path.relpath(path, self.root)) for path in _sockets(self.root))
        return (*databases, *(path for path in sockets if not any(is_inside(path, database) for database in databases)))


def _sockets(root: Path) -> Iterator[str]:
    folders = [os.fspath(root)]
    for folder in folders:  # grows while it is walked
        with suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                # `is_file` asks the disk nothing, and `stat` does: most entries are files.
                elif not entry.is_file(follow_symlinks=False) and S_ISSOCK(entry.stat(follow_symlinks=False).st_mode):
                    yield entry.path


def path_inside(folder: str) -> str:
    """The path inside of a folder of the workspace, which is relative to its root."""
    return posixpath.normpath(f"{WORKSPACE}/{folder}")


@dataclass(frozen=True, slots=True)
class RunningSandbox:
    """A sandbox that has been started. One command runs in it at a time.

    Attributes:
        environment: the environment of the command of the host.
        line: the command of the host that runs a command inside, by its folder and its input.
        namespace: the first process of its PID namespace; `None` if each command has a namespace of its own.
        is_running: returns whether commands can run in it.
        close: ends it, with everything inside; idempotent.
    """

    environment: Mapping[str, str]
    line: Callable[[tuple[str, ...], str, str], tuple[str, ...]]
    namespace: ProcessName | None = None
    is_running: Callable[[], bool] = lambda: True
    close: Callable[[], object] = lambda: None


class SandboxEngine(Protocol):
    """Starts sandboxes. A value: it holds settings, and no sandbox."""

    @property
    def name(self) -> str:
        """Its name, for people."""
        ...

    @property
    def reaches_network(self) -> bool:
        """Returns whether commands may have effects outside, by a network."""
        ...

    def check(self) -> None:
        """Checks that nothing is missing here; takes a fraction of a second."""
        ...

    def start(self, workspace: SandboxWorkspace) -> RunningSandbox:
        """Starts a sandbox; takes a second."""
        ...


class Sandbox:
    """A sandbox that is started when it is needed; a resource of the run, which closes it.

    Attributes:
        filesystem: the workspace, which rolls back what commands change there.
    """

    def __init__(self, engine: SandboxEngine, filesystem: HostFilesystem, workspace: SandboxWorkspace) -> None:
        self.filesystem: HostFilesystem = filesystem
        self._engine = engine
        self._workspace = workspace
        self._lock = threading.Lock()
        self._running: RunningSandbox | None = None
        self._mounts: tuple[int, tuple[str, ...]] | None = None
        self._finalizer: weakref.finalize[..., Sandbox] | None = None

    def running(self) -> RunningSandbox:
        """The sandbox; started if it does not run, or if what is mounted has changed."""
        with self._lock:
            # A `.git` that was replaced since the start is not read-only inside, and a database not hidden.
            mounts = self._workspace.git(self._engine.name).stat().st_ino, self._workspace.hidden
            if self._running is None or not self._running.is_running() or mounts != self._mounts:
                self._end()
                self._mounts = mounts
                self._running = running = self._engine.start(self._workspace)
                # Also at the exit of the process, if the run is never closed.
                self._finalizer = weakref.finalize(self, running.close)
            return self._running

    def close(self) -> None:
        """Ends the sandbox; a later command starts another one."""
        with self._lock:
            self._end()

    def _end(self) -> None:
        self._running = None
        if self._finalizer is not None:
            self._finalizer()


_SYSTEM = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_OF_ETC = ("/etc/alternatives", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/localtime")
_PROGRAM_PATH = "/usr/local/bin:/usr/bin:/bin"
_MOST_FILES = 1024

LIMITER = "/usr/bin/prlimit"
"""The program that sets resource limits inside."""

_INSTALL = "Install it: apt-get install bubblewrap"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bubblewrap:
    """Sandboxes below bubblewrap, with the programs of this machine; see `SandboxEngine`.

    Attributes:
        program: the name or path of the program `bwrap`.
        folders: more folders of this machine that commands may read, such as a virtual environment. They must hold no
            secrets.
    """

    program: str = "bwrap"
    folders: tuple[Path, ...] = ()

    name: str = "bubblewrap"
    reaches_network: bool = False

    def start(self, workspace: SandboxWorkspace) -> RunningSandbox:
        """Prepares a sandbox: a process is started for each command.

        Raises:
            SandboxError: something is missing here.
        """
        self.check()
        start, limits = (*self._line(workspace), "--chdir"), workspace.limits
        # Inside, because the kernel counts the processes of a user namespace apart.
        limiting = (f"--nproc={limits.processes}", f"--as={limits.memory_bytes}", f"--fsize={limits.file_bytes}")
        limiter = ("--", LIMITER, *limiting, f"--nofile={_MOST_FILES}", "--core=0", "--")
        environment = {"PATH": _PROGRAM_PATH, **INSIDE, **workspace.environment}
        return RunningSandbox(environment, lambda command, folder, _: (*start, path_inside(folder), *limiter, *command))

    def check(self) -> None:
        """Checks that nothing is missing here.

        Raises:
            SandboxError: something is; it says what cures that.
        """
        missing = next((folder for folder in self.folders if not folder.is_absolute() or not folder.exists()), None)
        if sys.platform != "linux":
            raise SandboxError(self.name, "it exists for Linux alone", cure="Use Podman on Linux, or no sandbox.")
        if shutil.which(self.program) is None:
            raise SandboxError(self.name, f"the program {self.program!r} is not installed", cure=_INSTALL)
        if not Path(LIMITER).exists():
            raise SandboxError(self.name, f"{LIMITER} is missing", cure="Install it: apt-get install util-linux")
        if missing is not None:
            cure = "Give the absolute path of a folder that exists."
            raise SandboxError(self.name, f"folders has {str(missing)!r}, which cannot be shown", cure=cure)

    def _line(self, workspace: SandboxWorkspace) -> Iterator[str]:
        limits = workspace.limits
        yield from (shutil.which(self.program) or self.program, "--unshare-all", "--unshare-user", "--disable-userns")
        yield from ("--die-with-parent", "--new-session", "--cap-drop", "ALL", "--hostname", "sandbox")
        yield from ("--uid", str(USER), "--gid", str(USER))
        yield from ("--ro-bind", "/usr", "/usr")
        for path in map(Path, _SYSTEM):
            if path.is_symlink():
                yield from ("--symlink", os.fspath(path.readlink()), os.fspath(path))
            elif path.is_dir():
                yield from ("--ro-bind", os.fspath(path), os.fspath(path))
        for name in _OF_ETC:
            yield from ("--ro-bind-try", name, name)
        for folder in map(os.fspath, self.folders):
            yield from ("--ro-bind", folder, folder)
        yield from _proc()
        yield from ("--dev", "/dev", *_memory("/dev/shm", limits.tmp_bytes), "--remount-ro", "/dev")  # noqa: S108
        yield from (*_memory("/tmp", limits.tmp_bytes), "--bind", os.fspath(workspace.root), WORKSPACE)  # noqa: S108
        yield from ("--ro-bind", os.fspath(workspace.git(self.name)), f"{WORKSPACE}/.git")
        for inside in workspace.hidden:
            yield from _masked(inside, is_folder=(workspace.root / os.path.relpath(inside, WORKSPACE)).is_dir())
        # Last: nothing can be mounted below it afterwards.
        yield from ("--remount-ro", "/")


def _proc() -> Iterator[str]:
    yield from ("--proc", "/proc")
    for name in UNREADABLE:
        path = Path("/proc", name)
        if path.exists():
            yield from _masked(os.fspath(path), is_folder=path.is_dir())
    yield from ("--remount-ro", "/proc")


def _masked(path: str, *, is_folder: bool) -> tuple[str, ...]:
    return ("--tmpfs", path, "--remount-ro", path) if is_folder else ("--ro-bind", os.devnull, path)


def _memory(path: str, size: int) -> tuple[str, ...]:
    return ("--perms", "1777", "--size", str(size), "--tmpfs", path)
