"""Runs one call of one tool through the whole pipeline, without a model, in a prompt with only this tool."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from handrail.adapters.tool_executor import ToolExecutor
from handrail.prompt import Prompt, PromptTemplate, Section, Tool
from handrail.resources import ResourceRegistry
from handrail.runtime import EffectLedger, ToolCall, ToolMessage
from handrail.serde import dump
from handrail.session import Session

Resources = ResourceRegistry | Mapping[type[Any], object]
"""Resources as `Prompt.bind` takes them."""


def run_tool(
    tool: Tool[Any, Any],
    params: object = None,
    *,
    session: Session | None = None,
    resources: Resources | None = None,
    effect_ledger: EffectLedger | None = None,
) -> ToolMessage:
    """Run one tool as if a model had called it, and return the message that the model would read.

    The message's `result` is what the handler returned, or the failed result that describes the failure.

    Args:
        tool: the tool.
        params: an instance of its parameter type, a mapping, or JSON text, which may be invalid; `None` for no
            arguments.
        session: where results are stored; by default a new one.
        resources: the content of `context.resources`. Resources created by providers are closed at the end.
        effect_ledger: records effects; pass one to test that a second call is replayed.

    Raises:
        RunAbortedError: the call ends the run.
    """
    executor = executor_of(tool, session, resources, effect_ledger)
    # One call has no run around it, so resources of providers are closed here.
    with executor.environment.prompt.resources:
        return executor.execute(call_of_tool(tool, params))


async def run_tool_async(
    tool: Tool[Any, Any],
    params: object = None,
    *,
    session: Session | None = None,
    resources: Resources | None = None,
    effect_ledger: EffectLedger | None = None,
) -> ToolMessage:
    """Run one tool on the running event loop; see `run_tool`."""
    executor = executor_of(tool, session, resources, effect_ledger)
    with executor.environment.prompt.resources:
        return await executor.execute_async(call_of_tool(tool, params))


def executor_of(
    tool: Tool[Any, Any],
    session: Session | None,
    resources: Resources | None,
    effect_ledger: EffectLedger | None = None,
) -> ToolExecutor:
    """An executor in whose prompt this is the only tool; see `run_tool`."""
    template = PromptTemplate(ns="testing", key="run-tool", sections=[Section(title="Tool", tools=[tool])])
    return ToolExecutor(
        prompt=Prompt(template).bind(resources=resources),
        session=Session() if session is None else session,
        effect_ledger=effect_ledger,
    )


def call_of_tool(tool: Tool[Any, Any], params: object) -> ToolCall:
    """A call of a tool, with its arguments as a model sends them; see `run_tool`."""
    arguments: Any = params
    if params is None:
        arguments = {}
    elif dataclasses.is_dataclass(params):
        arguments = dump(params)
    return ToolCall("call-1", tool.name, arguments)
