"""The processes of the group `mcp`: a bare server of the SDK, a server of Handrail, and the client of both.

    python -m benchmarks.mcp_programs (bare | server) [PORT]
    python -m benchmarks.mcp_programs relay [BARE_URL PORT]
    python -m benchmarks.mcp_programs client FOLDER BARE_URL SERVER_URL PROXY_URL RELAY_URL

A server without a port speaks over its standard input and output. The relay passes each call to a client of the SDK,
and does nothing else: no proxy that the SDK serves, and that calls through the SDK, can take less. The client is a
worker as `benchmarks.probe`: it reads lines `CASE CALLS`, and answers with the microseconds of a call.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import mcp_types as t
import uvicorn
from mcp import Client, StdioServerParameters
from mcp.server.lowlevel.server import Server
from mcp.server.stdio import stdio_server

from benchmarks import mcp_servers as cases
from handrail import ToolExecutor, tool
from handrail.adapters.mcp import ToolServer, serve_stdio, server
from handrail.session import Session

_SCHEMA = {
    "type": "object",
    "properties": {"order": {"type": "string"}},
    "required": ["order"],
    "additionalProperties": False,
}
_NUMBERS = count()


async def _list_tools(_: object, __: object) -> t.ListToolsResult:
    look = t.Tool(name="look", input_schema=_SCHEMA, annotations=t.ToolAnnotations(read_only_hint=True))
    return t.ListToolsResult(tools=[look, t.Tool(name="pay", input_schema=_SCHEMA)])


async def _call_tool(_: object, params: t.CallToolRequestParams) -> t.CallToolResult:
    return t.CallToolResult(content=[t.TextContent(text=f"order {(params.arguments or {})['order']}")])


@tool(effect="read")
async def look(order: str) -> str:
    """Look an order up."""
    return f"order {order}"


async def _serve_bare(bare: Server[Any]) -> None:
    async with stdio_server() as (reader, writer):
        await bare.run(reader, writer, bare.create_initialization_options())


def _serve(kind: str, port: str | None) -> None:
    bare: Server[Any] = Server("bare", version="1", on_list_tools=_list_tools, on_call_tool=_call_tool)
    executor = ToolExecutor([look], session=Session())
    if port is not None:
        app = bare.streamable_http_app() if kind == "bare" else server(executor)
        uvicorn.run(app, host="127.0.0.1", port=int(port), log_level="warning")
    else:
        asyncio.run(_serve_bare(bare) if kind == "bare" else serve_stdio(ToolServer(executor)))


def _relay(url: str = "", port: str = "") -> None:
    target = url or _command("-m", "benchmarks.mcp_programs", "bare")
    clients: list[Client] = []

    async def call_tool(_: object, params: t.CallToolRequestParams) -> t.CallToolResult:
        result = await clients[0].session.call_tool(params.name, params.arguments)
        assert isinstance(result, t.CallToolResult)
        return result

    relay: Server[Any] = Server("relay", version="1", on_list_tools=_list_tools, on_call_tool=call_tool)

    async def over_stdio() -> None:
        async with Client(target) as client:
            clients.append(client)
            await _serve_bare(relay)

    if not port:
        return asyncio.run(over_stdio())
    app = relay.streamable_http_app()
    inner = app.router.lifespan_context

    @asynccontextmanager
    async def lifespan(of: Any) -> AsyncGenerator[Any]:  # noqa: ANN401 - the application
        async with Client(target) as client, inner(of) as state:
            clients.append(client)
            yield state

    app.router.lifespan_context = lifespan
    return uvicorn.run(app, host="127.0.0.1", port=int(port), log_level="warning")


async def _call(folder: str, *urls: str) -> None:
    """Be the client: connect to every server, then make the calls that are asked for."""
    proxy = ("-m", "handrail", "proxy", "--env", "PYTHONPATH")
    bare, own = (("-m", "benchmarks.mcp_programs", kind) for kind in ("bare", "server"))
    behind = ("--", sys.executable, *bare)
    store = f"sqlite:///{Path(folder) / 'calls.db'}"
    async with AsyncExitStack() as stack:

        async def connect(target: str, *arguments: str) -> Client:
            client = await stack.enter_async_context(Client(_command(target, *arguments) if arguments else target))
            await client.list_tools()
            return client

        direct = await connect(*bare)
        stored = await connect(*proxy, "--store", store, *behind)
        ways = {
            cases.BARE_STDIO: (direct, "look", cases.CALLERS),
            cases.SERVER_STDIO: (await connect(*own), "look", cases.CALLERS),
            cases.PROXY_STDIO: (await connect(*proxy, *behind), "look", cases.CALLERS),
            **{
                name: (await connect(url), "look", cases.CALLERS)
                for name, url in zip(cases.OVER_HTTP, urls, strict=True)
            },
            cases.ALONE: (direct, "look", 1),
            cases.ALONE_RELAY: (await connect("-m", "benchmarks.mcp_programs", "relay"), "look", 1),
            cases.ALONE_READ: (stored, "look", 1),
            cases.ALONE_EXTERNAL: (stored, "pay", 1),
        }
        print("\t".join(ways), flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            name, _, calls = line.strip().rpartition(" ")
            client, tool_name, callers = ways[name]
            begun = time.perf_counter()
            await asyncio.gather(*(_call_often(client, tool_name, int(calls) // callers) for _ in range(callers)))
            print((time.perf_counter() - begun) * 1e6 / int(calls), 0.0, flush=True)


def _command(*arguments: str) -> StdioServerParameters:
    environment = {"PYTHONPATH": os.environ["PYTHONPATH"]}  # the SDK gives a server few variables
    return StdioServerParameters(command=sys.executable, args=[*arguments], env=environment)


async def _call_often(client: Client, name: str, times: int) -> None:
    for _ in range(times):
        result = await client.call_tool(name, {"order": f"{next(_NUMBERS)}"})
        assert not result.is_error, result


if __name__ == "__main__":
    kind, *arguments = sys.argv[1:]
    if kind == "client":
        asyncio.run(_call(*arguments))
    elif kind == "relay":
        _relay(*arguments)
    else:
        _serve(kind, arguments[0] if arguments else None)
