"""The stored conversation of an evaluation: started, stored reply by reply, resumed, and exclusive for each prompt.

Only evaluations on a stored session have one. An evaluation inside a call has none: it is rolled back with that call,
so there is nothing to resume.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from pydantic_ai import ModelRequestContext, ModelResponse, RunContext
from typing_extensions import override  # a dependency of pydantic; in `typing` since Python 3.12

from handrail.adapters.pydantic_ai.capability import HandrailCapability
from handrail.adapters.pydantic_ai.conversation import StoredHistory, one_at_a_time
from handrail.errors import PromptEvaluationError
from handrail.session import Session
from handrail.transaction import current

Unfinished = Literal["resume", "discard"]
"""How an unfinished conversation of the prompt is treated: it is resumed, or replaced by a new one."""


@dataclass
class NotedCapability(HandrailCapability):
    """A prompt's tools in an evaluation whose conversation is stored.

    Attributes:
        conversation: the conversation.
    """

    conversation: StoredHistory = field(kw_only=True)

    @override
    async def after_model_request(
        self, ctx: RunContext[Any], *, request_context: ModelRequestContext, response: ModelResponse
    ) -> ModelResponse:
        """Store a reply before any of its calls runs."""
        response = await super().after_model_request(ctx, request_context=request_context, response=response)
        # A copy of the list, because PydanticAI continues to append to its own. `ctx.messages` does not have the
        # response yet.
        self.conversation.note([*ctx.messages, response])
        return response


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
        conversation = StoredHistory(session, name, of="prompt")
        if conversation.unfinished and unfinished == "resume":
            if not continues:
                raise PromptEvaluationError(
                    f"the last evaluation of {name} in session {session.session_id!r} is unfinished. Resume it by "
                    "leaving user_prompt out: calls that have a final record are answered from it. Or start a new "
                    "one with "
                    "unfinished='discard'",
                    phase="request",
                )
            conversation.adopt_records()
        else:
            conversation.begin_anew()
        yield conversation
