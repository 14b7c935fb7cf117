"""MCP over HTTP: what answers in a server's place does not prove that the server has done nothing."""

from __future__ import annotations

import logging
from typing import Any, Literal

import pytest
from fastmcp.client.transports import StreamableHttpTransport
from pydantic_ai.mcp import MCPToolset

from handrail.runtime import EffectLedger, Session, ToolInvoked
from handrail.testing import Call, Reply
from tests.adapters.foreign_desk import pipeline, play, returns
from tests.adapters.mcp_gateway import ENDINGS, Gateway
from tests.wording import Wording

pytestmark = pytest.mark.anyio

Behavior = Literal["retry", "failed"]
TWICE = [Reply(calls=[Call("pay", {"to": "ann"}, id=name)]) for name in ("c1", "c2")]


async def play_with(gateway: Gateway, session: Session, ledger: EffectLedger, behavior: Behavior = "failed") -> Any:
    """Have a model pay ann in two replies, and end; returns the messages of the run."""
    async with gateway.open():
        toolset = MCPToolset[Any](
            StreamableHttpTransport(gateway.url), id="bank", tool_error_behavior=behavior, max_retries=3
        )
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
    caplog: pytest.LogCaptureFixture,
    wording: Wording,
) -> None:
    """Closing it raises; the call it was lost in has been told to the model already."""
    with caplog.at_level(logging.WARNING, logger="handrail.adapters"):
        await play_with(Gateway("closed"), Session(), EffectLedger())
    assert caplog.messages == wording
