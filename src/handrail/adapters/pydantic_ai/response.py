"""What comes of the evaluation of a prompt."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, TypeVar

from pydantic_ai import ModelMessage

from handrail.limits import TokenUsage

Out_co = TypeVar("Out_co", covariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptResponse(Generic[Out_co]):
    """The model's answer to a prompt.

    Attributes:
        prompt_name: the name of the prompt.
        text: what the model said in its last reply; may be empty beside a structured answer.
        output: the answer as the prompt declares it: a dataclass, the text again for `str`, or `None`.
        usage: the tokens that all requests of the run took.
        messages: the whole conversation, as PydanticAI keeps it; hand it on as `message_history` to go on with it.
    """

    prompt_name: str
    text: str
    output: Out_co | None
    usage: TokenUsage
    messages: tuple[ModelMessage, ...] = field(repr=False)
