"""The scripted model of the columns with PydanticAI, and how their tools have it try again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pydantic_ai import ModelMessage, ModelResponse, ModelRetry, TextPart, ToolCallPart, ToolReturnPart

from proof.desk import Answer, Desk


def reply(desk: Desk, messages: Sequence[ModelMessage]) -> ModelResponse:
    """The reply of the scripted model."""
    parts = [part for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]
    calls = desk.ask_model([Answer(part.tool_call_id, str(part.content)) for part in parts])
    return ModelResponse([ToolCallPart(c.name, c.arguments, tool_call_id=c.id) for c in calls] or [TextPart("done")])


def or_retry(call: Callable[..., str], *arguments: Any) -> str:
    """The answer of a call, or a request to the model to try again."""
    try:
        return call(*arguments)
    except Exception as error:
        raise ModelRetry(f"{type(error).__name__}: {error}") from error
