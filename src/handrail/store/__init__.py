"""Where sessions, their events and the ledger live: one protocol, and the stores behind it.

::

    with handrail.store.open("sqlite:///desk.db") as store:
        ...
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from handrail.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from handrail.store.memory import MemoryStore
    from handrail.store.protocol import (
        ClaimOwner,
        EffectRow,
        EffectStatus,
        LedgerStore,
        Store,
        WatchCallback,
    )
    from handrail.store.sqlite.store import SqliteStore
    from handrail.store.urls import open  # noqa: A004 - it is called `handrail.store.open`
else:
    _PROTOCOL = "ClaimOwner EffectRow EffectStatus LedgerStore Store WatchCallback"
    _STORES = {"memory": "MemoryStore", "sqlite.store": "SqliteStore", "urls": "open"}
    __getattr__ = lazy_exports(__name__, _STORES | {"protocol": _PROTOCOL})

__all__ = [
    "ClaimOwner",
    "EffectRow",
    "EffectStatus",
    "LedgerStore",
    "MemoryStore",
    "SqliteStore",
    "Store",
    "WatchCallback",
    "open",
]
