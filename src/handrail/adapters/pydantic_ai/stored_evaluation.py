"""The stored conversation of an evaluation: started, stored reply by reply, resumed, and exclusive for each prompt.

Only evaluations on a stored session have one. An evaluation inside a call has none: it is rolled back with that call,
so there is nothing to resume.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Literal, get_args

from handrail.adapters.pydantic_ai.conversation import StoredHistory, one_at_a_time
from handrail.errors import PromptEvaluationError
from handrail.session import Session
from handrail.transaction import current

Unfinished = Literal["resume", "discard"]
"""How an unfinished conversation of the prompt is treated: it is resumed, or replaced by a new one."""


@contextmanager
def stored_conversation(
    session: Session, name: str, *, continues: bool, unfinished: Unfinished
) -> Generator[StoredHistory | None]:
    """The conversation of an evaluation, for the block; `None` if it is not stored.

    A resumed conversation has a history.

    Args:
        session: the session of the evaluation.
        name: the name of the prompt.
        continues: whether there is no new user message: only then is an unfinished conversation resumed.
        unfinished: how an unfinished one is treated.

    Raises:
        PromptEvaluationError: the last conversation of the prompt is unfinished, and there is a new user message; or
            the prompt is being evaluated on this session.
        AgentError: the stored messages cannot be read.
        StoreError: the store cannot be read.
    """
    if unfinished not in get_args(Unfinished):
        raise ValueError(f"unfinished is {unfinished!r}; it is one of {', '.join(map(repr, get_args(Unfinished)))}")
    if session.store is None or current() is not None:
        yield None
        return
    with one_at_a_time(session, name, of="prompt"):
        # Loaded under the exclusion, or a run that has just ended could add messages after the load.
        conversation = StoredHistory(session, name, of="prompt", is_held=True)
        if conversation.unfinished and unfinished == "resume":
            if not continues:
                raise PromptEvaluationError(
                    f"the last evaluation of {name} in session {session.session_id!r} is unfinished. Resume it by "
                    "leaving user_prompt out: calls that have a final record are answered from it. Or start a new "
                    "one with "
                    "unfinished='discard'",
                    phase="request",
                )
        else:
            conversation.begin_anew()
        yield conversation
