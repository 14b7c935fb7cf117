"""Asking the other side, by a tool's reconciler, whether an unknown effect has happened."""

from __future__ import annotations

import logging
from datetime import timedelta
from functools import partial
from typing import Any

from handrail.errors import DeveloperMistake, EndsRun, ParseError
from handrail.prompt import Tool
from handrail.prompt.signature import is_async, takes_context
from handrail.runtime.execution import OverranError, run_to_end
from handrail.runtime.failures import Refusal, told
from handrail.runtime.invocation import Invocation
from handrail.runtime.ledger.claim import is_result, to_store
from handrail.runtime.ledger.effects import Unknown
from handrail.runtime.ledger.recorded_arguments import is_record_of, read_arguments, recorded_arguments
from handrail.serde.json_schema import MASK
from handrail.store.protocol import EffectRow
from handrail.transaction import Transaction

_log = logging.getLogger("handrail.runtime")


async def has_not_happened(run: Invocation, tool: Tool[Any, Any], row: EffectRow, *, ttl: timedelta | None) -> bool:
    """Find out whether an unknown effect happened; returns whether it surely did not. The reconciler may only read.

    That it happened is recorded, with what the reconciler returned.

    Args:
        run: the call that asks.
        tool: the tool of the effect.
        row: the effect.
        ttl: how long the result is replayed; `None` for ever.

    Raises:
        Refusal: nobody can tell, or the reconciler cannot be asked.
        DeveloperMistake: the reconciler asked for what is not there.
    """
    reconcile: Any = tool.reconcile
    message = Unknown(row).message
    if reconcile is None:
        raise Refusal(message)
    deadline = run.environment.deadline
    seconds = None if deadline is None else deadline.remaining().total_seconds()
    params = _params_of(row, run, tool, message)
    named = {"context": run.context()} if takes_context(reconcile) else {}
    reading = Transaction(tool.name, ticket=run.place.ticket, writes=False, parent=run.place.outer, call=run.ref)
    try:
        with reading:
            asks = partial(reconcile, params, row.key, **named)
            found: object = await run_to_end(run.way, asks, is_async=is_async(reconcile), seconds=seconds)
    except OverranError:
        raise Refusal(f"{message} Asking the other side took too long.") from None
    except (EndsRun, DeveloperMistake):
        raise
    except Exception as error:
        _log.exception("reconcile of %s failed", tool.name)
        raise Refusal(f"{message} Asking the other side failed: {told(error)}") from error
    if found is None:
        return True
    if not is_result(found) or not found.success:
        raise Refusal(f"{message} The other side could not tell either.")
    run.environment.effect_ledger.resolve(row, to_store(tool, found), ttl=ttl)
    return False


def _params_of(row: EffectRow, run: Invocation, tool: Tool[Any, Any], message: str) -> object:
    """The parameters that an unknown effect was begun with; a person may have changed those of this call since.

    They are those of this call, or those that are made of the record, if they would be recorded as these were. What
    parsing does to its own result (a `__post_init__` that multiplies) makes other ones of the record. The effects of
    this call, and those that it repeats although they were not recorded, have equal words.

    Raises:
        Refusal: neither are.
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
    raise Refusal(f"{message} The other side was not asked: {why}.")
