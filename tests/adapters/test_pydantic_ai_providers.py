"""The PydanticAI door with the real SDKs of OpenAI and Anthropic, over a transport that answers from a list."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx2
import pytest
from pydantic_ai.models import Model
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

from handrail.adapters.pydantic_ai import PydanticAIAdapter
from handrail.adapters.pydantic_ai.adapter import BEGIN
from handrail.errors import PromptEvaluationError
from handrail.runtime import Session, ToolInvoked
from tests.adapters.notes import ADD_NOTE, noted, notes_prompt
from tests.wording import Wording

Arguments = list[tuple[str, str, str]]
"""Id, name and arguments of each call that a provider asks for."""


@dataclass
class Wire:
    """A provider's end of the wire: what it was sent, and what it answers next."""

    answers: list[httpx2.Response]
    requests: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    def client(self) -> httpx2.AsyncClient:
        """A client that talks to this end."""
        return httpx2.AsyncClient(transport=httpx2.MockTransport(self.answer))

    def answer(self, request: httpx2.Request) -> httpx2.Response:
        """Take a request down, and answer it."""
        self.requests.append(json.loads(request.content))
        return self.answers.pop(0)


def chat_reply(message: dict[str, Any]) -> httpx2.Response:
    """A reply of OpenAI's Chat Completions."""
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 10, "completion_tokens": 3, "total_tokens": 13}
    body = {"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage}
    return httpx2.Response(200, json=body)


def chat(calls: Arguments) -> tuple[Model, Wire]:
    """OpenAI's Chat Completions."""
    tool_calls = [
        {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
        for call_id, name, arguments in calls
    ]
    wire = Wire([chat_reply({"content": None, "tool_calls": tool_calls}), chat_reply({"content": "Done."})])
    provider = OpenAIProvider(api_key="none", http_client=wire.client())
    return OpenAIChatModel("gpt-5.2", provider=provider), wire


def responses_reply(output: list[dict[str, Any]]) -> httpx2.Response:
    """A reply of OpenAI's Responses."""
    details = {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    usage = {"input_tokens": 10, "output_tokens": 3, "total_tokens": 13, **details}
    body = {"id": "r", "object": "response", "created_at": 1, "status": "completed", "model": "m", "output": output}
    return httpx2.Response(
        200, json={**body, "parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "usage": usage}
    )


def responses(calls: Arguments) -> tuple[Model, Wire]:
    """OpenAI's Responses."""
    output = [
        {"type": "function_call", "id": f"fc_{call_id}", "call_id": call_id, "name": name, "arguments": arguments}
        for call_id, name, arguments in calls
    ]
    text: dict[str, Any] = {"type": "output_text", "text": "Done.", "annotations": []}
    message = {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": [text]}
    wire = Wire([responses_reply(output), responses_reply([message])])
    provider = OpenAIProvider(api_key="none", http_client=wire.client())
    return OpenAIResponsesModel("gpt-5.2", provider=provider), wire


def anthropic_reply(content: list[dict[str, Any]]) -> httpx2.Response:
    """A reply of Anthropic's Messages."""
    usage = {"input_tokens": 10, "output_tokens": 3}
    body = {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": content, "usage": usage}
    return httpx2.Response(200, json={**body, "stop_reason": "end_turn", "stop_sequence": None})


def anthropic(calls: Arguments) -> tuple[Model, Wire]:
    """Anthropic's Messages, whose arguments are objects; text that is none cannot come over this wire."""
    content = [
        {"type": "tool_use", "id": call_id, "name": name, "input": json.loads(arguments)}
        for call_id, name, arguments in calls
    ]
    wire = Wire([anthropic_reply(content), anthropic_reply([{"type": "text", "text": "Done."}])])
    provider = AnthropicProvider(api_key="none", http_client=wire.client())
    return AnthropicModel("claude-sonnet-4-6", provider=provider, settings={"max_tokens": 1000}), wire


DOORS = {"chat": chat, "responses": responses, "anthropic": anthropic}


@pytest.mark.parametrize("door", DOORS.values(), ids=DOORS)
def test_a_prompt_runs_on_a_real_provider(door: Callable[[Arguments], tuple[Model, Wire]], wording: Wording) -> None:
    """Instructions, tools and what came of the calls go over the wire; ids and arguments come back from it."""
    session = Session()
    calls = [("a", "add_note", '{"text": "milk"}'), ("b", "add_note", '{"text": 7}'), ("c", "add_notes", "{}")]
    model, wire = door(calls)
    response = PydanticAIAdapter(model).evaluate(notes_prompt(tools=(ADD_NOTE,)), session=session)
    assert (response.text, response.usage.total, noted(session)) == ("Done.", 26, ["milk"])
    kept, unfit, unknown = session[ToolInvoked].all()
    assert [(event.call_id, event.success) for event in (kept, unfit, unknown)] == [
        ("a", True),
        ("b", False),
        ("c", False),
    ]
    first, second = (json.dumps(request) for request in wire.requests)
    for told in ("Keep notes.", BEGIN, "Keep a note.", '\\"buy milk\\"', '"additionalProperties": false'):
        assert told in first
    for told in ("noted: milk", unfit.result.message, unknown.result.message):
        assert told.splitlines()[0] in second
    assert [unfit.result.message, unknown.result.message] == [wording, wording]


@pytest.mark.parametrize("door", [chat, responses])
def test_malformed_arguments_come_back_from_a_real_provider(
    door: Callable[[Arguments], tuple[Model, Wire]], wording: Wording
) -> None:
    """The model is told, and can send them again; the history with the malformed text is sent without a fault."""
    session = Session()
    model, wire = door([("a", "add_note", '{"text": ')])
    PydanticAIAdapter(model).evaluate(notes_prompt(tools=(ADD_NOTE,)), session=session)
    (event,) = session[ToolInvoked].all()
    assert (event.success, event.call.arguments) == (False, '{"text": ')
    assert event.result.message == wording
    assert event.result.message.splitlines()[0] in json.dumps(wire.requests[1])


def test_a_provider_that_refuses_stops_the_evaluation(wording: Wording) -> None:
    """The phase is the request, and the cause is PydanticAI's error with the provider's answer."""
    wire = Wire([httpx2.Response(400, json={"error": {"message": "no such model"}})])
    model = OpenAIChatModel("gpt-5.2", provider=OpenAIProvider(api_key="none", http_client=wire.client()))
    with pytest.raises(PromptEvaluationError) as caught:
        PydanticAIAdapter(model).evaluate(notes_prompt(), session=Session())
    assert str(caught.value) == wording
    assert caught.value.phase == "request"
