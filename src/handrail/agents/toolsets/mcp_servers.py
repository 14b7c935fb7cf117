"""MCP servers as toolsets of a project: `mcp = "servers.yaml"` in `[tool.handrail]`, each by its name in agent files.

A server is started with the first run that needs it, shared by all runs of the process, and ended with it.
"""

from __future__ import annotations

import atexit
import threading
from pathlib import Path
from typing import Any

from pydantic_ai import RunContext

from handrail.adapters.mcp.connection import McpConnection
from handrail.adapters.mcp.section import McpToolsSection
from handrail.adapters.mcp.settings import ConfiguredServer, read_servers
from handrail.agents.registry import Entry, Origin, ToolsetFactory
from handrail.runtime.execution import ASYNC


def server_toolsets(file: Path, name: str) -> list[Entry]:
    """The servers that a file describes; `name` is the file in messages.

    Raises:
        DocumentError: the file cannot be read, or is invalid.
    """
    servers = [_SharedServer(configured) for configured in read_servers(file, shown_as=name)]
    return [
        Entry(shared.name, "toolset", ToolsetFactory(shared.make_section), Origin("module", name)) for shared in servers
    ]


class _SharedServer:
    def __init__(self, configured: ConfiguredServer) -> None:
        self.name: str = configured.server.name
        self._configured = configured
        self._lock = threading.Lock()
        self._connection: McpConnection | None = None

    async def make_section(self, _context: RunContext[Any]) -> McpToolsSection:
        connection = await ASYNC.in_thread(self._connect)
        return McpToolsSection(connection, settings=self._configured.settings, title=self.name)

    def _connect(self) -> McpConnection:
        with self._lock:
            if self._connection is None:
                self._connection = McpConnection(self._configured.server).__enter__()
                atexit.register(self._connection.__exit__, None, None, None)
            return self._connection
