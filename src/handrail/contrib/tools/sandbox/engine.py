"""What a sandbox is made by: the protocol that Podman and bubblewrap implement.

====================  ================================================================================================
`SandboxEngine`       says what is missing here, and starts a sandbox over a workspace
`RunningSandbox`      gives the command of the host that runs a command inside; it is closed when its run ends
`try_sandbox`         starts one to see whether it works here
====================  ================================================================================================

A command inside is a program of its call as any other: it is started, recorded and ended by `handrail.programs`. What
it leaves inside is found by the PID namespace, if the sandbox lives longer than the call.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable
from uuid import uuid4

from handrail.clock import SYSTEM_CLOCK
from handrail.contrib.tools.sandbox.limits import SandboxLimits
from handrail.contrib.tools.shell.process import ProgramRun
from handrail.errors import SandboxError
from handrail.open_databases import protected_paths
from handrail.process_identity import ProcessName
from handrail.programs.program import Program

WORKSPACE = "/workspace"
"""Where the files of the filesystem are inside."""

USER = 1000
"""The user and the group of commands inside. They are those of the agent outside, so files belong to the agent."""

INSIDE: Mapping[str, str] = {"HOME": "/tmp", "LANG": "C.UTF-8"}  # noqa: S108 - inside, it is a file system of its own
"""The environment inside, beside what the engine and the section add."""

UNREADABLE = ("acpi", "kallsyms", "kcore", "keys", "kmsg", "kpagecgroup", "kpagecount", "kpageflags", "latency_stats")
"""Entries of `/proc` that describe the host, and that its superuser may read without a capability."""

_NOTHING = ("/bin/sh", "-c", ":")
_LONGEST_REPORT = 2000
_CURE = "Allow what it names, as by `sysctl` or an option of the container that this runs in; or use the other engine."


@dataclass(frozen=True, slots=True)
class SandboxWorkspace:
    """What a sandbox is made for.

    Attributes:
        root: the folder that is `/workspace` inside, without links.
        limits: what may be used.
        environment: the environment of commands.
    """

    root: Path
    limits: SandboxLimits
    environment: Mapping[str, str]

    @property
    def git(self) -> Path | None:
        """The `.git` of the root; `None` without one. It is read-only inside.

        A rollback does not restore it, and it can name programs, which git outside would run.
        """
        git = self.root / ".git"
        return git if git.exists() and not git.is_symlink() else None

    @property
    def hidden(self) -> tuple[str, ...]:
        """The files of open databases in the root, by their paths inside; a command finds empty ones that stay."""
        return tuple(path_inside(path) for path in protected_paths(self.root) if (self.root / path).exists())


def path_inside(folder: str) -> str:
    """The path inside of a folder of the workspace, which is relative to its root."""
    return posixpath.normpath(f"{WORKSPACE}/{folder}")


class RunningSandbox(Protocol):
    """A sandbox that has been started. One command runs in it at a time."""

    @property
    def environment(self) -> Mapping[str, str]:
        """The environment of the command of the host."""
        ...

    @property
    def namespace(self) -> ProcessName | None:
        """The first process of its PID namespace; `None` if each command has a namespace of its own."""
        ...

    def line(self, command: tuple[str, ...], folder: str, *, has_input: bool) -> tuple[str, ...]:
        """The command of the host that runs a command inside.

        Args:
            command: its name or path inside, and its arguments.
            folder: where it starts, relative to the workspace.
            has_input: whether it reads input.
        """
        ...

    def is_running(self) -> bool:
        """Whether commands can run in it."""
        ...

    def close(self) -> None:
        """End it, with everything inside; idempotent."""
        ...


@runtime_checkable
class SandboxEngine(Protocol):
    """What starts sandboxes. A value: it holds settings, and no sandbox."""

    @property
    def name(self) -> str:
        """Its name, for people."""
        ...

    @property
    def reaches_network(self) -> bool:
        """Whether commands may have effects outside, by a network."""
        ...

    def fault(self) -> str | None:
        """What is missing here, and what cures it; `None` if nothing is. Takes a fraction of a second."""
        ...

    def start(self, workspace: SandboxWorkspace) -> RunningSandbox:
        """Start a sandbox; takes a second.

        Raises:
            SandboxError: it cannot be started; it says what cures that.
        """
        ...


def try_sandbox(engine: SandboxEngine, workspace: SandboxWorkspace) -> None:
    """Start a sandbox, run a command in it that does nothing, and end it; takes a second or two.

    Raises:
        SandboxError: it cannot be started, as with limits that this machine cannot set, or runs no command.
    """
    running = engine.start(workspace)
    program = _nothing_in(running, workspace)
    try:
        ended = ProgramRun(SYSTEM_CLOCK, uuid4().hex).carry_out(program)
        how = f"exit code {ended.code}" if ended.how == "exited" else ended.how
        fault = "" if how == "exit code 0" else " ".join(ended.errors.split()) or how
    except OSError as error:
        fault = f"{program.line[0]}: {error.strerror or error}"
    finally:
        running.close()
    if fault:
        raise SandboxError(engine.name, f"no command can be run: {fault[-_LONGEST_REPORT:]}", cure=_CURE)


def _nothing_in(running: RunningSandbox, workspace: SandboxWorkspace) -> Program:
    return Program(
        line=running.line(_NOTHING, ".", has_input=False),
        folder=workspace.root,
        environment=running.environment,
        input=b"",
        seconds=workspace.limits.timeout.total_seconds(),
        max_output_bytes=_LONGEST_REPORT,
        errors_apart=True,
        namespace=running.namespace,
    )
