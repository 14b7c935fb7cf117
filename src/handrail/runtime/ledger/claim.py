"""A claim: the right to run a handler, and what is recorded in the ledger when the call is over.

When the ledger is written:

| tool | the handler succeeded | the call was undone |
|---|---|---|
| `effect="external"`, or `concurrent` | at once: it is not rolled back with the call | failed, if the handler failed |
| the same, outermost and not concurrent, in the store of the session | with the commit | done |
| others with `idempotency` | with the commit of the outermost transaction, or not at all | failed |

A nested effect is recorded at once, and marked as applied with the commit of the outermost transaction. If the tool has
`apply`, the mark is refused if another call has applied the result meanwhile (`handrail.runtime.ledger.unapplied`).

"With the commit" means in one unit of work with all that the call has done to its session, so that both are durable or
neither is.

`handrail.runtime.failures` determines the effect from the end of the handler: an effect that may have been applied
becomes unknown. This covers only the current attempt: if an earlier attempt may have been applied, and
`on_orphan="retry"` runs it again, the effect stays unknown after an attempt that was not applied.

An owner that has lost its claim, and a handler that was left running, may still learn what happened. Then the claim
*testifies*: see `EffectLedger.testify`.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextvars import Context
from functools import partial
from typing import Any, NamedTuple, TypeGuard
from uuid import UUID

from handrail.errors import LeaseLostError, RecordingError
from handrail.prompt import Tool, ToolResult
from handrail.prompt.effect import ApplyEffect
from handrail.prompt.idempotency import DAY
from handrail.redaction import redacted, redacted_logger
from handrail.runtime.failures import describe_error, unknown_because
from handrail.runtime.ledger.effects import Claimed, EffectResult, NotApplied, NotKnown
from handrail.runtime.ledger.ledger import EffectLedger
from handrail.runtime.ledger.recorded_results import dump_result
from handrail.runtime.ledger.states import TestimonyWord
from handrail.store.protocol import UNTIL_APPLIED, EffectChange, EffectRow, MarkApplied
from handrail.transaction import CommitParticipant, UnitStore
from handrail.turns import Ticket

_log = redacted_logger("handrail.runtime")

_ATTEMPTS_TO_RECORD = 3
"""How many attempts are made to record an effect that has happened in a failing store."""


_HOLDERS: dict[str, Ticket] = {}
"""The tickets of the calls of this process that run effects, by the effect's id; each claim has its own entry."""


_EARLIER = "the last attempt was not applied, but an earlier one may have been"
"""Why the effect of a retried claim is unknown."""

_LATE_RESULTS: Mapping[TestimonyWord | None, str] = {
    "accepted": ", and is recorded.",
    "kept": ", and that is recorded as a late result, which settles nothing.",
    "duplicate": ", and that is recorded as a late result. Another call may have done it as well.",
    "dropped": ", and that was not recorded, because the entry of the effect has been removed.",
    None: ", and that could not be recorded.",
}
"""What the model reads of an effect that was done under a lost claim, by the answer to its testimony."""

_NOT_AGAIN = "Do not ask for it again: another call would do it again."
"""What the model reads of an effect that is done and named by its call: the next call would have another id."""

_LATE = threading.Lock()
"""Held while a claim records that it is settled, or a late outcome: the second of the two testifies."""


class EffectRef(NamedTuple):
    """An effect's key, and its identity, which is new each time the key expires and runs again."""

    key: str
    effect_id: UUID


class Claim:
    """The right to run a handler without the ledger; the base class of claims in the ledger.

    Attributes:
        stored: the result to use instead of running the handler.
        effect: the effect, if there is one.
        fence: the fence of the claim, if there is one.
        apply: what writes what belongs to the effect, if that is not applied yet; `None` for nothing.
        unsettled: whether the effect is unknown, or its outcome could not be recorded: the claim has passed to another
            owner, or the store has failed.
        left_behind: whether the handler timed out: it may still learn what happened, and testifies then.
        records_at_once: whether `record_now` writes to the ledger.
    """

    stored: ToolResult[Any] | None = None
    effect: EffectRef | None = None
    fence: int | None = None
    apply: ApplyEffect[Any, Any] | None = None
    unsettled: bool = False
    left_behind: bool = False
    records_at_once: bool = False

    @property
    def enlisted(self) -> tuple[CommitParticipant, ...]:
        """What is settled together with the call's transaction."""
        return ()

    def renew(self) -> None:
        """Renew the lease of the claim.

        Raises:
            LeaseLostError: it has passed to another owner.
        """

    def outcome_unknown(self, why: str) -> None:
        """Set the effect to unknown; the first line of `why` is shown to the model."""

    def record_now(self, returned: object) -> None:
        """Record what the handler returned, before anything else can fail."""

    def record_on_commit(self, result: ToolResult[Any]) -> None:
        """Set the result that is recorded with the commit of the transaction."""

    def not_recorded(self, error: Exception) -> None:
        """Handle a commit of the transaction that failed because a store did.

        Raises:
            ModelVisibleError: the effect has happened, and is not rolled back.
        """

    def ended_late(self, ended: Future[Any]) -> None:
        """Take the late outcome of a handler that timed out; see `handrail.runtime.execution.Late`."""

    def unresolved_note(self) -> str:
        """Sentences for the model about the effect of a failed call; empty if there are none."""
        return ""


NO_CLAIM = Claim()
"""The claim of every call that does not use the ledger."""


class ReplayedResult(Claim):
    """The effect has happened before: its result is replayed, and the handler is not run."""

    def __init__(self, effect: EffectRef, stored: ToolResult[Any], tool: Tool[Any, Any] | None = None) -> None:
        """Replay the result of the effect.

        Args:
            effect: the effect.
            stored: its result.
            tool: its tool, if the effect is recorded; `None` if it is part of a transaction that has not ended.
        """
        self.effect: EffectRef | None = effect
        self.stored: ToolResult[Any] | None = stored
        self._recorded_by = tool

    def unresolved_note(self) -> str:
        """That the effect has happened, although this call fails; see `Claim.unresolved_note`."""
        return "" if self._recorded_by is None else f"But {_done(self._recorded_by)}"


class EffectClaim(Claim):
    """The right to run an effect. It is enlisted in the call's transaction, which settles it."""

    queue = None
    unsettled: bool = False
    _is_over = False
    _late: EffectResult | NotApplied | NotKnown | None = None
    _testimony: TestimonyWord | None = None
    # What nearly all claims begin with stands in the class: one is made for each external call.
    _happened: EffectResult | None = None
    _result: ToolResult[Any] | None = None
    _testified = False
    _recorded = False
    _given_up = False

    def __init__(  # noqa: PLR0913 - the claim, its owner, and how it is recorded
        self,
        ledger: EffectLedger,
        claimed: Claimed,
        tool: Tool[Any, Any],
        ticket: Ticket,
        *,
        store: UnitStore | None = None,
        in_unit: bool = False,
        nested: bool = False,
    ) -> None:
        """Hold a granted claim for the call of a ticket.

        Args:
            ledger: the ledger.
            claimed: the granted claim.
            tool: the tool of the effect.
            ticket: the ticket of the call.
            store: the ledger's, if the session of the call is in it too.
            in_unit: whether an effect that is not rolled back is recorded in the unit that commits the call, and not
                immediately.
            nested: whether the call is nested: then it has no record of its own that it was applied.
        """
        self._ledger = ledger
        self._claimed = claimed
        self._tool = tool
        self._ttl = DAY if tool.idempotency is None else tool.idempotency.ttl
        self._stays = tool.effect == "external" or tool.concurrent
        self.records_at_once: bool = self._stays and not in_unit
        self._nested = nested
        self.store = store
        self._earlier = _EARLIER if claimed.retried and tool.external is not None else None
        self._unknown = self._earlier
        self.apply: ApplyEffect[Any, Any] | None = tool.apply
        self._effect = EffectRef(claimed.key, claimed.effect_id)
        self.effect: EffectRef | None = self._effect
        self.fence: int | None = claimed.fence
        self._ticket = _HOLDERS[claimed.row.effect_id] = ticket

    @property
    def waits(self) -> bool:
        """Whether the result is written to another store than that of the session, a row is read, or the time asked."""
        store = self._ledger.store
        return store.claim_waits or (store.waits and (self.store is None or self._nested))

    @property
    def enlisted(self) -> tuple[CommitParticipant, ...]:
        """The claim itself. It is not an attribute: only a collection would free a claim that refers to itself."""
        return (self,)

    def stands_for(self, row: EffectRow) -> bool:
        """Whether this is the claim under which the effect of a row runs."""
        own = self._claimed.row
        return (own.effect_id, own.fence) == (row.effect_id, row.fence)

    def finished(self) -> ReplayedResult | None:
        """The result, if the call of this claim has succeeded and its parent has not ended."""
        return None if self._result is None else ReplayedResult(self._effect, self._result)

    def renew(self) -> None:
        """Renew the lease; see `Claim.renew`."""
        self._ledger.renew(self._claimed)

    def outcome_unknown(self, why: str) -> None:
        """Set the effect to unknown; see `Claim.outcome_unknown`."""
        self._unknown = why
        if not self._recorded:
            self._happened = None

    def record_now(self, returned: object) -> None:
        """Record an effect that is not rolled back, immediately or with the call; see `Claim.record_now`.

        Raises:
            LeaseLostError: the claim has passed to another owner meanwhile.
        """
        if not self._stays:
            return
        if is_result(returned) and not returned.success:
            return
        # The effect is done, whatever an earlier attempt did.
        self._unknown = None
        self._happened = dump_result(self._tool, returned) if is_result(returned) else _without_result(self._tool)
        # Before anything else can fail: a crash from here on leaves an effect that is done, and not an unknown one.
        if self.records_at_once:
            self._record(self._happened)

    def record_on_commit(self, result: ToolResult[Any]) -> None:
        """Set the result that the transaction records; see `Claim.record_on_commit`."""
        self._result = result

    def not_recorded(self, error: Exception) -> None:
        """Raise if the effect has happened; see `Claim.not_recorded`. The lease is left to expire."""
        if self._happened is None:
            return
        # The exception states the outcome, so `unresolved_note` adds nothing to it.
        self._testified = True
        if not self._recorded:
            self._give_up()
            raise self._unrecorded(error)
        what, row = f"{_done(self._tool)} Its changes in the session were rolled back", self._claimed.row
        raise RecordingError(what, error, session_id=row.owner.session_id, tool=row.tool, effect="done")

    def _unrecorded(self, error: Exception) -> RecordingError:
        row = self._claimed.row
        what = f"{row.tool} was done, but that could not be recorded, and it is not repeated"
        return RecordingError(what, error, session_id=row.owner.session_id, tool=row.tool, effect="unknown")

    def unresolved_note(self) -> str:
        """Whether the effect has happened nevertheless, or may have; see `Claim.unresolved_note`."""
        if self._unknown is not None:
            return _unknown(self._tool)
        if self._happened is None or self._testified:
            return ""
        if self._recorded:
            return f"But {_done(self._tool) if self.apply is None else applied_later(self._tool)}"
        return f"But {self._tool.name} itself was done{_LATE_RESULTS[self._testimony]} Do not ask for it again."

    def ended_late(self, ended: Future[Any]) -> None:
        """Testify, now or when the claim is settled; see `Claim.ended_late`."""
        said = self._said_by(ended)
        if isinstance(said, NotApplied) and self._earlier is not None:
            said = NotKnown(self._earlier)
        # Either `_is_over` is true here, or `after_rollback` finds `_late` set: exactly one of the two testifies. The
        # ledger is written outside of the lock, because a store may be slow.
        with _LATE:
            self._late = said
            is_over = self._is_over
        if is_over:
            self._testify(said)

    def _said_by(self, ended: Future[Any]) -> EffectResult | NotApplied | NotKnown:
        error = ended.exception()
        if error is not None:
            why = unknown_because(error, self._tool, entered=True)
            return NotApplied(describe_error(error)) if why is None else NotKnown(why)
        returned: object = ended.result()
        if is_result(returned) and not returned.success:
            return NotApplied(redacted(str(returned.message)))  # which is not checked yet
        return dump_result(self._tool, returned) if is_result(returned) else _without_result(self._tool)

    def _testify(self, said: EffectResult | NotApplied | NotKnown) -> bool:
        """Record what is known of an effect whose claim is lost; returns whether that settles the effect.

        It is written in an empty context: in the context of a nested call it would be rolled back with the parent.
        """
        external = self._tool.external
        if external is None:
            return False
        # An accepted result is not applied yet.
        ttl = self._ttl if self.apply is None else UNTIL_APPLIED
        testify = partial(self._ledger.testify, self._claimed, said, accept=external.accept_late_result, ttl=ttl)
        try:
            self._testimony = Context().run(testify)
            return self._testimony == "accepted"
        except Exception:  # noqa: BLE001 - logged; the effect stays unknown
            _log.exception("the late outcome of the effect of %s could not be recorded", self._tool.name)
            return False

    def prepare(self) -> None:
        """Do nothing: there is nothing to look at."""

    def write(self) -> Sequence[EffectChange | MarkApplied]:
        """Record the result with the unit of the store of the session, or else at once.

        Raises:
            LeaseLostError: the claim has passed to another owner; nothing is committed then.
        """
        if self._result is None:
            return ()
        if self.store is None:
            if not self._recorded:
                self._complete(self._happened or dump_result(self._tool, self._result))
                self._recorded = True
            return ()
        if not self._recorded:
            result = self._happened or dump_result(self._tool, self._result)
            return (self._ledger.completion(self._claimed, result, ttl=self._ttl),)
        # A nested effect was recorded when it happened; that its result is applied is known only with this commit.
        return self._application() if self._nested else ()

    def _application(self) -> Sequence[EffectChange | MarkApplied]:
        """What records that the result, which is recorded already, is applied."""
        if self.apply is not None:
            # Another session may have found the result, and applied it; then this call must not.
            row = self._claimed.row
            return (
                self._ledger.mark_applied(self._ledger.row(row.key, partition=row.partition) or row, ttl=self._ttl),
            )
        change = self._ledger.application(self._claimed)
        return () if change is None else (change,)

    def after_commit(self) -> None:
        """Mark the effect as recorded."""
        self._recorded = True
        self._ledger.settled(self._claimed)
        self._let_go()

    def in_doubt(self) -> None:
        """Stop renewing the lease: an effect that has not been recorded is unknown when the lease expires."""
        self._let_go()
        self._ledger.stop_renewing(self._claimed)

    def after_rollback(self) -> None:
        """Settle the claim after the transaction has been rolled back.

        A store that fails here is logged: the lease expires, and the effect is unknown then.
        """
        self._let_go()
        # A claim that was given up is left to its lease, and an effect that stays and is recorded needs nothing.
        if not self._given_up and not (self._recorded and self._stays):
            self._settle_undone()
        with _LATE:
            self._is_over = True
            late = self._late
        if late is not None:
            self._testify(late)

    def _settle_undone(self) -> None:
        try:
            if self._happened is not None:
                self._record(self._happened)
            elif self._recorded:  # as a part of a transaction that could not be committed as a whole
                self._ledger.invalidate(self._claimed.key, partition=self._claimed.row.partition)
            elif self._unknown is None:
                self.unsettled = not self._ledger.fail(self._claimed) and not self._testify(NotApplied())
            else:
                self.unsettled = True
                if not self._ledger.mark_unknown(self._claimed, self._unknown) and not self.left_behind:
                    self._testify(NotKnown(self._unknown))
        except LeaseLostError:
            self.unsettled = True
            if self._testimony is None:
                _log.exception("the effect of %s was done, and that could not be recorded", self._tool.name)
        except Exception:  # noqa: BLE001 - logged; the state has been rolled back, and the lease expires
            self.unsettled = True
            _log.exception("the outcome of the effect of %s could not be recorded", self._tool.name)
            self._ledger.stop_renewing(self._claimed)

    def _let_go(self) -> None:
        # Another claim of the same effect in this process may have replaced the entry.
        if _HOLDERS.get(self._claimed.row.effect_id) is self._ticket:
            del _HOLDERS[self._claimed.row.effect_id]

    def _record(self, result: EffectResult) -> None:
        """Record an effect that has happened; retry if the store fails."""
        attempts = 0
        while True:
            try:
                # May be repeated: `complete` recognizes a row that an attempt whose answer was lost has written.
                self._complete(result)
                self._recorded = True
                return
            except LeaseLostError:
                if not self._testify(result):
                    raise
                self._recorded = True
                return
            except Exception as error:
                _log.exception("%s was done, but recording it failed", self._tool.name)
                attempts += 1
                if attempts == _ATTEMPTS_TO_RECORD:
                    self._give_up()
                    raise self._unrecorded(error) from error

    def _give_up(self) -> None:
        """Leave the effect, which is done and not recorded, to its lease."""
        self._given_up = self.unsettled = True
        self._ledger.stop_renewing(self._claimed)

    def _complete(self, result: EffectResult) -> None:
        # Recorded on its own, the result is not applied yet.
        ttl = self._ttl if self.apply is None else UNTIL_APPLIED
        if not self._ledger.complete(self._claimed, result, ttl=ttl):
            raise LeaseLostError(self._claimed.key, self._claimed.fence)


def _without_result(tool: Tool[Any, Any]) -> EffectResult:
    return EffectResult(f"{tool.name} was done, but its handler returned no result.", None)


def applied_later(tool: Tool[Any, Any]) -> str:
    """Sentences for the model: an effect has happened, and what belongs to it waits."""
    done = f"{tool.name} itself was done, and is recorded. What belongs to it has not been applied"
    if tool.idempotency is not None:
        return f"{done}: asked again, that is applied, and {tool.name} is not repeated."
    return f"{done}; the program applies it. {_NOT_AGAIN}"


def _done(tool: Tool[Any, Any]) -> str:
    done = f"{tool.name} itself was done, and is recorded"
    if tool.idempotency is not None:
        return f"{done}: asked again, it is answered from the record and not repeated."
    return f"{done}. {_NOT_AGAIN}"


def _unknown(tool: Tool[Any, Any]) -> str:
    said = f"Whether {tool.name} took effect is unknown"
    if tool.on_orphan == "retry":
        return f"{said}. Asked for again with the same arguments, it is run again."
    if tool.reconcile is not None:
        return f"{said}. Asked for again with the same arguments, it is first determined whether it did."
    if tool.external is not None and tool.external.repeat_unknown == "allow" and tool.idempotency is None:
        return f"{said}. Find out what happened before asking for it again."
    return unknown_outcome(tool.name)


def unknown_outcome(tool_name: str) -> str:
    """What the model reads of an effect that is unknown, and is not run again."""
    return (
        f"Whether {tool_name} took effect is unknown, so it is not run again. Do not ask for it again; a person has to "
        "find out what happened."
    )


def holding_ticket(row: EffectRow) -> Ticket | None:
    """The ticket of the call that runs the effect of a row, if the call is in this process."""
    return _HOLDERS.get(row.effect_id)


def is_result(returned: object) -> TypeGuard[ToolResult[Any]]:
    """Whether a handler or a reconciler returned a result; the type of its value is not checked."""
    return isinstance(returned, ToolResult)
