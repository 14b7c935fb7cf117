"""The session of an agent that another one calls: its own for each call, and found again when the call is resumed."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from functools import partial

from handrail.adapters.pydantic_ai.conversation import StoredHistory
from handrail.runtime.execution import ASYNC
from handrail.serde import canonical_json
from handrail.session import Session
from handrail.session.call_ref import CallRef
from handrail.taint.state import taint_by_answer


@contextmanager
def open_child_session(
    caller: Session, ref: CallRef, *, agent: str, input: str
) -> Generator[tuple[Session, StoredHistory]]:
    """The session in which an agent does what a call asks it to, with what was said there; closed after the block.

    If the agent has read untrusted content, the session of the call is tainted by the call.

    It is named after the identity of the call, so that a call that was interrupted finds it again. Versions before
    named it after the id alone; one of these is resumed if none has today's name.

    Args:
        caller: the session of the call.
        ref: the identity of the call; one without an id has no session that could be found again.
        agent: the agent that is called.
        input: the task that it is given.

    Raises:
        AgentError: what was said there cannot be read.
        SessionLockedError: another process has the session.
    """
    # Without an id the session could not be found again, so it gets a random name.
    name = f"{caller.session_id}/{ref.key}" if ref.call_id else None
    if name is not None and not _exists(caller, name):
        name = _name_of_before(caller, ref.call_id, agent, input) or name
    with caller.child(session_id=name) as session:
        try:
            yield session, StoredHistory(session, agent)
        finally:
            # An error of the agent is an answer, too: it may repeat what the agent has read.
            arguments = canonical_json({"input": input}).decode()
            taint_by_answer(caller, session, tool=agent, ref=ref, arguments=arguments)


@asynccontextmanager
async def child_session_entered(
    child: AbstractContextManager[tuple[Session, StoredHistory]], caller: Session
) -> AsyncGenerator[tuple[Session, StoredHistory]]:
    """What `open_child_session` returned, entered and left without holding the event loop.

    Raises:
        BaseException: as of `open_child_session`.
    """
    entered = await ASYNC.write_to(caller.store, child.__enter__)
    try:
        yield entered
    except BaseException as error:
        leave = partial(child.__exit__, type(error), error, error.__traceback__)
        if isinstance(error, GeneratorExit):  # its loop was closed: nothing can be awaited any more
            leave()
        else:
            await ASYNC.write_to(caller.store, leave)
        raise
    await ASYNC.write_to(caller.store, partial(child.__exit__, None, None, None))


def _name_of_before(caller: Session, call_id: str, agent: str, input: str) -> str | None:
    """The session of the call in a version that named it after the id of the call; `None` if there is none.

    One in which another task was given belongs to another call of the same id, and was passed over.
    """
    number = 1
    # Numbers were counted up without gaps, so the first missing one ends the search.
    while _exists(caller, name := f"{caller.session_id}/{call_id}{'' if number == 1 else f'_{number}'}"):
        with caller.child(session_id=name) as session:
            if StoredHistory(session, agent).user_prompt in {None, input}:
                return name
        number += 1
    return None


def _exists(caller: Session, session_id: str) -> bool:
    return caller.store is not None and caller.store.find(session_id) is not None
