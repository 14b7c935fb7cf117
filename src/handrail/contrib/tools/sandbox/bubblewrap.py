"""Sandboxes of bubblewrap: each command is a process with namespaces of its own, and read-only programs of the host.

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
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from handrail.contrib.tools.sandbox.engine import (
    INSIDE,
    UNREADABLE,
    USER,
    WORKSPACE,
    SandboxLimits,
    SandboxWorkspace,
    path_inside,
)
from handrail.errors import SandboxError
from handrail.process import ProcessName

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
        name: what messages and results call it.
        reaches_network: whether commands may have effects outside, by a network; they may not.
    """

    program: str = "bwrap"
    folders: tuple[Path, ...] = ()

    name: str = "bubblewrap"
    reaches_network: bool = False

    def start(self, workspace: SandboxWorkspace) -> RunningBubblewrap:
        """Prepare a sandbox: a process is started for each command.

        Raises:
            SandboxError: something is missing here.
        """
        self.check()
        return RunningBubblewrap(tuple(self._line(workspace)), workspace)

    def check(self) -> None:
        """Check that nothing is missing here.

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
        for known in _OF_ETC:
            yield from ("--ro-bind-try", known, known)
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


class RunningBubblewrap:
    """A `RunningSandbox` of bubblewrap: what a command is started with.

    Attributes:
        environment: the environment of the command of the host, and of the command inside.
        namespace: none: it ends with its command.
    """

    namespace: ProcessName | None = None

    def __init__(self, line: tuple[str, ...], workspace: SandboxWorkspace) -> None:
        """Prepare commands that begin with `line`."""
        self.environment: Mapping[str, str] = {"PATH": _PROGRAM_PATH, **INSIDE, **workspace.environment}
        self._line = (*line, "--chdir")
        self._limiting = _limiting(workspace.limits)

    def line(self, command: tuple[str, ...], folder: str, *, has_input: bool) -> tuple[str, ...]:  # noqa: ARG002
        """The command of the host that runs a command inside; see `RunningSandbox`."""
        return (*self._line, path_inside(folder), "--", *self._limiting, *command)

    def is_running(self) -> bool:
        """Always: each command is started anew."""
        return True

    def close(self) -> None:
        """Does nothing: each command has ended with its call."""


def _limiting(limits: SandboxLimits) -> tuple[str, ...]:
    # Inside, because the kernel counts the processes of a user namespace apart.
    used = (f"--nproc={limits.processes}", f"--as={limits.memory_bytes}", f"--fsize={limits.file_bytes}")
    return (LIMITER, *used, f"--nofile={_MOST_FILES}", "--core=0", "--")


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
