"""A server of tools over streamable HTTP: who may reach it, and how much of it. A real server on a free port."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings
from pydantic import AnyHttpUrl

from handrail import ToolExecutor, tool
from handrail.adapters.mcp import HttpSettings, ToolServer, server
from handrail.adapters.mcp.http import http_app
from handrail.adapters.mcp.source import ExecutorSource
from handrail.prompt import Tool, ToolContext
from handrail.runtime import ToolInvoked
from handrail.session import Session
from tests.adapters.mcp.kit import ERAS, free_port, on_port, text

pytestmark = pytest.mark.anyio

HEADERS = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}},
}


@tool
def whose(context: ToolContext) -> str:
    """Names the session."""
    return context.session.session_id


@tool(effect="read")
async def slow() -> str:
    """Takes its time."""
    await asyncio.sleep(60)
    return "never"


class Tokens:
    """Verifies tokens by their own words: `alice` is one of alice."""

    async def verify_token(self, token: str) -> AccessToken | None:
        """The token, if it is a name."""
        if not token.isalpha():
            return None
        return AccessToken(
            token=token, client_id="client", subject=token, scopes=["tools"], resource="http://127.0.0.1/mcp"
        )


def executor(session_id: str = "desk") -> ToolExecutor:
    """An executor of the tools."""
    return ToolExecutor([whose, slow], session=Session(session_id=session_id))


async def post(url: str, headers: Mapping[str, str] | None = None, content: bytes | None = None) -> httpx2.Response:
    """Sends a request to open a session, or some bytes."""
    body = json.dumps(HELLO).encode() if content is None else content
    async with httpx2.AsyncClient(timeout=30) as client:
        return await client.post(url, content=body, headers={**HEADERS, **(headers or {})})


@asynccontextmanager
async def client_at(url: str, mode: Any = "auto", token: str = "") -> AsyncGenerator[Client]:
    """A client of the SDK, perhaps with a bearer token."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with (
        httpx2.AsyncClient(headers=headers) as http,
        Client(streamable_http_client(url, http_client=http), mode=mode) as client,
    ):
        yield client


@pytest.mark.parametrize("mode", ERAS)
async def test_one_endpoint_serves_both_eras(mode: str) -> None:
    """Without a setting for either."""
    async with on_port(server(executor())) as url, client_at(url, mode) as client:
        assert [one.name for one in (await client.list_tools()).tools] == ["whose", "slow"]
        assert text(await client.call_tool("whose", {})) == "desk"


REFUSED: dict[str, tuple[dict[str, str], int]] = {
    "a host that leads here by another name": ({"Host": "evil.example:80"}, 421),
    "a page of another site": ({"Origin": "https://evil.example"}, 403),
}


@pytest.mark.parametrize("name", REFUSED)
async def test_rebinding_and_foreign_pages_are_refused(name: str) -> None:
    """A request without these headers is served."""
    headers, status = REFUSED[name]
    async with on_port(server(executor())) as url:
        assert (await post(url, headers)).status_code == status
        assert (await post(url)).status_code == 200


async def test_body_that_is_too_large_is_refused_and_it_goes_on_serving() -> None:
    """A body of 10 MB against a limit of 10 kB."""
    async with on_port(server(executor(), http=HttpSettings(max_body=10_000))) as url:
        assert (await post(url, content=b'{"a": "' + b"x" * 10_000_000 + b'"}')).status_code == 413
        assert (await post(url)).status_code == 200


def with_tokens(sessions: dict[str, ExecutorSource]) -> Any:
    """An application for clients with tokens, which have a session each."""

    def find(name: str) -> ExecutorSource:
        return sessions.setdefault(name, ExecutorSource(executor(name or "nobody")))

    auth = AuthSettings(
        issuer_url=AnyHttpUrl("https://issuer.example"),
        resource_server_url=AnyHttpUrl("http://127.0.0.1/mcp"),
        required_scopes=["tools"],
        validate_token_resource=True,
    )
    return http_app(ToolServer(find), HttpSettings(auth=auth, verifier=Tokens()))


async def test_header_that_names_another_argument_than_the_body_is_refused() -> None:
    """A proxy on the way may decide by the header."""
    schema = {"type": "object", "properties": {"order": {"type": "string", "x-mcp-header": "Order"}}}

    def paid(_arguments: dict[str, Any]) -> str:
        return "paid"

    pay = Tool.from_json_schema(name="pay", description="Pays.", schema=schema, handler=paid)
    sent: list[str | None] = []
    other: list[str] = []

    async def hook(request: httpx2.Request) -> None:
        sent.append(request.headers.get("Mcp-Param-Order"))
        if other:
            request.headers["Mcp-Param-Order"] = other[0]

    app = server(ToolExecutor([pay], session=Session()))
    async with (
        on_port(app) as url,
        httpx2.AsyncClient(event_hooks={"request": [hook]}) as http,
        Client(streamable_http_client(url, http_client=http)) as client,
    ):
        await client.list_tools()
        assert text(await client.call_tool("pay", {"order": "a"})) == "paid"
        assert sent[-1] == "a"
        other.append("b")
        with pytest.raises(MCPError):
            await client.call_tool("pay", {"order": "a"})


async def test_process_ends_in_order_at_sigterm(tmp_path: Path) -> None:
    """Exit code 0, and nothing is said of it."""
    port = free_port()
    tools = tmp_path / "desk_tools.py"
    tools.write_text("from tests.adapters.mcp.test_http import whose\n\nTOOLS = [whose]\n")
    command = ["-m", "handrail", "serve", f"{tools}:TOOLS", "--http", str(port), "--session", "desk"]
    process = await asyncio.create_subprocess_exec(sys.executable, *command, stderr=asyncio.subprocess.PIPE)
    assert process.stderr is not None
    while b"Serving on" not in await process.stderr.readline():
        assert process.returncode is None
    while True:
        with suppress(httpx2.ConnectError):
            assert (await post(f"http://127.0.0.1:{port}/mcp")).status_code == 200
            break
    process.terminate()
    assert (await process.wait(), await process.stderr.read()) == (0, b"")


async def test_without_a_valid_token_nothing_is_served() -> None:
    """The response names the metadata of the resource, as clients need it to log in."""
    async with on_port(with_tokens({})) as url:
        for headers in ({}, {"Authorization": "Bearer 123"}):
            refused = await post(url, headers)
            assert refused.status_code == 401
            assert "resource_metadata" in refused.headers["WWW-Authenticate"]


@pytest.mark.parametrize("mode", ERAS)
async def test_each_principal_has_a_session_of_its_own(mode: str) -> None:
    """The subject of the token decides, over all connections."""
    sessions: dict[str, ExecutorSource] = {}
    async with on_port(with_tokens(sessions)) as url:
        names: list[str] = []
        for token in ("alice", "bob", "alice"):
            async with client_at(url, mode, token) as client:
                names.append(text(await client.call_tool("whose", {})))
    assert names[0] == names[2] != names[1]
    assert len(sessions[names[0]].session[ToolInvoked]) == 2


async def test_it_stops_while_a_call_runs_and_rolls_that_back() -> None:
    """The server shuts down in order after its client has left a call."""
    one = executor()
    async with on_port(server(one)) as url, client_at(url) as client:
        call = asyncio.ensure_future(client.call_tool("slow", {}))
        await asyncio.sleep(0.2)
        call.cancel()
        await asyncio.wait((call,))
    assert not any(event.result.success for event in one.environment.session[ToolInvoked])


@pytest.mark.parametrize("name", ["not JSON", "not an object", "no method", "deep", "not Unicode", "a number"])
async def test_malformed_messages_leave_it_serving(name: str) -> None:
    """Each is refused with a status of 4xx, and the next request is served."""
    bodies = {
        "not JSON": b"{",
        "not an object": b"[1, 2]",
        "no method": b'{"jsonrpc": "2.0", "id": 1}',
        "deep": b"[" * 100_000,
        "not Unicode": b'{"jsonrpc": "2.0", "id": 1, "method": "\xff"}',
        "a number": b"1e999",
    }
    async with on_port(server(executor())) as url:
        assert 400 <= (await post(url, content=bodies[name])).status_code < 500
        assert (await post(url)).status_code == 200
