"""Effects whose outcome is unknown: detecting a call that repeats one, and reconciling it with the external system.

A model that reads that the outcome of a call is unknown often repeats it under another id. The slot of that id is free,
so only the arguments show that it is the same payment. Therefore the effects of equal calls of the session are checked
before the handler starts:

| an equal call of the session | the call |
|---|---|
| is unknown | is refused, or its reconciler determines one of the next two |
| has not happened | runs |
| has happened, as is determined now | is refused |
| has happened, as was determined before, in the same reply | is refused: the model could not know of it |
| has happened, as was determined before, in another reply | is refused, unless it was reported to the model |
| has recorded its own result | runs |

It was reported if the equal call itself was answered with a final record, or if another call was refused for
it. So a person who records what happened does not permit a second time: the conversation still says that the outcome is
unknown, and it is the next equal call that says otherwise, once.

A refusal is final for the identity of the call: a repeat after a crash is answered from the record. Under another id
the call is checked again. Therefore the finding is recorded only after the refusal: if the process dies in between, the
effect stays unknown and is reconciled again.

The reconciler of the tool asks the external system.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import Any, ClassVar

from handrail.errors import DumpError, InvalidReturnError, RunAbortedError
from handrail.errors.developer import mistakes_in
from handrail.limits import seconds_left
from handrail.prompt import Tool, ToolResult
from handrail.prompt.idempotency import DAY, EffectKey
from handrail.prompt.signature import is_async, takes_context
from handrail.prompt.type_parameters import annotation_name
from handrail.redaction import redacted_logger
from handrail.runtime.execution import ExecutionTimeoutError, run_to_end
from handrail.runtime.failures import CallRefusedError, FinalRefusal, describe_error
from handrail.runtime.invocation import Invocation
from handrail.runtime.ledger.claim import is_result
from handrail.runtime.ledger.effects import EffectResult, NotApplied, Unknown
from handrail.runtime.ledger.recorded_arguments import same_arguments, started_params
from handrail.runtime.ledger.recorded_results import dump_result
from handrail.runtime.ledger.states import key_expired
from handrail.runtime.steps import note_taint
from handrail.session import SlicePolicy, stored_as
from handrail.store.protocol import UNTIL_APPLIED, EffectRow
from handrail.transaction import Transaction

_CURE = "A reconciler returns what it finds; `apply` of the tool writes."
"""What a reconciler does instead of a write; the end of the message that refuses one."""

_LOOKED_UP = NotApplied("found out by its reconciler")

_log = redacted_logger("handrail.runtime")


@stored_as("handrail.repeat_refused")
@dataclass(frozen=True, slots=True)
class RepeatRefused:
    """A call was refused because an equal one had taken effect, which reports that. Its slice is a LOG.

    Attributes:
        effect_id: the effect that had happened.
    """

    slice_policy: ClassVar[SlicePolicy] = SlicePolicy.LOG
    survives_reset: ClassVar[bool] = True

    effect_id: str


async def refuse_repeat(
    run: Invocation,
    tool: Tool[Any, Any],
    slot: EffectKey,
    arguments: bytes | None,
    *,
    not_applied: EffectRow | None = None,
) -> None:
    """Refuse a call before its handler starts, if it repeats one that has happened or may have happened.

    Args:
        run: the call.
        tool: its tool.
        slot: the slot of the call.
        arguments: what is recorded of its arguments.
        not_applied: the row of the slot, if it was unknown and has been found not applied.

    Raises:
        FinalRefusal: it repeats such a call.
        DeveloperMistake: the reconciler requested an unbound resource, or returned what is not a result of the tool.
    """
    external = tool.external
    if external is None or external.repeat_unknown == "allow" or external.on_orphan == "retry":
        return
    ledger = run.environment.effect_ledger
    looked_up = partial(ledger.unresolved_slots, slot.partition, tool.name)
    rows = await run.mode.write_to(ledger.units, looked_up)
    equal = [row for row in rows if row.key != slot.key and _is_equal(row, slot, arguments, tool)]
    if not equal:
        return
    # An equal call may refuse this one, which is not reclaimed then: the finding about its own slot is recorded first.
    if not_applied is not None:
        await run.mode.write_to(ledger.units, partial(ledger.resolve, not_applied, _LOOKED_UP))
    elif not await run.mode.write_to(ledger.units, partial(_starts_handler, run, slot)):
        return
    for row in equal:
        await _refuse_if_happened(run, tool, row)


def _starts_handler(run: Invocation, slot: EffectKey) -> bool:
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


async def _refuse_if_happened(run: Invocation, tool: Tool[Any, Any], row: EffectRow) -> None:
    """Determine the outcome of an effect that a call repeats, and refuse the call unless the effect was not applied."""
    ledger = run.environment.effect_ledger
    if row.status == "done":
        if row.owner.reply == run.ref.reply:
            raise _happened(run, tool, row)
        if not await run.mode.write_to(ledger.units, partial(_is_reported, run, row)):
            raise _happened(run, tool, row)
        return
    try:
        found = await _found(run, tool, row)
    except CallRefusedError as error:
        raise FinalRefusal(str(error)) from error
    if found is not None:
        # Only once the refusal is recorded: if the process dies in between, the effect stays unknown and is reconciled
        # again.
        run.once_recorded = partial(ledger.resolve, row, found, ttl=DAY)
        raise _happened(run, tool, row)
    if await run.mode.write_to(ledger.units, partial(ledger.resolve, row, _LOOKED_UP)):
        return
    # Another caller has resolved it meanwhile.
    standing = await run.mode.write_to(ledger.units, partial(ledger.row, row.key, partition=row.partition))
    if standing is None or standing.status == "failed":
        return
    raise _happened(run, tool, standing) if standing.status == "done" else FinalRefusal(Unknown(standing).message)


def _is_reported(run: Invocation, row: EffectRow) -> bool:
    """Whether the model has read that an effect happened: from its own call, or from the refusal of an equal one."""
    session = run.environment.session
    record = session.recorded_call(row.owner.call)
    if record is not None and record.final:
        return True
    return any(each.effect_id == row.effect_id for each in reversed(session[RepeatRefused]))


def _happened(run: Invocation, tool: Tool[Any, Any], row: EffectRow) -> FinalRefusal:
    """The refusal of a call whose equal has happened. Its record says that this was reported."""
    session = run.environment.session
    run.with_record = partial(session.log_item, RepeatRefused, RepeatRefused(row.effect_id), written="deferred")
    return FinalRefusal(
        f"an earlier call of {tool.name} with the same arguments has taken effect, as was determined since. This "
        "one was not run. To do it once more, ask for it again."
    )


async def has_not_happened(run: Invocation, tool: Tool[Any, Any], row: EffectRow, *, ttl: timedelta | None) -> bool:
    """Determine whether an unknown effect happened; returns whether it certainly did not. The reconciler may only read.

    If it happened, that is recorded, with what the reconciler returned.

    Args:
        run: the call that asks.
        tool: the tool of the effect.
        row: the effect.
        ttl: how long the result is replayed; `None` for ever.

    Raises:
        CallRefusedError: the outcome stays unknown, or the reconciler cannot be asked.
        DeveloperMistake: the reconciler requested an unbound resource, or returned what is not a result of the tool.
    """
    found = await _found(run, tool, row)
    if found is None:
        return True
    ledger = run.environment.effect_ledger
    # What belongs to it is applied by the call that asks, which may fail.
    lasting = ttl if tool.apply is None else UNTIL_APPLIED
    await run.mode.write_to(ledger.units, partial(ledger.resolve, row, found, ttl=lasting))
    return False


async def _found(run: Invocation, tool: Tool[Any, Any], row: EffectRow) -> EffectResult | None:
    """The outcome of an unknown effect; `None` if it certainly has not happened. Raises as `has_not_happened` does."""
    # The message quotes how the effect failed, in whatever session, and what a reconciler raises.
    note_taint(run, tool)
    reconcile: Any = tool.reconcile
    message = Unknown(row).message
    if reconcile is None:
        raise CallRefusedError(message)
    seconds = seconds_left(run.environment.deadline)
    params = _params_of(row, run, tool, message)
    named = {"context": run.context()} if takes_context(reconcile) else {}
    # Never committed: a reconciler may only read, so there is nothing to keep.
    reading = Transaction(
        tool.name, ticket=run.turn.ticket, writes=False, parent=run.turn.outer, call=run.ref, cure=_CURE
    )
    try:
        with reading:
            asks = partial(reconcile, params, row.key, **named)
            found: object = await run_to_end(run.mode, asks, is_async=is_async(reconcile), seconds=seconds)
    except ExecutionTimeoutError:
        raise CallRefusedError(f"{message} The reconciler took too long.") from None
    except RunAbortedError:
        raise
    except Exception as error:
        if mistakes_in(error):
            raise
        _log.exception("reconcile of %s failed", tool.name)
        raise CallRefusedError(f"{message} The reconciler failed: {describe_error(error)}") from error
    if found is None:
        return None
    result = _checked(found, tool)
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


def _params_of(row: EffectRow, run: Invocation, tool: Tool[Any, Any], message: str) -> object:
    """The parameters that an unknown effect started with; see `started_params`.

    Raises:
        CallRefusedError: they cannot be restored.
    """
    found = started_params(row.arguments, run.call, run.params, tool)
    if found is not None:
        return found.params
    why = "the parameters that it started with cannot be restored from their record"
    _log.error("the reconciler of %s was not asked about %s: %s", tool.name, row.key, why)
    raise CallRefusedError(f"{message} The reconciler was not asked: {why}.")
