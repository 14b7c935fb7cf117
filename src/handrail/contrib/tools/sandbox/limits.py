"""What a sandbox may use, and what is wrong with limits that cannot be."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import cast

_MIB = 1024 * 1024

LEAST_SANDBOX_BYTES = 16 * _MIB
"""The least memory that a sandbox can be given: 16 MiB."""

LEAST_PROCESSES = 4
"""The fewest processes that a sandbox can be given: a shell and what it starts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxLimits:
    """What a sandbox may use.

    Attributes:
        memory_bytes: memory, with that of its temporary files; at least 16 MiB.
        processes: how many processes and threads there may be at a time; at least 4.
        cpus: how many processors it may use; 0.5 is the half of one.
        file_bytes: how large one file may become. With a larger one no later command is started, unless git ignores it
            or the filesystem has a higher `max_untracked_bytes`: the tree could not be saved.
        max_workspace_bytes: how large the workspace may become; each file, folder and link counts as 4 KiB at least.
        tmp_bytes: the size of each of `/tmp` and `/dev/shm`.
        timeout: how long a command may take; then it is killed, and the call fails.
        max_output_bytes: how much of output and error output the model is shown.
        max_kept_bytes: how much of each the result holds, so that `read_result` reads it.
    """

    memory_bytes: int = 1024 * _MIB
    processes: int = 128
    cpus: float = 1.0
    file_bytes: int = 100 * _MIB
    max_workspace_bytes: int = 1024 * _MIB
    tmp_bytes: int = 64 * _MIB
    timeout: timedelta = timedelta(seconds=60)
    max_output_bytes: int = 20_000
    max_kept_bytes: int = 1_000_000

    def faults(self) -> Iterator[str]:
        """What is wrong with them, each as a clause."""
        least = {"memory_bytes": LEAST_SANDBOX_BYTES, "processes": LEAST_PROCESSES}
        for name in (each.name for each in fields(self) if each.name not in {"timeout", "cpus"}):
            value = cast("object", getattr(self, name))
            # `bool` is a subclass of `int`, so `True` would be a limit of one.
            if not isinstance(value, int) or isinstance(value, bool) or value < least.get(name, 1):
                yield f"limits.{name} is {value!r}; give a whole number, at least {least.get(name, 1):,}"
        cpus, timeout = cast("object", self.cpus), cast("object", self.timeout)
        if not isinstance(cpus, int | float) or isinstance(cpus, bool) or not 0.01 <= cpus <= 1024:  # noqa: PLR2004
            yield f"limits.cpus is {cpus!r}; give a number of processors, at least 0.01"
        if not isinstance(timeout, timedelta) or timeout <= timedelta(0):
            yield f"limits.timeout is {timeout!r}; give a positive timedelta: timedelta(seconds=60)"
