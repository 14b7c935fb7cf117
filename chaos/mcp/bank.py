"""An MCP server that pays orders: `python -m chaos.mcp.bank FOLDER`. It waits before it pays, and after that.

A payment that is `stubborn` goes on when its caller has gone. A bank that is to be asked by `find` has none: what it
said about an order would be wrong a moment later.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import anyio
import mcp_types as t
from mcp.server import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

from chaos.books import Books

_NUMBER = {"type": "number"}
_ORDER = {"order": {"type": "string"}}
_PAYMENT = {**_ORDER, "before": _NUMBER, "after": _NUMBER, "stubborn": {"type": "boolean"}}


def _tool(name: str, properties: dict[str, Any], *, reads: bool) -> t.Tool:
    schema = {"type": "object", "properties": properties, "required": ["order"]}
    hints = t.ToolAnnotations(read_only_hint=True) if reads else None
    return t.Tool(name=name, description=f"Does {name}.", input_schema=schema, annotations=hints)


class Bank:
    """The server; `books` has its payments."""

    def __init__(self, books: Books) -> None:
        self.books = books
        self.server: Server[Any] = Server("bank", version="1", on_list_tools=self._list, on_call_tool=self._call)

    async def serve(self) -> None:
        """Serves over standard input and output."""
        self.books.begin()
        async with stdio_server() as (reader, writer):
            await self.server.run(reader, writer, self.server.create_initialization_options())

    async def _list(self, _: object, __: object) -> t.ListToolsResult:
        return t.ListToolsResult(tools=[_tool("pay", _PAYMENT, reads=False), _tool("find", _ORDER, reads=True)])

    async def _call(self, context: ServerRequestContext[Any, Any], params: t.CallToolRequestParams) -> t.CallToolResult:
        arguments = params.arguments or {}
        order: str = arguments["order"]
        if params.name == "find":
            text = json.dumps({"payment": order if self.books.is_paid(order) else None})
        else:
            self.books.begin(order)
            wait = _wait_stubbornly if arguments.get("stubborn") else anyio.sleep
            await wait(arguments["before"])
            text = self.books.pay(order, (context.meta or {}).get("dev.handrail/key"))
            await wait(arguments["after"])
        return t.CallToolResult(content=[t.TextContent(text=text)])


async def _wait_stubbornly(seconds: float) -> None:
    await anyio.to_thread.run_sync(time.sleep, seconds)  # which is not cancelled


if __name__ == "__main__":
    anyio.run(Bank(Books(Path(sys.argv[1]))).serve)
