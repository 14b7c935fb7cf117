"""Tools and results as MCP has them.

A tool is listed as it is declared: its effect as hints, and the schema of its result as output schema. A value that is
not an object is the field `result` of the structured content; text, and what is shown as text, has none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, cast

import mcp_types as t

from handrail.adapters.loop import tool_description
from handrail.adapters.mcp_hints import make_hints
from handrail.errors import DumpError, SchemaError
from handrail.prompt import Tool
from handrail.prompt.tool_definition import MAX_RESULT_CHARS
from handrail.prompt.tool_result import BinaryPart, ContentPart, shown_schema
from handrail.runtime import ToolMessage
from handrail.serde import dump
from handrail.serde.formatting import json_line
from handrail.serde.json_schema import is_object
from handrail.serde.schema_codec import schema_codec

_OWN_BLOCKS: Final = {"image", "audio"}  # the kinds of files that MCP has a block for


class OfferedTool(NamedTuple):
    """A tool as clients see it; `wraps` is true if its value is the field `result` of the structured content."""

    definition: t.Tool
    wraps: bool = False


def describe_tool(tool: Tool[Any, Any]) -> OfferedTool:
    """A tool as it is declared."""
    idempotent = tool.idempotency is not None and tool.idempotency.has_key
    hints = make_hints(tool.effect) | ({"idempotentHint": True} if idempotent else {})
    schema, wraps = _output_schema(tool)
    definition = t.Tool(
        name=tool.name,
        description=tool_description(tool),
        input_schema=tool.parameters_schema,
        output_schema=schema,
        annotations=t.ToolAnnotations.model_validate(hints),
    )
    return OfferedTool(definition, wraps)


def _output_schema(tool: Tool[Any, Any]) -> tuple[dict[str, Any] | None, bool]:
    schema = shown_schema(tool.result_type)
    if schema is None or schema.get("type") == "string":
        return None, False
    if schema.get("type") == "object":
        return schema, False
    inner = {name: node for name, node in schema.items() if name != "$defs"}
    outer = {"type": "object", "properties": {"result": inner}, "required": ["result"]}
    return outer | ({"$defs": schema["$defs"]} if "$defs" in schema else {}), True


def write_result(message: ToolMessage, offered: OfferedTool | None) -> dict[str, Any]:
    """The answer to a call, as JSON; `None` for a tool that clients do not see."""
    parts = message.parts
    content = [*map(content_block, parts)] if parts else [{"type": "text", "text": message.content}]
    result: dict[str, Any] = {"resultType": "complete", "content": content, "isError": not message.success}
    if not message.success:
        return result
    value = message.result.value
    if offered is None or offered.definition.output_schema is None:
        # Without a schema nothing bounds it but this; the text says it too.
        is_passed = is_object(value) and not message.is_cut and len(json_line(value)) <= MAX_RESULT_CHARS
        return {**result, "structuredContent": value} if is_passed else result
    try:
        structured = {"result": dump(value)} if offered.wraps else dump(value)
    except DumpError:
        structured = None
    if structured is not None:
        return {**result, "structuredContent": structured}
    # A client checks a success by the schema, and would report what does not fit as an error of its own.
    note = {"type": "text", "text": "It was carried out, and its result does not fit its schema. Do not repeat it."}
    return {**result, "content": [*content, note], "isError": True}


def fault_finder(schema: Mapping[str, Any] | None) -> Callable[[object], str | None]:
    """Makes what says why JSON does not fit a schema; it finds nothing if there is none, or none that is understood."""
    try:
        codec = None if schema is None else schema_codec(schema)
    except SchemaError:
        codec = None

    def find(value: object) -> str | None:
        try:
            if codec is not None:
                codec.dump_json(cast("Any", value))
        except DumpError as error:
            return str(error)
        return None

    return find


def content_block(part: ContentPart) -> dict[str, Any]:
    """A part of a result."""
    if not isinstance(part, BinaryPart):
        return {"type": "text", "text": part.text}
    kind = part.media_type.partition("/")[0]
    if kind in _OWN_BLOCKS:
        return {"type": kind, "data": part.base64, "mimeType": part.media_type}
    return {"type": "resource", "resource": {"uri": "handrail:file", "blob": part.base64, "mimeType": part.media_type}}


def write_refusal(text: str) -> dict[str, Any]:
    """The answer to a call that was not run, or was stopped."""
    return {"resultType": "complete", "content": [{"type": "text", "text": text}], "isError": True}
