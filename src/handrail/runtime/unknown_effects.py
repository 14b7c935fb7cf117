"""Effects whose outcome is unknown: whether a call repeats one, and asking the other side whether it has happened.

A model that reads that the outcome of a call is unknown asks for it again, under another id. The slot of that id is
free, so nothing but the arguments says that it is the same payment. So before the handler is started, the effects of
equal calls of the session are looked at:

| an equal call of the session | the call |
|---|---|
| is unknown | is refused, or its reconciler finds out: one of the next two |
| has not happened | runs |
| has happened, as is found out now | is refused |
| has happened, as was found out before, in the same reply | is refused: the model could not have learned of it |
| has happened, as was found out before, in another reply | runs |
| has recorded its own result | runs |

A refusal is final for the identity of the call: asked again after a crash, it is answered from the record. Under
another id the call is looked at anew. So what is found out now is recorded only after the refusal is: a process that
dies in between leaves an effect that is unknown, and that is found out once more, and not one that a later reply has
learned of.

The other side is asked by a tool's reconciler.
"""

from __future__ import annotations

import logging
from datetime import timedelta
from functools import partial
from typing import Any

from handrail.errors import ParseError, RunAbortedError
from handrail.errors.developer import mistakes_in
from handrail.limits import seconds_left
from handrail.prompt import Tool
from handrail.prompt.idempotency import DAY, EffectKey
from handrail.prompt.signature import is_async, takes_context
from handrail.runtime.execution import ExecutionTimeoutError, run_to_end
from handrail.runtime.failures import CallRefusedError, FinalRefusal, describe_error
from handrail.runtime.invocation import Invocation
from handrail.runtime.ledger.claim import dump_result, is_result
from handrail.runtime.ledger.effects import EffectResult, NotApplied, Unknown
from handrail.runtime.ledger.recorded_arguments import is_record_of, read_arguments, recorded_arguments, same_arguments
from handrail.runtime.ledger.states import key_expired
from handrail.serde.json_schema import MASK
from handrail.store.protocol import EffectRow
from handrail.transaction import Transaction

_LOOKED_UP = NotApplied("found out by its reconciler")

_log = logging.getLogger("handrail.runtime")


async def refuse_repeat(
    run: Invocation,
    tool: Tool[Any, Any],
    slot: EffectKey,
    arguments: bytes | None,
    *,
    not_applied: EffectRow | None = None,
) -> None:
    """Refuse a call that is about to start its handler, if it repeats one that has happened or may have.

    Args:
        run: the call.
        tool: its tool.
        slot: the slot of the call.
        arguments: what is recorded of its arguments.
        not_applied: the row of the slot, if that was unknown and has been found not to have happened.

    Raises:
        FinalRefusal: it repeats such a call.
        DeveloperMistake: the reconciler asked for what is not there.
    """
    external = tool.external
    if external is None or external.repeat_unknown == "allow" or external.on_orphan == "retry":
        return
    ledger = run.environment.effect_ledger
    rows = ledger.unresolved_slots(slot.partition, tool.name, run.ref.reply)
    equal = [row for row in rows if row.key != slot.key and _is_equal(row, slot, arguments, tool)]
    if not equal:
        return
    if not_applied is not None:
        ledger.resolve(not_applied, _LOOKED_UP)
    elif not _starts_handler(run, slot):
        return
    for row in equal:
        await _refuse_if_happened(run, tool, row)


def _starts_handler(run: Invocation, slot: EffectKey) -> bool:
    """Whether the claim of a slot is granted: a slot that is unknown, running or done is answered by what it holds."""
    ledger = run.environment.effect_ledger
    own = ledger.row(slot.key, partition=slot.partition)
    return own is None or own.status == "failed" or key_expired(own, ledger.store.now())


def _is_equal(row: EffectRow, slot: EffectKey, arguments: bytes | None, tool: Tool[Any, Any]) -> bool:
    """Whether the words of two calls are equal, or their arguments: a default may be left out, or a person change them.

    Where the tool takes secrets, only the words are compared: two records that are masked look equal.
    """
    return row.params_hash == slot.params_hash or (not tool.masking.hides and same_arguments(row.arguments, arguments))


async def _refuse_if_happened(run: Invocation, tool: Tool[Any, Any], row: EffectRow) -> None:
    """Find out what became of an effect that a call repeats, and refuse the call unless it has not happened."""
    ledger = run.environment.effect_ledger
    if row.status == "done":
        raise _happened(tool)
    try:
        found = await _found(run, tool, row)
    except CallRefusedError as error:
        raise FinalRefusal(str(error)) from error
    if found is not None:
        run.once_recorded = partial(ledger.resolve, row, found, ttl=DAY)
        raise _happened(tool)
    if ledger.resolve(row, _LOOKED_UP):
        return
    standing = ledger.row(row.key, partition=row.partition)  # another has resolved it while the reconciler looked
    if standing is None or standing.status == "failed":
        return
    raise _happened(tool) if standing.status == "done" else FinalRefusal(Unknown(standing).message)


def _happened(tool: Tool[Any, Any]) -> FinalRefusal:
    return FinalRefusal(
        f"an earlier call of {tool.name} with the same arguments has taken effect, as has been found out since. This "
        "one was not run. If it is to be done once more, ask for it again."
    )


async def has_not_happened(run: Invocation, tool: Tool[Any, Any], row: EffectRow, *, ttl: timedelta | None) -> bool:
    """Find out whether an unknown effect happened; returns whether it surely did not. The reconciler may only read.

    That it happened is recorded, with what the reconciler returned.

    Args:
        run: the call that asks.
        tool: the tool of the effect.
        row: the effect.
        ttl: how long the result is replayed; `None` for ever.

    Raises:
        CallRefusedError: nobody can tell, or the reconciler cannot be asked.
        DeveloperMistake: the reconciler asked for what is not there.
    """
    found = await _found(run, tool, row)
    if found is None:
        return True
    run.environment.effect_ledger.resolve(row, found, ttl=ttl)
    return False


async def _found(run: Invocation, tool: Tool[Any, Any], row: EffectRow) -> EffectResult | None:
    """What came of an unknown effect; `None` if it surely has not happened. Raises as `has_not_happened` does."""
    reconcile: Any = tool.reconcile
    message = Unknown(row).message
    if reconcile is None:
        raise CallRefusedError(message)
    seconds = seconds_left(run.environment.deadline)
    params = _params_of(row, run, tool, message)
    named = {"context": run.context()} if takes_context(reconcile) else {}
    reading = Transaction(tool.name, ticket=run.turn.ticket, writes=False, parent=run.turn.outer, call=run.ref)
    try:
        with reading:
            asks = partial(reconcile, params, row.key, **named)
            found: object = await run_to_end(run.mode, asks, is_async=is_async(reconcile), seconds=seconds)
    except ExecutionTimeoutError:
        raise CallRefusedError(f"{message} Asking the other side took too long.") from None
    except RunAbortedError:
        raise
    except Exception as error:
        if mistakes_in(error):
            raise
        _log.exception("reconcile of %s failed", tool.name)
        raise CallRefusedError(f"{message} Asking the other side failed: {describe_error(error)}") from error
    if found is None:
        return None
    if not is_result(found) or not found.success:
        raise CallRefusedError(f"{message} The other side could not tell either.")
    return dump_result(tool, found)


def _params_of(row: EffectRow, run: Invocation, tool: Tool[Any, Any], message: str) -> object:
    """The parameters that an unknown effect was begun with; a person may have changed those of this call since.

    They are those of this call, or those that are made of the record, if they would be recorded as these were. What
    parsing does to its own result (a `__post_init__` that multiplies) makes other ones of the record. The effects of
    this call, and those that it repeats although they were not recorded, have equal words.

    Raises:
        CallRefusedError: neither are.
    """
    recorded = row.arguments
    if recorded is None or recorded_arguments(run.call, run.params, tool.masking) == recorded:
        return run.params
    if is_record_of(recorded, run.params, tool.masking):
        return run.params
    if not (tool.masking.hides and MASK.encode() in recorded):  # the mask would be taken for the secret
        try:
            params: object = tool.parse(read_arguments(recorded).arguments)
        except (ParseError, ValueError, TypeError):
            params = None
        if params is not None and is_record_of(recorded, params, tool.masking):
            return params
    why = "the parameters that it was begun with cannot be made again of what is recorded of them"
    _log.error("the reconciler of %s was not asked about %s: %s", tool.name, row.key, why)
    raise CallRefusedError(f"{message} The other side was not asked: {why}.")
