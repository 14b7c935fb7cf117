"""The effects of the sessions that a session was forked from: a call of the fork reads them, and never writes them.

| the effect of an origin, with the slot of the call or its key of the scope `session` | the call of the fork |
|---|---|
| is done | is answered with its result, and its message names the origin |
| is done, and the tool has yet to `apply` it | is refused, until the origin has applied it |
| is running or unknown | is refused, until it is settled in the origin |
| is unknown, and the tool has `on_orphan="retry"` | runs |
| has failed or expired, or is a slot with other arguments | runs |
| is of a `"state"` tool, and came after the fork: its changes are not in it | runs |

The nearest origin counts. What the fork itself has claimed counts before, and a fork with new keys has no origins.
"""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import Any

from handrail.prompt import Tool
from handrail.runtime.call import CallState
from handrail.runtime.failures import CallRefusedError, OutcomeUnknownError
from handrail.runtime.ledger import effects
from handrail.runtime.ledger.ledger import EffectLedger
from handrail.session import Session
from handrail.store.protocol import EffectRow, prove_owner


async def find_inherited(run: CallState, tool: Tool[Any, Any], request: effects.ClaimRequest) -> EffectRow | None:
    """The effect of an origin that answers a call of a fork; `None` if none does.

    Raises:
        OutcomeUnknownError: it is not settled, or not applied.
        CallRefusedError: its key belongs to a call with other arguments.
        StoreError: the ledger cannot be read.
    """
    ledger = run.environment.find_ledger()
    if not request.partition:  # all sessions share the key
        return None
    read = partial(_read, ledger, request, run.environment.session, tool.effect == "state")
    for row in await run.mode.write_to(ledger.units, read):
        is_same = request.replays_other_arguments or row.params_hash == request.params_hash
        if row.tool != tool.name or not is_same:
            if row.is_slot:
                continue
            raise CallRefusedError(effects.Conflict(row).message)
        if row.status == "done" and not (tool.apply is not None and row.is_kept_until_applied):
            return row
        is_orphan = row.status == "unknown" or effects.lease_expired(row, ledger.store.now())
        if not (is_orphan and tool.on_orphan == "retry"):
            raise unsettled_in_origin(run, row)
    return None


def _read(ledger: EffectLedger, request: effects.ClaimRequest, session: Session, is_state: bool) -> list[EffectRow]:  # noqa: FBT001
    now = ledger.store.now()
    own, *others = (ledger.row(request.key, partition=name) for name in (request.partition, *session.origins))
    if own is not None and _counts(own, now):
        return []
    rows = [prove_owner(ledger.store, row, now) for row in others if row is not None and _counts(row, now)]
    return [row for row in rows if not is_state or session.calls.find(row.owner.call.outermost) is not None]


def _counts(row: EffectRow, now: datetime) -> bool:
    return row.status != "failed" and not effects.key_expired(row, now)


def unsettled_in_origin(run: CallState, row: EffectRow) -> OutcomeUnknownError:
    """The refusal of a call whose effect an origin has perhaps done; only that session settles it."""
    run.record_taint()  # the message quotes how the effect failed
    where = f"It belongs to session {row.partition!r}, which this session was forked from, and is settled there."
    if row.status == "done":
        return OutcomeUnknownError(
            f"{row.tool} was done before, and what belongs to it has not been applied. It was not run again. {where}"
        )
    return OutcomeUnknownError(f"{effects.Unknown(row).message} {where}")


def origin_note(row: EffectRow) -> str:
    """The sentence about the effect of an origin, for the model."""
    return f"(This was done in session {row.partition!r}, which this session was forked from, and is not done again.)"
