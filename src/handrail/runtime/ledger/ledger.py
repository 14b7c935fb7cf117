"""The ledger of external effects: grants claims, and records outcomes.

`handrail.runtime.ledger.effects` defines how a row changes, as pure functions. This module executes each change: read,
decide, write if the row is still the one read, and start again if it is not.
"""

from __future__ import annotations

import os
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from typing import Any, TypeVar, cast

from pydantic_core import to_json

from handrail.clock import SYSTEM_CLOCK, Clock
from handrail.errors import DumpError, InvalidArgumentError, LeaseLostError, LedgerError, SchemaError
from handrail.process import process_in_words
from handrail.prompt.signature import DAY, MINUTE
from handrail.prompt.tool_result import ToolResult
from handrail.redaction import redacted_logger
from handrail.runtime.ledger import effects
from handrail.runtime.ledger.effects import ClaimAnswer, Claimed, ClaimRequest, EffectResult, Finding, NotKnown
from handrail.runtime.ledger.lease_renewal import LeaseRenewer
from handrail.runtime.ledger.records import recorded_arguments
from handrail.serde import digest, dump, type_masking
from handrail.session.calls import ToolCall
from handrail.store.locks import LIVE_CLAIMS, NEW_CLAIMS, RUNNING_HANDLERS
from handrail.store.protocol import (
    EffectChange,
    EffectInsert,
    EffectRow,
    LedgerStore,
    RefusedWrite,
    disown,
    prove_owner,
)
from handrail.transaction import UnitOfWork, UnitStore
from handrail.transaction.commit import Apply, InThread
from handrail.waiting import run_blocking

T = TypeVar("T")

_log = redacted_logger("handrail.runtime")


_MOST_GIVEN_UP = 1_000  # abandoned claims that are remembered; they exist only after a store has failed


_LATE = "the effect %s of %s %s, as its owner under fence %d learnt late; this changes nothing"


class EffectLedger:
    """Records the owner and the outcome of each effect, so that none happens twice by accident.

    Any number of threads may use one ledger, and any number of ledgers one store. There are two ways to use it: `claim`
    before the effect, then `end`, as the pipeline does (a thread of the ledger renews the claims); or `lookup` and
    `record`, a plain cache of results, where two concurrent callers may both find nothing.

    Args:
        store: where the rows are stored; in memory by default.
        clock: the time of the store in memory, and of the renewals of claims.
        new_id: generates the id of an effect: 32 hexadecimal digits, unique.

    Attributes:
        store: where the rows are stored.
        units: the same store, as what a unit of work of several parts is written to.
        leases: renews the leases of claims.
    """

    __slots__ = ("__weakref__", "_given_up", "_new_id", "leases", "store", "units")

    def __init__(
        self,
        store: LedgerStore | None = None,
        *,
        clock: Clock = SYSTEM_CLOCK,
        new_id: Callable[[], str] = lambda: os.urandom(16).hex(),
    ) -> None:
        if store is not None and not hasattr(store, "unresolved_slots"):
            raise InvalidArgumentError(function="EffectLedger", argument="store", value=store, expected="a store")
        if store is None:
            from handrail.store.memory import MemoryStore  # noqa: PLC0415

            store = MemoryStore(clock=clock)
        self.store: LedgerStore = store
        self.units: UnitStore = store
        self._new_id = new_id
        self.leases: LeaseRenewer = LeaseRenewer(self.store, clock=clock)
        self._given_up: deque[EffectRow] = deque(maxlen=_MOST_GIVEN_UP)
        # The renewer has no reference to the ledger, so a ledger that is not used is collected, and its thread ends.
        weakref.finalize(self, self.leases.stop).atexit = False

    # ------------------------------------------------------------------------------------------------ claim and finish

    def claim(self, request: ClaimRequest) -> ClaimAnswer:
        """Claims an effect. Only `Claimed` permits the handler to start.

        The claim is then renewed, a third of a lease apart, until it is ended, abandoned or lost, or until
        `request.beat_until`.

        Raises:
            SessionLostError: a lock of `request.conditions` is not valid. Nothing has been claimed.
        """
        answer = run_blocking(self.claim_in(None, request, None))
        if isinstance(answer, Claimed):
            self.leases.add(answer)
        return answer

    async def claim_in(self, apply: Apply | None, request: ClaimRequest, in_thread: InThread | None) -> ClaimAnswer:
        """As `claim`, with units that `apply` writes, and waits that are `in_thread`; `None` for in this thread.

        The claim is renewed once it is added to `leases`. If this is interrupted or cancelled, the claim is withdrawn.
        """
        while True:
            act, make = in_thread if self.store.claim_waits else None, partial(self._fresh, request)
            fresh = make() if act is None else cast("EffectRow", await act(make))
            # Insert before reading: most keys are new, and the insert decides atomically between two callers.
            conflict = await self._write(apply, None, fresh, request)
            if conflict is None:
                return Claimed(fresh, request.lease, request.beat_until)
            current = conflict.present
            if current is None:  # removed meanwhile
                continue
            if current.status == "running":
                look = partial(prove_owner, self.store, current, fresh.created_at)
                current = look() if in_thread is None else cast("EffectRow", await in_thread(look))
            refusal, row = effects.answer_claim(current, fresh, request)
            # The store compares id, fence and status of `standing`. If it refuses, another process has changed the row:
            # decide again.
            if row is current or await self._write(apply, current, row, request) is None:
                if refusal is not None:
                    return refusal(row)
                retried = current.status in {"running", "unknown"}
                return Claimed(row, request.lease, request.beat_until, retried=retried)

    async def _write(
        self, apply: Apply | None, current: EffectRow | None, row: EffectRow, request: ClaimRequest
    ) -> RefusedWrite | None:
        # In place of the row that is there; `None` if it was not refused.
        unit = UnitOfWork((EffectInsert(row) if current is None else EffectChange(current, row), *request.conditions))
        if row.status == "running":  # before others can read it, and find no owner
            NEW_CLAIMS[row.claim] = time.monotonic() + request.lease.total_seconds()
        answer: object = row
        try:
            answer = self.store.apply(unit) if apply is None else await apply(self.store, unit)
            return cast("RefusedWrite | None", answer)
        except BaseException as interrupt:
            if not isinstance(interrupt, Exception):  # Ctrl-C, a cancellation: it may have been written
                # A coroutine that is being closed with its loop cannot await anything.
                await self._withdraw(None if isinstance(interrupt, GeneratorExit) else apply, current, row)
            raise
        finally:
            if answer is not None:
                NEW_CLAIMS.pop(row.claim, None)

    async def _withdraw(self, apply: Apply | None, current: EffectRow | None, row: EffectRow) -> None:
        # The handler will not start. The store is not asked for the time again.
        if row.status != "running":
            return
        finding: effects.OwnerFinding = effects.NotApplied("the call was cancelled before it started")
        if current is not None and current.status in {"running", "unknown"}:
            finding = NotKnown("a later attempt was cancelled before it started")
        try:
            unit = UnitOfWork((EffectChange(row, effects.ended_row(row, finding, now=row.created_at)),))
            self.store.apply(unit) if apply is None else await apply(self.store, unit)
        except Exception:  # noqa: BLE001 - logged; the lease expires
            self.leases.abandon(Claimed(row, MINUTE, None))
            _log.exception("the claim of a cancelled call of %s could not be withdrawn", row.tool)

    def renew(self, claim: Claimed) -> None:
        """Renews the lease from now on; raises `LeaseLostError` if the effect is no longer the claim's."""
        if self.store.apply(UnitOfWork((self.leases.renewal(claim),))) is not None:
            self.leases.drop(claim)
            raise LeaseLostError(claim.row.key, claim.row.fence)

    def end(self, claim: Claimed, finding: effects.OwnerFinding, *, ttl: timedelta | None = DAY) -> bool:
        """Records the outcome of an effect: its result, that it has not happened, or that this is unknown.

        A result is replayed until `ttl` from now, or for ever. An effect that has not happened may be run again by the
        same call. Returns `False`, and writes nothing, if its owner had lost the claim. If the store raises, the call
        may be retried, and the claim is still renewed: a row that has this result already was written by an attempt
        whose answer was lost.
        """
        row = effects.ended_row(claim.row, finding, now=self.store.now(), ttl=ttl)
        if isinstance(finding, NotKnown) and claim.row.claim not in RUNNING_HANDLERS:
            row = disown(row)
        has_ended = self._change(claim.row, row)
        if not has_ended and isinstance(finding, EffectResult):
            has_ended = effects.same_outcome(self.store.get(row.partition, row.key), row)
        self.leases.drop(claim)
        return has_ended

    def mark_read(self, row: EffectRow, below: Iterable[EffectRow]) -> EffectRow | None:
        """Records at once that a call has an effect, and those below that it stands for; `None` if another has it."""
        now = self.store.now()
        marks = [effects.mark_applied(effect, now=now, ttl=DAY) for effect in (row, *below)]
        return marks[0].row if self.store.apply(UnitOfWork(tuple(marks))) is None else None

    def unread_below(self, row: EffectRow) -> tuple[EffectRow, ...]:
        """The unread effects of the calls nested in the one of a row, whose message stands for them."""
        caller, slots = row.owner.call.storable, self.store.unresolved_slots(row.owner.session_id)
        return tuple(slot for slot in slots if slot.is_unread and caller in slot.owner.call.ancestors)

    def leave_unread(self, effect: EffectRow, until: datetime | None, *, ttl: timedelta | None = None) -> bool:
        """Answers an equal call with a slot whose own call had no success; `False` if another call has had it."""
        row = self.store.get(effect.partition, effect.key)
        if row is None or row.effect_id != effect.effect_id or row.status != "done":
            return False
        until = until or (row.completed_at + ttl if ttl and row.completed_at else None)
        if row.is_slot and until and row.expires_at == until:
            return self._change(row, row._replace(expires_at=None))
        return row.is_unread

    def disown(self, claim: Claimed) -> None:
        """Records that the handler of an unknown effect, which its call had left behind, has ended."""
        row = self.store.get(claim.row.partition, claim.row.key)
        if row is not None and row.status == "unknown" and effects.is_left_by(row, claim.row):
            self._change(row, disown(row))

    def leave_running(self, claim: Claimed) -> None:
        """Refuses equal calls while a handler runs that its caller has left behind."""
        self._given_up.append(claim.row)

    def finish_later(self, claim: Claimed, finding: effects.OwnerFinding, *, ttl: timedelta | None = DAY) -> None:
        """Records the outcome of an effect if the store, which has failed, takes it within a lease from now."""
        settle = self.end if isinstance(finding, NotKnown) else partial(self.settle_late, accept=True)
        self.leases.settle_later(claim, partial(settle, claim, finding, ttl=ttl))
        self._given_up.append(claim.row)

    def tick(self) -> int:
        """Renews claims and ends waits that are due by a manual clock; otherwise the ledger's thread does so."""
        return self.leases.tick()

    # ------------------------------------------------------------------------------------------ resolve unknown effects

    def resolve(self, row: EffectRow, finding: Finding, *, ttl: timedelta | None = DAY) -> bool:
        """Records the outcome of an unknown effect, or of an orphan; or corrects a result that is not applied yet.

        Returns `False` if the row has changed; then nothing was written.

        Raises:
            LedgerError: the row is running and not an orphan, already done or failed, or has no result to be applied;
                or it has not happened yet, and its handler, which its call has left behind, still runs elsewhere.
        """
        now = self.store.now()
        if row.status == "unknown" and isinstance(finding, effects.NotApplied) and self.store.owner_lives(row):
            process = process_in_words(row.owner.process)
            raise effects.refusal(row, f"and its handler still runs in {process}, so it may happen yet; end that first")
        changed = effects.resolved_row(prove_owner(self.store, row, now), finding, now=now, ttl=ttl)
        if row.status != "done":
            return self._change(row, changed)
        # The mark is refused if the result has been applied meanwhile, and the change that follows it takes it away.
        return self.store.apply(UnitOfWork((effects.mark_applied(row, now=now), EffectChange(row, changed)))) is None

    def settle_late(self, claim: Claimed, finding: Finding, *, accept: bool, ttl: timedelta | None = DAY) -> bool:
        """Settles an effect by what its owner has learnt after it had lost the claim, or its handler had timed out.

        Unless `accept` is true, it is logged. Returns `True` if the effect was unknown or running, and had not passed
        to another owner.
        """
        while True:
            row = self.store.get(claim.row.partition, claim.row.key)
            if row is None or not accept or not effects.is_left_by(row, claim.row):
                # An error if it has happened, because another owner may have done it again.
                happened = isinstance(finding, EffectResult)
                log, outcome = (_log.error, "has happened") if happened else (_log.warning, "has not happened")
                log(_LATE, claim.row.key, claim.row.tool, outcome, claim.row.fence)
                return False
            unknown = effects.unknown_row(row, "") if row.status == "running" else row
            changed = effects.resolved_row(unknown, finding, now=self.store.now(), ttl=ttl)
            if self._change(row, changed):
                self.leases.drop(claim)
                return True

    def row(self, key: str, *, partition: str | None = None) -> EffectRow | None:
        """The entry of a key, in any state; `None` if there is none. Without `partition` all are searched.

        Raises:
            LedgerError: several partitions have the key, and `partition` is not given.
        """
        if partition is not None:
            return self.store.get(partition, key)
        now, rows = self.store.now(), tuple(self.store.rows(key))
        current = [row for row in rows if not effects.key_expired(row, now)] or rows[:1]
        if len(current) > 1:
            names = ", ".join(sorted(repr(row.partition) for row in current))
            why = f'several partitions have the key {key}: {names}. Name one with partition=... ("" is shared by all).'
            raise LedgerError(why, key=key, status="ambiguous")
        return current[0] if current else None

    def unresolved_slots(self, partition: str, tool: str) -> tuple[EffectRow, ...]:
        """The slots of a tool, in a session and those below it, that are unknown, unread, or run without an owner."""
        slots = self.store.unresolved_slots(partition, tool)
        rows = {row[:2]: row for row in slots if row.status != "running" or not _is_owned(row)}
        given_up = [row for row in tuple(self._given_up) if row.is_below(partition) and row.tool == tool]
        rows_now = (self.store.get(row.partition, row.key) for row in given_up)
        rows |= {row[:2]: row for row in rows_now if row is not None and row.is_unresolved_slot}
        return tuple(prove_owner(self.store, row, self.store.now()) for row in rows.values())

    def has_no_slots(self, partition: str, tool: str) -> bool:
        """True if it is known without reading that `unresolved_slots` would find none."""
        return not self._given_up and self.store.has_no_slots(partition, tool)

    def rows(self) -> Iterator[EffectRow]:
        """All entries, in any state."""
        return self.store.rows()

    # ---------------------------------------------------------------------------------------------- a cache of results

    def lookup(self, key: str, *, partition: str | None = None) -> effects.ToolEffect | None:
        """The recorded effect of a key; an expired one is removed. Without `partition` all are searched.

        `None` means that there is nothing to replay, not that the effect has not happened; `claim` distinguishes these.

        Raises:
            LedgerError: several partitions have the key, and `partition` is not given.
        """
        row = self.row(key, partition=partition)
        if row is not None and effects.key_expired(row, self.store.now()):
            self._change(row, None)
        elif row is not None and row.status == "done":
            return effects.ToolEffect.of(row)
        return None

    def record(  # noqa: PLR0913 - the five arguments of the specification, and the partition
        self,
        *,
        idempotency_key: str,
        tool_name: str,
        params: object,
        result: ToolResult[Any],
        ttl: timedelta | None = DAY,
        partition: str = "",
    ) -> effects.ToolEffect | None:
        """Records the result of a call that was made without a claim; returns the recorded effect.

        A failed result is not recorded, and `None` is returned. A key that is already done retains its first result.

        Raises:
            LedgerError: the key belongs to another tool or other arguments, or its effect is running or unknown.
        """
        if not result.success:
            return None
        value: bytes | None = None
        with suppress(DumpError, SchemaError):
            value = to_json(dump(result.value))
        outcome = EffectResult(result.message, value, result.exclude_value_from_context)
        masking = type_masking(type(params))
        hashed = digest(params, key=self.store.hash_key() if masking.hides else None)
        arguments = recorded_arguments(ToolCall("", tool_name), params, masking)
        request = ClaimRequest(partition, idempotency_key, tool_name, hashed, arguments=arguments)
        while True:
            fresh, current = self._fresh(request), self.store.get(partition, idempotency_key)
            refusal, row = effects.answer_claim(current, fresh, request)
            if refusal is effects.Hit:
                return effects.ToolEffect.of(row)
            if current is not None and refusal is not None:
                raise effects.refusal(current, "so nothing was recorded for this call")
            row = effects.ended_row(row, outcome, now=fresh.created_at, ttl=ttl)
            write = EffectInsert(row) if current is None else EffectChange(current, row)
            if self.store.apply(UnitOfWork((write,))) is None:
                return effects.ToolEffect.of(row)

    def invalidate(self, key: str, *, partition: str | None = None, force: bool = False) -> bool:
        """Removes the entry of a key, so that the same call runs again; returns `False` if there is none.

        Raises:
            LedgerError: the effect is running or unknown, or its result waits for `apply`, and `force` is not given: it
                could happen twice. Or several partitions have the key, and `partition` is not given.
        """
        while (row := self.row(key, partition=partition)) is not None:
            if not force and not effects.removable(row):
                raise effects.refusal(row, "so its entry stays: without it, it could happen twice", force=True)
            if self._change(row, None):
                return True
        return False

    def invalidate_by_tool(self, name: str, *, force: bool = False) -> int:
        """Removes the entries of a tool; returns how many. Running and unknown effects stay, without `force`."""
        return self._remove(lambda row: row.tool == name and (force or effects.removable(row)))

    def clear(self, *, force: bool = False) -> int:
        """Removes all entries; returns how many. Running and unknown effects stay, unless `force` is given."""
        return self._remove(lambda row: force or effects.removable(row))

    def prune_expired(self) -> int:
        """Removes the entries that have expired, in many short transactions; returns how many."""
        return self.store.remove_expired(self.store.now())

    # --------------------------------------------------------------------------------------------------------- private

    def _fresh(self, request: ClaimRequest) -> EffectRow:
        partition, key, tool, params_hash, owner, lease, _, _, arguments, *_ = request
        now, process = self.store.now(), self.store.process()
        owner = owner._replace(process=process) if process else owner
        identity = (partition, key, self._new_id(), tool, params_hash, owner)
        return EffectRow(*identity, "running", 1, now, now + lease, arguments=arguments)

    def _change(self, current: EffectRow, row: EffectRow | None) -> bool:
        return self.store.apply(UnitOfWork((EffectChange(current, row),))) is None

    def _remove(self, matches: Callable[[EffectRow], bool]) -> int:
        return sum(self._change(row, None) for row in self.store.rows() if matches(row))


def _is_owned(row: EffectRow) -> bool:
    return row.claim in LIVE_CLAIMS or NEW_CLAIMS.get(row.claim, 0) > time.monotonic()
