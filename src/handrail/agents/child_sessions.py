"""The session of an agent that another one calls: its own for each call, and found again when the call is resumed."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from pydantic_ai import ModelRequest, UserPromptPart

from handrail.agents.conversation import Conversation
from handrail.session import Session


@contextmanager
def session_of_call(
    caller: Session, call_id: str | None, *, agent: str, input: str
) -> Generator[tuple[Session, Conversation]]:
    """The session in which an agent does what a call asks it to, with what was said there; closed after the block.

    It is named after the call, so that a call that was interrupted finds it again. One in which another task was given
    belongs to another call of the same id, and is passed over.

    Args:
        caller: the session of the call.
        call_id: the id of the call.
        agent: the agent that is called.
        input: the task that it is given.

    Raises:
        AgentError: what was said there cannot be read.
        SessionHeldError: another process has the session.
    """
    number = 1
    while True:
        tail = "" if number == 1 else f"_{number}"
        with caller.child(session_id=f"{caller.session_id}/{call_id}{tail}" if call_id else None) as session:
            conversation = Conversation(session, agent)
            if _task(conversation) in (None, input):
                yield session, conversation
                return
        number += 1


def _task(conversation: Conversation) -> str | None:
    """What the agent was asked in the first place; `None` if nothing was said yet."""
    if not conversation.history:
        return None
    first = conversation.history[0]
    parts = first.parts if isinstance(first, ModelRequest) else ()
    return next((str(part.content) for part in parts if isinstance(part, UserPromptPart)), "")
