"""What Handrail does at the steps of an agent's run: it asks before calls run, counts, and notifies.

The questions of one reply are settled before any of its calls starts, one after the other, and nothing is open while a
person thinks: PydanticAI validates all calls of a reply before it carries out the first. Whether a call may run is not
decided here but enforced in the pipeline, by the policy `approval`; here it is only asked ahead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic_ai import (
    ApprovalRequired,
    DeferredToolRequests,
    DeferredToolResults,
    ModelRequestContext,
    ModelResponse,
    RunContext,
    ToolApproved,
    ToolCallPart,
    ToolDefinition,
)
from pydantic_ai.capabilities import ValidatedToolArgs
from typing_extensions import override  # pydantic brings it; `typing` has it from Python 3.12 on

from handrail.adapters.pydantic_ai.pipeline import PipelineCapability
from handrail.adapters.tool_executor import ToolExecutor
from handrail.agents.approval.decisions import Decision, GatedCall
from handrail.agents.approval.gate import ApprovalGate
from handrail.agents.run.events import CallStarted, RunEvent
from handrail.errors import AgentError, PromptEvaluationError
from handrail.session.calls import CallRef

DescribeAhead = Callable[[CallRef, ToolCallPart, ToolDefinition, ValidatedToolArgs], Awaitable[GatedCall | None]]
"""A call that is about to be made as the gate judges it; `None` for one that will be refused as it is written."""


@dataclass
class AgentCapability(PipelineCapability):
    """One run of an agent file. One capability for everything: PydanticAI takes a while for each that there is.

    Attributes:
        gate: says which calls may run.
        describe: how a call looks to the gate.
        admit: refuses a tool whose calls would not take the pipeline of this run.
        tools_known: is called at each step once its tools are known, before the model is offered any.
        executors: those of the tools of Handrail.
        count: counts what a reply of the model has used.
        notify: is called with what happens.
        output_names: the names of the tools by which the model gives structured answers.
        put_off: the calls of agents whose own calls wait for an answer.
    """

    gate: ApprovalGate = field(kw_only=True)
    describe: DescribeAhead = field(kw_only=True)
    admit: Callable[[ToolDefinition], None] = field(kw_only=True)
    tools_known: Callable[[], Awaitable[None]] = field(kw_only=True)
    executors: Callable[[], Iterable[ToolExecutor]] = field(kw_only=True)
    count: Callable[[ModelResponse], None] = field(kw_only=True)
    notify: Callable[[RunEvent], None] = field(kw_only=True)
    output_names: dict[str, str] = field(default_factory=dict[str, str])
    put_off: set[CallRef] = field(default_factory=set[CallRef])
    _asked: dict[CallRef, GatedCall] = field(init=False, repr=False, default_factory=dict[CallRef, GatedCall])

    @override
    async def settle(self) -> None:
        """Apply the results that wait for any of the tools of Handrail.

        Raises:
            DeveloperMistake: as for `wrap_run`.
        """
        for executor in self.executors():
            await executor.settle_before_run_async()

    @override
    async def prepare_tools(self, ctx: RunContext[Any], tool_defs: list[ToolDefinition]) -> list[ToolDefinition]:
        """Look at the tools of a step before the model is offered any.

        Raises:
            AgentError: the calls of one would not take the pipeline of this run; or a rule names what there is not.
            FilesystemError: a tool takes the files of the folder of the run, which cannot be opened.
        """
        for definition in tool_defs:
            self.admit(definition)
        await self.tools_known()
        return tool_defs

    @override
    async def prepare_output_tools(self, ctx: RunContext[Any], tool_defs: list[ToolDefinition]) -> list[ToolDefinition]:
        """Note the names that no tool of the agent may have."""
        self.output_names.update((definition.name, "the agent's output") for definition in tool_defs)
        return tool_defs

    @override
    async def after_model_request(
        self, ctx: RunContext[Any], *, request_context: ModelRequestContext, response: ModelResponse
    ) -> ModelResponse:
        """Count what the reply has used; usage is reported even if the reply is refused for the budget."""
        self.count(response)
        return await super().after_model_request(ctx, request_context=request_context, response=response)

    @override
    async def after_tool_validate(
        self, ctx: RunContext[Any], *, call: ToolCallPart, tool_def: ToolDefinition, args: ValidatedToolArgs
    ) -> ValidatedToolArgs:
        """Ask about a call, if it has to be asked about.

        Raises:
            ApprovalRequired: the question is left open, and so is the call.
        """
        ref = self.asked(ctx, call).ref
        # A call with a final record is answered from it, so the person is not asked again.
        gated = None if await self.final_record(ref) is not None else await self.describe(ref, call, tool_def, args)
        if gated is None:
            return args
        if ref not in self._asked:  # a call that was held back comes by again
            self.notify(CallStarted(gated.path, gated.call_id, gated.tool, gated.arguments, gated.reply))
        self._asked[ref] = gated
        # An external tool is refused later as a whole; a question about it would be in vain.
        if tool_def.kind == "external" or self.gate.judge(gated).verdict != "ask":
            return args
        # PydanticAI puts a call off by itself if its tool requires approval.
        if (await self._decision(gated)).verdict == "later" and tool_def.kind == "function":
            raise ApprovalRequired
        return args

    @override
    async def handle_deferred_tool_calls(
        self, ctx: RunContext[Any], *, requests: DeferredToolRequests
    ) -> DeferredToolResults | None:
        """Ask about calls that PydanticAI holds back for approval; a denied one is refused by the pipeline.

        Raises:
            AgentError: a call is to be carried out outside of the run, which is not done here.
        """
        if requests.calls:
            names = ", ".join(sorted({call.tool_name for call in requests.calls}))
            raise AgentError(
                f"{names}: external tools and `CallDeferred` are carried out outside of the run, and an "
                "agent file has no such caller; let the tool do the work itself, or run it in an agent of your own"
            )
        settled: dict[str, ToolApproved] = {}
        for call in requests.approvals:
            ref = self.asked(ctx, call).ref
            gated = self._asked.get(ref)
            if await self.final_record(ref) is not None:
                settled[call.tool_call_id] = ToolApproved()
            # A call without a description is refused by the pipeline, and one that was put off waits for the calls
            # within it.
            elif gated is None or ref in self.put_off:
                continue
            elif (await self._decision(replace(gated, default="ask"))).verdict != "later":
                settled[call.tool_call_id] = ToolApproved()
        # A call that is not listed stays open, and the run ends with status "waiting".
        return DeferredToolResults(approvals=dict(settled)) if settled else None

    async def _decision(self, call: GatedCall) -> Decision:
        """What is decided about a call, for as long as the deadline allows."""
        deadline = self.executor.environment.deadline
        if deadline is None:
            return await self.gate.decide(call)
        try:
            async with asyncio.timeout(deadline.remaining().total_seconds()):
                return await self.gate.decide(call)
        except TimeoutError as error:  # never the approver's own, with which the gate denies
            late = f"{call.tool}: the deadline passed while approval was awaited; it was not run"
            raise PromptEvaluationError(late, phase="tool", tool=call.tool) from error
