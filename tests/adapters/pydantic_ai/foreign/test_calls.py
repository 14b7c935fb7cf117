"""`handrail.adapters.pydantic_ai.foreign.calls`: which failures leave open whether a server has carried a call out."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Literal

import mcp_types
import pytest
from fastmcp.client.transports import StdioTransport
from fastmcp.exceptions import ToolError
from mcp import MCPError
from pydantic_ai import ModelRetry, RunContext, RunUsage, ToolFailed
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.models.test import TestModel

from handrail.adapters.pydantic_ai.foreign.calls import is_answer_lost
from tests.adapters import mcp_desk

CLOSED = MCPError(code=mcp_types.CONNECTION_CLOSED, message="Connection closed")
"""What the client finds when a server has gone."""

Behavior = Literal["retry", "error", "failed"]


async def describe_outcome(name: str, behavior: Behavior) -> Exception:
    """What a tool of a server in another process fails with."""
    child = StdioTransport(sys.executable, [str(Path(mcp_desk.__file__))], keep_alive=False)
    # The server may take as long to start as the test may.
    toolset = MCPToolset[Any](child, id="desk", tool_error_behavior=behavior, init_timeout=None)
    ctx = RunContext[Any](deps=None, model=TestModel(), usage=RunUsage())
    async with toolset:
        tools = await toolset.get_tools(ctx)
        with pytest.raises((ModelRetry, ToolFailed, MCPError, ToolError)) as failed:
            await toolset.call_tool(name, {"text": "hello"}, ctx, tools[name])
    return failed.value


@pytest.mark.anyio
@pytest.mark.parametrize("behavior", ["retry", "failed", "error"])
@pytest.mark.short(1)
async def test_a_server_that_dies_in_a_call_leaves_open_whether_it_was_carried_out(behavior: Behavior) -> None:
    """However PydanticAI was told to raise it."""
    assert is_answer_lost(await describe_outcome("die", behavior))


@pytest.mark.anyio
@pytest.mark.parametrize("name", ["break", "refuse"])
@pytest.mark.short(1)
async def test_a_server_that_answers_leaves_nothing_open(name: str) -> None:
    """Neither a failed call nor one that the server would not take is a lost answer."""
    assert not is_answer_lost(await describe_outcome(name, "retry"))


def _grouped(*errors: Exception) -> Exception:
    return ExceptionGroup("of the session", errors)


def _because(cause: BaseException) -> Exception:
    error = ModelRetry("try again")
    error.__cause__ = cause
    return error


FAILURES: dict[str, tuple[Exception, bool]] = {
    "closed": (CLOSED, True),
    "timed out": (MCPError(code=mcp_types.REQUEST_TIMEOUT, message="timed out"), True),
    "raised from it": (_because(CLOSED), True),
    "raised from that": (_because(_because(CLOSED)), True),
    "in a group": (_grouped(ValueError(), CLOSED), True),
    "raised from a group": (_because(_grouped(CLOSED)), True),
    "refused arguments": (MCPError(code=mcp_types.INVALID_PARAMS, message="Invalid params"), False),
    "an unknown tool": (MCPError(code=mcp_types.METHOD_NOT_FOUND, message="Method not found"), False),
    "no such page": (MCPError(code=mcp_types.METHOD_NOT_FOUND, message="Not Found"), True),
    "a fault of the server": (MCPError(code=mcp_types.INTERNAL_ERROR, message="Internal server error"), True),
    "an answer that is no JSON": (MCPError(code=mcp_types.PARSE_ERROR, message="Failed to parse"), True),
    "another page": (MCPError(code=mcp_types.INVALID_REQUEST, message="Unexpected content type: text/html"), True),
    "a code of its own": (MCPError(code=7, message="busy"), True),
    "the same words": (ModelRetry("Connection closed"), False),
    "a failed call": (ToolFailed("the desk is closed"), False),
    "a group of others": (_grouped(ValueError()), False),
}


@pytest.mark.parametrize("error, lost", FAILURES.values(), ids=FAILURES)
def test_only_two_codes_and_results_prove_that_nothing_was_done(error: Exception, *, lost: bool) -> None:
    """Every other JSON-RPC error may be the client's own, for an answer that it did not get."""
    assert is_answer_lost(error) is lost
