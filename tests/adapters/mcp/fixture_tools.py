"""The tools that the conformance suite of MCP asks for by name, built on the runtime."""

from __future__ import annotations

import asyncio
import json
from base64 import b64decode
from typing import Any

from handrail import tool
from handrail.adapters.mcp import ask_client
from handrail.errors import ToolValidationError
from handrail.prompt import BinaryPart, Tool, ToolContext, ToolResult

# One red pixel, and no sound.
PNG = b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVQI12P4z8AAAAMBAQAY3Y2wAAAAAElFTkSuQmCC")
WAV = b64decode("UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQAAAAA=")
PERSON = {
    "type": "object",
    "properties": {
        "username": {"type": "string", "description": "User's response"},
        "email": {"type": "string", "description": "User's email address"},
    },
    "required": ["username", "email"],
}


@tool(effect="read")
def test_simple_text() -> str:
    """A text."""
    return "This is a simple text response for testing."


@tool(effect="read")
def test_image_content() -> BinaryPart:
    """An image."""
    return BinaryPart(PNG, "image/png")


@tool(effect="read")
def test_audio_content() -> BinaryPart:
    """A sound."""
    return BinaryPart(WAV, "audio/wav")


@tool(effect="read")
def test_embedded_resource() -> BinaryPart:
    """A file."""
    return BinaryPart(b"This is an embedded resource content.", "text/plain")


@tool(effect="read")
def test_multiple_content_types() -> ToolResult[str]:
    """A text, an image and a file."""
    data = BinaryPart(b'{"test": "data", "value": 123}', "application/json")
    return ToolResult.ok("Multiple content types test:", parts=(BinaryPart(PNG, "image/png"), data))


@tool(effect="read")
def test_error_handling() -> str:
    """Fails."""
    raise ToolValidationError("This tool intentionally returns an error for testing")


@tool(effect="read")
async def test_tool_with_progress(context: ToolContext) -> str:
    """Reports how far it is."""
    for done in (0, 50, 100):
        context.progress(done, 100)
        await asyncio.sleep(0.05)
    return "Progress was reported."


@tool(effect="read")
def test_elicitation(message: str) -> str:
    """Asks the person at the client."""
    answer = ask_client(message, PERSON)
    return f"User response: action: {answer.action}, content: {json.dumps(dict(answer.content))}"


@tool(effect="read")
def test_elicitation_sep1034_defaults() -> str:
    """Asks with defaults of every kind."""
    properties = {
        "name": {"type": "string", "description": "User name", "default": "John Doe"},
        "age": {"type": "integer", "description": "User age", "default": 30},
        "score": {"type": "number", "description": "User score", "default": 95.5},
        "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        "verified": {"type": "boolean", "description": "Verification status", "default": True},
    }
    answer = ask_client(
        "Please review and update the form", {"type": "object", "properties": properties, "required": []}
    )
    return f"Elicitation completed: action={answer.action}, content={json.dumps(dict(answer.content))}"


@tool(effect="read")
def test_elicitation_sep1330_enums() -> str:
    """Asks with choices of every kind."""
    titled = [{"const": "value1", "title": "First Option"}, {"const": "value2", "title": "Second Option"}]
    titled.append({"const": "value3", "title": "Third Option"})
    names = ["option1", "option2", "option3"]
    properties: dict[str, Any] = {
        "untitledSingle": {"type": "string", "enum": names},
        "titledSingle": {"type": "string", "oneOf": titled},
        "legacyEnum": {"type": "string", "enum": ["opt1", "opt2", "opt3"], "enumNames": ["One", "Two", "Three"]},
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": names}},
        "titledMulti": {"type": "array", "items": {"anyOf": titled}},
    }
    answer = ask_client("Please select options", {"type": "object", "properties": properties})
    return f"Elicitation completed: action={answer.action}, content={json.dumps(dict(answer.content))}"


def _take(arguments: dict[str, Any]) -> str:
    return json.dumps(arguments)


json_schema_2020_12_tool = Tool.from_json_schema(
    name="json_schema_2020_12_tool",
    description="Tool with JSON Schema 2020-12 features",
    schema={
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {
            "address": {"type": "object", "properties": {"street": {"type": "string"}, "city": {"type": "string"}}}
        },
        "properties": {"name": {"type": "string"}, "address": {"$ref": "#/$defs/address"}},
        "additionalProperties": False,
    },
    handler=_take,
    effect="read",
)

TOOLS: list[Tool[Any, Any]] = [value for value in globals().values() if isinstance(value, Tool)]
