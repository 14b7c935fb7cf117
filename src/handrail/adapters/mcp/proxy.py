"""Servers behind one: every call of a client goes through the pipeline before it reaches a server.

The tools of each server are a section of one prompt. A client sees them as the server lists them, with the effects that
they have here as hints.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, NamedTuple, Unpack

import mcp_types as t

from handrail.adapters.mcp.connection import McpConnection
from handrail.adapters.mcp.content import OfferedTool, describe_tool
from handrail.adapters.mcp.section import McpToolsSection
from handrail.adapters.mcp.settings import ConfiguredServer
from handrail.adapters.mcp.source import ExecutorSource
from handrail.adapters.mcp.tool_server import ServerOptions, ToolServer
from handrail.adapters.mcp_hints import make_hints
from handrail.adapters.tool_executor import ToolExecutor
from handrail.prompt import Prompt, PromptTemplate, Tool, ToolPolicy
from handrail.session import Session


class Proxy(NamedTuple):
    """The sections of the servers, the server that clients see, and what runs their calls."""

    sections: Sequence[McpToolsSection]
    server: ToolServer
    executor: ToolExecutor


@asynccontextmanager
async def open_proxy(
    servers: Iterable[ConfiguredServer],
    *,
    session: Session,
    policies: Callable[[Callable[[str], bool]], Sequence[ToolPolicy]] = lambda _: (),
    **options: Unpack[ServerOptions],
) -> AsyncGenerator[Proxy]:
    """Starts the servers, and offers their tools behind one.

    Args:
        servers: the servers, each with what is declared about its tools.
        session: records the calls.
        policies: makes the policies that judge each call, such as those of approval rules, of a function that says of
            a tool whether only its server says that it reads.
        **options: as of `ToolServer`.

    Raises:
        McpServerError: a server cannot be started.
        PromptValidationError: two servers have tools of one name; one of them needs a prefix.
    """
    async with AsyncExitStack() as stack:
        configured = tuple(servers)
        connections = [McpConnection(server) for server, _ in configured]
        opened = await asyncio.gather(*(one.__aenter__() for one in connections), return_exceptions=True)
        for connection in opened:
            if isinstance(connection, McpConnection):
                stack.push_async_exit(connection)
        if failed := next((one for one in opened if isinstance(one, BaseException)), None):
            raise failed
        sections = [
            McpToolsSection(connection, settings=settings, title=server.name)
            for connection, (server, settings) in zip(connections, configured, strict=True)
        ]

        def is_claim(tool: str) -> bool:
            return any(section.is_claim(tool) for section in sections)

        template = PromptTemplate[str](ns="mcp", key="proxy", sections=sections, policies=policies(is_claim))
        executor = stack.enter_context(ToolExecutor(prompt=Prompt(template), session=session))

        def describe(tool: Tool[Any, Any]) -> OfferedTool:
            for section in sections:
                if (definition := section.definitions.get(tool.name)) is not None:
                    return OfferedTool(_as_here(definition, tool))
            return describe_tool(tool)

        instructions = "\n\n".join(filter(None, (section.connection.instructions for section in sections)))
        options = {"instructions": instructions, **options}
        proxy = Proxy(sections, ToolServer(ExecutorSource(executor, describe), **options), executor)
        for section in sections:
            section.connection.follow(proxy.server.announce_change)
        yield proxy


def _as_here(definition: t.Tool, tool: Tool[Any, Any]) -> t.Tool:
    here = {
        "name": tool.name,
        "input_schema": tool.parameters_schema,
        "annotations": t.ToolAnnotations.model_validate(make_hints(tool.effect)),
    }
    return definition.model_copy(update=here)
