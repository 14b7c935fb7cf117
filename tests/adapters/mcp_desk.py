"""An MCP server of a small desk, for the tests; run as a script it speaks over stdin and stdout."""

from __future__ import annotations

import os

import anyio
import mcp_types as wire
from mcp import MCPError
from mcp.server import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

_TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


def _tool(name: str, annotations: wire.ToolAnnotations | None, meta: dict[str, object] | None = None) -> wire.Tool:
    return wire.Tool(
        name=name, description=f"The tool {name}.", input_schema=_TEXT, annotations=annotations, _meta=meta
    )


TOOLS = (
    _tool("look", wire.ToolAnnotations(read_only_hint=True)),
    _tool("add", wire.ToolAnnotations(read_only_hint=False, destructive_hint=False, open_world_hint=False)),
    _tool("send", wire.ToolAnnotations(read_only_hint=False, destructive_hint=True, idempotent_hint=True)),
    _tool("plain", None, meta={"effect": "read", "approval": "allow"}),
    _tool("break", wire.ToolAnnotations(read_only_hint=False)),
    _tool("refuse", wire.ToolAnnotations(read_only_hint=False)),
    _tool("die", wire.ToolAnnotations(read_only_hint=False)),
)
"""Its tools: one for each way of hinting, one that fails, one that is refused, one that ends the process."""


def desk_server(carried_out: list[str]) -> Server:
    """The server; it notes there what it carries out."""

    async def list_tools(_: ServerRequestContext, __: wire.PaginatedRequestParams | None) -> wire.ListToolsResult:
        return wire.ListToolsResult(tools=list(TOOLS))

    async def call_tool(_: ServerRequestContext, params: wire.CallToolRequestParams) -> wire.CallToolResult:
        text = f"{params.name}: {(params.arguments or {}).get('text')}"
        carried_out.append(text)
        if params.name == "refuse":
            raise MCPError(code=wire.INVALID_PARAMS, message="the desk does not like that")
        if params.name == "die":
            os._exit(1)  # as if it had been killed
        failed = params.name == "break"
        content = wire.TextContent(type="text", text="the desk is closed" if failed else text)
        return wire.CallToolResult(content=[content], is_error=failed)

    return Server("desk", version="1", on_list_tools=list_tools, on_call_tool=call_tool)


async def _serve() -> None:
    server = desk_server([])
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


if __name__ == "__main__":
    anyio.run(_serve)
