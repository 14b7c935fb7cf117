"""Where sessions, their events and the ledger live: one protocol, and the stores behind it.

::

    with handrail.store.open("sqlite:///desk.db") as store:
        ...
"""

from __future__ import annotations

from handrail.store.memory import MemoryStore
from handrail.store.protocol import (
    EFFECT_STATUSES,
    ClaimOwner,
    EffectRow,
    EffectStatus,
    LedgerStore,
    Store,
    Testimony,
    WatchCallback,
)
from handrail.store.sqlite.store import SqliteStore
from handrail.store.urls import open  # noqa: A004 - it is called `handrail.store.open`

__all__ = [
    "EFFECT_STATUSES",
    "ClaimOwner",
    "EffectRow",
    "EffectStatus",
    "LedgerStore",
    "MemoryStore",
    "SqliteStore",
    "Store",
    "Testimony",
    "WatchCallback",
    "open",
]
