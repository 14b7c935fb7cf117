"""The stored conversation of an evaluation: begun, noted reply by reply, resumed, and never two of a prompt at once.

Only evaluations on a stored session have one. An evaluation inside a call has none: what it does is undone with that
call, so there is nothing to resume.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from pydantic_ai import ModelRequestContext, ModelResponse, RunContext
from typing_extensions import override  # pydantic brings it; `typing` has it from Python 3.12 on

from handrail.adapters.pydantic_ai.capability import HandrailCapability
from handrail.adapters.pydantic_ai.conversation import Conversation, one_at_a_time
from handrail.errors import PromptEvaluationError
from handrail.session import Session
from handrail.transaction import current

Unfinished = Literal["resume", "discard"]
"""What becomes of an unfinished conversation of the prompt: it is resumed, or another one takes its place."""


@dataclass
class NotedCapability(HandrailCapability):
    """A prompt's tools in an evaluation whose conversation is stored.

    Attributes:
        conversation: what was said.
    """

    conversation: Conversation = field(kw_only=True)

    @override
    async def after_model_request(
        self, ctx: RunContext[Any], *, request_context: ModelRequestContext, response: ModelResponse
    ) -> ModelResponse:
        """Store a reply before any of its calls is carried out."""
        response = await super().after_model_request(ctx, request_context=request_context, response=response)
        self.conversation.note([*ctx.messages, response])
        return response


@contextmanager
def stored_conversation(
    session: Session, name: str, *, continues: bool, unfinished: Unfinished
) -> Generator[Conversation | None]:
    """The conversation of an evaluation, for the block; `None` if it is not stored.

    It has a history if it is resumed.

    Args:
        session: the session of the evaluation.
        name: the name of the prompt.
        continues: whether nothing new is said to the model: only then is an unfinished conversation resumed.
        unfinished: what becomes of an unfinished one.

    Raises:
        PromptEvaluationError: the last conversation of the prompt is unfinished, and something new is to be said; or
            the prompt is being evaluated on this session.
        AgentError: what was said cannot be read.
        StoreError: the store cannot be read.
    """
    if unfinished not in get_args(Unfinished):
        raise ValueError(f"unfinished is {unfinished!r}; it is one of {', '.join(map(repr, get_args(Unfinished)))}")
    if session.store is None or current() is not None:
        yield None
        return
    with one_at_a_time(session, name, of="prompt"):
        conversation = Conversation(session, name, of="prompt")
        if conversation.unfinished and unfinished == "resume":
            if not continues:
                raise PromptEvaluationError(
                    f"the last evaluation of {name} in session {session.session_id!r} is unfinished. Resume it by "
                    "leaving user_prompt out: calls that have a final record are answered from it. Or begin anew with "
                    "unfinished='discard'",
                    phase="request",
                )
            conversation.adopt_records()
        else:
            conversation.begin_anew()
        yield conversation
