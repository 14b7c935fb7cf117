"""`handrail.adapters.pydantic_ai.outside_results`: what the program gives to calls that a run has left open."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic_ai import Agent, CallDeferred, DeferredToolRequests, DeferredToolResults, ToolReturn
from pydantic_ai.messages import ModelRequest, ToolReturnPart, UserPromptPart
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import ExternalToolset

from handrail import tool
from handrail.adapters.pydantic_ai import PipelineCapability
from handrail.prompt import ToolsSection
from handrail.runtime import Session
from handrail.taint import TaintPolicy, list_taints
from handrail.testing import Call, Reply, ScriptedModel
from tests.taint.desk import MAIL, desk
from tests.wording import Wording

pytestmark = pytest.mark.anyio

IBAN = "DE89370400440532013000"


@tool(effect="read", untrusted=True)
def browse(url: str) -> str:
    """Read a page, later."""
    raise CallDeferred


def outside(*, untrusted: bool) -> ExternalToolset[Any]:
    """A toolset that the program does not run."""
    parameters = {"type": "object", "properties": {"url": {"type": "string"}}}
    definition = ToolDefinition(
        name="browse", parameters_json_schema=parameters, metadata={"untrusted": untrusted, "effect": "read"}
    )
    return ExternalToolset([definition])


async def play(session: Session, given: object, toolset: ExternalToolset[Any] | None) -> list[Any]:
    """The parts of the requests of two runs, the second of which has the result that the first one lacked."""
    web = [] if toolset is not None else [ToolsSection(title="Web", tools=[browse])]
    executor = desk(session, TaintPolicy(), sections=web)
    pay = Call("pay", {"iban": IBAN, "cents": 5})
    script = ScriptedModel([Reply(calls=[Call("browse", {"url": "x"})]), Reply(calls=[pay]), Reply(text="done")])
    agent: Agent[Any, Any] = Agent(
        script,
        toolsets=[] if toolset is None else [toolset],
        output_type=[str, DeferredToolRequests],
        capabilities=[PipelineCapability(executor)],
    )
    first = await agent.run("Pay.")
    assert isinstance(first.output, DeferredToolRequests)
    results = DeferredToolResults(calls={each.tool_call_id: given for each in first.output.calls})
    second = await agent.run(message_history=first.all_messages(), deferred_tool_results=results)
    return [part for each in second.new_messages() if isinstance(each, ModelRequest) for part in each.parts]


def contents(parts: list[Any]) -> list[Any]:
    """What the model has read of the results of calls."""
    return [part.content for part in parts if isinstance(part, ToolReturnPart)]


@pytest.mark.parametrize("toolset", [outside(untrusted=True), None], ids=["external toolset", "deferred call"])
@pytest.mark.parametrize("given", [MAIL, {"text": MAIL}, ToolReturn(MAIL, content=MAIL)], ids=["text", "JSON", "more"])
async def test_what_comes_back_for_an_untrusted_tool_taints_and_is_delimited(
    toolset: ExternalToolset[Any] | None, given: object, wording: Wording
) -> None:
    """So the payment that follows is asked about, and what is said beside the value is delimited, too."""
    session = Session()
    parts = await play(session, given, toolset)
    (item,) = list_taints(session)
    assert (item.provenance.tool, item.provenance.arguments) == ("browse", '{"url":"x"}')
    returned, paid = contents(parts)
    opening = str(returned).splitlines()[0]
    assert opening.startswith("<untrusted ")
    assert str(returned).endswith(opening.replace("<", "</"))
    assert paid == wording
    said = [part.content for part in parts if isinstance(part, UserPromptPart) and MAIL in part.content]
    assert [list(each)[-1] for each in said] == [opening.replace("<", "</")] * len(said)
    assert len(said) == isinstance(given, ToolReturn)


async def test_what_comes_back_for_a_trusted_tool_is_as_it_was_given() -> None:
    """And nothing is asked about."""
    session = Session()
    parts = await play(session, MAIL, outside(untrusted=False))
    returned, paid = contents(parts)
    assert (returned, paid) == (MAIL, f"paid 5 to {IBAN}")
    assert list_taints(session) == ()
