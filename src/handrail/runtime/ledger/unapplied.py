"""The result of an effect that has happened, and that no call has applied, or succeeded with, yet.

An effect is *applied* by the call that commits its result with what the tool's `apply` has written. Its row is done
and not applied after that call was rolled back, and after its result was found by a reconciler, by a person or by
its owner, late. The next call of the effect applies it: `applied_at` of the row is compared and set in the unit that
commits the call. Of two calls that do so at the same time, the second one is refused, rolled back, and answered anew.
The same unit gives the row of an unread slot the time at which it expires.

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
from handrail.runtime.ledger.holders import leave_holder
from handrail.runtime.ledger.ledger import EffectLedger
from handrail.store.protocol import EffectRow, MarkApplied
from handrail.transaction import CommitParticipant, UnitStore, current
from handrail.turns import Ticket


class UnappliedResult(ReplayedResult):
    """The effect has happened before, and is applied by this call. It is enlisted in the call's transaction."""

    queue = None

    def __init__(  # noqa: PLR0913 - the row, what it holds, and who is given it
        self,
        ledger: EffectLedger,
        hit: Hit,
        tool: Tool[Any, Any],
        stored: ToolResult[Any],
        *,
        ticket: Ticket | None,
        below: Sequence[EffectRow] = (),
        settles: bool = False,
    ) -> None:
        """Replay the result of a done effect, and apply it, unless that was done.

        Args:
            ledger: the ledger.
            hit: the row.
            tool: the tool of the effect.
            stored: the result, as the row has it.
            ticket: the ticket of the call; `None` if the row, in another store than the session, is read already.
            below: the unread effects of the calls nested in that of the row.
            settles: whether only its call is settled: the row stays unread.
        """
        super().__init__(EffectRef(hit.row.key, hit.effect_id), stored)
        self.row: EffectRow = hit.row
        self.apply: ApplyEffect[Any, Any] | None = tool.apply if hit.row.applied_at is None else None
        self.store: UnitStore | None = ledger.store
        self._ledger = ledger
        self._tool = tool
        self._ticket = ticket
        self._below = below
        self._read_until = None if ticket is not None else hit.row.expires_at
        config = tool.idempotency
        self._ttl = config.ttl if config is not None else None if settles else DAY

    @property
    def waits(self) -> bool:
        """Whether the mark waits for the time of the store."""
        return self._ledger.store.claim_waits

    @property
    def enlisted(self) -> tuple[CommitParticipant, ...]:
        """Itself: the mark on the row is part of the unit that commits the call."""
        return () if self._ticket is None else (self,)

    @property
    def is_done(self) -> bool:
        """It is; see `Claim.is_done`."""
        return True

    def unresolved_note(self) -> str:
        """That the effect has happened, and what waits; see `Claim.unresolved_note`."""
        return f"But {done_note(self._tool, waits=self.apply is not None)}"

    def prepare(self) -> None:
        """Do nothing: the row is compared when it is written."""

    def write(self) -> Sequence[MarkApplied]:
        """The mark on the row; the store refuses it if another call has been given the result meanwhile."""
        mark = self._ledger.mark_applied(self.row, ttl=self._ttl)
        self._read_until = mark.row.expires_at
        return (mark, *(self._ledger.mark_applied(row, ttl=self._ttl) for row in self._below))

    def after_commit(self) -> None:
        """Let others have it; the row says whether it is unread."""
        leave_holder(self.row, self._ticket)

    def in_doubt(self) -> None:
        """Let others have it; the row says whether it is unread, when the store can be asked."""
        leave_holder(self.row, self._ticket)

    def after_rollback(self) -> None:
        """Let others have it: the row is as before."""
        leave_holder(self.row, self._ticket)

    def leave_unread(self) -> bool:
        """Leave it to an equal call again; see `Claim.leave_unread`."""
        return self._ledger.leave_unread(self.row, self._read_until)


def is_applied_here(hit: Hit) -> bool:
    """Whether a call nested beside this one applies the result, in the transaction of their outermost call."""
    caller = current()
    enlisted = () if caller is None else (part for each in caller.chain() for part in each.enlisted)
    return any(
        part.effect is not None and part.effect.effect_id == hit.effect_id
        for part in enlisted
        if isinstance(part, EffectClaim | UnappliedResult)
    )
