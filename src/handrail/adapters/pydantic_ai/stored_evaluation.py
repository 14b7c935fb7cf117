"""The stored conversation of an evaluation: started, resumed, returned, and exclusive for each prompt.

Only evaluations on a stored session have one. An evaluation inside a call has none: it is rolled back with that call,
so there is nothing to resume.

| the last evaluation of the prompt in the session | the new one |
|---|---|
| does not exist | starts a conversation |
| has no reply yet, and `unfinished="resume"` | resumes it; another user prompt is asked after the one that is stored |
| is unfinished, and `unfinished="resume"` | resumes it, if it has no user prompt or the same; else it is refused |
| is unfinished, and `unfinished="discard"` | starts a conversation |
| is finished, and `finished="return"` | returns the stored response, if it has no user prompt or the same |
| is finished, otherwise | starts a conversation |
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Literal, get_args

from handrail.adapters.pydantic_ai.conversation import StoredHistory, UserPrompt, one_at_a_time
from handrail.errors import PromptEvaluationError
from handrail.runtime.execution import ASYNC
from handrail.session import Session
from handrail.transaction import current

Unfinished = Literal["resume", "discard"]
"""How an unfinished conversation of the prompt is treated: it is resumed, or replaced by a new one."""

WhenFinished = Literal["repeat", "return"]
"""How a finished conversation of the prompt is treated: a new one is started, or its response is returned."""


@dataclass(frozen=True, slots=True)
class EarlierEvaluation:
    """How an evaluation treats the last one of its prompt in the session.

    Attributes:
        unfinished: if that one is unfinished.
        finished: if that one is finished.
    """

    unfinished: Unfinished = "resume"
    finished: WhenFinished = "repeat"

    def __post_init__(self) -> None:
        for name, words in (("unfinished", get_args(Unfinished)), ("finished", get_args(WhenFinished))):
            if (given := getattr(self, name)) not in words:
                raise ValueError(f"{name} is {given!r}; it is one of {', '.join(map(repr, words))}")


@asynccontextmanager
async def stored_conversation(
    session: Session, name: str, user_prompt: UserPrompt | None, earlier: EarlierEvaluation
) -> AsyncGenerator[StoredHistory | None]:
    """The conversation of an evaluation, for the block; `None` if it is not stored.

    A resumed or finished conversation has a history.

    Args:
        session: the session of the evaluation.
        name: the name of the prompt.
        user_prompt: the new user message.
        earlier: how the last conversation of the prompt is treated.

    Raises:
        PromptEvaluationError: the last conversation of the prompt has a reply and is unfinished, and there is another
            user message; or the prompt is being evaluated on this session.
        AgentError: the stored messages cannot be read.
        StoreError: the store cannot be read.
    """
    if session.store is None or current() is not None:
        yield None
        return
    with one_at_a_time(session, name, of="prompt"):
        # Loaded under the exclusion, or a run that has just ended could add messages after the load.
        load = partial(StoredHistory, session, name, of="prompt", is_held=True)
        conversation = await ASYNC.write_to(session.store, load)
        is_same = conversation.is_asked(user_prompt)
        if earlier.unfinished == "resume" and not (is_same or conversation.takes_input):
            raise PromptEvaluationError(
                f"the last evaluation of {name} in session {session.session_id!r} is unfinished. Resume it with the "
                "same user_prompt or without one: calls that have a final record are answered from it. Or start a new "
                "one with unfinished='discard'",
                phase="request",
            )
        returned = is_same and earlier.finished == "return"
        if not (earlier.unfinished == "resume" if conversation.unfinished else returned):
            conversation.begin_anew()
        yield conversation
