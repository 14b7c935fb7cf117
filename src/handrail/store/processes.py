"""Whether the process that claimed an effect lives or is dead: how a store names its own process, and what proves it.

A living owner keeps its claim, whatever the clock says; a dead one has lost it. In this process a claim lives while a
ledger renews it (`LIVE_CLAIMS`). Of another process each kind of store has its proof:

| store | proved dead | proved to live |
|---|---|---|
| memory | never: the store lives in one process | never |
| SQLite | the lock of its file beside the database is free (`handrail.store.sqlite.process_locks`) | it is held |
| PostgreSQL | it ran in this boot and PID namespace; no process has its pid and start time | one has them |

Where there is no proof, the lease decides. So a running row names its process only as long as a ledger there renews
it: the name is removed when the claim is given up, or its store closed. A zombie is dead: it no longer runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from handrail.process_identity import ProcessName, is_running, own_name
from handrail.process_state import in_forked_process


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

    def lives(self, process: str) -> bool | None:
        """Whether the process of that name lives; `None` for this process, and where neither is proved."""
        ...

    def close(self) -> None:
        """Called before the store is closed, when no running claim of the store names this process any more."""
        ...


LIVE_CLAIMS: dict[tuple[str, int], float] = {}
"""Of the process: two stores of one database have to know that the owner of a claim lives here. Until when its ledger
renews it, by effect and fence, on the monotonic clock of the ledger.
"""

NEW_CLAIMS: dict[tuple[str, int], float] = {}
"""Of the process, as `LIVE_CLAIMS`: claims that are being written and not renewed yet; until when that may take, by
`time.monotonic`.
"""

RUNNING_HANDLERS: set[tuple[str, int]] = set()
"""Of the process: an effect is not settled by another ledger while its `def` handler runs here, also after its call has
ended. By effect and fence.
"""

in_forked_process(LIVE_CLAIMS.clear, NEW_CLAIMS.clear, RUNNING_HANDLERS.clear)


class KernelProcesses:
    """The processes of this machine, by the kernel's word; for a store that many machines can reach."""

    __slots__ = ()

    own_waits = False
    """The name needs no lock."""

    def own(self, in_use: Callable[[], Iterable[str]]) -> str:  # noqa: ARG002 - the interface's
        """The name of this process."""
        return str(own_name())

    def lives(self, process: str) -> bool | None:
        """Whether a process has its pid and start time; `None` if it ran in another boot or PID namespace."""
        name, own = ProcessName.parse(process), own_name()
        if name is None or not name.boot or name.boot != own.boot or name == own:
            return None
        return is_running(name)

    def close(self) -> None:
        """Nothing is kept."""
