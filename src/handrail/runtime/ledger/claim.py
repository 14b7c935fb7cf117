"""A claim: the right to run a handler, and what is recorded in the ledger when the call is over.

Theory of operation. A claim has four states, and moves forward only: *claimed*, until the handler is handed over to the
thread or the coroutine that runs it; *handed over*; *returned*, once the call has what the handler returned, which is
not a generator or a future: that is work that has perhaps not been done; *recorded*, once the ledger says so. From
*handed over* on the effect has perhaps happened, so *failed* needs a proof. One of these is a proof: the body was kept
from starting, which the canceller and the body decide by one lock (`hand_over`); the handler says so itself, by a
failed result, `EffectNotApplied`, or a type in `not_applied_on` (`handrail.runtime.failures`); the effect is undone
with its call. How a call that is undone ends decides the row of an external effect:

| state | refused | raised | timeout | cancelled | Ctrl-C | aborted | store failed |
|---|---|---|---|---|---|---|---|
| claimed | failed | failed | failed | failed | failed | failed | left |
| handed over | failed | unknown | unknown | unknown | unknown | unknown | left |
| returned | failed | done | done | done | done | done | left |
| recorded | done | done | done | done | done | done | done |

"Refused" is a proof; "returned" is a success after which a later step fails; "aborted" is any other `BaseException`;
"left" is a row that stays running until its lease expires, and is unknown then. The effect of a tool that is not
external is undone with its call, and its row is failed then; a row that is done already is removed.

A call that is committed is recorded by what it commits:

| tool | recorded |
|---|---|
| `effect="external"`, or `concurrent` | at once, before anything else can fail |
| the same, outermost, in the store of the session, while no earlier call runs | with the commit, in one unit of work |
| others with `idempotency` | with the commit of the outermost transaction, or not at all |

What is recorded at once in the store of the session is marked as applied with the commit of the outermost transaction.
Until then its slot is unread (`EffectRow.is_unread`). If the tool has `apply`, the mark is refused if another call has
applied the result meanwhile (`handrail.runtime.ledger.replays`).

If an earlier attempt may have been applied, and `on_orphan="retry"` runs it again, the effect stays unknown after an
attempt that was not applied. What an owner learns after its row has become unknown settles the row if the tool accepts
late results, and is logged otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from contextvars import Context
from datetime import datetime, timedelta
from typing import Any, Literal, TypeAlias

from handrail.errors import LeaseLostError, RecordingError, TransactionClosedError
from handrail.prompt import Tool, ToolResult
from handrail.prompt.signature import DAY, ApplyEffect
from handrail.prompt.tool_result import is_unfinished
from handrail.redaction import redacted, redacted_logger
from handrail.runtime.failures import LONGEST_MESSAGE, describe_error, unknown_because
from handrail.runtime.ledger import effects, replays
from handrail.runtime.ledger.effects import FOR_A_PERSON, Claimed, EffectResult, NotApplied, NotKnown, OwnerFinding
from handrail.runtime.ledger.ledger import EffectLedger
from handrail.runtime.ledger.records import dump_result
from handrail.serde.formatting import shorten
from handrail.store.locks import RUNNING_HANDLERS
from handrail.store.protocol import UNTIL_APPLIED, EffectChange, EffectRow, MarkApplied
from handrail.threads import ASSIGNING
from handrail.transaction import CommitParticipant, UnitStore
from handrail.turns import Ticket

_log = redacted_logger("handrail.runtime")


ClaimState: TypeAlias = Literal["claimed", "handed over", "returned", "recorded"]
"""How far a call has come; see this module."""

_NOT_STARTED = NotApplied("its handler was not started")
_UNDONE = NotApplied("it was undone with its call")
_INTERRUPTED = NotKnown("its call was interrupted while the handler ran")
_EARLIER = NotKnown("the last attempt was not applied, but an earlier one may have been")


class EffectClaim(replays.Claim):
    """The right to run an effect. It is enlisted in the call's transaction, which settles it.

    Attributes:
        name: names it among the claims of all effects.
        state: how far the call has come; see this module.
    """

    state: ClaimState = "claimed"
    outcome: replays.EffectOutcome | None = None
    _committing: ToolResult[Any] | None = None
    _read_until: datetime | None = None

    def __init__(  # noqa: PLR0913 - the claim, its owner, and how it is recorded
        self, ledger: EffectLedger, grant: Claimed, tool: Tool[Any, Any], ticket: Ticket, *, shares: bool, in_unit: bool
    ) -> None:
        # `in_unit`: an effect that is not rolled back is recorded in the unit that commits the call, and not at once.
        self._ledger = ledger
        self._grant = grant
        self._tool = tool
        self._ttl = DAY if tool.idempotency is None else tool.idempotency.ttl
        self._stays = tool.effect == "external" or tool.concurrent
        self.records_at_once: bool = self._stays and not in_unit
        self.store: UnitStore | None = ledger.units if shares else None
        self._retries = grant.retried and tool.external is not None
        self._finding: OwnerFinding = _INTERRUPTED if tool.external is not None else _UNDONE
        self.apply: ApplyEffect[Any, Any] | None = tool.apply
        self.effect: EffectRow | None = grant.row
        self.fence: int | None = grant.row.fence
        self.name: tuple[str, int] = grant.row.claim
        self._ticket = replays.HOLDERS[grant.row.effect_id] = ticket

    @property
    def waits(self) -> bool:
        """True if the result goes to another store than that of the session, a row is read, or the time asked."""
        store = self._ledger.store
        return store.claim_waits or (store.waits and (self.store is None or self.records_at_once))

    @property
    def enlisted(self) -> tuple[CommitParticipant, ...]:
        """The claim itself. It is not an attribute: only a collection would free a claim that refers to itself."""
        return (self,)

    @property
    def is_done(self) -> bool:
        """True if the effect is recorded as done, and stays so if the call fails."""
        return self._stays and self.state == "recorded"

    def finished(self) -> replays.ReplayedResult | None:
        """The result, if the call of this claim has succeeded and its parent has not ended."""
        return None if self._committing is None else replays.ReplayedResult(self._grant.row, self._committing)

    def renew(self) -> None:
        """Renews the lease; see `Claim.renew`."""
        self._ledger.renew(self._grant)

    def hand_over(self) -> None:
        """Hands the handler over to this thread; see `Claim.hand_over`."""
        with ASSIGNING:
            if self._finding is _NOT_STARTED:
                raise TransactionClosedError(self._tool.name, "start its handler")
            self.state = "handed over"
        RUNNING_HANDLERS.add(self.name)

    def end_handler(self) -> None:
        """Removes the handler from those that run; see `Claim.end_handler`."""
        RUNNING_HANDLERS.discard(self.name)
        if self.outcome == "unknown":  # its call had left it behind
            self._disown()

    def take_error(self, error: BaseException, *, unknown: str = "") -> None:
        """Stores the exception of the handler; see `Claim.take_error`."""
        self._finding = NotKnown(unknown) if unknown else self._finding_from_error(error)

    def take_result(self, result: object) -> None:
        """Stores the result of the handler, and records an effect that is not rolled back; see `Claim.take_result`."""
        if self._stays:
            # While the result is dumped the effect has happened all the same, so `state` changes last.
            self._finding = self._finding_from_result(result)
            if isinstance(self._finding, NotKnown):
                return
        self.state = "returned"
        # Before anything else can fail: a crash from here on leaves an effect that is done, and not an unknown one.
        if self.records_at_once and isinstance(self._finding, EffectResult):
            self._record(self._finding)

    def record_on_commit(self, result: ToolResult[Any]) -> None:
        """Sets the result that the transaction records; see `Claim.record_on_commit`."""
        self._committing = result

    def leave_unrecorded(self) -> None:
        """Leaves an effect that has happened to its lease; see `Claim.leave_unrecorded`."""
        if isinstance(self._finding, EffectResult) and self.state != "recorded":
            self._leave()

    def unresolved_note(self) -> str:
        """Says that the effect has happened nevertheless, or may have; see `Claim.unresolved_note`."""
        outcome = self.outcome
        if outcome is None and self._stays:  # that of a nested call, whose caller has failed: it may still run
            proven = isinstance(self._finding, NotApplied) and not self._retries
            outcome = "done" if self.state == "recorded" else None if proven else "unknown"
        if outcome == "done":
            return f"But {replays.done_note(self._tool, waits=self.apply is not None)}"
        is_lost = outcome in {"lost", "left"}
        if outcome == "unknown" or (is_lost and isinstance(self._finding, NotKnown)):
            return _unknown(self._tool)
        if is_lost and isinstance(self._finding, EffectResult):
            return f"But {self._tool.name} itself was done, and that could not be recorded. Do not ask for it again."
        return ""

    def leave_unread(self) -> bool:
        """Leaves a slot that is done to the call that equals this one; see `Claim.leave_unread`."""
        if self.state == "handed over" and self.outcome is None:
            self._ledger.leave_running(self._grant)
        ttl = self._ttl if self.store is None else None
        return self.is_done and self._ledger.leave_unread(self._grant.row, self._read_until, ttl=ttl)

    def take_late_outcome(self, future: Future[Any]) -> None:
        """Settles the row by the late outcome of a handler that timed out; see `Claim.take_late_outcome`."""
        if self.state == "claimed":
            return  # it was kept from starting
        error = future.exception()
        finding = self._finding_from_result(future.result()) if error is None else self._finding_from_error(error)
        if isinstance(finding, NotApplied) and self._retries:
            finding = _EARLIER
        self._settle_late(finding)

    def _finding_from_error(self, error: BaseException) -> NotApplied | NotKnown:
        why = unknown_because(error, self._tool)
        return NotApplied(describe_error(error)) if why is None else NotKnown(why)

    def _finding_from_result(self, result: object) -> OwnerFinding:
        if replays.is_result(result) and not result.success:
            return NotApplied(shorten(redacted(str(result.message)), LONGEST_MESSAGE))  # which is not checked yet
        value = result.value if replays.is_result(result) else result
        if is_unfinished(value):
            why = f"its handler returned a value of type {type(value).__name__}, whose work has perhaps not been done"
            return _UNDONE if self._tool.external is None else NotKnown(why)
        if not replays.is_result(result):
            return EffectResult(f"{self._tool.name} was done, but its handler returned no result.", None)
        return dump_result(self._tool, result)

    def _settle_late(self, finding: OwnerFinding) -> bool:
        # In an empty context: in the context of a nested call it would be rolled back with the parent.
        external = self._tool.external
        if external is None or isinstance(finding, NotKnown):
            return False
        settle, accept = self._ledger.settle_late, external.accept_late_result
        try:
            return Context().run(settle, self._grant, finding, accept=accept, ttl=self._recorded_ttl)
        except Exception:  # noqa: BLE001 - logged; the effect stays unknown
            _log.exception("the late outcome of the effect of %s could not be recorded", self._tool.name)
            return False

    def write(self) -> Sequence[EffectChange | MarkApplied]:
        """Records the result with the unit of the store of the session, or else at once; raises `LeaseLostError`."""
        if self._committing is None or (self.state == "recorded" and self.store is None):
            return ()
        row, store = self._grant.row, self._ledger.store
        if self.state != "recorded":
            done = (
                self._finding if isinstance(self._finding, EffectResult) else dump_result(self._tool, self._committing)
            )
            if self.store is None:
                if not self._ledger.end(self._grant, done, ttl=self._recorded_ttl):
                    raise LeaseLostError(self._grant.row.key, self._grant.row.fence)
                self.state = "recorded"
                return ()
            now = store.now()
            done_row = effects.ended_row(row, done, now=now, ttl=self._ttl)
            change: EffectChange | MarkApplied = EffectChange(row, effects.applied(done_row, now=now, ttl=self._ttl))
        else:  # recorded when it happened: that its result is applied is known only with this commit
            current_row = store.get(row.partition, row.key) or row
            if self.apply is not None:  # another session may have found the result, and applied it; then this must not
                current_row = current_row._replace(applied_at=None)
            elif (current_row.effect_id, current_row.status) != (row.effect_id, "done"):
                return ()
            change = effects.mark_applied(current_row, now=store.now(), ttl=self._ttl)
        self._read_until = change.row and change.row.expires_at
        return (change,)

    def after_commit(self) -> None:
        """Marks the effect as recorded."""
        if self.state != "recorded":
            self._ledger.leases.drop(self._grant)
        self.state, self.outcome = "recorded", "done"
        replays.drop_holder(self._grant.row, self._ticket)

    def in_doubt(self) -> None:
        """Leaves the row to what the commit has written, or what is known of the effect."""
        if not self._stays:
            self._finding = NotKnown("whether its call was committed is unknown")
        self._leave()
        replays.drop_holder(self._grant.row, self._ticket)

    def after_rollback(self) -> None:
        """Settles the claim once the transaction is rolled back; idempotent. A store that fails here is logged."""
        replays.drop_holder(self._grant.row, self._ticket)
        if self.outcome is None:
            has_run = self.name in RUNNING_HANDLERS
            self.outcome = self._settle()
            if has_run and self.outcome == "unknown" and self.name not in RUNNING_HANDLERS:  # it has ended meanwhile
                self._disown()

    def _disown(self) -> None:
        try:  # in an empty context, as a late outcome
            Context().run(self._ledger.disown, self._grant)
        except Exception:  # noqa: BLE001 - logged; until this process ends, others do not believe that nothing happened
            _log.exception("that the handler of %s has ended could not be recorded", self._tool.name)

    def close(self, *, nested: bool) -> None:
        """Settles the claim of a call whose rollback was interrupted before it came to that; see `Claim.close`."""
        if self.outcome is None and not (nested and self._committing is not None):
            self.after_rollback()

    def _settle(self) -> replays.EffectOutcome:
        # By the table of this module.
        try:
            if self.state == "recorded":
                if not self._stays:  # a part of a transaction that could not be committed as a whole
                    self._ledger.invalidate(self._grant.row.key, partition=self._grant.row.partition)
                return "done" if self._stays else "failed"
            with ASSIGNING:  # a body that has not been handed over by now never is
                if self.state == "claimed":
                    self._finding = _NOT_STARTED
            if self._retries and isinstance(self._finding, NotApplied):
                self._finding = _EARLIER
            finding = self._finding
            if isinstance(finding, EffectResult):
                self._record(finding)
                return "done"
            has_ended = self._ledger.end(self._grant, finding)
            if isinstance(finding, NotKnown):
                return "unknown"
            return "failed" if has_ended or self._settle_late(finding) else "lost"
        except LeaseLostError:
            _log.exception("the effect of %s was done, and that could not be recorded", self._tool.name)
        except Exception:  # noqa: BLE001 - logged; the state has been rolled back, and the lease expires
            _log.exception("the outcome of the effect of %s could not be recorded", self._tool.name)
            self._ledger.finish_later(self._grant, self._finding, ttl=self._recorded_ttl)
        return "lost"

    def _record(self, result: EffectResult) -> None:
        for attempts_left in reversed(range(3)):
            try:
                # May be repeated: `end` recognizes a row that an attempt whose answer was lost has written.
                has_ended = self._ledger.end(self._grant, result, ttl=self._recorded_ttl)
            except Exception as error:
                _log.exception("%s was done, but recording it failed", self._tool.name)
                if not attempts_left:
                    self._leave()
                    session_id, tool = self._grant.row.owner.session_id, self._tool.name
                    what = f"{tool} was done, but that could not be recorded, and it is not repeated"
                    raise RecordingError(what, error, session_id=session_id, tool=tool, effect="unknown") from error
                continue
            if not has_ended and not self._settle_late(result):
                self.outcome = "lost"
                raise LeaseLostError(self._grant.row.key, self._grant.row.fence)
            self.state = "recorded"
            return

    def _leave(self) -> None:
        # To its lease, and to a store that answers again: the effect is done and not recorded.
        self.outcome = "left"
        self._ledger.finish_later(self._grant, self._finding, ttl=self._recorded_ttl)

    @property
    def _recorded_ttl(self) -> timedelta | None:
        # Recorded on its own, the result is not applied yet, and the slot is unread until a commit says otherwise.
        if self.apply is not None:
            return UNTIL_APPLIED
        return None if self.store is not None and self._grant.row.is_slot else self._ttl


def _unknown(tool: Tool[Any, Any]) -> str:
    text = f"Whether {tool.name} took effect is unknown"
    if tool.reconcile is not None:
        return f"{text}, so it is not run again. Do not ask for it again; the program asks what happened."
    if tool.on_orphan == "retry" and tool.idempotency is not None:
        return f"{text}. A call with the same arguments is the same effect."
    if tool.on_orphan == "retry" or (tool.external is not None and tool.external.repeat_unknown == "allow"):
        return f"{text}. Find out what happened: another call would do it again."
    return unknown_outcome(tool.name)


def unknown_outcome(tool_name: str) -> str:
    """The message to the model of an effect that is unknown, and is not run again."""
    return f"Whether {tool_name} took effect is unknown, so it is not run again. {FOR_A_PERSON}"
