"""The session of an agent that another one calls: its own for each call, and found again when the call is resumed."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial

from handrail.adapters.pydantic_ai.conversation import StoredHistory
from handrail.runtime.execution import ASYNC
from handrail.serde import canonical_json
from handrail.session import Session
from handrail.session.call_ref import CallRef
from handrail.taint.state import taint_by_answer


@asynccontextmanager
async def open_child_session(
    caller: Session, ref: CallRef, *, agent: str, input: str
) -> AsyncGenerator[tuple[Session, StoredHistory]]:
    """The session in which an agent does what a call asks it to, with what was said there; closed after the block.

    If the agent has read untrusted content, the session of the call is tainted by the call.

    It is named after the identity of the call, so that a call that was interrupted finds it again.

    Args:
        caller: the session of the call.
        ref: the identity of the call; one without an id has no session that could be found again.
        agent: the agent that is called.
        input: the task that it is given.

    Raises:
        AgentError: what was said there cannot be read.
        SessionLockedError: another process has the session.
        CancelledError: the task was cancelled; a session that is opened after that is closed again.
    """
    name = f"{caller.session_id}/{ref.key}" if ref.call_id else None
    async with await caller.child_async(session_id=name) as session:
        # An error of the agent is an answer, too: it may repeat what the agent has read.
        arguments = canonical_json({"input": input}).decode()
        answered = partial(taint_by_answer, caller, session, tool=agent, ref=ref, arguments=arguments)
        try:
            yield session, await ASYNC.write_to(session.store, partial(StoredHistory, session, agent))
        finally:
            # A coroutine that is closed with its loop cannot await anything.
            if isinstance(sys.exception(), GeneratorExit):
                answered()
            else:
                await ASYNC.write_to(caller.store, answered)
