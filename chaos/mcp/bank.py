"""An MCP server that pays orders: `python -m chaos.mcp.bank FOLDER`. It waits before it pays, and after that.

A payment that is `stubborn` goes on when its caller has gone. A bank that is to be asked by `find` has none: what it
said about an order would be wrong a moment later.

`Books` are the files of a scene, which survive every kill: what was begun, what was paid, and what clients were
answered. Each line is one object of JSON, and is written at once.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any, Literal

import anyio
import mcp_types as t
from mcp.server import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

Book = Literal["begun", "paid", "answered"]

_NUMBER = {"type": "number"}
_ORDER = {"order": {"type": "string"}}
_PAYMENT = {**_ORDER, "before": _NUMBER, "after": _NUMBER, "stubborn": {"type": "boolean"}}


class Books:
    """The files, in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, book: Book, **entry: object) -> None:
        """Appends an entry."""
        line = json.dumps(entry).encode() + b"\n"
        descriptor = os.open(self._path(book), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(descriptor, line)
        finally:
            os.close(descriptor)

    def begin(self, order: str = "") -> None:
        """Notes that this process begins to pay an order, or to serve."""
        self.write("begun", order=order, pid=os.getpid(), parent=os.getppid())

    def pay(self, order: str, key: object) -> str:
        """Pays an order; returns the receipt."""
        self.write("paid", order=order, key=key)
        return f"receipt of {order}"

    def is_paid(self, order: str) -> bool:
        """Whether an order is paid."""
        return any(entry["order"] == order for entry in self.read("paid"))

    def read(self, book: Book) -> list[dict[str, Any]]:
        """All entries."""
        path = self._path(book)
        return [json.loads(line) for line in path.read_bytes().splitlines()] if path.exists() else []

    def _path(self, book: Book) -> Path:
        return self._folder / f"{book}.jsonl"


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
