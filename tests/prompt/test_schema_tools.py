"""A tool whose schema is data: its handler is given a plain dict that fits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from handrail.adapters.tool_executor import ToolExecutor
from handrail.errors import ParseError, PromptValidationError, ToolSignatureError
from handrail.prompt import (
    IdempotencyConfig,
    Prompt,
    PromptTemplate,
    Tool,
    ToolContext,
    ToolExample,
    ToolResult,
    ToolsSection,
)
from handrail.runtime import EffectLedger, Session, ToolCall, ToolInvoked, ToolMessage
from tests.kit import raises
from tests.wording import Wording

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "order": {"type": "string", "description": "The order."},
        "password": {"type": "string", "format": "password", "writeOnly": True},
    },
    "required": ["order"],
    "additionalProperties": False,
}


NO_ARGUMENTS: dict[str, Any] = {}
EMPTY = ToolExample(description="One", input=NO_ARGUMENTS, output=NO_ARGUMENTS)


def look_up(arguments: dict[str, Any], *, context: ToolContext) -> dict[str, Any]:
    """Look up."""
    return {"order": arguments["order"], "call": context.call_id}


def made(**changes: Any) -> Tool[dict[str, Any], Any]:
    """The tool, with other options."""
    options: dict[str, Any] = {"name": "lookUp", "description": "Looks up.", "schema": SCHEMA, "handler": look_up}
    return Tool.from_json_schema(**{**options, **changes})


def call(tool: Tool[Any, Any], *arguments: str) -> tuple[Session, list[ToolMessage]]:
    """The messages for calls of a tool in a new session, and the session."""
    prompt = Prompt(PromptTemplate(ns="a", key="b", sections=[ToolsSection(title="Tools", tools=[tool])]))
    session = Session()
    executor = ToolExecutor(prompt=prompt, session=session, effect_ledger=EffectLedger())
    return session, [executor.execute(ToolCall(str(at), tool.name, text)) for at, text in enumerate(arguments)]


def test_the_model_reads_the_schema_and_the_handler_gets_a_dict() -> None:
    """The schema as it was given."""
    tool = made()
    assert tool.parameters_schema == SCHEMA
    assert (tool.params_type, tool.result_type) == (dict, dict[str, Any])
    session, (message,) = call(tool, '{"order": "a"}')
    assert message.result.value == {"order": "a", "call": "0"}
    (event,) = session[ToolInvoked].all()
    assert event.params == {"order": "a"}


PET = {"$ref": "#/components/schemas/Pet"}
PET_SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "pin": {"type": "string", "format": "password"},
        "young": {"type": "array", "items": PET},
    },
    "required": ["name"],
}
OF_OPENAPI: dict[str, Any] = {
    "type": "object",
    "properties": {"pet": PET, "default": {"anyOf": [PET, {"type": "null"}]}},
    "required": ["pet"],
    "components": {"schemas": {"Pet": PET_SCHEMA}, "parameters": {"limit": {"name": "limit", "in": "query"}}},
}


def test_the_components_of_an_openapi_document_are_definitions(wording: Wording) -> None:
    """Models and adapters look for them there; secrets in them are masked."""
    tool = made(schema=OF_OPENAPI)
    published = tool.parameters_schema
    assert "components" not in published
    assert published["properties"]["pet"] == {"$ref": "#/$defs/Pet"}
    assert published["$defs"]["Pet"]["properties"]["young"] == {"type": "array", "items": {"$ref": "#/$defs/Pet"}}
    right = {"pet": {"name": "a", "pin": "secret", "young": [{"name": "b"}]}}
    assert tool.parse(right) == right
    assert "secret" not in str(tool.masking.mask(right))
    with pytest.raises(ParseError) as raised:
        tool.parse({"pet": {"name": "a", "young": [{"name": 5}]}, "default": {}})
    assert [path for path, _ in raised.value.faults] == ["$.pet.young[0].name", "$.default.name"]
    both = {**OF_OPENAPI, "$defs": {"Other": {"type": "string"}}}
    assert sorted(made(schema=both).parameters_schema["$defs"]) == ["Other", "Pet"]
    with raises(PromptValidationError, wording):
        made(schema={**both, "$defs": {"Pet": {"type": "string"}}})


def test_arguments_that_do_not_fit_are_refused(wording: Wording) -> None:
    """All faults at once, and the first example."""
    tool = made(examples=[replace(EMPTY, input={"order": "a"})])
    _, (message,) = call(tool, '{"order": 5, "more": 1}')
    assert not message.success
    assert message.content == wording


def test_handlers_may_be_async_and_return_results() -> None:
    """As the function of a decorated tool."""

    async def later(arguments: dict[str, Any]) -> ToolResult[str]:
        return ToolResult.error(str(arguments))

    tool = made(handler=later)
    assert (tool.is_async, tool.result_type) == (True, str)
    _, (message,) = call(tool, '{"order": "a"}')
    assert (message.success, message.content) == (False, "{'order': 'a'}")


def test_options_mean_what_they_mean_for_a_tool() -> None:
    """Two calls with equal arguments are one effect."""
    config = IdempotencyConfig(strategy="params", param_keys=("order",))
    ran: list[dict[str, Any]] = []

    def pay(arguments: dict[str, Any]) -> str:
        ran.append(arguments)
        return "paid"

    tool = made(effect="external", idempotency=config, handler=pay)
    session, messages = call(tool, '{"order": "a", "password": "p"}', '{"password": "p", "order": "a"}')
    assert [message.content for message in messages] == ["paid", "paid"]
    assert len(ran) == 1
    assert tool.masking.mask(ran[0]) == {"order": "a", "password": "**********"}
    assert [event.replayed for event in session[ToolInvoked].all()] == [False, True]


def without_parameters() -> None:
    """A handler that takes nothing."""


def of_two(arguments: dict[str, Any], other: int) -> None:
    """A handler that takes more."""


WRONG: list[dict[str, Any]] = [
    {"schema": {"type": "object", "properties": {"order": {"type": "text"}}}},
    {"schema": {"type": "string"}},
    {"handler": without_parameters},
    {"handler": of_two},
    {"effect": "none"},
    {"examples": [EMPTY]},
    {"idempotency": IdempotencyConfig(strategy="params", param_keys=("more",))},
]


@pytest.mark.parametrize("changes", WRONG)
def test_a_wrong_declaration_is_refused(changes: dict[str, Any], wording: Wording) -> None:
    """When the tool is made."""
    with pytest.raises(PromptValidationError) as raised:
        made(**changes)
    faults = raised.value.faults if isinstance(raised.value, ToolSignatureError) else [raised.value]
    assert list(map(str, faults)) == wording
