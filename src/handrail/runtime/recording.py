"""Step 12: one `ToolInvoked` for each call, whatever came of it."""

from __future__ import annotations

import logging
from typing import Any

from handrail.prompt import ToolResult
from handrail.runtime.events import ToolInvoked
from handrail.runtime.invocation import Invocation
from handrail.transaction import Transaction

_log = logging.getLogger("handrail.runtime")


def record(run: Invocation, result: ToolResult[Any]) -> None:
    """Append the event to the session's log, and tell who listens.

    The call is over: a reducer or subscriber that fails here is logged, and changes nothing of what came of the call.
    """
    environment = run.environment
    event = ToolInvoked.of(
        run.call,
        run.params,
        result,
        run.refused_at,
        run.handler_seconds,
        environment.clock.monotonic() - run.arrived,
        run.effect_key,
        run.replayed,
        environment.session.session_id,
        environment.run_context,
        environment.clock.now(),
    )
    session = environment.session
    if not session.listens(ToolInvoked):
        session.dispatch(event)
        return
    try:
        if run.place.is_first and run.place.ticket.runs:
            _dispatch_in_turn(run, event)
        else:
            session[ToolInvoked].append(event)
            session.dispatcher.dispatch(event)
    except Exception:  # noqa: BLE001 - logged, because the call is over
        _log.exception("%s was recorded, but who listens to it failed", run.call.name)


def _dispatch_in_turn(run: Invocation, event: ToolInvoked) -> None:
    """Let reducers and subscribers of the event write, in a transaction of their own within the call's turn."""
    place = run.place
    with Transaction(f"record {run.call.name}", ticket=place.ticket, writes=True, parent=place.outer) as transaction:
        run.environment.session.dispatch(event)
        transaction.commit()
