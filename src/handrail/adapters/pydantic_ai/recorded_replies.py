"""The replies of models as a plan records them, and the requests by which they are recognized.

A run that rehearses, or that executes a plan, has a guard (`handrail.runtime.guard.RunGuard`). It gets each
request as JSON, without what differs from run to run, and returns the reply: that of the model, which it records, or
the recorded one. Whatever the model is, it is not asked then.

| part of a request | is |
|---|---|
| `model` | provider, name and address of the model |
| `settings` | the settings of the request, such as the temperature |
| `tools` | what the model is offered, in order, with the schemas; tools of structured answers too |
| `answer` | how a structured answer is asked for |
| `instructions` | the instructions of the request |
| `messages` | what was sent so far, without the replies, and of the answers to calls the ids alone |
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from pydantic_ai import ModelRequest, ModelRequestContext, ModelResponse
from pydantic_ai.messages import ModelMessagesTypeAdapter
from pydantic_core import to_jsonable_python

from handrail.session.conversation import REPLY_KEY, ConversationPart, masked_part

if TYPE_CHECKING:
    from handrail.runtime.guard import RunGuard
    from handrail.session import Session

_OF_A_RUN: Final = frozenset({"timestamp", "run_id", "conversation_id", "metadata", "instructions"})
_TOOL_FIELDS: Final = ("name", "description", "parameters_json_schema", "strict", "kind", "sequential")


async def guarded_reply(
    guard: RunGuard, session: Session, context: ModelRequestContext, ask: Callable[[], Awaitable[ModelResponse]]
) -> tuple[ModelResponse, bool]:
    """The reply to a request of a guarded run, and whether it is a recorded one; recorded without secret arguments."""
    asked: list[ModelResponse] = []

    async def ask_model() -> Any:  # noqa: ANN401 - decoded JSON
        asked.append(await ask())
        # It is named anew when it is given again.
        metadata = {name: value for name, value in (asked[0].metadata or {}).items() if name != REPLY_KEY}
        plain = ModelMessagesTypeAdapter.dump_python([replace(asked[0], metadata=metadata)], mode="json")
        return masked_part(ConversationPart(tuple(plain)), session.call_masking).messages[0]

    message = await guard.reply(session, describe_request(context), ask_model)
    if asked:
        return asked[0], False
    (response,) = ModelMessagesTypeAdapter.validate_python([message])
    assert isinstance(response, ModelResponse)  # noqa: S101 - for the type checkers; `ask_model` has made it
    return response, True


def describe_request(context: ModelRequestContext) -> dict[str, Any]:
    """A request as JSON, in the parts that the table of this module has."""
    requests = [message for message in context.messages if isinstance(message, ModelRequest)]
    plain = ModelMessagesTypeAdapter.dump_python(list(requests), mode="json")
    return {**describe_parts(context), "messages": [_without_run(message) for message in plain]}


def describe_parts(context: ModelRequestContext) -> dict[str, Any]:
    """The parts of a request but for its messages."""
    model, parameters = context.model, context.model_request_parameters
    tools = [*parameters.function_tools, *parameters.output_tools, *parameters.native_tools]
    texts = (message.instructions for message in reversed(context.messages) if isinstance(message, ModelRequest))
    request = {
        "model": [model.system, model.model_name, getattr(model, "base_url", None)],
        "settings": context.model_settings,
        "tools": [{name: getattr(tool, name, None) for name in _TOOL_FIELDS} for tool in tools],
        "answer": [parameters.output_mode, parameters.allow_text_output, parameters.output_object],
        "instructions": next(filter(None, texts), None),
    }
    described: dict[str, Any] = to_jsonable_python(request, fallback=lambda value: type(value).__qualname__)
    return described


def _without_run(message: dict[str, Any]) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = message["parts"]
    return [
        {"tool_call_id": part["tool_call_id"]}
        if part.get("tool_call_id")
        else {name: value for name, value in part.items() if name not in _OF_A_RUN}
        for part in parts
    ]
