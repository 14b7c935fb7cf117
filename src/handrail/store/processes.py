"""Whether the process that claimed an effect is dead: how a store names its own process, and what proves a death.

A claim ends by itself when its lease expires. A process that is proved dead can renew no lease, so there is nothing to
wait for. Each kind of store has its proof:

| store | a process is proved dead when |
|---|---|
| memory | never: the store lives in one process |
| SQLite | it held the lock of a file beside the database, which is free (`handrail.store.sqlite.process_locks`) |
| PostgreSQL | it ran in this boot and PID namespace, and no process that runs has its pid and start time |

Where there is no proof, the lease is waited for. A zombie is dead: it no longer runs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Protocol

from handrail.process_identity import ProcessName, is_running, own_name


class Processes(Protocol):
    """What a store knows of the processes that claim effects in it."""

    @property
    def own_waits(self) -> bool:
        """Whether `own` waits for a disk at this moment."""
        ...

    def own(self, in_use: Callable[[], Iterable[str]]) -> str:
        """The name of this process; empty where no other process can reach the store.

        Args:
            in_use: the processes that running claims name; what is kept of others may be removed.

        Raises:
            StoreError: nothing could prove the death of this process later.
        """
        ...

    def is_dead(self, process: str) -> bool:
        """Whether the process of that name is proved dead; `False` where nothing can be found out."""
        ...

    def close(self, *, claims: bool) -> None:
        """Called before the store is closed. What proves the death of this process stays while a claim needs it.

        Args:
            claims: whether claims that were made in the store may be running.
        """
        ...


class KernelProcesses:
    """The processes of this machine, by the kernel's word; for a store that many machines can reach."""

    __slots__ = ()

    own_waits = False
    """The name needs no lock."""

    def own(self, in_use: Callable[[], Iterable[str]]) -> str:  # noqa: ARG002 - the interface's
        """The name of this process."""
        return str(own_name(os.getpid()))

    def is_dead(self, process: str) -> bool:
        """Whether it ran in this boot and PID namespace, and no process that runs has its pid and start time."""
        name = ProcessName.parse(process)
        if name is None or not name.boot or name.boot != own_name(os.getpid()).boot:
            return False
        return not is_running(name)

    def close(self, *, claims: bool) -> None:
        """Nothing is kept."""
