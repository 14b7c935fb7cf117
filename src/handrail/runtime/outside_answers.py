"""The records of calls that waited, and that the program has answered itself: no handler of theirs runs any more.

Such a call is closed by a final record, as any other that has come to its end: it is no longer open, nobody is asked
about it, and a repeat of it is answered from the record. Only a stored session lists calls that wait.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from handrail.errors import SessionBusyError
from handrail.prompt import ToolResult
from handrail.redaction import redacted, redacted_logger
from handrail.runtime.calls import Step, ToolInvoked
from handrail.runtime.environment import Environment
from handrail.runtime.execution import ExecutionMode
from handrail.session import Session
from handrail.session.call_masking import masked_call
from handrail.session.call_ref import CallRef, ToolCall
from handrail.session.postponed_calls import PostponedCall, last_postponed, own_items
from handrail.transaction import current

_log = redacted_logger("handrail.runtime")


def calls_that_wait(session: Session) -> Iterator[PostponedCall]:
    """The calls of a session that were postponed, and have no final record.

    Raises:
        StoreError: the store cannot be read.
    """
    items: list[PostponedCall] = own_items(session[PostponedCall].all(), session.session_id)
    for ref, item in last_postponed(items).items():
        record = session.recorded_call(ref)
        if record is None or not record.final:
            yield item


async def record_outside_answer(
    environment: Environment, mode: ExecutionMode, ref: CallRef, call: ToolCall, result: ToolResult[Any]
) -> None:
    """Record a call that waited with the answer of the program. Within a call nothing is done: it may be undone.

    A reducer or subscriber that fails is logged.

    Args:
        environment: the run.
        mode: how to wait for the store.
        ref: the identity of the call.
        call: the call, as the model wrote it.
        result: what the model reads; for a refusal, why.

    Raises:
        SessionError: the session is closed.
    """
    session = environment.session
    if current() is not None:
        return
    for masking in session.call_masking.of(call.name):
        call = masked_call(call, masking)
    event = ToolInvoked(
        call=call,
        params=None,
        result=replace(result, message=redacted(result.message)),
        refused_at=None if result.success else Step.APPROVAL,
        handler_seconds=None,
        total_seconds=0.0,
        effect_key=None,
        replayed=False,
        session_id=session.session_id,
        run_context=environment.run_context,
        at=environment.clock.now(),
        reply=ref.reply,
    )
    await mode.write_to(session.store, partial(session.log_event, event, ref))
    if not session.listens(ToolInvoked):
        return
    try:
        session.announce(event)
    except SessionBusyError:  # another call holds it: subscribers are notified, and reducers are not
        session.dispatcher.dispatch(event)
    except Exception:  # noqa: BLE001 - logged, because the call is over
        _log.exception("%s was recorded, but a reducer or subscriber failed", call.name)
