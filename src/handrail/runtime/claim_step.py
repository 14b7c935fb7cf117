"""Step 7: claim the effect of a call in the ledger, until it is granted, found done, or refused."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any

from handrail.crash_points import reached
from handrail.errors import CallIdReusedError, UnknownTypeError
from handrail.limits import seconds_left
from handrail.prompt import IdempotencyConfig, TextPart, Tool
from handrail.prompt.idempotency import EffectKey
from handrail.redaction import redacted_logger
from handrail.runtime.call import CallState
from handrail.runtime.effect_keys import effect_key_of
from handrail.runtime.execution import ExecutionTimeoutError
from handrail.runtime.failures import CallRefusedError
from handrail.runtime.ledger.claim import EffectClaim
from handrail.runtime.ledger.effects import Busy, ClaimAnswer, Claimed, ClaimRequest, Conflict, Hit, Unknown
from handrail.runtime.ledger.ledger import EffectLedger
from handrail.runtime.ledger.records import load_result, other_arguments, recorded_arguments
from handrail.runtime.ledger.replays import HOLDERS, Claim, ReplayedResult, UnappliedResult, claims_above
from handrail.runtime.unknown_effects import repeated_effect, settle_unknown
from handrail.session.call_ref import shown_id
from handrail.store.protocol import ClaimOwner, EffectRow
from handrail.transaction.commit import Apply
from handrail.turns import Ticket

_log = redacted_logger("handrail.runtime")

_SLOT = IdempotencyConfig()
"""The configuration of an external tool without `idempotency`: keyed by the slot of the call."""


async def claim_effect(run: CallState, tool: Tool[Any, Any], *, is_decided: bool = True) -> Claim | None:
    """Claim the effect of a call, or find its result; a call without a claim has its reply stored.

    Waits while another call runs the same effect, unless `on_busy` of the tool is `"reject"`.

    Args:
        run: the call.
        tool: its tool.
        is_decided: whether policies and approver have decided that it may run. They were passed over if its effect had
            been started; if that is found not to have happened, nothing is claimed, and `None` is returned.

    Raises:
        CallRefusedError: another call runs the effect, its key belongs to another call, its result cannot be read any
            more, or its outcome is unknown and `Tool.reconcile` could not determine it.
        FinalRefusal: it repeats a call of this session whose effect has happened or is unknown.
        CallIdReusedError: its slot belongs to another call.
        DeveloperMistake: the reconciler has one.
        StoreError: a store is unavailable.
        SessionError: the session has passed to another process.
    """
    if not tool.claims:
        return await run.store_deferred()
    reached("before-claim")
    ledger = run.environment.effect_ledger
    if run.environment.settles is not None:
        return await _settled(run, tool, run.environment.settles)
    key = await effect_key_of(run, tool)
    run.name_effect(key.key)
    request = _request_of(run, tool, key)
    waits: _Waits | None = None
    while True:
        settled = await repeated_effect(run, tool, key, request.arguments) if tool.idempotency is None else None
        answer = await _ask(run, ledger, request) if settled is None else Hit(settled)
        if isinstance(answer, Claimed):
            return await _granted(run, tool, answer, is_decided=is_decided)
        if isinstance(answer, Conflict):
            raise _conflict(run, tool, answer)
        if isinstance(answer, Unknown):
            await settle_unknown(run, tool, answer.row)
            continue
        waits = waits or _Waits(run)
        stored = await _stored(run, tool, answer, request, waits)
        if stored is not None:
            return run.answer_by(stored)


async def _ask(run: CallState, ledger: EffectLedger, request: ClaimRequest) -> ClaimAnswer:
    return await ledger.claim_in(await _apply_of(run, ledger), request, run.mode.in_thread)


async def _apply_of(run: CallState, ledger: EffectLedger) -> Apply | None:
    """How a claim is written: with what the session has deferred, because the reply of the call may be part of it."""
    session, mode = run.environment.session, run.mode
    recorder = session.recorder
    if recorder is None or not recorder.deferred:
        return mode.apply_to(ledger.store)
    if ledger.units is not recorder.store:
        await run.store_deferred()
        return mode.apply_to(ledger.store)
    return lambda store, unit: mode.write(store, lambda apply: recorder.write_claim(apply, store, unit))


async def _granted(run: CallState, tool: Tool[Any, Any], claimed: Claimed, *, is_decided: bool) -> Claim | None:
    reached("after-claim")
    ledger = run.environment.effect_ledger
    if not is_decided:  # released, because a person may take long to answer
        why = "it has not happened, and is asked again whether it may run"
        await run.mode.write_to(ledger.units, partial(ledger.fail, claimed, why))
        return None
    # A nested call commits nothing itself, and a call that shares its turn may be rolled back after the effect: their
    # effects are recorded at once.
    shares = run.shares_store  # where session and ledger are in one store, session and effect are committed together
    in_unit = shares and run.turn.outer is None and not run.turn.shared
    claim = EffectClaim(ledger, claimed, tool, run.turn.ticket, shares=shares, in_unit=in_unit)
    run.hold(claim)
    ledger.leases.add(claimed)
    return claim


def _conflict(run: CallState, tool: Tool[Any, Any], answer: Conflict) -> CallRefusedError | CallIdReusedError:
    return _reused_slot(run, answer.row) if tool.idempotency is None else CallRefusedError(answer.message)


def _reused_slot(run: CallState, row: EffectRow) -> CallIdReusedError:
    return CallIdReusedError(
        f"call {shown_id(str(run.ref))} of session {run.environment.session.session_id!r} belongs to an effect of "
        f"{row.tool} that is {row.status}, claimed at {row.created_at.isoformat(timespec='seconds')}, and was "
        "repeated with another tool or other arguments. State the reply, execute(call, reply=...), or give the call "
        "an id of its own.",
        call_id=run.call.id,
        reply=run.ref.reply,
        recorded_at=row.created_at,
        tool=row.tool,
    )


def _request_of(run: CallState, tool: Tool[Any, Any], key: EffectKey) -> ClaimRequest:
    deadline = run.environment.deadline
    config = tool.idempotency or _SLOT
    said = tool.external or config
    return ClaimRequest(
        partition=key.partition,
        key=key.key,
        tool=tool.name,
        params_hash=key.params_hash,
        owner=ClaimOwner(run.environment.session.session_id, run.ref[0], run.ref[1]),
        lease=said.lease,
        on_orphan=tool.on_orphan,
        beat_until=None if deadline is None else deadline.expires_at,
        arguments=recorded_arguments(run.call, run.params, tool.masking, words=tool.key_codec is not None),
        conditions=run.claim_conditions,
        replays_other_arguments=config.replays_other_arguments and not tool.masking.hides,
    )


async def _stored(
    run: CallState, tool: Tool[Any, Any], answer: ClaimAnswer, request: ClaimRequest, waits: _Waits
) -> ReplayedResult | None:
    """The result of the effect, if it has happened; `None` when the ledger is to be asked again."""
    if isinstance(answer, Hit):
        is_same = answer.row.params_hash == request.params_hash
        note = "" if is_same else other_arguments(answer.row.arguments, request.arguments)
        return await _replayed(run, tool, answer, note)
    if isinstance(answer, Busy):
        held = _held_by_caller(answer)
        if held is not None:
            return held
        await _wait_for(run, answer, tool.idempotency or _SLOT, waits)
    return None


async def _replayed(run: CallState, tool: Tool[Any, Any], hit: Hit, note: str = "") -> ReplayedResult | None:
    """The result of an effect that has happened; `None` if another call has been given it meanwhile."""
    try:
        stored = load_result(tool, hit)
        # A part, because a value with a `render` is shown without the message.
        stored = replace(stored, parts=(*stored.parts, TextPart(note))) if note else stored
    except Exception as error:
        raise _unreadable(tool, hit.row, error) from error
    environment, row, standing = run.environment, hit.row, hit.row
    ledger, settles = environment.effect_ledger, environment.settles is not None
    run.name_effect(row.key)
    ticket: Ticket | None = run.turn.ticket
    below: tuple[EffectRow, ...] = ()
    if not settles and (row.is_unread or (run.shares_store and row.applied_at is None)):
        below = await run.mode.write_to(ledger.units, partial(ledger.unread_below, row))
    if row.is_unread and not settles and not run.shares_store:
        marked = await run.mode.write_to(ledger.units, partial(ledger.mark_read, row, below))
        if marked is None:
            return None
        ticket, standing, below = None, marked, ()
    waits = row.applied_at is None and (tool.apply is not None or settles)
    # Applied once in the transaction of the outermost call: a call that is nested beside this one may do it.
    above = [claim.effect.effect_id for claim in claims_above() if claim.effect is not None]
    if not (waits or row.is_unread or below) or row.effect_id in above:
        return ReplayedResult(row, stored, tool)
    return UnappliedResult(ledger, standing, tool, stored, ticket=ticket, below=below, settles=settles)


async def _settled(run: CallState, tool: Tool[Any, Any], seen: EffectRow) -> ReplayedResult | None:
    """The result of the effect that is settled; nothing is claimed, so that no handler can run."""
    ledger = run.environment.effect_ledger
    run.name_effect(seen.key)
    row = await run.mode.write_to(ledger.units, partial(ledger.row, seen.key, partition=seen.partition))
    if row is None or row.tool != tool.name or (row.effect_id, row.status) != (seen.effect_id, "done"):
        raise CallRefusedError(f"the effect {seen.key} of {tool.name} is no longer done: its entry has been changed.")
    stored = await _replayed(run, tool, Hit(row))
    return None if stored is None else run.answer_by(stored)


def _unreadable(tool: Tool[Any, Any], row: EffectRow, error: Exception) -> CallRefusedError:
    """The refusal for an effect that is done and whose recorded result cannot be read; the reason is logged.

    The row is unchanged, and the effect is not repeated. The refusal is not final: the result can be shown again once
    the result type of the tool can load it.
    """
    named = isinstance(error, UnknownTypeError)
    _log.error(
        "the effect %s of %s (key %s) is done, and its recorded result cannot be read as a result of the tool: %s. "
        "The effect is not repeated",
        row.effect_id,
        tool.name,
        row.key,
        error if named else "its type has changed since, or the row was changed by hand",
        exc_info=error,
    )
    return CallRefusedError(
        f"{tool.name} was done before with these arguments, and is not done again. Its result cannot be shown, "
        "because its record can no longer be read. Do not ask for it again."
    )


def _held_by_caller(busy: Busy) -> ReplayedResult | None:
    """The result of the effect, if a call nested in the same parent, which has not ended, produced it.

    Raises:
        CallRefusedError: this call is nested in the one that runs the effect, so it would wait for its own caller.
    """
    held = [claim for claim in claims_above() if isinstance(claim, EffectClaim) and claim.stands_for(busy.row)]
    if not held:
        return None
    stored = held[0].finished()
    if stored is None:
        raise CallRefusedError(busy.message)
    return stored


class _Waits:
    """The waits of one call; each is reported once, before it begins."""

    __slots__ = ("_run", "_said")

    def __init__(self, run: CallState) -> None:
        self._run = run
        self._said: set[tuple[str, int, datetime | None]] = set()

    def say(self, row: EffectRow, *, holder_runs: bool) -> None:
        """Log the wait; emit an event too, unless the owner is a call of this process that is known to run."""
        wait = (row.effect_id, row.fence, row.lease_until)
        if wait in self._said or row.lease_until is None:
            return
        self._said.add(wait)
        session, ref = self._run.environment.session, self._run.ref
        from handrail.runtime.call_events import EffectAwaited  # noqa: PLC0415

        event = EffectAwaited(session.session_id, *ref, self._run.call.name, row.key, row.owner, row.lease_until)
        if holder_runs:
            _log.debug("session %s: %s", session.session_id, event)
            return
        _log.warning("session %s: %s", session.session_id, event)
        try:
            session.dispatcher.dispatch(event)
        except Exception:  # noqa: BLE001 - logged, because a subscriber must not fail the call
            _log.exception("a subscriber of the wait of %s failed", self._run.call.name)


def _runs_beside(run: CallState, row: EffectRow, holder: Ticket | None) -> bool:
    """Whether the owner is a call of this process that shares a turn with this one, or is on another session.

    A handler left running by a session that has been closed has no turn of the reopened session.
    """
    session = run.environment.session
    return holder is not None and (row.owner.session_id != session.session_id or session.turn in holder.turns)


async def _wait_for(run: CallState, busy: Busy, config: IdempotencyConfig, waits: _Waits) -> None:
    """Wait until the other owner has ended or its lease has expired; refuse the call if neither happens."""
    if config.on_busy == "reject":
        raise CallRefusedError(busy.message)
    seconds = seconds_left(run.environment.deadline)
    ticket, holder = run.turn.ticket, HOLDERS.get(busy.row.effect_id)
    # Refuses the call if the holder waits, directly or not, for a turn of this one.
    if holder is not None:
        ticket.wait_on(holder)
    changed: Future[None] | None = None

    def watch() -> Future[None]:
        """Look at the row, which a store may take long for; what is watched is ended below, also if that is cut off."""
        nonlocal changed
        changed = run.environment.effect_ledger.leases.watch(busy.row)
        return changed

    try:
        watched = await run.mode.write_to(run.environment.effect_ledger.units, watch)
        if not watched.done():
            waits.say(busy.row, holder_runs=_runs_beside(run, busy.row, holder))
        await run.mode.wait(watched, seconds=seconds)
    except ExecutionTimeoutError:
        raise CallRefusedError(busy.message) from None
    finally:
        if changed is not None:
            changed.cancel()
        if holder is not None:
            ticket.stop_waiting_on(holder)
