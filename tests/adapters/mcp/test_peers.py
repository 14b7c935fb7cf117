"""Clients and servers that are not ours: FastMCP's client at our server and proxy, and servers of FastMCP and the SDK.

All of them over HTTP or standard input and output, as they are used.
"""

from __future__ import annotations

import sys
from base64 import b64encode
from pathlib import Path
from typing import Any

import fastmcp
import mcp_types as t
import pytest
from fastmcp.client.transports import StdioTransport
from fastmcp.exceptions import ToolError
from fastmcp.utilities.types import Image
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver import Image as SdkImage
from mcp.server.mcpserver.exceptions import ToolError as SdkToolError
from pydantic import BaseModel

import handrail
from handrail import ToolExecutor, tool
from handrail.adapters.mcp import McpServer, server
from handrail.session import Session
from tests.adapters.mcp.fixture_tools import PNG, TOOLS
from tests.adapters.mcp.kit import ERAS, on_port, proxied, text

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(180)]  # a proxy is a process that starts


class Receipt(BaseModel):
    """What was paid."""

    order: str
    cents: int


@tool(effect="external")
def pay(order: str) -> Receipt:
    """Pays an order."""
    return Receipt(order=order, cents=3)


class Person:
    """Answers each question with the same fields, and remembers what was asked."""

    def __init__(self, **fields: Any) -> None:
        self.fields = fields
        self.asked: list[str] = []

    async def __call__(self, message: str, *_: object) -> dict[str, Any]:
        self.asked.append(message)
        return self.fields


class Steps:
    """Remembers the progress of a call."""

    def __init__(self) -> None:
        self.seen: list[tuple[float, float | None]] = []

    async def __call__(self, progress: float, total: float | None, message: str | None) -> None:
        self.seen.append((progress, total))


# ------------------------------------------------------------------------------------------- FastMCP's client and ours


@pytest.mark.parametrize("mode", ERAS)
async def test_fastmcp_client_reads_results_of_our_server(mode: Any) -> None:
    """It makes values of structured results, and errors of failed ones."""
    async with (
        on_port(server(ToolExecutor([*TOOLS, pay], session=Session()))) as url,
        fastmcp.Client(url, mode=mode) as client,
    ):
        paid = await client.call_tool("pay", {"order": "a"})
        assert (paid.structured_content, paid.data.cents) == ({"order": "a", "cents": 3}, 3)
        with pytest.raises(ToolError, match="intentionally"):
            await client.call_tool("test_error_handling", {})


@pytest.mark.parametrize("mode", ERAS)
async def test_fastmcp_client_shows_questions_and_progress_of_our_server(mode: Any) -> None:
    """The question of a handler, whose call is made again with the answer."""
    person, steps = Person(username="ada", email="ada@example.com"), Steps()
    async with (
        on_port(server(ToolExecutor(TOOLS, session=Session()))) as url,
        fastmcp.Client(url, mode=mode, elicitation_handler=person) as client,
    ):
        answer = await client.call_tool("test_elicitation", {"message": "Who are you?"})
        await client.call_tool("test_tool_with_progress", {}, progress_handler=steps)
    assert "ada@example.com" in str(answer.content)
    assert (person.asked, steps.seen) == (["Who are you?"], [(0, 100), (50, 100), (100, 100)])


@pytest.mark.parametrize("mode", ERAS)
@pytest.mark.short(1)  # the server in the test before is asked in both
async def test_fastmcp_client_approves_calls_of_our_proxy(mode: Any, tmp_path: Path) -> None:
    """The command as a process, with rules that ask, in front of a server of FastMCP's; progress passes through."""
    rules = tmp_path / "rules.yaml"
    rules.write_text("ask: [transfer]\n")
    person, steps = Person(approve=True), Steps()
    environment = {"PYTHONPATH": str(Path(handrail.__file__).parents[1])}
    async with on_port(fastmcp_server()) as url:
        words = ["-m", "handrail", "proxy", "--rules", str(rules), "--url", url]
        transport = StdioTransport(sys.executable, words, env=environment, keep_alive=False)
        async with fastmcp.Client(transport, mode=mode, elicitation_handler=person) as client:
            paid = await client.call_tool("transfer", {"order": "a"}, progress_handler=steps)
    assert paid.structured_content == {"order": "a", "cents": 3}
    assert (len(person.asked), steps.seen) == (1, [(1, 2), (2, 2)])


# ---------------------------------------------------------------------------------------------- their servers and ours


def fastmcp_server() -> Any:
    """A server of FastMCP's, as an application."""
    app = fastmcp.FastMCP("bank")

    @app.tool
    async def transfer(order: str, ctx: fastmcp.Context) -> Receipt:
        """Pays an order, in two steps."""
        for step in (1, 2):
            await ctx.report_progress(step, 2)
        return Receipt(order=order, cents=3)

    @app.tool
    def prices() -> list[int]:
        """Lists prices."""
        return [1, 2]

    @app.tool
    def logo() -> Image:
        """A picture."""
        return Image(data=PNG, format="png")

    @app.tool
    def fail() -> str:
        """Fails."""
        raise ToolError("the desk is closed")

    return app.http_app()


def sdk_server() -> Any:
    """A server of the SDK's, as an application."""
    app = MCPServer("bank")

    @app.tool()
    async def transfer(order: str, ctx: Context[Any, Any]) -> Receipt:
        """Pays an order, in two steps."""
        for step in (1, 2):
            await ctx.report_progress(step, 2)
        return Receipt(order=order, cents=3)

    @app.tool()
    def prices() -> list[int]:
        """Lists prices."""
        return [1, 2]

    @app.tool()
    def logo() -> SdkImage:
        """A picture."""
        return SdkImage(data=PNG, format="png")

    @app.tool()
    def fail() -> str:
        """Fails."""
        raise SdkToolError("the desk is closed")

    return app.streamable_http_app()


@pytest.mark.parametrize("mode", ERAS)
@pytest.mark.parametrize("make", [fastmcp_server, sdk_server])
async def test_results_of_their_servers_come_through_our_client(make: Any, mode: str) -> None:
    """Structured results, progress, images and errors, behind a proxy."""
    steps = Steps()
    async with on_port(make()) as url, proxied(McpServer(name="bank", url=url), mode) as (client, _):
        assert [one.name for one in (await client.list_tools()).tools] == ["transfer", "prices", "logo", "fail"]
        paid = await client.call_tool("transfer", {"order": "a"}, progress_callback=steps)
        assert (paid.structured_content, steps.seen) == ({"order": "a", "cents": 3}, [(1, 2), (2, 2)])
        assert (await client.call_tool("prices", {})).structured_content == {"result": [1, 2]}
        image = (await client.call_tool("logo", {})).content[-1]
        assert image == t.ImageContent(data=b64encode(PNG).decode(), mime_type="image/png")
        failed = await client.call_tool("fail", {})
        assert (failed.is_error, "the desk is closed" in text(failed)) == (True, True)
