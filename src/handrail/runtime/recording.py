"""Step 12: one `ToolInvoked` for each call, whatever came of it; none yet for a call that will be made again."""

from __future__ import annotations

import logging
from typing import Any

from handrail.crash_points import reached
from handrail.errors import CallIdReusedError, CallPostponed, SessionBusyError
from handrail.prompt import ToolResult
from handrail.runtime.calls import ToolInvoked
from handrail.runtime.invocation import Invocation
from handrail.session.open_calls import note_postponed
from handrail.transaction import Transaction, current

_log = logging.getLogger("handrail.runtime")


def record(run: Invocation, result: ToolResult[Any]) -> None:
    """Append the event to the session's log, unless it was committed with the call, and tell who listens.

    The call is over: a reducer or subscriber that fails here is logged, and changes nothing of what came of the call.
    """
    if run.raises is not None and _is_unrecorded(run):
        return
    session = run.environment.session
    event = run.closed
    if event is None:
        event = run.event(result)
        session.log_call(event, run.ref, nested=run.place.outer is not None)
    reached("after-record")
    if not session.listens(ToolInvoked):
        return
    try:
        _announce(run, event)
    except Exception:  # noqa: BLE001 - logged, because the call is over
        _log.exception("%s was recorded, but who listens to it failed", run.call.name)


def _is_unrecorded(run: Invocation) -> bool:
    """Whether a call gets no record: it was postponed, or its identity stands for another call."""
    if isinstance(run.raises, CallPostponed):
        _note_postponed(run)
        return True
    return isinstance(run.raises, CallIdReusedError)


def _note_postponed(run: Invocation) -> None:
    """Have a stored session list the call among its open ones; it is not recorded, because it will be made again.

    A call made inside another is not listed: it is made again with the outer one.
    """
    session = run.environment.session
    if session.store is None or run.place.outer is not None:
        return
    try:
        note_postponed(session, run.ref, run.call.name, run.environment.clock.now())
    except Exception:  # noqa: BLE001 - logged; the caller is to learn that the call was postponed
        _log.exception("%s was postponed, and could not be listed among the open calls", run.call.name)


def _announce(run: Invocation, event: ToolInvoked) -> None:
    """Let reducers and subscribers hear of the call: in its turn, if it has come to it, and otherwise after it.

    In its turn they may write, in a transaction of their own; beside other calls, to the session alone. A call that has
    ended before it was first of its turn, or inside a call that has ended, gives up its place before; then reducers are
    told only if the session is free.
    """
    session, place = run.environment.session, run.place
    if place.is_first and place.ticket.runs and (place.outer is None or place.outer.is_open()):
        record_of = f"record {run.call.name}"
        with Transaction(record_of, ticket=place.ticket, writes=not place.shared, parent=place.outer) as transaction:
            transaction.open_for_results(session)
            session.announce(event)
            transaction.commit()
        return
    place.ticket.release()
    if current() is not None:
        session.dispatcher.dispatch(event)
        return
    try:
        session.announce(event)
    except SessionBusyError:
        session.dispatcher.dispatch(event)
