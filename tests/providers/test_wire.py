"""The providers of the tests refuse what the real ones refuse, so that a conversation they have taken is valid."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.providers.chat import Chat
from tests.providers.messages import Messages
from tests.providers.responses import Responses
from tests.providers.wire import SCRIPT, Api, Json, Provider

SCHEMA: Json = {"type": "object", "properties": {}}
KEY = {"authorization": "Bearer none", "anthropic-version": "2026-10-21"}


Cases = dict[str, tuple[Callable[[Json], object], str | None]]
"""Changes of a valid request, and what the answer says; `None` if the request is valid all the same."""


def chat_request(reply: Json | None) -> Json:
    """The first request, or the second, which answers the calls of a reply."""
    tools = [{"type": "function", "function": {"name": "pay", "description": "Pays.", "parameters": SCHEMA}}]
    messages: list[Json] = [{"role": "developer", "content": "Pay."}, {"role": "user", "content": "A-17"}]
    if reply is not None:
        message = reply["choices"][0]["message"]
        answers = [{"role": "tool", "tool_call_id": call["id"], "content": "ok"} for call in message["tool_calls"]]
        messages += [message, *answers]
    return {"model": "m", "messages": messages, "tools": tools}


def responses_request(reply: Json | None) -> Json:
    """As `chat_request`."""
    tools = [{"type": "function", "name": "pay", "description": "Pays.", "parameters": SCHEMA, "strict": False}]
    items: list[Json] = [{"role": "user", "content": "A-17"}]
    if reply is not None:
        calls = [item["call_id"] for item in reply["output"] if item["type"] == "function_call"]
        answers = [{"type": "function_call_output", "call_id": call, "output": "ok"} for call in calls]
        items += [*reply["output"], *answers]
    return {"model": "m", "instructions": "Pay.", "input": items, "tools": tools}


def messages_request(reply: Json | None) -> Json:
    """As `chat_request`."""
    tools = [{"name": "pay", "description": "Pays.", "input_schema": SCHEMA}]
    messages: list[Json] = [{"role": "user", "content": "A-17"}]
    if reply is not None:
        calls = [block["id"] for block in reply["content"] if block["type"] == "tool_use"]
        results = [{"type": "tool_result", "tool_use_id": call, "content": "ok", "is_error": False} for call in calls]
        messages += [{"role": "assistant", "content": reply["content"]}, {"role": "user", "content": results}]
    return {"model": "m", "max_tokens": 5, "system": "Pay.", "messages": messages, "tools": tools}


WAIT, TEXT = {"role": "user", "content": "Wait."}, {"type": "text", "text": "Here."}
PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aW1hZ2U="}}
INPUT = {"type": "input_image", "image_url": "data:image/png;base64,aW1hZ2U="}
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aW1hZ2U="}}
CHAT: Cases = {
    "valid": (lambda body: body, None),
    "a new field in the reply": (lambda body: body["messages"][2].update(later=1), None),
    "an unknown parameter": (lambda body: body.update(question=1), "Unknown parameter: 'question'"),
    "no model": (lambda body: body.pop("model"), "Missing required parameter: 'model'"),
    "an unknown role": (lambda body: body["messages"][1].update(role="person"), "Invalid value: 'person'"),
    "a call without an answer": (lambda body: body["messages"].pop(), "have no answer: call_1_1"),
    "two answers": (lambda body: body["messages"].append(body["messages"][3]), "two answers"),
    "an answer first": (lambda body: body["messages"].insert(0, body["messages"].pop()), "must be a response"),
    "something between": (lambda body: body["messages"].insert(3, WAIT), "have no answer: call_1_0, call_1_1"),
    "a changed reply": (lambda body: body["messages"][2].update(content="x"), "not what the model has sent"),
    "the model's word last": (lambda body: body["messages"].append(said(body)), "The last message is the model's"),
    "what the SDK adds": (lambda body: body["messages"][2]["tool_calls"][0].update(index=0), "Unknown parameter"),
    "an answer that is no text": (lambda body: body["messages"][3].update(content=[PICTURE]), "Invalid type"),
    "a picture for the model": (lambda body: body["messages"].append({**WAIT, "content": [PICTURE]}), None),
    "a part of another API": (lambda body: body["messages"].append({**WAIT, "content": [INPUT]}), "Invalid content"),
    "no schema": (lambda body: body["tools"][0]["function"].pop("parameters"), "Invalid schema"),
    "two tools of a name": (lambda body: body["tools"].append(body["tools"][0]), "must be unique"),
    "an invalid name": (lambda body: body["tools"][0]["function"].update(name="pay it"), "Invalid name"),
    "the form of another API": (lambda body: body["tools"][0].update(name="pay"), "Unknown parameter"),
}

RESPONSES: Cases = {
    "valid": (lambda body: body, None),
    "a new field in the reply": (lambda body: body["input"][1].update(later=1), None),
    "an unknown parameter": (lambda body: body.update(messages=[]), "Unknown parameter: 'messages'"),
    "a call without an answer": (lambda body: body["input"].pop(), "have no answer: call_1_1"),
    "two answers": (lambda body: body["input"].append(body["input"][-1]), "two answers"),
    "an answer first": (lambda body: body["input"].insert(0, body["input"].pop()), "belong to no call"),
    "an item of another reply": (lambda body: body["input"][2].update(id="msg_9"), "was not found"),
    "a changed item": (lambda body: body["input"][3].update(arguments="{}"), "not what the model has sent"),
    "what the SDK adds": (lambda body: body["input"][3].update(parsed_arguments={}), "Unknown parameter"),
    "a picture as an answer": (lambda body: body["input"][-1].update(output=[INPUT]), None),
    "a part of another API": (lambda body: body["input"][-1].update(output=[PICTURE]), "Invalid output"),
    "reasoning left out": (lambda body: body["input"].pop(1), "without its required 'reasoning' item: 'rs_1'"),
    "a role of another API": (lambda body: body["input"][-1].update(role="tool"), "Unknown parameter"),
    "no strict": (lambda body: body["tools"][0].pop("strict"), "Missing required parameter: 'strict'"),
    "no schema": (lambda body: body["tools"][0].pop("parameters"), "Invalid schema"),
}

MESSAGES: Cases = {
    "valid": (lambda body: body, None),
    "an unknown parameter": (lambda body: body.update(temperature=1), "Unknown parameter: 'temperature'"),
    "no limit": (lambda body: body.pop("max_tokens"), "Missing required parameter: 'max_tokens'"),
    "the model first": (lambda body: body["messages"].pop(0), "first message must use"),
    "a call without an answer": (lambda body: body["messages"][2]["content"].pop(), "have no answer: toolu_1_1"),
    "answers in two messages": (lambda body: body["messages"].append(rest(body)), "have no answer: toolu_1_1"),
    "text before the answers": (lambda body: body["messages"][2]["content"].insert(0, TEXT), "must come first"),
    "a picture as an answer": (lambda body: body["messages"][2]["content"][0].update(content=[IMAGE]), None),
    "a part of another API": (
        lambda body: body["messages"][2]["content"][0].update(content=[INPUT]),
        "is not expected",
    ),
    "the model's word last": (lambda body: body["messages"].pop(), "prefill"),
    "no answers": (lambda body: body["messages"][2].update(content=[]), "must have non-empty content"),
    "the reply as it came": (lambda body: body["messages"][1].update(id="msg_1"), "Unknown parameter"),
    "an unknown block": (lambda body: body["messages"][1]["content"][0].update(type="x"), "is not expected"),
    "a role of another API": (lambda body: body["messages"][2].update(role="tool"), "'user' or 'assistant'"),
    "no schema": (lambda body: body["tools"][0].pop("input_schema"), "Invalid schema"),
}


def said(body: Json) -> Json:
    """A last word of the model."""
    return {"role": "assistant", "content": f"{len(body['messages'])} messages"}


def rest(body: Json) -> Json:
    """The last answer, which is taken out of its message."""
    return {"role": "user", "content": [body["messages"][2]["content"].pop()]}


def posted(provider: Provider, body: Any, headers: dict[str, str] | None = None) -> tuple[int, Json]:
    """What a request is answered."""
    return provider.respond(provider.apis[0].path, KEY if headers is None else headers, json.dumps(body).encode())


Request = Callable[[Json | None], Json]
APIS: list[tuple[Api, Request, Cases]] = [
    (Chat(), chat_request, CHAT),
    (Responses(), responses_request, RESPONSES),
    (Messages(), messages_request, MESSAGES),
]
CASES: dict[str, tuple[Api, Request, Callable[[Json], object], str | None]] = {
    f"{type(api).__name__}, {name}": (api, request_of, *case)
    for api, request_of, cases in APIS
    for name, case in cases.items()
}


@pytest.mark.parametrize("api, request_of, change, says", CASES.values(), ids=CASES)
def test_a_request_is_taken_or_refused(
    api: Api, request_of: Request, change: Callable[[Json], object], says: str | None
) -> None:
    """With status 400, in the form of the API; what was refused is listed."""
    provider = Provider((api,))
    status, reply = posted(provider, request_of(None))
    assert status == 200
    body = copy.deepcopy(request_of(reply))
    change(body)
    status, answer = posted(provider, body)
    assert (status, bool(provider.refusals)) == ((200, False) if says is None else (400, True))
    if says is not None:
        assert says in answer["error"]["message"]
        assert answer["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize("api, request_of", [row[:2] for row in APIS])
def test_the_same_request_gets_the_same_reply(api: Api, request_of: Request) -> None:
    """Unless each response is to have ids of its own. After the last reply of the script there is none."""
    provider = Provider((api,))
    first = posted(provider, request_of(None))
    assert posted(provider, request_of(None)) == first
    fresh = Provider((api,), fresh_ids=True)
    assert posted(fresh, request_of(None))[1]["id"] != posted(fresh, request_of(None))[1]["id"]
    assert len(SCRIPT) == 3


@pytest.mark.parametrize("api", [Chat(), Responses(), Messages()], ids=lambda api: type(api).__name__)
def test_what_is_no_request_is_refused(api: Api) -> None:
    """Before anything of it is looked at."""
    provider = Provider((api,))
    assert posted(provider, {}, {**KEY, "authorization": "Bearer x"})[0] == 401
    assert posted(provider, [])[0] == 400
    assert provider.respond(api.path, KEY, b"{")[0] == 400
    assert provider.respond("/v1/other", KEY, b"{}")[0] == 404
