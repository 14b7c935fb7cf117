"""The result of an effect that has happened, and that no call has applied yet.

An effect is *applied* by the call that commits its result with what the tool's `apply` has written. Its row is done
and not applied after that call was rolled back, and after its result was found by a reconciler, by a person or by
its owner, late. The next call of the effect applies it: `applied_at` of the row is compared and set in the unit that
commits the call. Of two calls that do so at the same time, the second one is refused, rolled back, and answered anew.

In one outermost transaction the result is applied once, too: the call that comes second, nested beside the first, finds
it among the participants that are enlisted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from handrail.prompt import Tool, ToolResult
from handrail.prompt.effect import ApplyEffect
from handrail.prompt.idempotency import DAY
from handrail.runtime.ledger.claim import EffectClaim, EffectRef, ReplayedResult, done_note
from handrail.runtime.ledger.effects import Hit
from handrail.runtime.ledger.ledger import EffectLedger
from handrail.store.protocol import EffectRow, MarkApplied
from handrail.transaction import CommitParticipant, UnitStore, current


class UnappliedResult(ReplayedResult):
    """The effect has happened before, and is applied by this call. It is enlisted in the call's transaction."""

    queue = None

    def __init__(self, ledger: EffectLedger, hit: Hit, tool: Tool[Any, Any], stored: ToolResult[Any]) -> None:
        """Replay the result of a done effect, and apply it.

        Args:
            ledger: the ledger, in the store of the session.
            hit: the row.
            tool: the tool of the effect.
            stored: the result, as the row has it.
        """
        super().__init__(EffectRef(hit.row.key, hit.effect_id), stored)
        self.row: EffectRow = hit.row
        self.apply: ApplyEffect[Any, Any] | None = tool.apply
        self.store: UnitStore | None = ledger.units
        self._ledger = ledger
        self._tool = tool

    @property
    def waits(self) -> bool:
        """Whether the mark waits for the time of the store."""
        return self._ledger.store.claim_waits

    @property
    def enlisted(self) -> tuple[CommitParticipant, ...]:
        """Itself: the mark on the row is part of the unit that commits the call."""
        return (self,)

    def unresolved_note(self) -> str:
        """That the effect has happened, and what waits; see `Claim.unresolved_note`."""
        return f"But {done_note(self._tool, waits=self.apply is not None)}"

    def prepare(self) -> None:
        """Do nothing: the row is compared when it is written."""

    def write(self) -> Sequence[MarkApplied]:
        """The mark on the row; the store refuses it if the result has been applied meanwhile."""
        config = self._tool.idempotency
        return (self._ledger.mark_applied(self.row, ttl=DAY if config is None else config.ttl),)

    def after_commit(self) -> None:
        """Do nothing: the row says it."""

    def in_doubt(self) -> None:
        """Do nothing: the row says it, when the store can be asked."""

    def after_rollback(self) -> None:
        """Do nothing: the row is done and not applied, as before."""


def replayed(
    ledger: EffectLedger, hit: Hit, tool: Tool[Any, Any], stored: ToolResult[Any], *, settles: bool = False
) -> ReplayedResult:
    """The claim of a call whose effect is done: its result is applied, unless that has been done.

    Args:
        ledger: the ledger.
        hit: the row of the effect.
        tool: the tool.
        stored: the result, as the row has it.
        settles: whether the row is marked also if the tool has no `apply`, because only its call is settled.
    """
    if (tool.apply is None and not settles) or hit.row.applied_at is not None or _is_applied_here(hit):
        return ReplayedResult(EffectRef(hit.row.key, hit.effect_id), stored, tool)
    return UnappliedResult(ledger, hit, tool, stored)


def _is_applied_here(hit: Hit) -> bool:
    """Whether a call nested beside this one applies the result, in the transaction of their outermost call."""
    caller = current()
    enlisted = () if caller is None else (part for each in caller.chain() for part in each.enlisted)
    return any(
        part.effect is not None and part.effect.effect_id == hit.effect_id
        for part in enlisted
        if isinstance(part, EffectClaim | UnappliedResult)
    )
