"""An MCP server's tools, by PydanticAI's `MCPToolset`: hints become effects, and calls take the pipeline."""

from __future__ import annotations

import logging
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import anyio
import pytest
from fastmcp.client.transports import ClientTransport, StdioTransport, StreamableHttpTransport
from fastmcp.client.transports.base import SessionKwargs, TransportOptions
from mcp import ClientSession
from mcp.server.lowlevel import Server
from mcp.shared.memory import create_client_server_memory_streams
from pydantic_ai import RunContext, RunUsage
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.models.test import TestModel
from typing_extensions import Unpack, override

from handrail.adapters.pydantic_ai.foreign.calls import ToolMetadata, read_tool_metadata
from handrail.runtime import EffectLedger, IdempotencyConfig, Session, ToolInvoked
from handrail.testing import Call, Expect, Outcome, Reply
from tests.adapters import mcp_desk
from tests.adapters.kit import DONE, pipeline, play, returns
from tests.adapters.mcp_gateway import ENDINGS, Gateway
from tests.wording import Wording

pytestmark = pytest.mark.anyio

CONTEXT = RunContext[Any](deps=None, model=TestModel(), usage=RunUsage())


class InProcess(ClientTransport):
    """Joins a client to a server in the same process, over streams in memory."""

    def __init__(self, server: Server) -> None:
        self._server = server

    @override
    @asynccontextmanager
    async def connect_session(
        self, *, transport_options: TransportOptions | None = None, **session_kwargs: Unpack[SessionKwargs]
    ) -> AsyncGenerator[ClientSession]:
        options = transport_options or TransportOptions()
        async with create_client_server_memory_streams() as (client, (read, write)), anyio.create_task_group() as tasks:
            tasks.start_soon(self._server.run, read, write, self._server.create_initialization_options())
            async with options.session_class(*client, **session_kwargs) as session:
                yield session
            tasks.cancel_scope.cancel()


@pytest.fixture
def carried_out() -> list[str]:
    """What the server has carried out."""
    return []


@pytest.fixture
def toolset(carried_out: list[str]) -> MCPToolset[Any]:
    """The desk's tools, the server in this process; what it fails at is told to the model."""
    return MCPToolset(InProcess(mcp_desk.desk_server(carried_out)), id="desk", tool_error_behavior="failed")


GUESSED = {
    "look": ToolMetadata(effect="read", approval="ask"),
    **dict.fromkeys(("add", "plain"), ToolMetadata(effect="state")),
    **dict.fromkeys(("send", "break", "refuse", "die"), ToolMetadata(effect="external")),
}


async def test_hints_of_a_server_in_another_process_become_effects() -> None:
    """The hints that a real server sends are those that `foreign_effects` reads; its `meta` grants it nothing."""
    child = StdioTransport(sys.executable, [str(Path(mcp_desk.__file__))], keep_alive=False)
    async with MCPToolset[Any](child, init_timeout=None) as toolset:
        tools = await toolset.get_tools(CONTEXT)
    assert {name: read_tool_metadata(tool.tool_def) for name, tool in tools.items()} == GUESSED


def called(name: str, text: str = "hello") -> Reply:
    """A reply that calls one tool."""
    return Reply(calls=[Call(name, {"text": text}, id=f"{name}-1")])


CAME = {"look": Outcome.ok("look: hello"), "break": Outcome.failed("the desk is closed")}


@pytest.mark.parametrize("name, came", CAME.items(), ids=CAME)
async def test_a_call_of_a_server_is_recorded_once(
    toolset: MCPToolset[Any], carried_out: list[str], name: str, came: Outcome
) -> None:
    """It is carried out once, one `ToolInvoked` has its arguments and its result, and the model reads the answer."""
    done = Reply(text="Done.", expect=Expect(messages={f"{name}-1": came}))
    session = Session()
    await play(pipeline(session), [called(name), done], toolsets=[toolset])
    (event,) = session[ToolInvoked].all()
    assert (event.name, event.success, event.call.arguments) == (name, came.success, {"text": "hello"})
    assert event.result.value == ("look: hello" if came.success else None)
    assert carried_out == [f"{name}: hello"]


async def test_only_external_tools_of_a_server_claim_their_effects(toolset: MCPToolset[Any]) -> None:
    """A call that may have changed the world claims its effect; reading, and what is said to stay inside, does not."""
    session = Session()
    await play(pipeline(session), [called("look"), called("add"), called("send"), DONE], toolsets=[toolset])
    events = {event.name: event for event in session[ToolInvoked].all()}
    keys = {name: event.effect_key for name, event in events.items()}
    assert keys == {"look": None, "add": None, "send": f"call:{events['send'].ref}"}


async def test_a_declared_key_keeps_a_server_from_being_asked_twice(
    toolset: MCPToolset[Any], carried_out: list[str]
) -> None:
    """With an idempotency declared in Python, a second call for the same effect is answered from the ledger."""
    once = toolset.with_metadata(idempotency=IdempotencyConfig(strategy="params", param_keys=("text",)))
    sends = [Call("send", {"text": "hello"}), Call("send", {"text": "hello"})]
    both = Expect(messages={"call-1": Outcome.ok("send: hello"), "call-2": Outcome.ok("send: hello")})
    session = Session()
    await play(pipeline(session), [Reply(calls=sends), Reply(text="Done.", expect=both)], toolsets=[once])
    assert [event.replayed for event in session[ToolInvoked].all()] == [False, True]
    assert carried_out == ["send: hello"]


Behavior = Literal["retry", "failed"]
TWICE = [Reply(calls=[Call("pay", {"to": "ann"}, id=name)]) for name in ("c1", "c2")]


async def play_with(gateway: Gateway, session: Session, ledger: EffectLedger, behavior: Behavior = "failed") -> Any:
    """Have a model pay ann in two replies, and end; returns the messages of the run."""
    async with gateway.open():
        far = StreamableHttpTransport(gateway.url)
        toolset = MCPToolset[Any](far, id="bank", tool_error_behavior=behavior, max_retries=3)
        done = await play(pipeline(session, effect_ledger=ledger), [*TWICE, Reply(text="Done.")], toolsets=[toolset])
    return done.all_messages()


@pytest.mark.parametrize("behavior", ["retry", "failed"])
@pytest.mark.parametrize("ending, status", ENDINGS.items(), ids=list(ENDINGS))
async def test_only_the_servers_own_words_prove_that_nothing_was_done(
    ending: str, status: str, behavior: Behavior, wording: Wording
) -> None:
    """After any other answer the effect is unknown, the model is told, the equal call is refused, the run goes on."""
    gateway, ledger, session = Gateway(ending), EffectLedger(), Session(session_id="s")
    messages = await play_with(gateway, session, ledger, behavior)
    assert {row.status for row in ledger.rows()} == {status}
    assert len(session[ToolInvoked].all()) == 2
    if status == "unknown":
        assert gateway.paid == ["ann"]
        told = returns(messages)
        assert str(told["c1"].content) == wording
        assert str(told["c2"].content) == wording


async def test_connection_that_a_server_has_closed_is_logged_when_the_run_ends(
    caplog: pytest.LogCaptureFixture, wording: Wording
) -> None:
    """Closing it raises; the model has been told already of the call that was lost in it."""
    with caplog.at_level(logging.WARNING, logger="handrail.adapters"):
        await play_with(Gateway("closed"), Session(), EffectLedger())
    assert caplog.messages == wording
