"""Claims that run no handler: that of a call without the ledger, and those of calls that are answered with an effect.

An effect is *applied* by the call that commits its result with what the tool's `apply` has written. Its row is done
and not applied after that call was rolled back, and after its result was found by a reconciler, by a person or by
its owner, late. The next call of the effect applies it: `applied_at` of the row is compared and set in the unit that
commits the call. Of two calls that do so at the same time, the second one is refused, rolled back, and answered anew.
The same unit gives the row of an unread slot the time at which it expires.

In one outermost transaction the result is applied once, too: the call that comes second, nested beside the first, finds
it among the participants that are enlisted.

A call is the *holder* of its effect in this process, whether it runs it or is answered with it, from the claim until
the transaction of its outermost call has ended, so that an equal call that is made meanwhile is not answered with what
belongs to a call that runs. Of equal calls that are made at the same time, one is answered with an effect that is
unread: in this process the holder is, and of two processes the one that commits first.

An interrupt may come before an entry is removed. It does not count any more once the call, or one that it is nested in,
has released its ticket.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeGuard

from handrail.prompt import Tool, ToolResult
from handrail.prompt.signature import DAY, ApplyEffect
from handrail.threads import ASSIGNING, in_forked_process
from handrail.transaction import CommitParticipant, UnitStore, current
from handrail.transaction.transaction import NestedCalls
from handrail.turns import Ticket

if TYPE_CHECKING:
    from concurrent.futures import Future

    from handrail.runtime.ledger.ledger import EffectLedger
    from handrail.store.protocol import EffectRow, MarkApplied

EffectOutcome: TypeAlias = Literal["done", "failed", "unknown", "lost", "left"]
"""What a row has become: done, failed, unknown; or it could not be written, or was left to its lease."""

HOLDERS: dict[str, Ticket] = {}
"""Of the process: two ledgers of one store answer no call with what belongs to a call of the other one that runs. The
tickets of the calls that have effects, by the effect's id; each claim has its own entry.
"""
in_forked_process(HOLDERS.clear)


class Claim:
    """The right to run a handler without the ledger; the base class of claims in the ledger.

    Attributes:
        result: the result to use instead of running the handler.
        effect: the row of the effect, if there is one; its id is a new one each time the key expires and runs again.
        fence: the fence of the claim, if there is one.
        apply: writes what belongs to the effect, if that is not applied yet; `None` for nothing.
        outcome: the state that the row has reached; `None` while the call of a claim in the ledger runs.
        records_at_once: `take_result` writes to the ledger.
        queue: that of the commit, if it is a participant of one: none.
    """

    result: ToolResult[Any] | None = None
    effect: EffectRow | None = None
    fence: int | None = None
    apply: ApplyEffect[Any, Any] | None = None
    outcome: EffectOutcome | None = "done"
    records_at_once: bool = False
    queue = None

    @property
    def unsettled(self) -> bool:
        """True if the effect is unknown, or its outcome could not be recorded."""
        return self.outcome in {"unknown", "lost", "left"}

    @property
    def is_open(self) -> bool:
        """True until the row of the effect has its outcome."""
        return self.outcome is None

    @property
    def is_done(self) -> bool:
        """True if the effect is recorded as done, and stays so if the call fails."""
        return False

    @property
    def enlisted(self) -> tuple[CommitParticipant, ...]:
        """The participants that are settled together with the call's transaction."""
        return ()

    def prepare(self) -> None:
        """Does nothing: a row is compared when it is written."""

    def renew(self) -> None:
        """Renews the lease; raises `LeaseLostError` if it has passed to another owner."""

    def hand_over(self) -> None:
        """Begins the handler: its first act, in its thread; raises `TransactionClosedError` if the call has ended."""

    def end_handler(self) -> None:
        """Ends the handler; its last act, in the thread that runs it."""

    def take_error(self, error: BaseException, *, unknown: str = "") -> None:
        """Stores the exception that ended the handler; with `unknown`, the effect is unknown for that reason."""

    def take_result(self, result: object) -> None:
        """Stores what the handler returned, before anything else can fail; a generator or a future is not a result."""

    def record_on_commit(self, result: ToolResult[Any]) -> None:
        """Sets the result that is recorded with the commit of the transaction."""

    def leave_unrecorded(self) -> None:
        """Leaves an effect that has happened to its lease, after a store has failed to commit the call."""

    def take_late_outcome(self, future: Future[Any]) -> None:
        """Takes the late outcome of a handler that timed out; see `handrail.runtime.execution.Late`."""

    def close(self, *, nested: bool) -> None:
        """Ends the claim with its call, whatever the outcome; that of a nested call may belong to its parent by now."""

    def unresolved_note(self) -> str:
        """Sentences for the model about the effect of a failed call; empty if there are none."""
        return ""

    def leave_unread(self) -> bool:
        """Leaves an effect that is done to the call that equals this one; returns whether there is one."""
        return False


NO_CLAIM = Claim()
"""The claim of every call that does not use the ledger."""


class ReplayedResult(Claim):
    """The effect has happened before: its result is replayed, and the handler is not run."""

    def __init__(self, effect: EffectRow, result: ToolResult[Any], tool: Tool[Any, Any] | None = None) -> None:
        # `tool` is `None` if the effect is part of a transaction that has not ended, and so is not recorded.
        self.effect: EffectRow | None = effect
        self.result: ToolResult[Any] | None = result
        self._recorded_by = tool

    def unresolved_note(self) -> str:
        """Says that the effect has happened, although this call fails, and what waits."""
        tool = self._recorded_by
        return "" if tool is None else f"But {done_note(tool, waits=self.apply is not None)}"


class UnappliedResult(ReplayedResult):
    """The effect has happened before, and is applied by this call. It is enlisted in the call's transaction."""

    @property
    def is_done(self) -> bool:
        """True; see `Claim.is_done`."""
        return True

    def __init__(  # noqa: PLR0913 - the row, what it holds, and who is given it
        self,
        ledger: EffectLedger,
        row: EffectRow,
        tool: Tool[Any, Any],
        result: ToolResult[Any],
        *,
        ticket: Ticket | None,
        below: Sequence[EffectRow] = (),
        settles: bool = False,
    ) -> None:
        # Without a ticket the row, in another store than the session, is read already. `below` are the unread effects
        # of the calls nested in that of the row. `settles`: only its call is settled, and the row stays unread.
        super().__init__(row, result, tool)
        self.row: EffectRow = row
        self.apply: ApplyEffect[Any, Any] | None = tool.apply if row.applied_at is None else None
        self.store: UnitStore | None = ledger.store
        self._ledger = ledger
        self._ticket = ticket
        self._below = below
        self._read_until = None if ticket is not None else row.expires_at
        config = tool.idempotency
        self._ttl = config.ttl if config is not None else None if settles else DAY

    @property
    def waits(self) -> bool:
        """True if the mark waits for the time of the store."""
        return self._ledger.store.claim_waits

    @property
    def enlisted(self) -> tuple[CommitParticipant, ...]:
        """Itself: the mark on the row is part of the unit that commits the call."""
        return () if self._ticket is None else (self,)

    def write(self) -> Sequence[MarkApplied]:
        """The mark on the row; the store refuses it if another call has been given the result meanwhile."""
        from handrail.runtime.ledger.effects import mark_applied  # noqa: PLC0415

        now = self._ledger.store.now()
        marks = [mark_applied(row, now=now, ttl=self._ttl) for row in (self.row, *self._below)]
        self._read_until = marks[0].row.expires_at
        return marks

    def after_commit(self) -> None:
        """Releases the effect, whatever the outcome; the row says if it is unread."""
        drop_holder(self.row, self._ticket)

    in_doubt = after_commit
    after_rollback = after_commit

    def leave_unread(self) -> bool:
        """Leaves it to an equal call again; see `Claim.leave_unread`."""
        return self._ledger.leave_unread(self.row, self._read_until)


def claims_above() -> tuple[Claim, ...]:
    """The claims of the calls that the current one is nested in, and of those that are nested beside it."""
    caller = current()
    chain = () if caller is None else caller.chain()
    return tuple(part for transaction in chain for part in transaction.enlisted if isinstance(part, Claim))


def is_in_use(row: EffectRow) -> bool:
    """True if an effect is part of a call of this process that has not ended, or of one that it is nested in."""
    ticket = HOLDERS.get(row.effect_id)
    return ticket is not None and not any(holder.released for holder in ticket.ancestors or (ticket,))


def take_unread(row: EffectRow, ticket: Ticket) -> bool:
    """Answers the call of a ticket with an effect that is unread; `False` if another call has it."""
    with ASSIGNING:
        if is_in_use(row):
            return False
        HOLDERS[row.effect_id] = ticket
        return True


def drop_holder(row: EffectRow, ticket: Ticket | None) -> None:
    """Removes the entry of a call that has ended, unless another claim of the same effect has replaced it."""
    if ticket is not None and HOLDERS.get(row.effect_id) is ticket:
        del HOLDERS[row.effect_id]


def leave_unread(claim: Claim, nested: NestedCalls) -> bool:
    """Leaves the effects of a call, and of the calls nested in it, to the calls that equal them."""
    return any([*(call.leave_unread() for call in tuple(nested.values())), claim.leave_unread()])


def done_note(tool: Tool[Any, Any], *, waits: bool) -> str:
    """Sentences for the model: an effect has happened although the call fails, and perhaps `waits` to be applied."""
    from handrail.runtime.ledger.effects import NOT_AGAIN  # noqa: PLC0415

    done, again = f"{tool.name} itself was done, and is recorded", "it is answered from the record and not repeated"
    if waits:
        done += ". What belongs to it has not been applied"
        again = f"that is applied, and {tool.name} is not repeated"
    if tool.idempotency is not None:
        return f"{done}: asked again, {again}."
    return f"{done}{'; the program applies it' if waits else ''}. {NOT_AGAIN}"


def is_result(value: object) -> TypeGuard[ToolResult[Any]]:
    """True if a handler or a reconciler returned a result; the type of its value is not checked."""
    return isinstance(value, ToolResult)
