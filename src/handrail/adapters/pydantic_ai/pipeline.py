"""Sends every tool call of a PydanticAI agent through the pipeline: of functions, toolsets and MCP servers.

    executor = ToolExecutor(prompt=prompt, session=session)
    agent = Agent("openai:gpt-5.2", tools=[look_up], toolsets=[mcp], capabilities=[PipelineCapability(executor)])

The tools are unchanged. PydanticAI validates the arguments; those of functions are first checked against the schema
(`foreign.arguments`). Then the call goes through the steps of every call (`handrail.runtime.invoke`), in which the
tool's own toolset runs it.

A toolset may fail to close. PydanticAI closes those of a run together, and raises the exception of the last one. The
traceback has the toolsets whose `__aexit__` raised it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from traceback import walk_tb
from typing import Any, Never

from pydantic import ValidationError
from pydantic_ai import (
    ApprovalRequired,
    ModelResponse,
    ModelRetry,
    RunContext,
    ToolCallPart,
    ToolDefinition,
    ToolFailed,
    ToolReturn,
    ToolsetTool,
)
from pydantic_ai.capabilities import RawToolArgs, ValidatedToolArgs, WrapToolExecuteHandler
from pydantic_ai.toolsets import AbstractToolset, FunctionToolset, WrapperToolset
from pydantic_core import from_json
from typing_extensions import override  # a dependency of pydantic; in `typing` since Python 3.12

from handrail.adapters.loop import check_one_store, expansion_message
from handrail.adapters.pydantic_ai.arrival_order import leave_queue
from handrail.adapters.pydantic_ai.capability import HandrailCapability
from handrail.adapters.pydantic_ai.foreign.arguments import read_by_signature
from handrail.adapters.pydantic_ai.foreign.calls import ForeignCall, ForeignTool, foreign_tool, plain_arguments
from handrail.adapters.pydantic_ai.foreign.effects import ToolMetadata, read_tool_metadata
from handrail.adapters.pydantic_ai.pipeline_reach import reaches_pipeline
from handrail.adapters.pydantic_ai.questions import asked_by
from handrail.adapters.pydantic_ai.replies import Asked, asked
from handrail.errors import CallPostponed, ParseError, StoreError, VisibilityExpansionRequired
from handrail.loop_guard import asynchronous_entry
from handrail.prompt import RenderedPrompt, ToolPolicy
from handrail.redaction import redacted_logger
from handrail.runtime import ToolInvoked, ToolMessage
from handrail.runtime.environment import Environment
from handrail.runtime.execution import ASYNC
from handrail.runtime.invoke import invoke
from handrail.serde import schema_masking
from handrail.serde.formatting import fault_message, report_faults
from handrail.session.calls import CallRef

_log = redacted_logger("handrail.adapters")


@dataclass
class PipelineCapability(HandrailCapability):
    """Adds a prompt's tools to an agent, as `HandrailCapability` does, and sends the calls of its other tools along.

    Attributes:
        policies: the policies of the other tools.
    """

    policies: Sequence[ToolPolicy] = ()
    _environments: dict[str, tuple[ToolMetadata, Mapping[str, Any], Environment]] = field(
        init=False, repr=False, default_factory=dict[str, tuple[ToolMetadata, Mapping[str, Any], Environment]]
    )

    @property
    def sends_all_calls(self) -> bool:
        """True: the mark of an untrusted tool of the agent holds."""
        return True

    @override
    def get_wrapper_toolset(self, toolset: AbstractToolset[Any]) -> AbstractToolset[Any]:
        """All toolsets of the agent, their calls sent through the pipeline."""
        return ThroughPipeline(super().get_wrapper_toolset(toolset), self)

    @override
    @asynchronous_entry
    async def wrap_tool_execute(
        self,
        ctx: RunContext[Any],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: ValidatedToolArgs,
        handler: WrapToolExecuteHandler,
    ) -> Any:
        """Let every call reach the pipeline after those asked for before it.

        Raises:
            ToolFailed: the tool is unknown.
        """
        if tool_def.toolset_id == self.toolset.id:
            return await super().wrap_tool_execute(ctx, call=call, tool_def=tool_def, args=args, handler=handler)
        with self.mistakes_held(), self.line.join():
            return await handler(args)

    @override
    @asynchronous_entry
    async def refuse_unknown(self, call: ToolCallPart, args: ValidatedToolArgs, ctx: RunContext[Any]) -> Any:
        """Answer a call of an unknown name with the names of all tools of the agent, or from the record.

        Raises:
            ToolFailed: always, unless the call has a record of success from when its tool existed.
        """
        manager = ctx.tool_manager
        known = {} if manager is None or manager.tools is None else manager.tools
        names = [name for name, tool in known.items() if tool.toolset is not self.toolset and _is_callable(tool)]
        # Both are read before the call is queued: nothing may be awaited or take long between `leave_queue` and
        # `invoke`.
        asked_for = self.asked(ctx, call)
        record = await self.final_record(asked_for.ref)
        # What another call of the reply has opened is not there yet for this one.
        own = self.executor.environment.rendering.seen_by(asked_for.ref.reply).tools
        tools = (*own, *(ForeignTool(name=name, description="") for name in names))
        # The record of one of the prompt's tools has its own name, without any prefix.
        name = call.tool_name if record is None else record.name
        await leave_queue()
        message = await self._invoke(asked_for, name, _as_written(call.args), tools)
        if message.success:
            return ToolReturn(message.result.value, metadata={"replayed": True})
        raise ToolFailed(message.content)

    @override
    @asynchronous_entry
    async def on_tool_validate_error(
        self,
        ctx: RunContext[Any],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: RawToolArgs,
        error: ValidationError | ModelRetry,
    ) -> ValidatedToolArgs:
        """Record a call whose arguments do not fit, and report every fault to the model.

        A call with a final record is answered from it, even if its arguments no longer fit.

        Raises:
            ToolFailed: the arguments do not fit the tool's schema. It spends none of PydanticAI's retries.
            ModelRetry: raised by the tool's own validator.
        """
        record = await self.final_record(self.asked(ctx, call).ref)
        # The handler of the call is not run, so the record's failure has to be raised in the form that the tool had
        # chosen.
        if record is not None:
            if isinstance(error, ModelRetry) and not record.success:
                raise error
            return {}
        text = await self._record_misfit(ctx, call, tool_def, args, _parse_error(tool_def, args, error))
        if isinstance(error, ModelRetry):
            raise error
        raise ToolFailed(text)

    @override
    @asynchronous_entry
    async def refuse_misfit(
        self,
        ctx: RunContext[Any],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: RawToolArgs,
        error: ParseError,
    ) -> None:
        """Record a call whose arguments are invalid, and report it to the model, unless it has a final record.

        Raises:
            ToolFailed: the call has no final record.
        """
        if await self.final_record(self.asked(ctx, call).ref) is None:
            raise ToolFailed(await self._record_misfit(ctx, call, tool_def, args, error))

    async def carry_out(self, call: ForeignCall, said: ToolMetadata) -> Any:  # noqa: ANN401 - whatever the tool returns
        """Send a call of a foreign tool through the pipeline; the table of `foreign.calls` lists the outcomes."""
        environment = self._environment_of(call, said)
        # Identity and arguments are determined before leaving the queue: later calls must not overtake this one
        # afterwards.
        found = asked(call.context, environment.session)
        made = found.tool_call(call.name, call.arguments)
        await leave_queue()
        try:
            with asked_by(call.context, found.ref), call.under_way(), environment.in_call():
                message = await invoke(made, found.ref.reply, environment, ASYNC)
        except VisibilityExpansionRequired as error:
            raise ToolFailed(expansion_message(made, error, environment.rendering).content) from error
        except CallPostponed as error:
            call.postponed(error)
        return call.outcome(message)

    def asked(self, ctx: RunContext[Any], call: ToolCallPart) -> Asked:
        """The call as the model asked for it, with its identity."""
        return asked(ctx, self.executor.environment.session, call.tool_call_id)

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

    def _environment_of(self, call: ForeignCall, said: ToolMetadata) -> Environment:
        """The environment for the calls of one foreign tool; cached, because it is the same for all of them."""
        name, schema = call.name, call.schema
        kept = self._environments.get(name)
        # A server may change the declaration or the schema of a tool during a run, so both are compared.
        if kept is None or kept[:2] != (said, schema):
            environment = self._environment((foreign_tool(name, "", said, schema),))
            kept = self._environments[name] = said, schema, environment
        return kept[2]

    async def _record_misfit(
        self, ctx: RunContext[Any], call: ToolCallPart, tool_def: ToolDefinition, args: RawToolArgs, error: ParseError
    ) -> str:
        """Let the pipeline refuse a call at its second step; returns the message for the model."""
        masking = schema_masking(tool_def.parameters_json_schema)
        tool = _Misfit(name=call.tool_name, description="", error=error, masking=masking)
        with self.mistakes_held():
            return (await self._invoke(self.asked(ctx, call), call.tool_name, _as_written(args), (tool,))).content

    async def _invoke(
        self, found: Asked, name: str, arguments: str | dict[str, Any], tools: Sequence[Any]
    ) -> ToolMessage:
        call = found.tool_call(name, arguments)
        environment = self._environment(tools)
        with environment.in_call():
            return await invoke(call, found.ref.reply, environment, ASYNC)

    def _environment(self, tools: Sequence[Any]) -> Environment:
        environment = self.executor.environment
        policies = tuple(self.policies)
        rendered: RenderedPrompt[Any] = RenderedPrompt(
            name=environment.rendered_prompt.name,
            text=environment.rendered_prompt.text,
            tools=tuple(tools),
            policies={tool.name: policies for tool in tools},
            output_type=None,
        )
        # Session, ledger, deadline and turns stay those of the run: only the tools differ.
        return environment.with_rendered(rendered)


@dataclass
class ThroughPipeline(WrapperToolset[Any]):
    """All toolsets of an agent; the pipeline runs the calls made through it.

    Attributes:
        wrapped: the toolsets.
        capability: the capability of the run.
        unanswered: the toolsets that have not answered a call, by the names of their tools. Functions always answer:
            an exception is their answer.
    """

    capability: PipelineCapability
    unanswered: dict[str, AbstractToolset[Any]] = field(default_factory=dict[str, AbstractToolset[Any]])

    @override
    async def __aexit__(self, *args: object) -> bool | None:
        """Close the toolsets.

        A connection that was lost in a call is reported again when it is closed. The model has already received the
        failure of the call, so the error is logged and does not end the run. Exceptions of other toolsets propagate.
        """
        try:
            return await super().__aexit__(*args)
        except Exception as error:
            if not was_raised_by(error, self.unanswered.values()):
                raise
            _log.warning("the toolset of %s could not be closed", ", ".join(sorted(self.unanswered)), exc_info=True)
            return None

    @override
    @asynchronous_entry
    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        """The tools, after their declared effects have been read.

        In a resumed run, calls are made from a reply that this run has not received: names in it that are no longer
        known reach the pipeline as those of a new reply do. There is no request in between.

        Raises:
            PromptValidationError: a tool's metadata has an unknown value.
            SecondStoreError: a tool has `External(apply=...)`, and session and ledger are not in one store.
        """
        tools = await super().get_tools(ctx)
        # A wrong declaration is reported before the model sees the tool, and not at its first call.
        for name, tool in tools.items():
            said = read_tool_metadata(tool.tool_def)
            if said.untrusted and tool.tool_def.kind == "external":
                self.capability.outside.tools[name] = tool.tool_def
            if said.external is not None and said.external.apply is not None:
                check_one_store(name, self.capability.executor.environment)
        last = ctx.messages[-1] if ctx.messages else None
        known = None if ctx.tool_manager is None else ctx.tool_manager.tools  # those of its structured answers, too
        if isinstance(last, ModelResponse) and known is not None:
            self.capability.take_unknown([call for call in last.tool_calls if call.tool_name not in known], tools)
        return read_by_signature(tools, self.wrapped)

    @override
    @asynchronous_entry
    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        """Run a call; the pipeline answers one that has a final record.

        Raises:
            ToolFailed: the call was refused or failed; the message is what the model reads, and the run continues.
            ApprovalRequired: the call is postponed.
            DeveloperMistake: the program is at fault; the capability defers it until the other calls have ended.
            RunAbortedError: the run is over.
        """
        if reaches_pipeline(tool.tool_def):
            # These calls are in the pipeline already; another one around them would record and approve them twice.
            try:
                return await self.wrapped.call_tool(name, tool_args, ctx, tool)
            except CallPostponed as error:
                raise ApprovalRequired from error
        call = ForeignCall(self.wrapped, name, tool_args, ctx, tool)
        try:
            return await self.capability.carry_out(call, read_tool_metadata(tool.tool_def))
        finally:
            if call.answer_lost and not isinstance(tool.toolset, FunctionToolset):
                self.unanswered[name] = tool.toolset


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Misfit(ForeignTool):
    """A tool whose arguments have been found not to fit."""

    error: ParseError

    @override
    def parse(self, arguments: Any, *, max_bytes: int | None = None) -> Never:
        raise self.error


def _is_callable(tool: ToolsetTool[Any]) -> bool:
    return tool.tool_def.kind != "output"


def _as_written(args: RawToolArgs | None) -> str | dict[str, Any]:
    return args if isinstance(args, str) else plain_arguments(args or {})


def _parse_error(definition: ToolDefinition, args: RawToolArgs, error: Exception) -> ParseError:
    """The faults of the arguments, in the format of Handrail's own tools."""
    if not isinstance(error, ValidationError):
        return ParseError(str(error))
    lines = error.errors(include_url=False, include_input=False)
    if lines[0]["type"] == "json_invalid":
        return ParseError(f"the arguments are not JSON: {lines[0]['msg']}")
    data = _decoded(args)
    faults = report_faults(lines, definition.parameters_json_schema, data)
    return ParseError(fault_message(faults), faults=faults)


def _decoded(args: RawToolArgs) -> object:
    return from_json(args or "{}") if isinstance(args, str) else args


def was_raised_by(error: Exception, toolsets: Iterable[AbstractToolset[object]]) -> bool:
    """Whether closing one of these toolsets has raised an exception.

    Args:
        error: the exception raised while several toolsets were closed.
        toolsets: some of them.
    """
    # The exception does not say which toolset raised it; only the frames of its traceback do.
    closed = [
        frame.f_locals.get("self") for frame, _ in walk_tb(error.__traceback__) if frame.f_code.co_name == "__aexit__"
    ]
    return any(toolset is each for toolset in toolsets for each in closed)
