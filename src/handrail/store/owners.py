"""The owners of claims and sessions: how an opened store names itself, and what proves that another one lives.

An owner is a store that is open in one process. It has a name that no other one ever has, and one lock, which it takes
before its first claim or session and holds until it is closed or its process ends. A living owner keeps what it has,
whatever the clock says; a dead one has lost it.

| store | lock | lives | dead |
|---|---|---|---|
| memory | none: the store lives in one process | never | never |
| SQLite | a file beside the database (`sqlite.owner`) | it is locked | the file is there, and not locked |
| PostgreSQL | on the server (`postgres.owner`) | it is locked | it is free, and its process does not run here |

Where nothing is proved, the lease of a claim decides, and a session may be taken over. Of the stores of this process
nothing is proved to claims: in this process a claim lives while a ledger renews it (`LIVE_CLAIMS`). So a running row
names its owner only as long as a ledger there renews it: the name is removed when the claim is given up, or its store
closed.
"""

from __future__ import annotations

from typing import Protocol
from uuid import uuid4

from handrail.process import own_name
from handrail.threads import in_forked_process


class StoreOwner(Protocol):
    """One opened store among all that use the same database.

    Attributes:
        name: its name; empty until its lock is taken.
    """

    name: str

    @property
    def own_waits(self) -> bool:
        """Whether `own` waits for a disk or a server at this moment."""
        ...

    def own(self) -> str:
        """The name of this store, whose lock is held when this returns; one that was lost is taken again.

        Empty where no other process can reach the store.

        Raises:
            StoreError: nothing could prove the death of this owner later.
        """
        ...

    def lives(self, owner: str) -> bool | None:
        """Whether the owner of that name lives; `None` where neither is proved.

        Raises:
            StoreError: the server does not answer.
        """
        ...

    def close(self) -> None:
        """Release the lock; idempotent. In a forked process the parent keeps it."""
        ...


class MemoryOwner:
    """The one owner of a store that no other process can reach."""

    __slots__ = ("name",)

    def __init__(self) -> None:
        self.name: str = ""

    own_waits = False
    """There is nothing to wait for."""

    def own(self) -> str:
        """There is nothing to name."""
        return ""

    def lives(self, owner: str) -> bool | None:  # noqa: ARG002 - the interface's
        """Nothing is proved."""
        return None

    def close(self) -> None:
        """There is nothing to release."""


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


def new_owner() -> str:
    """A name for a store of this process: that of the process, and a random word."""
    return f"{own_name()} {uuid4().hex}"


def is_of_this_process(owner: str) -> bool:
    """Whether an owner is a store of this process."""
    return owner.rpartition(" ")[0] == str(own_name())
