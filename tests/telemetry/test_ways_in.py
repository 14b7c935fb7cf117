"""One span counts as the call, whichever way in it takes: that of the framework, or ours."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from pydantic_ai import Agent
from pydantic_ai.capabilities import AbstractCapability, Instrumentation
from pydantic_ai.models.instrumented import InstrumentationSettings

from handrail import ToolExecutor, tool
from handrail.adapters.mcp import ToolServer
from handrail.adapters.pydantic_ai import HandrailCapability, HandrailToolset, PipelineCapability, PydanticAIAdapter
from handrail.prompt import Prompt, PromptTemplate, ToolContext, ToolsSection
from handrail.runtime import Session, ToolCall
from handrail.testing import Call, Reply, ScriptedModel, play, play_async
from handrail.testing.script import Script
from tests.adapters.mcp.kit import ERAS, bank_process, proxied
from tests.agents.kit import desk
from tests.agents.kit import play as play_agent
from tests.agents.test_serve import client_of
from tests.telemetry.kit import Traces, attributes, events, identity, own

pytestmark = pytest.mark.anyio

PLANTED = "argpw-11223"


@tool(effect="external")
def pay(order: str, context: ToolContext) -> str:
    """Pays an order."""
    return f"{order} is paid"


def look(order: str) -> str:
    """A function that is PydanticAI's."""
    return f"{order} is there"


def door() -> ToolExecutor:
    """An executor with one tool."""
    return ToolExecutor([pay], session=Session())


def replies(name: str = "pay", **arguments: Any) -> list[Reply]:
    """A script that calls a tool once."""
    return [Reply(calls=[Call(name, arguments or {"order": PLANTED})]), Reply(text="Done.")]


# --------------------------------------------------------------------------------------------------------------- loops

LOOPS: dict[str, Callable[[], object]] = {
    "execute": lambda: door().execute(ToolCall("1", "pay", {"order": PLANTED})),
    "execute_async": lambda: asyncio.run(door().execute_async(ToolCall("1", "pay", {"order": PLANTED}))),
    "answer": lambda: door().answer([ToolCall("1", "pay", {"order": PLANTED})], reply="r"),
    "execute_all": lambda: play(Script(replies()), door()),
    "execute_all_async": lambda: asyncio.run(play_async(Script(replies()), door())),
}


@pytest.mark.parametrize("loop", LOOPS.values(), ids=list(LOOPS))
def test_loop_without_spans_gets_one(traces: Traces, loop: Callable[[], object]) -> None:
    """With the name and the attributes of the conventions, and those of Handrail."""
    loop()
    (span,) = traces.all()
    assert (span.name, attributes(span)["gen_ai.tool.name"]) == ("execute_tool pay", "pay")
    assert (own(span)["effect"], own(span)["outcome"]) == ("external", "committed")


# ---------------------------------------------------------------------------------------------------------- PydanticAI

Entry = Callable[[list[AbstractCapability[Any]], ScriptedModel], Coroutine[Any, Any, object]]


def _with_adapter(capabilities: list[AbstractCapability[Any]], model: ScriptedModel) -> Coroutine[Any, Any, object]:
    prompt = Prompt(PromptTemplate(ns="tests", key="desk", sections=[ToolsSection(title="Desk", tools=[pay])]))
    return PydanticAIAdapter(model, capabilities=capabilities).evaluate_async(prompt, session=Session())


ENTRIES: dict[str, Entry] = {
    "toolset": lambda others, model: Agent(model, toolsets=[HandrailToolset(door())], capabilities=others).run("Go."),
    "capability": lambda others, model: Agent(model, capabilities=[HandrailCapability(door()), *others]).run("Go."),
    "after others": lambda others, model: Agent(model, capabilities=[*others, HandrailCapability(door())]).run("Go."),
    "pipeline": lambda others, model: Agent(
        model, tools=[look], capabilities=[PipelineCapability(door()), *others]
    ).run("Go."),
    "pipeline after others": lambda others, model: Agent(
        model, tools=[look], capabilities=[*others, PipelineCapability(door())]
    ).run("Go."),
    "adapter": _with_adapter,
}

every_entry = pytest.mark.parametrize("name", ENTRIES)


async def _run(traces: Traces, entry: Entry, script: list[Reply], *, instrumented: bool) -> None:
    settings = InstrumentationSettings(tracer_provider=traces.spans, include_content=False)
    with ScriptedModel(script) as model:
        await entry([Instrumentation(settings)] if instrumented else [], model)


@every_entry
@pytest.mark.parametrize("instrumented", [True, False], ids=["instrumented", "bare"])
async def test_pydantic_ai_has_one_span_for_a_call(traces: Traces, name: str, instrumented: bool) -> None:
    """Its own, if it is instrumented, with what Handrail adds; ours otherwise."""
    await _run(traces, ENTRIES[name], replies(), instrumented=instrumented)
    span = traces.call()
    scope = span.instrumentation_scope
    assert scope is not None
    assert scope.name == ("pydantic-ai" if instrumented else "handrail")
    assert (span.name, own(span)["outcome"], own(span)["effect"]) == ("execute_tool pay", "committed", "external")
    assert events(span) == ["claimed", "recorded", "committed"]
    assert not any(PLANTED in one.to_json() for one in traces.all())


@pytest.mark.parametrize("name", [name for name in ENTRIES if name not in {"toolset", "adapter"}])
@pytest.mark.parametrize("instrumented", [True, False], ids=["instrumented", "bare"])
async def test_unknown_name_has_one_span(traces: Traces, name: str, instrumented: bool) -> None:
    """The pipeline answers it."""
    await _run(traces, ENTRIES[name], replies("pray"), instrumented=instrumented)
    assert (own(traces.call())["outcome"], own(traces.call())["step"]) == ("refused", "look_up")


@pytest.mark.parametrize("name", [name for name in ENTRIES if "pipeline" in name])
@pytest.mark.parametrize("instrumented", [True, False], ids=["instrumented", "bare"])
@pytest.mark.parametrize("fits", [True, False])
async def test_function_of_pydantic_ai_has_one_span(traces: Traces, name: str, instrumented: bool, fits: bool) -> None:
    """Also if its arguments do not fit: PydanticAI opens none when the pipeline has answered."""
    await _run(traces, ENTRIES[name], replies("look", order="A-1" if fits else [1]), instrumented=instrumented)
    assert own(traces.call())["outcome"] == ("committed" if fits else "refused")


async def test_call_that_a_handler_makes_has_a_span_of_its_own(traces: Traces) -> None:
    """Inside that of PydanticAI."""
    executor = door()

    @tool
    def order(context: ToolContext) -> str:
        """Pays inside."""
        return executor.execute(ToolCall("inner", "pay", {"order": "A-1"})).content

    session = executor.environment.session
    outer = ToolExecutor([order], session=session)
    await _run(
        traces,
        lambda others, model: Agent(model, capabilities=[HandrailCapability(outer), *others]).run("Go."),
        [Reply(calls=[Call("order")]), Reply(text="Done.")],
        instrumented=True,
    )
    assert [(span.name, own(span)["commit"]) for span in traces.calls()] == [
        ("execute_tool pay", "parent"),
        ("execute_tool order", "memory"),
    ]


@pytest.mark.parametrize("instrumented", [True, False], ids=["instrumented", "bare"])
async def test_agent_of_a_file_has_one_span_for_a_call(traces: Traces, tmp_path: Path, instrumented: bool) -> None:
    """Through the gate of its rules."""
    settings = InstrumentationSettings(tracer_provider=traces.spans, include_content=False)
    Agent.instrument_all(settings if instrumented else False)
    try:
        await play_agent(desk(tmp_path, tools=[pay]), replies())
    finally:
        Agent.instrument_all(instrument=False)
    span = traces.call()
    scope = span.instrumentation_scope
    assert scope is not None
    assert (scope.name, own(span)["outcome"]) == ("pydantic-ai" if instrumented else "handrail", "committed")


# ----------------------------------------------------------------------------------------------------------------- MCP


@pytest.fixture
def sdk_traces(traces: Traces, monkeypatch: pytest.MonkeyPatch) -> Traces:
    """The SDK of MCP traces by the global provider, which a process sets once; here it has that of the test."""
    monkeypatch.setattr("mcp.shared._otel._tracer", traces.spans.get_tracer("mcp-python-sdk"))
    return traces


@pytest.mark.parametrize("mode", ERAS)
@pytest.mark.parametrize("name", ["pay", "pray"])
async def test_mcp_server_has_one_span_for_a_call(sdk_traces: Traces, mode: Any, name: str) -> None:
    """That of the SDK, with what Handrail adds."""
    async with Client(ToolServer(door()).protocol, mode=mode) as client:
        await client.call_tool(name, {"order": PLANTED})
    span = sdk_traces.call()
    assert (span.name, span.kind.name) == (f"tools/call {name}", "SERVER")
    assert own(span)["outcome"] == ("committed" if name == "pay" else "refused")
    assert not any(PLANTED in one.to_json() for one in sdk_traces.all())


async def test_mcp_server_whose_sdk_traces_nothing_has_ours(traces: Traces) -> None:
    """The provider is given to `instrument` alone."""
    async with Client(ToolServer(door()).protocol) as client:
        await client.call_tool("pay", {"order": PLANTED})
    assert traces.call().name == "execute_tool pay"


async def test_agent_that_is_served_has_one_span_for_a_call(sdk_traces: Traces, tmp_path: Path) -> None:
    """That of the SDK."""
    async with client_of(desk(tmp_path, tools=[pay]), session=Session(), mode="auto") as client:
        await client.call_tool("pay", {"order": "A-1"})
    assert sdk_traces.call().name == "tools/call pay"


async def test_proxy_has_one_span_for_a_call(sdk_traces: Traces, tmp_path: Path) -> None:
    """The call to the server behind it is inside, and is a request."""
    async with proxied(bank_process(tmp_path / "payments")) as (client, proxy):
        name = next(iter(proxy.sections[0].definitions))
        await client.call_tool(name, {"order": "A-1", "cents": 1})
    span = sdk_traces.call()
    assert span.name == f"tools/call {name}"
    assert "outcome" in own(span)
    inside = [one.name for one in sdk_traces.all() if one.parent and one.parent.span_id == identity(span)]
    assert f"MCP send tools/call {name}" in inside or own(span)["outcome"] == "refused"
