"""`handrail.adapters.pydantic_ai.pipeline_reach`: a mark that nothing would read is refused."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic_ai import Agent, Tool
from pydantic_ai.capabilities import AbstractCapability

from handrail.adapters.pydantic_ai import HandrailCapability, HandrailToolset, PipelineCapability
from handrail.adapters.tool_executor import ToolExecutor
from handrail.errors import PromptValidationError
from handrail.runtime import Session
from handrail.taint import list_taints
from handrail.testing import Call, Reply, ScriptedModel
from tests.taint.desk import MAIL, desk
from tests.wording import Wording

pytestmark = pytest.mark.anyio


def web() -> str:
    """Read a page."""
    return MAIL


WEB: Tool[Any] = Tool(web, metadata={"untrusted": True})


def agent(executor: ToolExecutor, kind: str) -> Agent[Any, str]:
    """An agent that reads a page by a tool of PydanticAI's, and then pays by one of Handrail's."""
    pay = Call("pay", {"iban": "DE89370400440532013000", "cents": 5})
    script = ScriptedModel([Reply(calls=[Call("web", {})]), Reply(calls=[pay]), Reply(text="done")])
    if kind == "HandrailToolset":
        return Agent(script, tools=[WEB], toolsets=[HandrailToolset(executor)])
    capabilities: dict[str, list[AbstractCapability[Any]]] = {
        "HandrailCapability": [HandrailCapability(executor)],
        "PipelineCapability": [PipelineCapability(executor)],
    }
    return Agent(script, tools=[WEB], capabilities=capabilities[kind])


@pytest.mark.parametrize("kind", ["HandrailToolset", "HandrailCapability"])
async def test_a_marked_tool_whose_calls_do_not_reach_the_pipeline_is_refused(kind: str, wording: Wording) -> None:
    """At the latest when a tool of Handrail's would act; the message says what to use instead."""
    with pytest.raises(PromptValidationError) as raised:
        await agent(desk(Session()), kind).run("Pay.")
    assert str(raised.value) == wording


async def test_the_mark_holds_with_the_capability_of_all_tools() -> None:
    """As for a tool of a section."""
    session = Session()
    await agent(desk(session), "PipelineCapability").run("Pay.")
    assert [each.provenance.tool for each in list_taints(session)] == ["web"]
