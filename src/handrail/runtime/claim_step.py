"""Step CLAIM: names the effect of a call, and claims it in the ledger, until it is granted, found done, or refused.

A model that reads that the outcome of a call is unknown may repeat it under another id. The slot of that id is free,
so only the arguments show that it is the same payment. Therefore the effects of equal calls of the run are looked at
before the handler starts: those of the outermost session, and of the sessions named after it.

| an equal call of the run | the call |
|---|---|
| is unknown | is refused, if the reconciler does not determine one of the next two |
| has happened, and no call has succeeded with it | is answered with its result |
| anything else | runs |

So each effect is one success that a model reads. Its row says if it is unread (`EffectRow.is_unread`), and the unit
that commits the answer changes that; calls of one reply are not taken for repeats of each other. The refusal is final
for the identity of the call; under another id it is looked at anew.

The reconciler of the tool asks the external system: when the handler has ended in doubt, before the model reads
anything (`settle_at_once`); when a session is resumed (`handrail.adapters.settlement`); and by the next call of the
effect, or an equal one. That it happened counts at once. That it did not counts at once only if the tool declares
`reconcile_proves_absence`, because a request may still be on its way; asked later, it counts, unless a `def` handler of
that effect, whose call was stopped or cancelled, still runs, here or in another process that has the store open.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any, ClassVar

from handrail.crash_points import reached
from handrail.errors import CallIdReusedError, DumpError, InvalidReturnError, RunAbortedError
from handrail.errors.developer import mistakes_in
from handrail.limits import seconds_left
from handrail.prompt import IdempotencyConfig, TextPart, Tool, ToolResult
from handrail.prompt.idempotency import EffectKey, slot_effect_key
from handrail.prompt.signature import MINUTE, annotation_name
from handrail.redaction import redacted_logger
from handrail.runtime.call import CallState
from handrail.runtime.calls import CallEvent, notify_subscribers, written_arguments
from handrail.runtime.execution import ExecutionTimeoutError, reading_form
from handrail.runtime.failures import CallRefusedError, FinalRefusal, OutcomeUnknownError, describe_error
from handrail.runtime.ledger import effects, records, replays
from handrail.runtime.ledger.claim import EffectClaim, unknown_outcome
from handrail.runtime.ledger.ledger import EffectLedger
from handrail.serde import digest
from handrail.session import Session, stored_as
from handrail.session.calls import CallRef, shown_id
from handrail.session.views import UnopenedSession, sessions_above
from handrail.store.locks import RUNNING_HANDLERS
from handrail.store.protocol import UNTIL_APPLIED, ClaimOwner, EffectRow
from handrail.transaction.commit import Apply
from handrail.transaction.transaction import NestedCall
from handrail.turns import Ticket
from handrail.waiting import await_shielded

_log = redacted_logger("handrail.runtime")

# The configuration of an external tool without `idempotency`: keyed by the slot of the call.
_SLOT = IdempotencyConfig()

# What a reconciler does instead of a write; the end of the message that refuses one.
_CURE = "A reconciler returns what it finds; `apply` of the tool writes."


async def claim_effect(run: CallState, tool: Tool[Any, Any], *, is_decided: bool = True) -> replays.Claim | None:
    """Claims the effect of a call, or finds its result; waits while another call runs it, unless `on_busy` rejects.

    If policies and approver were passed over, because the effect had been started (not `is_decided`), and it is found
    not to have happened, nothing is claimed, and `None` is returned.

    Raises:
        CallRefusedError: another call runs the effect, its key belongs to another call, its result cannot be read any
            more.
        OutcomeUnknownError: it has started, and `Tool.reconcile` could not determine its outcome.
        FinalRefusal: it repeats a call of this session whose effect has happened or is unknown.
        CallIdReusedError: its slot belongs to another call.
        DeveloperMistake: the reconciler has one.
        StoreError: a store is unavailable.
        SessionError: the session has passed to another process.
    """
    if run.environment.settles is not None:
        reached("before-claim")
        return await _answer_settled(run, tool, run.environment.settles)
    if tool.undo is not None and is_decided and run.plan.is_stored:
        from handrail.runtime.undo_records import register_undo  # noqa: PLC0415

        await register_undo(run, tool, find_started)
    reached("before-claim")
    return await _claim(run, tool, is_decided=is_decided) if tool.claims else await run.store_deferred()


async def _claim(run: CallState, tool: Tool[Any, Any], *, is_decided: bool) -> replays.Claim | None:
    ledger = run.environment.find_ledger()
    key = await find_effect_key(run, tool)
    run.effect_key = key.key
    request = _build_request(run, tool, key)
    replay = await _inherited_result(run, tool, request) if run.environment.session.origins else None
    while replay is None:
        row = await _repeated_effect(run, tool, key, request.arguments) if tool.idempotency is None else None
        apply = None if row else await _choose_apply(run, ledger)
        answer = effects.Hit(row) if row else await ledger.claim_in(apply, request, run.mode.in_thread)
        if isinstance(answer, effects.Claimed):
            reached("after-claim")
            if is_decided:
                return _grant(run, tool, answer)
            # Released, because a person may take long to answer.
            finding = effects.NotApplied("it has not happened, and is asked again whether it may run")
            await run.mode.write_to(ledger.units, partial(ledger.end, answer, finding))
            return None
        if isinstance(answer, effects.Conflict):
            raise _conflict(run, tool, answer)
        if isinstance(answer, effects.Unknown):
            await settle_unknown(run, tool, answer.row)
        elif isinstance(answer, effects.Hit):
            replay = await _replayed(run, tool, answer.row, request)
        elif isinstance(answer, effects.Busy):
            replay = _held_by_caller(answer) or await _wait_for(run, tool, answer, request)
    return replay


async def find_effect_key(run: CallState, tool: Tool[Any, Any]) -> EffectKey:
    """The declared key of the effect of a call, or its slot; raises `CallRefusedError` if the call has no id."""
    session_id, ledger = run.environment.session.session_id, run.environment.find_ledger()
    config, hash_key, key = tool.idempotency, None, None
    if tool.masking.hides:  # the event loop is not held while the store is read for the key of its hashes
        hash_key = await run.mode.write_to(ledger.units, ledger.store.hash_key)
    if config is not None:
        params = tool.with_secrets(run.params) if tool.masking.hides else run.params
        params = tool.key_params(run.call.arguments, params)
        key = config.effect_key(tool.name, params, session_id=session_id, hash_key=hash_key)
    if key is None:
        if not run.call.id:
            why = "has external effects, and this call has no id that would identify a repeat. Give it one."
            raise CallRefusedError(f"{tool.name} {why}")
        return slot_effect_key(run.ref, written_arguments(run.call), session_id=session_id, hash_key=hash_key)
    if run.secrets is not None and run.secrets.text(key.key) != key.key:  # what `key_fn` has returned
        scope, _, own = key.key.partition(":")
        return key._replace(key=f"{scope}:{digest(own, key=hash_key)}")
    return key


async def has_started(run: CallState, tool: Tool[Any, Any]) -> bool:
    """True if an earlier attempt of the call has started its effect, so that the handler does not run again.

    Such a call was decided before it began, and is answered from the ledger: its effect is done, unknown or running.
    With `on_orphan="retry"` only what is done counts.

    Raises:
        CallRefusedError: the call has no id that would name its slot.
        StoreError: the ledger cannot be read.
    """
    row = await find_started(run, tool) if run.ref.is_named else None
    if row is None or row.owner.call.storable != run.ref.storable:
        return False  # another call with the same key was decided, not this one
    is_own = row.owner.session_id == run.environment.session.session_id
    return is_own and (row.status == "done" or tool.on_orphan != "retry")


async def find_started(run: CallState, tool: Tool[Any, Any]) -> EffectRow | None:
    """The effect of this request, if an attempt has started it, of this call or of another one with its key."""
    if not run.plan.claims:
        return None
    ledger, key = run.environment.find_ledger(), await find_effect_key(run, tool)
    row = await run.mode.write_to(ledger.units, partial(_find_started, ledger, key))
    return None if row is None or (row.tool, row.params_hash) != (tool.name, key.params_hash) else row


async def _repeated_effect(
    run: CallState, tool: Tool[Any, Any], slot: EffectKey, arguments: bytes | None
) -> EffectRow | None:
    """The effect that answers a call which repeats it; `None` if the call is a new one."""
    external = tool.external
    if external is None:
        return None
    ledger, root, *above = run.environment.find_ledger(), *_run_roots(run.environment.session)
    if all(ledger.has_no_slots(session_id, tool.name) for session_id in (root, *above)):
        return None
    repeats = external.repeat_unknown == "allow" or external.on_orphan == "retry"
    read = partial(_unresolved_slots, ledger, (root, *above), tool.name)
    rows = await run.mode.write_to(ledger.units, read)
    others = [row for row in rows if not (_is_meant(run, row) if row.status == "done" else repeats)]
    equal = [row for row in others if row[:2] != slot[:2] and _is_equal(row, slot, arguments, tool)]
    # A slot that is unknown, running or done is answered from its row.
    if not equal or await run.mode.write_to(ledger.units, partial(_find_started, ledger, slot)) is not None:
        return None
    notes = (unknown_outcome(tool.name),)
    for row in equal:
        try:
            if not row.is_below(root):
                from handrail.runtime.origins import unsettled_in_origin  # noqa: PLC0415

                raise unsettled_in_origin(run, row)
            effect = row if row.status == "done" else await settle_unknown(run, tool, row)
        except CallRefusedError as error:
            if run.turn.caller is not None:  # its message, if it fails, says that the effect is unknown
                run.turn.caller.nested_calls[row.effect_id] = NestedCall(lambda: notes, lambda: False)
            raise FinalRefusal(str(error)) from error
        if await _take(run, effect):
            return effect
    return None


def _is_meant(run: CallState, row: EffectRow) -> bool:
    callers = () if run.turn.caller is None else tuple(run.turn.caller.chain())
    session = run.environment.session
    if row.owner.session_id in {session.session_id, *session.origins}:
        calls = {run.ref.storable.outermost}
    else:  # that of an agent, which has a session of its own
        calls = {
            transaction.call.storable.outermost for transaction in callers if isinstance(transaction.call, CallRef)
        }
    other = row.owner.call.outermost
    is_same = other not in calls and other.reply is not None and other.reply in {call.reply for call in calls}
    return is_same or replays.is_in_use(row)


async def _take(run: CallState, row: EffectRow) -> bool:
    if not run.shares_store:
        return row.is_unread  # which is marked at once
    if not replays.take_unread(row, run.turn.ticket):
        return False
    current_row = await read_row(run, row)
    if current_row is not None and current_row.is_unread:
        return True
    replays.drop_holder(row, run.turn.ticket)
    return False


def _is_equal(row: EffectRow, slot: EffectKey, arguments: bytes | None, tool: Tool[Any, Any]) -> bool:
    # Equal as written or as parsed: a default may be omitted, or a person may change arguments. For a tool that takes
    # secrets, only the written arguments are compared: masked records look equal.
    return row.params_hash == slot.params_hash or (
        not tool.masking.hides and records.same_arguments(row.arguments, arguments, tool)
    )


def _outermost_id(session: Session) -> str:
    name = session.session_id
    for above in sessions_above(session):
        above_id = above.row.session_id if isinstance(above, UnopenedSession) else above.session_id
        if not name.startswith(f"{above_id}/"):
            break
        name = above_id
    return name


def _run_roots(session: Session) -> list[str]:
    """The outermost session of a run, and those that are the same in the origins of a fork."""
    root = _outermost_id(session)
    below = session.session_id.removeprefix(root)
    return [root, *(origin.removesuffix(below) for origin in session.origins)]


def _unresolved_slots(ledger: EffectLedger, roots: Sequence[str], tool: str) -> list[EffectRow]:
    return [*{row[:2]: row for root in roots for row in ledger.unresolved_slots(root, tool)}.values()]


def _find_started(ledger: EffectLedger, key: EffectKey) -> EffectRow | None:
    # Also what may have happened: it answers a claim of its key.
    row = ledger.row(key.key, partition=key.partition)
    return None if row is None or row.status == "failed" or effects.key_expired(row, ledger.store.now()) else row


async def _choose_apply(run: CallState, ledger: EffectLedger) -> Apply | None:
    # A claim is written with what the session has deferred, because the reply of the call may be part of it.
    session, mode = run.environment.session, run.mode
    recorder = session.recorder
    if recorder is not None and recorder.deferred:
        if ledger.units is recorder.store:
            return lambda store, unit: mode.write(store, lambda apply: recorder.write_claim(apply, store, unit))
        await run.store_deferred()
    return None if mode.inline or not ledger.store.waits else lambda store, unit: await_shielded(store.submit(unit))


def _grant(run: CallState, tool: Tool[Any, Any], grant: effects.Claimed) -> replays.Claim:
    ledger = run.environment.find_ledger()
    # A nested call commits nothing itself, and a call that shares its turn may have to wait for earlier ones after the
    # effect: their effects are recorded at once. Whether there are such is known when the handler ends.
    shares = run.shares_store  # where session and ledger are in one store, session and effect are committed together
    in_unit = shares and run.turn.outer is None and not run.turn.shared
    claim = EffectClaim(ledger, grant, tool, run.turn.ticket, shares=shares, in_unit=in_unit)
    run.hold(claim)
    ledger.leases.add(grant)
    return claim


def _conflict(run: CallState, tool: Tool[Any, Any], answer: effects.Conflict) -> CallRefusedError | CallIdReusedError:
    if tool.idempotency is not None:
        return CallRefusedError(answer.message)
    session_id, row = run.environment.session.session_id, answer.row
    text = (
        f"call {shown_id(str(run.ref))} of session {session_id!r} belongs to an effect of {row.tool} ({row.status}), "
        "and was repeated with another tool or other arguments. State the reply, or give the call an id of its own."
    )
    return CallIdReusedError(text, call_id=run.call.id, reply=run.ref.reply, recorded_at=row.created_at, tool=row.tool)


def _build_request(run: CallState, tool: Tool[Any, Any], key: EffectKey) -> effects.ClaimRequest:
    deadline = run.environment.deadline
    config = tool.idempotency or _SLOT
    return effects.ClaimRequest(
        partition=key.partition,
        key=key.key,
        tool=tool.name,
        params_hash=key.params_hash,
        owner=ClaimOwner(run.environment.session.session_id, run.ref[0], run.ref[1]),
        lease=MINUTE if tool.external is None else tool.external.lease,
        on_orphan=tool.on_orphan,
        beat_until=None if deadline is None else deadline.expires_at,
        arguments=run.plan.dump(run.call, run.params, words=tool.key_codec is not None),
        conditions=run.claim_conditions,
        replays_other_arguments=config.replays_other_arguments and not tool.masking.hides,
    )


async def _replayed(
    run: CallState,
    tool: Tool[Any, Any],
    row: EffectRow,
    request: effects.ClaimRequest | None = None,
    origin_note: str = "",
) -> replays.ReplayedResult | None:
    """The result of an effect that has happened; `None` if another call has been given it meanwhile.

    One of the origin of a fork has a note that says so, and is not written to.
    """
    note = origin_note
    if request is not None and row.params_hash != request.params_hash:
        note = " ".join(filter(None, (records.other_arguments(row.arguments), note)))
    try:
        result = records.load_result(tool, row)
        # A part, because a value with a `render` is shown without the message.
        result = replace(result, parts=(*result.parts, TextPart(note))) if note else result
    except Exception as error:
        raise _unreadable(tool, row, error) from error
    ledger, settles = run.environment.find_ledger(), run.environment.settles is not None
    run.effect_key = row.key
    if origin_note:
        return replays.ReplayedResult(row, result, tool)
    current_row, below = row, tuple[EffectRow, ...]()
    ticket: Ticket | None = run.turn.ticket
    if not settles and (row.is_unread or (run.shares_store and row.applied_at is None)):
        below = await run.mode.write_to(ledger.units, partial(ledger.unread_below, row))
    if row.is_unread and not settles and not run.shares_store:
        row_read = await run.mode.write_to(ledger.units, partial(ledger.mark_read, row, below))
        if row_read is None:
            return None
        ticket, current_row, below = None, row_read, ()
    waits = row.applied_at is None and (tool.apply is not None or settles)
    # Applied once in the transaction of the outermost call: a call that is nested beside this one may do it.
    above = [claim.effect.effect_id for claim in replays.claims_above() if claim.effect is not None]
    if not (waits or row.is_unread or below) or row.effect_id in above:
        return replays.ReplayedResult(row, result, tool)
    return replays.UnappliedResult(ledger, current_row, tool, result, ticket=ticket, below=below, settles=settles)


async def _inherited_result(
    run: CallState, tool: Tool[Any, Any], request: effects.ClaimRequest
) -> replays.ReplayedResult | None:
    from handrail.runtime.origins import find_inherited, origin_note  # noqa: PLC0415

    row = await find_inherited(run, tool, request)
    return None if row is None else await _replayed(run, tool, row, request, origin_note(row))


async def _answer_settled(run: CallState, tool: Tool[Any, Any], effect: EffectRow) -> replays.ReplayedResult | None:
    # Nothing is claimed, so that no handler can run.
    run.effect_key = effect.key
    row = await read_row(run, effect)
    if row is None or row.tool != tool.name or (row.effect_id, row.status) != (effect.effect_id, "done"):
        raise CallRefusedError(f"the effect {effect.key} of {tool.name} is no longer done: its entry has been changed.")
    return await _replayed(run, tool, row)


def _unreadable(tool: Tool[Any, Any], row: EffectRow, error: Exception) -> CallRefusedError:
    # Not final: the result can be shown again once the result type of the tool can load it.
    what = "the effect %s of %s (key %s) is done and not repeated, and its result cannot be read as one of the tool"
    _log.error(what, row.effect_id, tool.name, row.key, exc_info=error)
    return CallRefusedError(
        f"{tool.name} was done before with these arguments, and is not done again. Its result cannot be shown, "
        "because its record can no longer be read. Do not ask for it again."
    )


def _held_by_caller(busy: effects.Busy) -> replays.ReplayedResult | None:
    # The effect may be of a call nested in the same parent, which has not ended. If it is of the caller itself, this
    # call would wait for it.
    for claim in replays.claims_above():
        if isinstance(claim, EffectClaim) and claim.name == busy.row.claim:
            if (replay := claim.finished()) is None:
                raise CallRefusedError(busy.message)
            return replay
    return None


def _announce_wait(run: CallState, row: EffectRow, until: datetime) -> None:
    session = run.environment.session
    _log.warning("%s waits for effect %s of %s until %s", run.call.name, row.key, row.owner.in_words, until)
    notify_subscribers(session, EffectAwaited(session.session_id, *run.ref, run.call.name, row.key, row.owner, until))


async def _wait_for(
    run: CallState, tool: Tool[Any, Any], busy: effects.Busy, request: effects.ClaimRequest
) -> replays.ReplayedResult | None:
    # By the clock of this process, the result that is returned may be out of date already.
    if (tool.idempotency or _SLOT).on_busy == "reject":
        raise CallRefusedError(busy.message)
    ledger, seconds = run.environment.find_ledger(), seconds_left(run.environment.deadline)
    ticket, holder = run.turn.ticket, replays.HOLDERS.get(busy.row.effect_id)
    # Refuses the call if the holder waits, directly or not, for a turn of this one.
    if holder is not None:
        ticket.wait_on(holder)
    watches: list[Future[None]] = []  # what is watched is ended below, also if the look at the row is cut off
    try:
        await run.mode.write_to(ledger.units, lambda: watches.append(ledger.leases.watch(busy.row)))
        if holder is None and busy.row.lease_until is not None and not watches[0].done():
            _announce_wait(run, busy.row, busy.row.lease_until)
        await run.mode.wait(watches[0], seconds=seconds)
    except ExecutionTimeoutError:
        raise CallRefusedError(busy.message) from None
    finally:
        for watch in watches:
            watch.cancel()
        if holder is not None:
            ticket.stop_waiting_on(holder)
    row = await read_row(run, busy.row)
    if row is None or (row.effect_id, row.status) != (busy.row.effect_id, "done"):
        return None
    return await _replayed(run, tool, row, request)


async def read_row(run: CallState, row: EffectRow) -> EffectRow | None:
    """The present row of an effect; `None` if it has been removed."""
    ledger = run.environment.find_ledger()
    return await run.mode.write_to(ledger.units, partial(ledger.row, row.key, partition=row.partition))


async def settle_at_once(run: CallState, tool: Tool[Any, Any], effect: EffectRow) -> EffectRow | None:
    """The effect of a call whose handler has ended in doubt, once it is settled; `None` while it is unknown."""
    row = await read_row(run, effect)
    with suppress(CallRefusedError):
        if row is not None and row.status == "unknown":
            return await settle_unknown(run, tool, row, at_once=True)
    return None


async def settle_unknown(run: CallState, tool: Tool[Any, Any], row: EffectRow, *, at_once: bool = False) -> EffectRow:
    """Asks the reconciler about an unknown effect, and records the answer; returns the row, which is done or failed.

    The answer may be on its way if the call is settled `at_once`.

    Raises:
        OutcomeUnknownError: the outcome stays unknown.
        DeveloperMistake: the reconciler requested an unbound resource, or returned what is not a result of the tool.
    """
    ledger, unknown = run.environment.find_ledger(), effects.Unknown(row).message
    # In another process, which has left the session, or left behind by its call in this one.
    runs = await run.mode.write_to(ledger.units, partial(ledger.store.owner_lives, row))
    if row.status == "running" and (runs or row.claim in RUNNING_HANDLERS):
        raise OutcomeUnknownError(unknown)
    runs = bool(runs) or any(effect_id == row.effect_id for effect_id, _ in tuple(RUNNING_HANDLERS))
    finding = await _ask_reconciler(run, tool, row, unknown) or effects.NotApplied("found out by its reconciler")
    proves = tool.external is not None and tool.external.reconcile_proves_absence
    if isinstance(finding, effects.NotApplied) and (runs or (at_once and not proves)):
        raise OutcomeUnknownError(unknown)
    # What belongs to it is applied by a later call, which may fail.
    ttl = UNTIL_APPLIED if tool.apply is not None else (tool.idempotency or _SLOT).ttl
    await run.mode.write_to(ledger.units, partial(ledger.resolve, row, finding, ttl=ttl))
    # Read again: another caller may have resolved it meanwhile.
    current_row = await read_row(run, row)
    if current_row is None or current_row.status not in {"done", "failed"}:
        raise OutcomeUnknownError(unknown)
    return current_row


async def _ask_reconciler(
    run: CallState, tool: Tool[Any, Any], row: EffectRow, message: str
) -> effects.EffectResult | None:
    """The outcome of an unknown effect; `None` if it has not happened."""
    # The message quotes how the effect failed, in whatever session, and what a reconciler raises.
    run.record_taint()
    reconcile: Any = tool.reconcile
    if reconcile is None:
        raise OutcomeUnknownError(message)
    params = records.started_params(row.arguments, run.call, run.params, tool)
    if params is None:
        why = "the parameters that it started with cannot be restored from their record"
        raise OutcomeUnknownError(f"{message} The reconciler was not asked: {why}.")
    try:
        answer: object = await run.read_by(reading_form(reconcile), params[0], row.key, cure=_CURE)
    except Exception as error:
        if isinstance(error, RunAbortedError) or mistakes_in(error):
            raise
        _log.exception("reconcile of %s failed", tool.name)
        raise OutcomeUnknownError(f"{message} The reconciler failed: {describe_error(error)}") from error
    result = None if answer is None else _checked(answer, tool)
    if result is not None and not result.success:
        what = "reconcile of %s could not determine whether %s took effect: %s"
        _log.warning(what, tool.name, row.key, result.message)
        raise OutcomeUnknownError(f"{message} The reconciler could not determine it either.")
    return None if result is None else records.dump_result(tool, result)


def _checked(answer: object, tool: Tool[Any, Any]) -> ToolResult[Any]:
    # A plain value is not a result: `False` might mean that nothing has happened.
    fault: str | None = f"returned a value of type {type(answer).__name__}, which is not a ToolResult"
    if replays.is_result(answer):
        lacks_value = answer.value is None and answer.success is True
        fault = tool.result_fault(replace(answer, success=False) if lacks_value else answer)
        try:
            if fault is None and answer.value is not None and tool.value_codec is not None:
                tool.value_codec.dump_json(answer.value)
        except DumpError as error:
            # The ledger would record it without its value, which `apply` reads, and otherwise only the model.
            if error.is_mistyped or tool.apply is not None:
                fault = f"returned a value that cannot be recorded: {error}"
        if fault is None:
            return answer
    expected = (
        f"ToolResult.ok(value) with a value of {annotation_name(tool.result_type)} if the effect has happened, and "
        "None if it certainly has not; it raises if it does not know"
    )
    raise InvalidReturnError(function="reconcile", tool=tool.name, value=answer, expected=expected, fault=fault)


@dataclass(frozen=True, slots=True)
class EffectAwaited(CallEvent):
    """A call waits for an effect that another process, or a handler left behind in this one, has claimed.

    Subscribers of the session are notified once for each wait, before it begins.

    Attributes:
        key: the key of the effect.
        owner: the call that has claimed the effect, and its process; possibly an earlier attempt of the waiting call.
        until: when the lease of the claim ends, aware, unless its owner renews it.
    """

    key: str
    owner: ClaimOwner
    until: datetime


@dataclass(frozen=True, slots=True)
class EffectUnsettled(CallEvent):
    """A failed call, whose effect is unknown, or whose outcome could not be recorded.

    Subscribers of the session are notified before `ToolInvoked` of the same call, if anything listens to that.

    Attributes:
        key: the key of the effect.
    """

    key: str


@stored_as("handrail.effect_applied")
@dataclass(frozen=True, slots=True)
class EffectApplied:
    """This session has applied the result of an effect; its slice prevents a replay from applying it twice.

    Attributes:
        key: the effect's key.
        effect_id: the effect's identity; an expired key that runs again gets a new one.
    """

    survives_reset: ClassVar[bool] = True

    key: str
    effect_id: str
