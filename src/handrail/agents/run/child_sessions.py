"""The session of an agent that another one calls: its own for each call, and found again when the call is resumed."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial

from handrail.adapters.pydantic_ai.conversation import StoredHistory
from handrail.errors import AgentError, CallPostponed, PromptEvaluationError, RunAbortedError
from handrail.errors.developer import mistakes_in
from handrail.runtime.execution import ASYNC
from handrail.runtime.failures import describe_error
from handrail.runtime.unknown_effects import report_above
from handrail.serde import canonical_json
from handrail.session import Session
from handrail.session.call_ref import CallRef
from handrail.store.protocol import LedgerStore
from handrail.taint.state import taint_by_answer


@asynccontextmanager
async def open_child_session(
    caller: Session, ref: CallRef, *, agent: str, input: str, effects: LedgerStore
) -> AsyncGenerator[tuple[Session, StoredHistory]]:
    """The session in which an agent does what a call asks it to, with what was said there; closed after the block.

    If the agent has read untrusted content, the session of the call is tainted by the call. A failure of the agent is a
    result for the caller, and names the effects from before it was resumed; exceeded limits and tools end both.

    It is named after the identity of the call, so that a call that was interrupted finds it again.

    Args:
        caller: the session of the call.
        ref: the identity of the call; one without an id has no session that could be found again.
        agent: the agent that is called.
        input: the task that it is given.
        effects: where the effects of the agent are recorded.

    Raises:
        AgentError: the agent has failed, or what was said there cannot be read.
        SessionLockedError: another process has the session.
        CancelledError: the task was cancelled; a session that is opened after that is closed again.
    """
    name = f"{caller.session_id}/{ref.key}" if ref.call_id else None
    async with await caller.child_async(session_id=name) as session:
        # An error of the agent is an answer, too: it may repeat what the agent has read.
        arguments = canonical_json({"input": input}).decode()
        answered = partial(taint_by_answer, caller, session, tool=agent, ref=ref, arguments=arguments)
        resumed = False
        try:
            history = await ASYNC.write_to(session.store, partial(StoredHistory, session, agent))
            resumed = bool(history.history)
            yield session, history
        except Exception as error:
            stopped = isinstance(error, PromptEvaluationError) and error.phase in {"request", "response"}
            if not stopped and (isinstance(error, RunAbortedError | CallPostponed) or mistakes_in(error)):
                raise
            # The message of the call itself names the effects of calls that were made inside it, in this process.
            read = partial(_effects_that_stay, effects, session.session_id)
            stay = await ASYNC.write_to(effects, read) if resumed else ""
            if not stopped and not stay:
                raise
            # First, because a long text of a provider is cut.
            raise AgentError(f"{stay} It was ended by {describe_error(error)}" if stay else str(error)) from error
        else:
            await ASYNC.write_to(caller.store, partial(report_above, caller, session))
        finally:
            # A coroutine that is closed with its loop cannot await anything.
            if isinstance(sys.exception(), GeneratorExit):
                answered()
            else:
                await ASYNC.write_to(caller.store, answered)


def _effects_that_stay(effects: LedgerStore, session_id: str) -> str:
    """Sentences for the model of the caller about effects of a session, and of those below it; empty without any."""
    rows = effects.effects_below(session_id)
    recorded = {row.tool: "was done, and is recorded" for row in rows if row.status == "done"}
    in_doubt = {row.tool: "may have happened" for row in rows if row.status in {"running", "unknown"}}
    sentences = [f"{tool} {words}" for each in (recorded, in_doubt) for tool, words in each.items()]
    return (
        f"{'; '.join(sentences)}. Do not ask for it again: another call could do it a second time." if sentences else ""
    )
