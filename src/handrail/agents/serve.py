"""The tools of an agent as a source for an MCP server: the client is the model.

The toolsets of the agent are made and entered as for a run, and each call takes the way of a run: described for rules
and people, judged by the gate, run by the executor of its toolset. Tools that only PydanticAI runs are refused.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import mcp_types as t
from pydantic_ai import RunContext, ToolCallPart
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool

from handrail.adapters.loop import LoopOutcome, find_outcome
from handrail.adapters.mcp.content import OfferedTool, describe_tool
from handrail.adapters.mcp.questions import client_approval, has_request_span
from handrail.adapters.mcp.source import CallReports
from handrail.agents.agent import LoadedAgent
from handrail.agents.approval.decisions import Answer, answer_later, record_decision, resolve_answer
from handrail.agents.inspection import enter_toolset
from handrail.agents.run.calls import OwnTool
from handrail.agents.run.interface import RunOptions
from handrail.agents.run.run import AgentRun
from handrail.errors import AgentError
from handrail.prompt import Approval, ApprovalRequest, ToolResult
from handrail.runtime import ToolCall, ToolMessage
from handrail.runtime.execution import ASYNC
from handrail.session import Session
from handrail.session.calls import CallRef


class AgentSource:
    """The tools of an agent; see `handrail.adapters.mcp.source.ToolSource`."""

    def __init__(self, run: AgentRun, toolset: AbstractToolset[Any], context: RunContext[Any]) -> None:
        self.session: Session = run.session
        self.instructions: str = run.file.instructions
        self._run = run
        self._toolset = toolset
        self._context = context
        self._reports = CallReports()
        self._tools: Mapping[str, ToolsetTool[Any]] = {}
        self._offered: Mapping[str, OfferedTool] = {}

    async def tools(self) -> Mapping[str, OfferedTool]:
        """The tools of this step.

        Raises:
            AgentError: one of them is not a tool of Handrail's.
        """
        tools = await self._toolset.get_tools(self._context)
        if [*tools] != [*self._tools]:
            if foreign := [name for name, tool in tools.items() if self._run.executors.own_tool(tool.tool_def) is None]:
                raise AgentError(
                    f"only PydanticAI runs {', '.join(foreign)}, so an MCP server cannot offer it; write @tool from "
                    "handrail above a function, and name no other agents"
                )
            self._offered = {name: self._offer(name, tool) for name, tool in tools.items()}
        self._tools = tools
        return self._offered

    def _own(self, name: str) -> OwnTool | None:
        tool = self._tools.get(name)
        return None if tool is None else self._run.executors.own_tool(tool.tool_def)

    def _offer(self, name: str, tool: ToolsetTool[Any]) -> OfferedTool:
        own = self._run.executors.own_tool(tool.tool_def)
        tool_here = None if own is None else own.environment.tool(own.name)
        if tool_here is None:
            return OfferedTool(t.Tool(name=name, input_schema=tool.tool_def.parameters_json_schema))
        offered = describe_tool(tool_here)
        here = {"name": name, "description": tool.tool_def.description}
        return offered._replace(definition=offered.definition.model_copy(update=here))

    async def run(self, call: ToolCall, reply: str) -> LoopOutcome:
        """Runs a call by the executor of its toolset."""
        calls, ref, own = self._run.executors.calls, CallRef(reply, call.id), self._own(call.name)
        if own is None:
            text = f"there is no tool {call.name!r}. The tools are: {', '.join(self._offered) or 'none'}."
            return ToolMessage(call.id, text, success=False, result=ToolResult[None].error(text))
        part = ToolCallPart(call.name, dict(call.words) if isinstance(call.words, Mapping) else {}, call.id)
        gated = await calls.describe_ahead(ref, part, self._tools[call.name].tool_def, part.args_as_dict(), own)
        given: list[Approval] = []

        def answer(request: ApprovalRequest) -> Approval | None:
            given[:] = filter(None, [client_approval(request)])
            return given[0] if given else None

        environment = replace(
            own.environment, caller_answer=answer, has_span=has_request_span, on_progress=self._reports.send
        )
        with self._reports.of_call(ref):
            outcome = await find_outcome(replace(call, name=own.name), reply, environment, ASYNC)
        if given and gated is not None:  # the question is not open any more
            decision, _ = resolve_answer(gated, Answer("yes" if given[0].approved else "no", reason=given[0].reason))
            self._run.tree.gate.settle(gated.key, decision)
            await ASYNC.write_to(self.session.store, partial(record_decision, self.session, gated, decision))
        return outcome


@asynccontextmanager
async def open_agent(agent: LoadedAgent, options: RunOptions) -> AsyncGenerator[AgentSource]:
    """Makes and enters the toolsets of an agent as if a run of it began; no model is asked.

    Raises:
        AgentError: the agent cannot be run, or has a tool that only PydanticAI runs.
        BaseException: the error of entering a toolset.
    """
    async with agent.prepare(replace(options, asker=answer_later)) as run:
        run.tree.gate.can_wait = True  # also in memory: the client that waits is here
        async with enter_toolset(run, permits_unbound=False) as (toolset, context):
            source = AgentSource(run, toolset, context)
            await source.tools()
            yield source
