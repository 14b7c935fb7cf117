"""A section with the tools of an MCP server, for a prompt; and one for each run of an agent, over one connection."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, ClassVar, Self

import mcp_types as t
from typing_extensions import override  # pydantic brings it; `typing` has it from Python 3.12 on

from handrail.adapters.mcp.connection import McpConnection, McpServer
from handrail.adapters.mcp.tools import DEFAULT_SETTINGS, ToolSettings, make_tools
from handrail.prompt import Section, Tool
from handrail.runtime.execution import ASYNC


@dataclass(frozen=True, kw_only=True, eq=False)
class McpToolsSection(Section[None]):
    """The tools of an MCP server: `McpToolsSection(["uvx", "mcp-server-git"], title="Git")`, or with a URL.

    The server is started when the section is made, and ended by leaving its `with` block, or with the process. It is
    followed: a prompt with the section has the tools that the server offers now. Made on an event loop, it would block
    that; there it is made of a connection: `async with McpConnection(server) as connection`.

    Attributes:
        server: a command, a URL, an `McpServer` with more, or a connection that is open.
        settings: what is declared about the tools; hints of the server decide the rest.
        description: guidance for the model.
        connection: the connection to the server.
        definitions: the tools as the server lists them, by the names that they have here.

    Raises:
        McpServerError: the server cannot be started.
    """

    live: ClassVar[bool] = True

    server: McpServer | McpConnection | Sequence[str] | str = field(kw_only=False)
    settings: ToolSettings = DEFAULT_SETTINGS
    description: str = ""
    accepts_overrides: bool = False
    title: str = "Tools of a server"
    tools: Sequence[Tool[Any, Any]] = field(init=False)
    connection: McpConnection = field(init=False, repr=False)
    definitions: Mapping[str, t.Tool] = field(init=False, repr=False)
    faults: Sequence[str] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        connection = self.server
        if not isinstance(connection, McpConnection):
            connection = McpConnection(_as_server(connection, self.title)).__enter__()
        object.__setattr__(self, "connection", connection)
        self._take_tools()
        Section.__post_init__(self)
        connection.follow(self._take_tools)

    def _take_tools(self) -> None:
        tools, faults = make_tools(self.connection, self.settings)
        definitions = {tools[one.name].name: one for one in self.connection.tools if one.name in tools}
        object.__setattr__(self, "definitions", definitions)
        object.__setattr__(self, "faults", tuple(faults))
        object.__setattr__(self, "tools", tuple(tools.values()))

    @override
    def is_claim(self, tool: str) -> bool:
        """True if hints of the server alone say that a tool only reads."""
        definition = self.definitions.get(tool)
        return definition is not None and self.settings.effect(definition) == ("read", "hints")

    @override
    def body_template(self) -> str:
        """The guidance."""
        return self.description

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Ends the server, if the section has started it."""
        if not isinstance(self.server, McpConnection):
            self.connection.__exit__(kind, error, traceback)


class SharedServer:
    """A server as a toolset of agents: started with the first run that needs it, and ended with the process."""

    def __init__(self, server: McpServer, settings: ToolSettings) -> None:
        self.server = server
        self._settings = settings
        self._lock = threading.Lock()
        self._connection: McpConnection | None = None

    async def make_section(self, _context: object) -> McpToolsSection:
        """The section of one run."""
        return McpToolsSection(await ASYNC.in_thread(self._connect), settings=self._settings, title=self.server.name)

    def _connect(self) -> McpConnection:
        with self._lock:
            if self._connection is None:
                self._connection = McpConnection(self.server).__enter__()
                atexit.register(self._connection.__exit__, None, None, None)
            return self._connection


def _as_server(server: McpServer | Sequence[str] | str, name: str) -> McpServer:
    if isinstance(server, McpServer):
        return server
    return McpServer(name=name, url=server) if isinstance(server, str) else McpServer(name=name, command=tuple(server))
