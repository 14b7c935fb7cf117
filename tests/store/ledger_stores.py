"""The stores that every rule of the ledger is tested over, and rows to put into them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from handrail.clock import Clock
from handrail.store.protocol import ClaimOwner, EffectRow, LedgerStore
from tests.store import stores

StoreFactory = Callable[[Clock], LedgerStore]

STORES: dict[str, StoreFactory] = {**stores.STORES}
"""Makes an empty store that measures time by a clock; by its name."""


OWNER = ClaimOwner("s1", "reply 1", "call 1", "host - 1 0")
"""Whoever claims the rows here; a process of which nothing is known."""


def running_row(
    clock: Clock, key: str = "session:pay:1", *, partition: str = "s1", effect_id: str = "1" * 32
) -> EffectRow:
    """A running row of a minute's lease, as a first claim writes it."""
    now = clock.now()
    return EffectRow(partition, key, effect_id, "pay", "a" * 64, OWNER, "running", 1, now, now + timedelta(minutes=1))
