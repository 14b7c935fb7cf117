"""What the model says, shown before its calls are run."""

from __future__ import annotations

from typing import Any

from pydantic_ai import ModelRequestContext, ModelResponse, RunContext, ToolCallPart
from pydantic_ai.capabilities import Hooks

from screen import Screen


def replies_shown(screen: Screen) -> Hooks[Any]:
    """Shows each reply of a run on a screen; a capability for the adapter."""
    replies = 0

    def listen(
        _context: RunContext[Any], /, *, request_context: ModelRequestContext, response: ModelResponse
    ) -> ModelResponse:
        nonlocal replies
        replies += 1
        calls = sum(isinstance(part, ToolCallPart) for part in response.parts)
        screen.replied(replies, " ".join((response.text or "").split()), calls)
        return response

    return Hooks[Any](after_model_request=listen)
