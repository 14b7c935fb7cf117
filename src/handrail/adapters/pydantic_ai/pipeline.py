"""Sends every tool call of a PydanticAI agent through the pipeline: of functions, toolsets and MCP servers.

    executor = ToolExecutor(prompt=prompt, session=session)
    agent = Agent("openai:gpt-5.2", tools=[look_up], toolsets=[mcp], capabilities=[PipelineCapability(executor)])

The tools are unchanged. PydanticAI validates the arguments. Then the call goes through the steps of every call
(`handrail.runtime.invoke`), in which the tool's own toolset runs it (`foreign.calls`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from traceback import walk_tb
from typing import Any, ClassVar

from pydantic import ValidationError
from pydantic_ai import (
    ModelResponse,
    ModelRetry,
    RunContext,
    ToolCallPart,
    ToolDefinition,
    ToolFailed,
    ToolReturn,
    ToolsetTool,
)
from pydantic_ai.capabilities import RawToolArgs, ValidatedToolArgs
from pydantic_ai.toolsets import AbstractToolset, FunctionToolset, WrapperToolset
from pydantic_core import from_json
from typing_extensions import override  # a dependency of pydantic; in `typing` since Python 3.12

from handrail.adapters.loop import asynchronous_entries, check_one_store, find_outcome, run_call
from handrail.adapters.pydantic_ai.capability import HandrailCapability
from handrail.adapters.pydantic_ai.foreign.calls import (
    ForeignCall,
    ForeignTool,
    ToolMetadata,
    foreign_tool,
    read_tool_metadata,
)
from handrail.adapters.pydantic_ai.foreign.values import plain_arguments, replayed_value
from handrail.adapters.pydantic_ai.replies import CallInHistory, find_call
from handrail.adapters.pydantic_ai.toolset import asked_by, leave_queue, reaches_pipeline
from handrail.errors import CallPostponed, ParseError, StoreError
from handrail.prompt import RenderedPrompt, ToolPolicy
from handrail.redaction import redacted_logger
from handrail.runtime import ToolInvoked, ToolMessage
from handrail.runtime.environment import Environment
from handrail.runtime.execution import ASYNC
from handrail.serde import schema_masking
from handrail.serde.formatting import fault_message, report_faults
from handrail.session.calls import CallRef

_log = redacted_logger("handrail.adapters")


@asynchronous_entries
@dataclass
class PipelineCapability(HandrailCapability):
    """Adds a prompt's tools to an agent, as `HandrailCapability` does, and sends the calls of its other tools along.

    Attributes:
        policies: the policies of the other tools.
    """

    sends_all_calls: ClassVar[bool] = True
    warns_of_undeclared: ClassVar[bool] = True

    policies: Sequence[ToolPolicy] = ()
    _environments: dict[str, tuple[ToolMetadata, Mapping[str, Any], Environment]] = field(
        init=False, repr=False, default_factory=dict[str, tuple[ToolMetadata, Mapping[str, Any], Environment]]
    )

    @override
    def get_wrapper_toolset(self, toolset: AbstractToolset[Any]) -> AbstractToolset[Any]:
        """All toolsets of the agent, their calls sent through the pipeline."""
        return ThroughPipeline(super().get_wrapper_toolset(toolset), self)

    @override
    async def refuse_unknown(self, call: ToolCallPart, args: ValidatedToolArgs, ctx: RunContext[Any]) -> Any:
        """Answers a call of an unknown name with the names of all tools of the agent, or from the record."""
        manager = ctx.tool_manager
        tools = {} if manager is None or manager.tools is None else manager.tools
        others = (name for name, tool in tools.items() if tool.toolset is not self.toolset)
        names = [name for name in others if tools[name].tool_def.kind != "output"]
        # Read before the call is queued: nothing may be awaited or take long between `leave_queue` and `invoke`.
        request = self.find_call(ctx, call)
        # What another call of the reply has opened is not there yet for this one.
        own = self.executor.environment.rendering.seen_by(request.ref.reply).tools
        listing = (*own, *(ForeignTool(name=name, description="") for name in names))
        await leave_queue()
        with asked_by(ctx, request.ref):
            message = await self._run(request, call.tool_name, _as_written(call.args), listing)
        if message.success:
            return ToolReturn(replayed_value(message), metadata={"replayed": True})
        raise ToolFailed(message.content)

    @override
    async def on_tool_validate_error(
        self,
        ctx: RunContext[Any],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: RawToolArgs,
        error: ValidationError | ModelRetry,
    ) -> ValidatedToolArgs:
        """Records a call whose arguments do not fit, and reports every fault to the model.

        A call with a final record is answered from it, even if its arguments no longer fit.
        """
        record = await self.final_record(self.find_call(ctx, call).ref)
        if record is None:
            masking = schema_masking(tool_def.parameters_json_schema)
            fault = _parse_error(tool_def, args, error)
            tool = ForeignTool(name=call.tool_name, description="", misfit=fault, masking=masking)
            with self.defer_mistakes():
                message = await self._run(self.find_call(ctx, call), call.tool_name, _as_written(call.args), (tool,))
            raise error if isinstance(error, ModelRetry) else ToolFailed(message.content)
        # The handler is not run, so the record's failure has to be raised in the form that the tool had chosen.
        if isinstance(error, ModelRetry) and not record.success:
            raise error
        return {}

    async def run_foreign(self, call: ForeignCall, metadata: ToolMetadata) -> Any:  # noqa: ANN401 - whatever the tool returns
        """Sends a call of a foreign tool through the pipeline; the table of `foreign.calls` lists the outcomes."""
        environment = self._find_environment(call, metadata)
        # Identity and arguments are determined before leaving the queue: later calls must not overtake this one
        # afterwards.
        request = find_call(call.context, environment.session)
        tool_call = request.tool_call(call.name, call.arguments)
        await leave_queue()
        with asked_by(call.context, request.ref), call.under_way():
            outcome = await find_outcome(tool_call, request.ref.reply, environment, ASYNC)
        return call.postpone(outcome) if isinstance(outcome, CallPostponed) else call.answer(outcome)

    def find_call(self, ctx: RunContext[Any], call: ToolCallPart) -> CallInHistory:
        """The call as the model asked for it, with its identity."""
        return find_call(ctx, self.executor.environment.session, call.tool_call_id)

    async def final_record(self, ref: CallRef) -> ToolInvoked | None:
        """The record from which the pipeline will answer a call; `None` if it will run the call.

        A call with a record needs no approval, and is not refused if its tool is gone or has changed its parameters.
        """
        if ref.reply is None or not ref.call_id:
            return None
        try:
            session = self.executor.environment.session
            at_hand = session.store is None or session.calls.is_at_hand(ref)
            record = await ASYNC.write_to(None if at_hand else session.store, partial(session.calls.find, ref))
        except StoreError:  # the pipeline refuses the call for it
            return None
        return record if isinstance(record, ToolInvoked) and record.final else None

    def _find_environment(self, call: ForeignCall, metadata: ToolMetadata) -> Environment:
        name, schema = call.name, call.schema
        entry = self._environments.get(name)
        # A server may change the declaration or the schema of a tool during a run, so both are compared.
        if entry is None or entry[:2] != (metadata, schema):
            environment = self._environment((foreign_tool(name, metadata, schema),))
            entry = self._environments[name] = metadata, schema, environment
        return entry[2]

    async def _run(
        self, request: CallInHistory, name: str, arguments: str | dict[str, Any], tools: Sequence[Any]
    ) -> ToolMessage:
        return await run_call(request.tool_call(name, arguments), request.ref.reply, self._environment(tools), ASYNC)

    def _environment(self, tools: Sequence[Any]) -> Environment:
        environment, policies = self.executor.environment, tuple(self.policies)
        judges = {tool.name: policies for tool in tools}
        name = environment.rendered_prompt.name
        prompt = RenderedPrompt[Any](name=name, text="", tools=tuple(tools), policies=judges, output_type=None)
        # Session, ledger, deadline and turns stay those of the run: only the tools differ.
        return environment.with_rendered(prompt)


@asynchronous_entries
@dataclass
class ThroughPipeline(WrapperToolset[Any]):
    """All toolsets of an agent; the pipeline runs the calls made through it.

    Attributes:
        unanswered: the toolsets that have not answered a call, by the names of its tools. A function always answers: an
            exception is its answer.
        undeclared: the tools without a declared effect, of which the log has a warning.
    """

    capability: PipelineCapability
    unanswered: dict[str, AbstractToolset[Any]] = field(default_factory=dict[str, AbstractToolset[Any]])
    undeclared: set[str] = field(default_factory=set[str])

    @override
    async def __aexit__(self, *args: object) -> bool | None:
        """Closes the toolsets; logs the error of a connection that was lost in a call, of which the model has read."""
        try:
            return await super().__aexit__(*args)
        except Exception as error:
            # Only the frames of its traceback say which toolset has raised it.
            frames = (frame for frame, _ in walk_tb(error.__traceback__) if frame.f_code.co_name == "__aexit__")
            if {id(frame.f_locals.get("self")) for frame in frames}.isdisjoint(map(id, self.unanswered.values())):
                raise
            _log.warning("the toolset of %s could not be closed", ", ".join(sorted(self.unanswered)), exc_info=True)
            return None

    @override
    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        """The tools, after their declared effects have been read.

        In a resumed run, calls are made from a reply that this run has not received: names in it that are no longer
        known reach the pipeline as those of a new reply do. There is no request in between.
        """
        tools = await super().get_tools(ctx)
        undeclared = set[str]()
        # A wrong declaration is reported before the model sees the tool, and not at its first call.
        for name, tool in tools.items():
            definition = tool.tool_def
            metadata = read_tool_metadata(definition)
            if definition.kind == "external":
                if metadata.untrusted:
                    self.capability.outside_tools[name] = definition
            elif metadata.effect == "state" and metadata.may_act and not metadata.idempotency:
                undeclared.add(name)
            if metadata.external is not None and metadata.external.apply is not None:
                check_one_store(name, self.capability.executor.environment)
        names = ", ".join(sorted(undeclared - self.undeclared))
        if names and self.capability.warns_of_undeclared:
            cure = "declare metadata={'effect': 'external'}, or 'read' or 'state'"
            _log.warning("tools without a declared effect run again after a kill: %s; %s", names, cure)
        self.undeclared |= undeclared
        last = ctx.messages[-1] if ctx.messages else None
        offers = None if ctx.tool_manager is None else ctx.tool_manager.tools  # those of its structured answers, too
        if isinstance(last, ModelResponse) and offers is not None:
            self.capability.take_unknown([call for call in last.tool_calls if call.tool_name not in offers], tools)
        return tools

    @override
    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        """Runs a call; the pipeline answers one that has a final record."""
        if reaches_pipeline(tool.tool_def):
            # These calls are in the pipeline already; another one around them would record and approve them twice.
            return await self.wrapped.call_tool(name, tool_args, ctx, tool)
        call = ForeignCall(self.wrapped, name, tool_args, ctx, tool)
        try:
            return await self.capability.run_foreign(call, read_tool_metadata(tool.tool_def))
        finally:
            if call.answer_lost and not isinstance(tool.toolset, FunctionToolset):
                self.unanswered[name] = tool.toolset


def _as_written(args: RawToolArgs | None) -> str | dict[str, Any]:
    return args if isinstance(args, str) else plain_arguments(args or {})


def _parse_error(definition: ToolDefinition, args: RawToolArgs, error: Exception) -> ParseError:
    if not isinstance(error, ValidationError):
        return ParseError(str(error))
    lines = error.errors(include_url=False, include_input=False)
    if lines[0]["type"] == "json_invalid":
        return ParseError(f"the arguments are not JSON: {lines[0]['msg']}")
    data: object = from_json(args or "{}") if isinstance(args, str) else args
    faults = report_faults(lines, definition.parameters_json_schema, data)
    return ParseError(fault_message(faults), faults=faults)
