"""MCP: the tools of servers through the pipeline, tools of Handrail's as a server, and both together as a proxy.

It needs the extra `mcp`.
"""

from handrail.adapters.mcp.connection import McpConnection, McpServer, McpServerError
from handrail.adapters.mcp.http import HttpSettings, server
from handrail.adapters.mcp.questions import ClientAnswer, ask_client
from handrail.adapters.mcp.section import McpToolsSection
from handrail.adapters.mcp.source import ExecutorSource
from handrail.adapters.mcp.tool_server import ToolServer, serve_stdio
from handrail.adapters.mcp.tools import AskTool, ToolSettings, UndoneBy

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
    "UndoneBy",
    "ask_client",
    "serve_stdio",
    "server",
]
