"""Effects whose outcome is unknown: who is asked about them, and what an equal call is answered.

The reconciler of the tool asks the external system. It is asked when the handler has ended in doubt, before the model
reads anything (`settle_at_once`); when a session is resumed (`handrail.runtime.settlement`); and by the next call of
the effect, or an equal one. That it happened counts at once. That it did not counts at once only if the tool declares
`reconcile_proves_absence`, because a request whose answer was lost may still be on its way; asked later, it counts. It
never counts while a `def` handler of that effect, whose call was stopped or cancelled, still runs in this process.

A model that reads that the outcome of a call is unknown may repeat it under another id. The slot of that id is free,
so only the arguments show that it is the same payment. An agent that is called again has another session, too.
Therefore the effects of equal calls of the run are looked at before the handler starts: those of the outermost session,
and of the sessions named after it.

| an equal call of the run | the call |
|---|---|
| is unknown | is refused, if the reconciler does not determine one of the next two |
| has happened, and no call has succeeded with it | is answered with its result |
| anything else | runs |

So each effect is one success that a model reads: also one of which that is found out by the reconciler, by a person or
by a late result, one whose call has failed or had no message, and one that is nested in such a call. Its row says so
(`EffectRow.is_unread`), and the unit that commits the answer changes that. Of calls that are made at the same time, one
is answered with it; calls of one reply are not taken for repeats of each other. The refusal is final for the identity
of the call; under another id it is looked at anew.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from handrail.errors import DumpError, InvalidReturnError, RunAbortedError
from handrail.errors.developer import mistakes_in
from handrail.limits import time_limit
from handrail.prompt import Tool, ToolResult
from handrail.prompt.idempotency import DAY, EffectKey
from handrail.prompt.signature import is_async, takes_context
from handrail.prompt.type_parameters import annotation_name
from handrail.redaction import redacted_logger
from handrail.runtime.call import CallState
from handrail.runtime.effect_keys import effect_key_of
from handrail.runtime.execution import ExecutionTimeoutError, run_to_end
from handrail.runtime.failures import CallRefusedError, FinalRefusal, describe_error
from handrail.runtime.ledger.claim import unknown_outcome
from handrail.runtime.ledger.effects import EffectResult, Finding, NotApplied, Unknown
from handrail.runtime.ledger.records import dump_result, same_arguments, started_params
from handrail.runtime.ledger.replays import drop_holder, is_in_use, is_result, take_unread
from handrail.runtime.ledger.states import key_expired
from handrail.runtime.steps import note_taint
from handrail.session import Session
from handrail.session.call_ref import CallRef
from handrail.session.relatives import UnopenedSession, sessions_above
from handrail.store.processes import RUNNING_HANDLERS
from handrail.store.protocol import UNTIL_APPLIED, EffectRow
from handrail.transaction import Transaction
from handrail.transaction.transaction import NestedCall

_CURE = "A reconciler returns what it finds; `apply` of the tool writes."
"""What a reconciler does instead of a write; the end of the message that refuses one."""

_log = redacted_logger("handrail.runtime")


async def repeated_effect(
    run: CallState, tool: Tool[Any, Any], slot: EffectKey, arguments: bytes | None
) -> EffectRow | None:
    """The effect that answers a call which repeats it; `None` if the call is a new one.

    Args:
        run: the call.
        tool: its tool.
        slot: the slot of the call.
        arguments: what is recorded of its arguments.

    Raises:
        FinalRefusal: it repeats a call whose outcome is unknown.
        DeveloperMistake: the reconciler requested an unbound resource, or returned what is not a result of the tool.
    """
    external = tool.external
    if external is None:
        return None
    repeats = external.repeat_unknown == "allow" or external.on_orphan == "retry"
    ledger = run.environment.effect_ledger
    session = run.environment.session
    rows = await run.mode.write_to(ledger.units, lambda: ledger.unresolved_slots(_outermost_id(session), tool.name))
    others = [row for row in rows if not (_is_meant(run, row) if row.status == "done" else repeats)]
    equal = [row for row in others if row[:2] != slot[:2] and _is_equal(row, slot, arguments, tool)]
    if not equal or not await run.mode.write_to(ledger.units, partial(_starts_handler, run, slot)):
        return None
    for row in equal:
        if row.status == "done":
            settled = row
        else:
            try:
                settled = await settle_unknown(run, tool, row)
            except CallRefusedError as error:
                if run.turn.caller is not None:
                    _note_at_caller(run.turn.caller, tool, row)
                raise FinalRefusal(str(error)) from error
        if await _take(run, settled):
            return settled
    return None


def _is_meant(run: CallState, row: EffectRow) -> bool:
    """Whether a done effect was meant beside that of a call: it is part of a call that runs, or of the same reply."""
    callers = () if run.turn.caller is None else tuple(run.turn.caller.chain())
    if row.owner.session_id == run.environment.session.session_id:
        asked = {run.ref.stored.outermost}
    else:  # that of an agent, which has a session of its own
        asked = {each.call.stored.outermost for each in callers if isinstance(each.call, CallRef)}
    other = row.owner.call.outermost
    is_same = other not in asked and other.reply is not None and other.reply in {each.reply for each in asked}
    return is_same or is_in_use(row)


async def _take(run: CallState, row: EffectRow) -> bool:
    """Have a call answered with an effect that is unread. Of calls that are made at the same time, one is."""
    ledger, ticket = run.environment.effect_ledger, run.turn.ticket
    if not run.shares_store:
        return row.is_unread  # which is marked at once
    if not take_unread(row, ticket):
        return False
    standing = await run.mode.write_to(ledger.units, partial(ledger.row, row.key, partition=row.partition))
    if standing is not None and standing.is_unread:
        return True
    drop_holder(row, ticket)
    return False


def _note_at_caller(caller: Transaction, tool: Tool[Any, Any], row: EffectRow) -> None:
    """Have the message of the call in whose handler an effect is refused say that it is unknown, if that call fails."""
    note = unknown_outcome(tool.name)
    caller.record_nested(row.effect_id, NestedCall(lambda: (note,), lambda: False))


def _starts_handler(run: CallState, slot: EffectKey) -> bool:
    """Whether the claim of a slot is granted: a slot that is unknown, running or done is answered from its row."""
    ledger = run.environment.effect_ledger
    own = ledger.row(slot.key, partition=slot.partition)
    return own is None or own.status == "failed" or key_expired(own, ledger.store.now())


def _is_equal(row: EffectRow, slot: EffectKey, arguments: bytes | None, tool: Tool[Any, Any]) -> bool:
    """Whether two calls are equal as written or as parsed: a default may be omitted, or a person may change arguments.

    For a tool that takes secrets, only the written arguments are compared: masked records look equal.
    """
    return row.params_hash == slot.params_hash or (
        not tool.masking.hides and same_arguments(row.arguments, arguments, tool)
    )


def _outermost_id(session: Session) -> str:
    """The id of the outermost session that a session works for and is named after; its own if there is none."""
    name = session.session_id
    for above in sessions_above(session):
        above_id = above.row.session_id if isinstance(above, UnopenedSession) else above.session_id
        if not name.startswith(f"{above_id}/"):
            break
        name = above_id
    return name


async def settle_at_once(run: CallState, tool: Tool[Any, Any]) -> EffectRow | None:
    """The effect of a call whose handler has ended in doubt, once it is settled; `None` while it is unknown.

    Raises:
        DeveloperMistake: as for `settle_unknown`.
    """
    ledger, key = run.environment.effect_ledger, await effect_key_of(run, tool)
    row = await run.mode.write_to(ledger.units, partial(ledger.row, key.key, partition=key.partition))
    if row is None or row.status != "unknown":
        return None
    try:
        return await settle_unknown(run, tool, row, at_once=True)
    except CallRefusedError:
        return None


async def settle_unknown(run: CallState, tool: Tool[Any, Any], row: EffectRow, *, at_once: bool = False) -> EffectRow:
    """Ask the reconciler about an unknown effect, and record what it says; returns the row, which is done or failed.

    Args:
        run: the call that asks.
        tool: the tool of the effect.
        row: the effect.
        at_once: whether the answer has only just been lost.

    Raises:
        CallRefusedError: the outcome stays unknown.
        DeveloperMistake: the reconciler requested an unbound resource, or returned what is not a result of the tool.
    """
    ledger = run.environment.effect_ledger
    # In another process, which has left the session, or left behind by its call in this one.
    if row.status == "running" and (row.claim in RUNNING_HANDLERS or ledger.store.owner_lives(row)):
        raise CallRefusedError(Unknown(row).message)
    runs = any(effect_id == row.effect_id for effect_id, _ in tuple(RUNNING_HANDLERS))
    finding: Finding = await _ask_reconciler(run, tool, row) or NotApplied("found out by its reconciler")
    proves = tool.external is not None and tool.external.reconcile_proves_absence
    if isinstance(finding, NotApplied) and (runs or (at_once and not proves)):
        raise CallRefusedError(Unknown(row).message)
    # What belongs to it is applied by a later call, which may fail.
    ttl = UNTIL_APPLIED if tool.apply is not None else DAY if tool.idempotency is None else tool.idempotency.ttl
    await run.mode.write_to(ledger.units, partial(ledger.resolve, row, finding, ttl=ttl))
    # Read again: another caller may have resolved it meanwhile.
    standing = await run.mode.write_to(ledger.units, partial(ledger.row, row.key, partition=row.partition))
    if standing is None:  # removed by force
        return row._replace(status="failed")
    if standing.status not in {"done", "failed"}:
        raise CallRefusedError(Unknown(standing).message)
    return standing


async def _ask_reconciler(run: CallState, tool: Tool[Any, Any], row: EffectRow) -> EffectResult | None:
    """The outcome of an unknown effect; `None` if it has not happened. Raises as `settle_unknown` does."""
    # The message quotes how the effect failed, in whatever session, and what a reconciler raises.
    note_taint(run, tool)
    reconcile: Any = tool.reconcile
    message = Unknown(row).message
    if reconcile is None:
        raise CallRefusedError(message)
    seconds, _ = time_limit(tool.timeout, run.environment.deadline)
    params = _params_of(row, run, tool, message)
    named = {"context": run.context()} if takes_context(reconcile) else {}
    # Never committed: a reconciler may only read, so there is nothing to keep.
    reading = Transaction(
        tool.name, ticket=run.turn.ticket, writes=False, parent=run.turn.outer, call=run.ref, cure=_CURE
    )
    try:
        with reading:
            asks = partial(reconcile, params, row.key, **named)
            answer: object = await run_to_end(run.mode, asks, is_async=is_async(reconcile), seconds=seconds)
    except ExecutionTimeoutError:
        raise CallRefusedError(f"{message} The reconciler took too long.") from None
    except RunAbortedError:
        raise
    except Exception as error:
        if mistakes_in(error):
            raise
        _log.exception("reconcile of %s failed", tool.name)
        raise CallRefusedError(f"{message} The reconciler failed: {describe_error(error)}") from error
    if answer is None:
        return None
    result = _checked(answer, tool)
    if not result.success:
        _log.warning(
            "reconcile of %s could not determine whether %s took effect: %s", tool.name, row.key, result.message
        )
        raise CallRefusedError(f"{message} The reconciler could not determine it either.")
    return dump_result(tool, result)


def _checked(found: object, tool: Tool[Any, Any]) -> ToolResult[Any]:
    """What a reconciler has returned, if it is a result of the tool; a result without a value is one of any tool.

    Raises:
        InvalidReturnError: it is not. A plain value is not a result: `False` might mean that nothing has happened.
    """
    if not is_result(found):
        fault: str | None = f"returned a value of type {type(found).__name__}, which is not a ToolResult"
    elif (fault := _fault_of(found, tool)) is None:
        return found
    raise InvalidReturnError(
        function="reconcile",
        tool=tool.name,
        returned=found,
        expected=(
            f"ToolResult.ok(value) with a value of {annotation_name(tool.result_type)} if the effect has happened, and "
            "None if it certainly has not; it raises if it does not know"
        ),
        fault=fault,
    )


def _fault_of(result: ToolResult[Any], tool: Tool[Any, Any]) -> str | None:
    """The fault of a result, as text. The ledger would record one whose value does not fit without that."""
    value: object = result.value
    # A failure may lack a value, whatever the type.
    fault = tool.fault_of(replace(result, success=False) if value is None and result.success is True else result)
    if fault is not None or value is None or tool.value_codec is None:
        return fault
    try:
        tool.value_codec.dump_json(value)
    except DumpError as error:
        # `apply` reads the value from the ledger; without it, only the model would.
        if error.is_mistyped or tool.apply is not None:
            return f"returned a value that cannot be recorded: {error}"
    return None


def _params_of(row: EffectRow, run: CallState, tool: Tool[Any, Any], message: str) -> object:
    """The parameters that an unknown effect started with; see `started_params`.

    Raises:
        CallRefusedError: they cannot be restored.
    """
    found = started_params(row.arguments, run.call, run.params, tool)
    if found is not None:
        return found[0]
    why = "the parameters that it started with cannot be restored from their record"
    _log.error("the reconciler of %s was not asked about %s: %s", tool.name, row.key, why)
    raise CallRefusedError(f"{message} The reconciler was not asked: {why}.")
