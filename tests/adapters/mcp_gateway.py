"""An MCP server over HTTP that carries calls out, and a gateway before it that answers in its place."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

PAY = {
    "name": "pay",
    "description": "Pays.",
    "inputSchema": {"type": "object", "properties": {"to": {"type": "string"}}, "required": ["to"]},
    "annotations": {"destructiveHint": True},
}
"""The only tool."""

_JSON, _HTML = "application/json", "text/html"


def _page(status: int, kind: str, body: bytes) -> bytes:
    return f"HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body


def _answer(request: Any, status: int = 200, **said: Any) -> bytes:
    return _page(status, _JSON, json.dumps({"jsonrpc": "2.0", "id": request["id"], **said}).encode())


def _error(request: Any, code: int, *, status: int = 200) -> bytes:
    return _answer(request, status, error={"code": code, "message": "refused by the bank"})


def _result(request: Any, text: str, *, is_error: bool = False) -> bytes:
    return _answer(request, result={"content": [{"type": "text", "text": text}], "isError": is_error})


class Gateway:
    """What a client reaches: it hands calls on, and answers as it is told.

    Attributes:
        ending: what becomes of the answer to a call; a name of `ENDINGS`.
        paid: to whom the server has paid.
        url: where it listens, while `open` lasts.
    """

    def __init__(self, ending: str) -> None:
        self.ending = ending
        self.paid: list[str] = []
        self.url = ""

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[Gateway]:
        """Listen on a free port of this machine."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
        try:
            yield self
        finally:
            server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while (answer := self._answer_to(*await _read(reader))) is not None:
                writer.write(answer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client has gone
        finally:
            writer.close()

    def _answer_to(self, method: str, body: bytes) -> bytes | None:
        """The answer to a request; `None` closes the connection."""
        if method != "POST":
            return _page(405, "text/plain", b"")
        request = json.loads(body)
        if "id" not in request:
            return _page(202, "text/plain", b"")
        if request["method"] == "initialize":
            server = {"name": "bank", "version": "1"}
            version = request["params"]["protocolVersion"]
            said: dict[str, Any] = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": server}
            return _answer(request, result=said)
        if request["method"] == "tools/list":
            return _answer(request, result={"tools": [PAY]})
        if request["method"] != "tools/call":
            return _error(request, -32601)
        return self._pay(request)

    def _pay(self, request: Any) -> bytes | None:
        if self.ending in {"method not found", "invalid params"}:  # the server's refusal, before it has done anything
            return _error(request, -32601 if self.ending == "method not found" else -32602, status=400)
        self.paid.append(request["params"]["arguments"]["to"])
        if self.ending in _PAGES:
            return _PAGES[self.ending]
        if self.ending == "closed":
            return None
        if self.ending == "no result":
            return _answer(request, result={"nonsense": 1})
        if self.ending == "internal error":
            return _error(request, -32603)
        return _result(request, "no money" if self.ending == "error result" else "paid", is_error=self.ending != "paid")


_PAGES = {
    **{str(status): _page(status, _HTML, b"<h1>gone, or who are you?</h1>") for status in (502, 504, 404, 401)},
    "a page": _page(200, _HTML, b"<h1>please log in</h1>"),
    "half an answer": _page(200, _JSON, b'{"jsonrpc":"2.0","id":'),
    "a stream without an end": _page(200, "text/event-stream", b": hi\n\n"),
}

ENDINGS: dict[str, str] = {
    "paid": "done",
    **dict.fromkeys(("error result", "method not found", "invalid params"), "failed"),
    **dict.fromkeys(("internal error", "no result", "closed"), "unknown"),
    **dict.fromkeys(_PAGES, "unknown"),
}
"""What a call ends with, and what is known of its effect then."""


async def _read(reader: asyncio.StreamReader) -> tuple[str, bytes]:
    """The method and the body of a request."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    headers = dict(line.lower().split(":", 1) for line in head.split("\r\n")[1:] if ":" in line)
    length = int(headers.get("content-length", 0))
    return head.split()[0], await reader.readexactly(length)
