"""An MCP server of a bank, for the tests; as a script it speaks over stdin and stdout, or with a port over HTTP.

As `bank_server.py --fork SOCKET` it is a process from which banks are forked, for `bank_command` of
the kit: to import the SDK takes longer than most tests with a bank do.

It appends each payment to the file of the environment variable BANK. The tool `learn` makes it offer another tool.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from select import select
from socket import recv_fds, socket
from typing import Any

import anyio
import mcp_types as t
import uvicorn
from mcp import MCPError
from mcp.server import ServerRequestContext
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged

Result = t.CallToolResult | t.InputRequiredResult
Context = ServerRequestContext[Any, Any]
Act = Callable[[Context, Mapping[str, Any]], Awaitable[Result]]

READ = t.ToolAnnotations(read_only_hint=True)
_ORDER: Mapping[str, Any] = {
    "type": "object",
    "properties": {"order": {"type": "string"}, "cents": {"type": "integer"}, "key": {"type": "string"}},
    "required": ["order"],
}
_CENTS = {"type": "object", "properties": {"cents": {"type": "integer"}}, "required": ["cents"]}
_NONE: Mapping[str, Any] = {"type": "object", "properties": {}}
PNG = "iVBORw0KGgo="


def _tool(name: str, schema: Mapping[str, Any] = _NONE, hints: t.ToolAnnotations | None = READ, **more: Any) -> t.Tool:
    return t.Tool(name=name, description=f"Does {name}.", input_schema=dict(schema), annotations=hints, **more)


TOOLS = (
    _tool("balance", output_schema=_CENTS),
    _tool("pay", _ORDER, None),
    _tool("find", _ORDER),
    _tool("wrong", hints=None, output_schema=_CENTS),
    _tool("picture"),
    _tool("wait"),
    _tool("die", {**_ORDER, "required": []}, None),
    _tool("die_reading"),
    _tool("die_wrong", hints=None, output_schema=_CENTS),
    _tool("fail"),
    _tool("boom", _ORDER, None),
    _tool("pay_late", _ORDER, None),
    _tool("refuse", hints=None),
    _tool("ask", hints=None),
    _tool("environment"),
    _tool("sample"),
    _tool("learn"),
    _tool("garble"),
    _tool("amounts"),
    _tool("a.b/c"),
    _tool("refund", _ORDER, None),
)


def _text(text: str, **more: Any) -> t.CallToolResult:
    return t.CallToolResult(content=[t.TextContent(text=text)], **more)


class Bank:
    """The server; `payments` is the file of what it has paid."""

    def __init__(self, payments: Path, tools: Sequence[t.Tool] = TOOLS) -> None:
        self.payments = payments
        self._tools = tools
        self.keys: list[object] = []
        self.cancelled: list[str] = []
        self.waiting = anyio.Event()
        self._bus = InMemorySubscriptionBus()
        self._learned = False
        self.server: Server[Any] = Server(
            "bank",
            version="1",
            instructions="Pay with care.",
            on_list_tools=self._list,
            on_call_tool=self._call,
            on_subscriptions_listen=ListenHandler(self._bus),
        )

    def paid(self) -> list[dict[str, Any]]:
        """The payments, in their order."""
        return [json.loads(line) for line in self.payments.read_text().splitlines()] if self.payments.exists() else []

    async def _list(self, _: Context, __: t.PaginatedRequestParams | None) -> t.ListToolsResult:
        return t.ListToolsResult(tools=[*self._tools, *([_tool("taught")] if self._learned else [])])

    async def _call(self, context: Context, params: t.CallToolRequestParams) -> Result:
        act: Act | None = getattr(self, f"_{params.name}", None)
        if act is None:
            return _text(params.name)
        return await act(context, params.arguments or {})

    async def _balance(self, _: Context, __: Mapping[str, Any]) -> Result:
        return _text('{"cents": 5}', structured_content={"cents": 5})

    async def _pay(self, context: Context, arguments: Mapping[str, Any]) -> Result:
        self.keys.append((context.meta or {}).get("dev.handrail/key"))
        with self.payments.open("a") as file:
            file.write(json.dumps(arguments) + "\n")
        return _text(f"paid {arguments['order']}")

    async def _refund(self, context: Context, arguments: Mapping[str, Any]) -> Result:
        self.keys.append(arguments.get("key"))
        rest = [paid for paid in self.paid() if paid["order"] != arguments["order"]]
        self.payments.write_text("".join(json.dumps(paid) + "\n" for paid in rest))
        return _text("refunded", structured_content={"order": arguments["order"]})

    async def _find(self, _: Context, arguments: Mapping[str, Any]) -> Result:
        payment = next((paid for paid in self.paid() if paid["order"] == arguments["order"]), None)
        return _text(json.dumps({"payment": payment}))

    async def _wrong(self, _: Context, __: Mapping[str, Any]) -> Result:
        return _text("it is done", structured_content={"cents": "many"})

    async def _picture(self, _: Context, __: Mapping[str, Any]) -> Result:
        link = t.ResourceLink(name="page", uri="https://bank.example/page")
        resource = t.EmbeddedResource(resource=t.TextResourceContents(uri="bank:text", text="a text"))
        return t.CallToolResult(content=[t.ImageContent(data=PNG, mime_type="image/png"), link, resource])

    async def _wait(self, context: Context, _: Mapping[str, Any]) -> Result:
        await context.session.report_progress(1, 2, "half")
        self.waiting.set()
        try:
            await anyio.sleep_forever()
        finally:
            self.cancelled.append("wait")
        return _text("never")

    async def _die(self, context: Context, arguments: Mapping[str, Any]) -> Result:
        await self._pay(context, {"order": "die", **arguments})
        os._exit(1)  # as if it had been killed

    async def _die_reading(self, _: Context, __: Mapping[str, Any]) -> Result:
        os._exit(1)

    async def _die_wrong(self, _: Context, __: Mapping[str, Any]) -> Result:
        os._exit(1)

    async def _boom(self, context: Context, arguments: Mapping[str, Any]) -> Result:
        if arguments["order"] == "a":
            await self._pay(context, arguments)
        return _text("Error executing tool boom: no connection", is_error=True)

    async def _pay_late(self, context: Context, arguments: Mapping[str, Any]) -> Result:
        with anyio.CancelScope(shield=True):
            await anyio.sleep(1)
            await self._pay(context, arguments)
        return _text("too late")

    async def _fail(self, _: Context, __: Mapping[str, Any]) -> Result:
        return _text("the desk is closed", is_error=True)

    async def _refuse(self, _: Context, __: Mapping[str, Any]) -> Result:
        raise MCPError(code=t.INVALID_PARAMS, message="the bank does not like that")

    async def _ask(self, _: Context, __: Mapping[str, Any]) -> Result:
        form = t.ElicitRequestFormParams(message="Sure?", requested_schema={"type": "object", "properties": {}})
        return t.InputRequiredResult(input_requests={"sure": t.ElicitRequest(params=form)}, request_state="asked")

    async def _environment(self, _: Context, __: Mapping[str, Any]) -> Result:
        return _text(json.dumps(sorted(os.environ)))

    async def _sample(self, context: Context, _: Mapping[str, Any]) -> Result:
        request = t.ListRootsRequest()
        try:
            await context.session.send_request(request, t.ListRootsResult)
        except MCPError as error:
            return _text(f"refused: {error.message}")
        return _text("answered")

    async def _garble(self, _: Context, __: Mapping[str, Any]) -> Result:
        os.write(1, b"\xff\n")
        return _text("garbled")

    async def _amounts(self, _: Context, arguments: Mapping[str, Any]) -> Result:
        return _text("many", structured_content={"amounts": [1] * arguments["count"]})

    async def _learn(self, context: Context, _: Mapping[str, Any]) -> Result:
        self._learned = True
        await self._bus.publish(ToolsListChanged())
        await context.session.send_tool_list_changed()
        return _text("learned")


async def _serve(bank: Bank) -> None:
    async with stdio_server() as (read, write):
        options = bank.server.create_initialization_options(NotificationOptions(tools_changed=True))
        await bank.server.run(read, write, options)


def _fork_banks(listening: socket) -> None:
    """Fork a bank for each program that connects, with the streams, folder and variables of that program.

    Ends when its own standard input does, which is when the process of the tests ends.
    """
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the system buries the banks
    while sys.stdin.fileno() not in (ready := select([sys.stdin.fileno(), listening], [], [])[0]):
        assert ready
        program, _ = listening.accept()
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            listening.close()
            _become(program)
        program.close()


def _become(program: socket) -> None:
    """Be the bank of a program, and end with it."""
    said, streams, _, _ = recv_fds(program, 1_000_000, 3)
    for own, stream in enumerate(streams):
        os.dup2(stream, own)
        os.close(stream)
    folder, *variables = said.split(b"\0")
    os.chdir(folder)
    os.environb.clear()
    for name, _, value in (variable.partition(b"=") for variable in variables):
        os.environb[name] = value
    threading.Thread(target=lambda: os._exit(len(program.recv(1))), daemon=True).start()
    anyio.run(_serve, _bank())
    os._exit(0)


def _bank() -> Bank:
    return Bank(Path(os.environ.get("BANK", os.devnull)))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--fork"]:
        _fork_banks(socket(fileno=int(sys.argv[2])))
    elif len(sys.argv) > 1:
        uvicorn.run(_bank().server.streamable_http_app(), host="127.0.0.1", port=int(sys.argv[1]), log_level="error")
    else:
        anyio.run(_serve, _bank())
