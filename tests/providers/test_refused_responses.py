"""Responses that are refused before anything of them is appended or run, and calls that are refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from anthropic.types import Message
from pydantic import SecretStr

from handrail import tool
from handrail.adapters import anthropic, openai
from handrail.adapters.tool_executor import ToolExecutor
from handrail.errors import IncompleteReplyError, InvalidArgumentError, SessionUseError
from handrail.runtime import Session
from handrail.store.memory import MemoryStore
from tests.kit import raises
from tests.providers import wire
from tests.providers.sdk_loops import APIS, ApiName, Desk, Model, messages, request, response_with
from tests.wording import Wording

INCOMPLETE: list[Any] = [
    (openai, {"output": [], "status": "failed", "error": {"code": "server_error", "message": "no capacity"}}),
    (openai, {"output": [], "status": "in_progress"}),
    (openai, {"output": []}),
    (openai, {"choices": []}),
    (openai, response_with("responses", [{**request("responses", "pay", {"number": "A"}), "status": "incomplete"}])),
    (openai, response_with("responses", [{**request("responses", "pay", {"number": "A"}), "status": "in_progress"}])),
    (openai, {"choices": [{"finish_reason": "content_filter", "message": {"role": "assistant"}}]}),
    (anthropic, {"content": [], "stop_reason": "model_context_window_exceeded"}),
    (anthropic, {"content": [{"type": "tool_use", "id": "1", "name": "pay", "input": {}}], "stop_reason": None}),
    (
        anthropic,
        {"content": [{"type": "tool_use", "id": "1", "name": "pay", "input": {}}], "stop_reason": "end_turn"},
    ),
]


@pytest.mark.parametrize("adapter, response", INCOMPLETE)
def test_a_reply_that_does_not_say_that_it_is_complete_is_incomplete(
    executor: ToolExecutor, adapter: Any, response: Any, wording: Wording
) -> None:
    """Also if a value is missing or new."""
    with raises(IncompleteReplyError, wording):
        adapter.answer(executor, response)
    assert messages(executor) == []


NO_RESPONSES: list[Any] = [
    (openai, object()),
    (openai, {"content": [], "stop_reason": "end_turn"}),
    (openai, "resp_1"),
    (anthropic, object()),
    (anthropic, {"output": [], "status": "completed"}),
    (anthropic, {"content": "Hello.", "role": "assistant"}),
    (anthropic, {"content": [None], "stop_reason": "end_turn"}),
    (anthropic, {"content": [{}], "stop_reason": "end_turn"}),
    (openai, {"output": ["x"], "status": "completed"}),
    (openai, {"choices": [{"finish_reason": "stop", "message": None}]}),
    (openai, response_with("chat", [None])),
    (openai, response_with("chat", [request("chat", "pay", {}) | {"id": 5}])),
    (openai, response_with("responses", [request("responses", "pay", {}) | {"call_id": None}])),
    (openai, response_with("responses", [{"type": "function_call", "name": "pay", "call_id": "c"}])),
    (anthropic, response_with("messages", [request("messages", "pay", {}) | {"name": None}])),
    (anthropic, response_with("messages", [{"type": "tool_use", "name": "pay", "input": {}}])),
]


@pytest.mark.parametrize("adapter, response", NO_RESPONSES)
def test_what_is_not_a_response_of_the_provider_is_refused(
    executor: ToolExecutor, adapter: Any, response: Any, wording: Wording
) -> None:
    """A stream that was not read to its end, or the response of another provider."""
    with pytest.raises(InvalidArgumentError) as raised:
        adapter.answer(executor, response)
    assert (raised.value.argument, raised.value.expected) == ("response", wording)
    assert messages(executor) == []


@pytest.mark.parametrize("reopens", [False, True])
@pytest.mark.parametrize("api", APIS)
def test_a_response_that_was_answered_is_refused(desk: Desk, api: ApiName, reopens: bool, wording: Wording) -> None:
    """Its calls would run twice, also if what is stored of it has masks and escapes; with other arguments it is new."""

    @tool(effect="external")
    def log_in(password: SecretStr, number: str) -> str:
        """Log in."""
        desk.paid.append(number)
        return number

    def response(number: str) -> Any:
        arguments = {"password": "argpw-11223", "number": number}
        return response_with(api, [request(api, "log_in", arguments), request(api, "pay", {"\ud800": 1})])

    store, loop = MemoryStore(), Model(wire.Provider(()), api).loop
    session = Session.open(store, "desk")
    loop.answer(ToolExecutor([*desk.tools, log_in], session=session), response("1"))
    if reopens:
        session.close()
        session = Session.open(store, "desk")
    executor, before = ToolExecutor([*desk.tools, log_in], session=session), session.conversation.messages
    with raises(SessionUseError, wording):
        loop.answer(executor, response("1"))
    assert (desk.paid, session.conversation.messages) == (["1"], before)
    loop.answer(executor, response("2"))
    assert desk.paid == ["1", "2"]


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e400"])
@pytest.mark.parametrize("is_json", [False, True])
def test_a_number_that_json_does_not_have_is_refused(is_json: bool, number: str, wording: Wording) -> None:
    """It must not become null, which may stand for the whole amount. What is appended is JSON."""

    @tool
    def refund(cents: float | None) -> str:
        """Refund a payment; without cents, all of it."""
        return str(cents)

    executor = ToolExecutor([refund], session=Session())
    data = response_with("messages", [request("messages", "refund", json.loads(f'{{"cents": {number}}}'))])
    reply = anthropic.answer(executor, data if is_json else Message.construct(**data))
    assert reply[0]["content"][0]["input"] == {"cents": None}
    assert reply[-1]["content"][0]["content"] == wording


BY_THE_PROGRAM = [
    *({"type": f"{kind}_call", "call_id": "c"} for kind in ("apply_patch", "computer", "local_shell", "shell")),
    {"type": "tool_search_call", "call_id": "c", "execution": "client"},
    {"type": "mcp_approval_request", "id": "m"},
]


@pytest.mark.parametrize("item", BY_THE_PROGRAM, ids=lambda item: item["type"])
def test_an_item_for_the_program_to_answer_is_refused(
    executor: ToolExecutor, desk: Desk, item: dict[str, Any], wording: Wording
) -> None:
    """The reply would seem to be final. Nothing of it runs, beside what the server has run itself."""
    payment = request("responses", "pay", {"number": "A-17"})
    search = {"type": "tool_search_call", "call_id": None, "execution": "server"}
    shell = [{"type": kind, "call_id": "s"} for kind in ("shell_call", "shell_call_output")]
    by_server = [search, {"type": "tool_search_output", "call_id": None}, *shell]
    with raises(SessionUseError, wording):
        openai.answer(executor, response_with("responses", [payment, *by_server, item]))
    assert (messages(executor), desk.paid) == ([], [])
    openai.answer(executor, response_with("responses", [payment, *by_server]))
    assert desk.paid == ["A-17"]


@pytest.mark.parametrize("finish", ["stop", "function_call"])
def test_a_call_of_a_former_function_is_refused(executor: ToolExecutor, finish: str, wording: Wording) -> None:
    """Before Chat Completions had tools, a message had one call, without an id."""
    message = {"role": "assistant", "content": None, "function_call": {"name": "pay", "arguments": "{}"}}
    with raises(SessionUseError, wording):
        openai.answer(executor, {"id": "r", "choices": [{"finish_reason": finish, "message": message}]})
    assert messages(executor) == []
