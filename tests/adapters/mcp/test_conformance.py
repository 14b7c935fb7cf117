"""The official conformance suite of MCP against our server and our client, with what it may find lacking."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from handrail import ToolExecutor
from handrail.adapters.mcp import McpConnection, McpServer, McpServerError, server
from handrail.session import Session
from tests.adapters.mcp.fixture_tools import TOOLS
from tests.adapters.mcp.kit import free_port, on_port, run_node

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]  # the suite waits for what does not come

SUITE = "conformance/dist/index.js"
EXPECTED = ("--expected-failures", str(Path(__file__).with_name("expected_failures.yml")))

# The suite starts a program for each of its servers. A program that opens a socket starts at once, where one that
# imports the SDK takes a second; the test calls the server for it.
PROGRAM = """
import socket, sys
with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as test:
    test.sendall(sys.argv[-1].encode() + b"\\n")
    sys.exit(test.makefile().read())
"""


async def test_server_passes_but_for_what_is_not_offered(tmp_path: Path) -> None:
    """A scenario that fails or passes against the expectation fails the test."""
    async with on_port(server(ToolExecutor(TOOLS, session=Session()))) as url:
        words = ("server", "--url", url, "--suite", "all", "--output-dir", str(tmp_path), *EXPECTED)
        code, printed, said = await run_node(SUITE, *words)
    assert (_unexpected(printed), code) == ([], 0), printed + said
    assert "✓ tools-call-elicitation" in printed


async def test_client_passes_but_for_what_is_not_offered(tmp_path: Path) -> None:
    """A client that cannot log in to a server says so, and sends it nothing else."""
    async with _client_program(tmp_path) as command:
        words = ("client", "--command", command, "--suite", "all", "--output-dir", str(tmp_path), *EXPECTED)
        code, printed, said = await run_node(SUITE, *words)
    assert (_unexpected(printed), code) == ([], 0), printed + said
    assert "✓ sse-retry" in printed


def _unexpected(printed: str) -> list[str]:
    """The scenarios that fail and are not expected to (✗), and those that are expected to and pass (✓)."""
    return [line.strip() for line in printed.splitlines() if line.startswith(("  ✗", "  ✓"))]


@asynccontextmanager
async def _client_program(folder: Path) -> AsyncGenerator[str]:
    """The command of a client that calls every tool of the server whose URL is its last argument."""

    async def call_tools(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        url = (await reader.readline()).decode().strip()
        try:
            async with McpConnection(McpServer(name="conformance", url=url)) as opened:
                for tool in opened.tools:
                    await opened.call(tool.name, dict.fromkeys(tool.input_schema.get("properties", ()), 2))
        except McpServerError as error:
            writer.write(str(error).encode())
        writer.close()

    file, port = folder / "client.py", free_port()
    file.write_text(PROGRAM)
    async with await asyncio.start_server(call_tools, "127.0.0.1", port):
        yield f"{sys.executable} -I -S {file} {port}"
