"""Where the ledger lives: one protocol, and the stores behind it."""

from __future__ import annotations

from handrail.store.memory import MemoryLedgerStore
from handrail.store.protocol import EFFECT_STATUSES, EffectRow, EffectStatus, LedgerStore, Wake

__all__ = ["EFFECT_STATUSES", "EffectRow", "EffectStatus", "LedgerStore", "MemoryLedgerStore", "Wake"]
