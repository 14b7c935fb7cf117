"""MCP: the tools of servers through the pipeline, tools of Handrail's as a server, and both together as a proxy.

It needs the extra `mcp`, and imports the SDK with the first name that is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from handrail.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from handrail.adapters.mcp.connection import McpConnection, McpServer, McpServerError
    from handrail.adapters.mcp.http import HttpSettings, server
    from handrail.adapters.mcp.questions import ClientAnswer, ask_client
    from handrail.adapters.mcp.section import McpToolsSection
    from handrail.adapters.mcp.source import ExecutorSource
    from handrail.adapters.mcp.tool_server import ToolServer, serve_stdio
    from handrail.adapters.mcp.tools import AskTool, ToolSettings
else:
    _MODULES = {
        "connection": "McpConnection McpServer McpServerError",
        "http": "HttpSettings server",
        "questions": "ClientAnswer ask_client",
        "section": "McpToolsSection",
        "source": "ExecutorSource",
        "tool_server": "ToolServer serve_stdio",
        "tools": "AskTool ToolSettings",
    }
    __getattr__ = lazy_exports(__name__, _MODULES)

__all__ = [
    "AskTool",
    "ClientAnswer",
    "ExecutorSource",
    "HttpSettings",
    "McpConnection",
    "McpServer",
    "McpServerError",
    "McpToolsSection",
    "ToolServer",
    "ToolSettings",
    "ask_client",
    "serve_stdio",
    "server",
]
