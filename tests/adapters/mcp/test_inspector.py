"""The MCP Inspector as a client, in its CLI mode: it lists tools, finds nothing wrong with them, and calls them."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import handrail
from handrail import ToolExecutor
from handrail.adapters.mcp import server
from handrail.session import Session
from tests.adapters.mcp import fixture_tools
from tests.adapters.mcp.bank_server import Bank
from tests.adapters.mcp.kit import bank_command, on_port, run_node

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]  # each command is two or three programs that start

INSPECTOR = "inspector/clients/launcher/build/index.js"


@asynccontextmanager
async def target(way: str) -> AsyncGenerator[Sequence[str]]:
    """The command of a server, or the URL of one that runs."""
    handrail_command = (sys.executable, "-m", "handrail")
    if way == "http":
        async with on_port(server(ToolExecutor(fixture_tools.TOOLS, session=Session()))) as url:
            yield (url,)
    elif way == "proxy":
        yield (*handrail_command, "proxy", "--env", "BANK", "--", *bank_command())
    else:
        yield (*handrail_command, "serve", f"{fixture_tools.__file__}:TOOLS")


async def inspect(way: str, folder: Path, *words: str) -> Any:
    """What the Inspector prints about a server; neither it nor the server says anything else."""
    variables = {
        "BANK": str(folder / "payments"),
        "HANDRAIL_STORE": f"sqlite:///{folder}/calls.db",
        "PYTHONPATH": str(Path(handrail.__file__).parents[1]),
    }
    given = [word for name, value in variables.items() for word in ("-e", f"{name}={value}")]
    async with target(way) as of:
        code, printed, said = await run_node(INSPECTOR, "--cli", *given, *words, "--", *of, env={"HOME": str(folder)})
    assert (code, said) == (0, ""), printed
    return json.loads(printed)


@pytest.mark.parametrize("way", ["proxy", "serve", "http"])
@pytest.mark.short(2)
async def test_listed_tools_are_portable(way: str, tmp_path: Path) -> None:
    """With `--strict` it ends with an error for a schema that some client cannot use."""
    assert (await inspect(way, tmp_path, "--method", "tools/list", "--strict"))["tools"]


async def test_call_through_the_proxy_reaches_the_server(tmp_path: Path) -> None:
    """Its text is marked as data from outside."""
    words = ("--method", "tools/call", "--tool-name", "pay", "--tool-arg", "order=a", "cents=3")
    printed = await inspect("proxy", tmp_path, *words)
    assert "paid a" in printed["content"][0]["text"]
    assert Bank(tmp_path / "payments").paid() == [{"order": "a", "cents": 3}]


@pytest.mark.parametrize("way", ["serve", "http"])
@pytest.mark.short(1)
async def test_tool_of_a_module_answers(way: str, tmp_path: Path) -> None:
    """Over standard input and output, and over HTTP."""
    words = ("--method", "tools/call", "--tool-name", "test_multiple_content_types")
    printed = await inspect(way, tmp_path, *words)
    assert [block["type"] for block in printed["content"]] == ["text", "image", "resource"]
