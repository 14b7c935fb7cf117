"""What a toolset cannot do alone: answer names that nobody knows, keep the order asked, and bound the requests.

A PydanticAI capability stands around each step of a run. This one does seven things:

- It holds each request to the deadline, and each reply to the budget.
- It names each reply before anything of it can be stored (`handrail.adapters.pydantic_ai.replies`).
- A name that the agent does not know becomes a tool for this one reply, whose call goes to the pipeline: that refuses
  it and says which names there are. The model is never offered it.
- PydanticAI starts the calls of a reply in the order asked. Where hooks of others hold one up, those behind it wait
  until it has reached the pipeline and drawn its place; from there on, turns decide what runs beside what.
- It holds the developer's mistakes of a reply until its other calls have ended, and raises them before the model is
  asked again. PydanticAI cancels the other calls when one raises.
- It refuses arguments in which a key is given twice, also those of tools that PydanticAI validates: once they are
  decoded, that cannot be seen.
- It brings the toolset along.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic_ai import (
    ModelRequestContext,
    ModelResponse,
    RunContext,
    ToolCallPart,
    ToolDefinition,
    ToolFailed,
    ToolsetTool,
)
from pydantic_ai.agent import AgentRunResult
from pydantic_ai.capabilities import (
    AbstractCapability,
    AgentNode,
    CapabilityOrdering,
    NodeResult,
    RawToolArgs,
    ValidatedToolArgs,
    WrapModelRequestHandler,
    WrapNodeRunHandler,
    WrapToolExecuteHandler,
    WrapToolValidateHandler,
)
from typing_extensions import override  # pydantic brings it; `typing` has it from Python 3.12 on

from handrail.adapters.pydantic_ai.arrival_order import ArrivalQueue
from handrail.adapters.pydantic_ai.evaluation import over_budget, past_deadline
from handrail.adapters.pydantic_ai.replies import stamped
from handrail.adapters.pydantic_ai.toolset import HandrailToolset, reaches_pipeline
from handrail.adapters.tool_executor import ToolExecutor
from handrail.errors import (
    BudgetExceededError,
    DeadlineExceededError,
    ParseError,
    PromptEvaluationError,
)
from handrail.errors.developer import first_mistake, mistakes_in, note_mistakes
from handrail.limits import TokenUsage
from handrail.runtime.steps import not_run
from handrail.serde.faults import fault_message
from handrail.serde.json_values import repeated_keys

_UNKNOWN = {"handrail": "unknown"}
"""The metadata of a tool that stands for a name that nobody knows."""


@dataclass
class HandrailCapability(AbstractCapability[Any]):
    """A prompt's tools, its text, and the limits of its run, for any PydanticAI agent: `Agent(capabilities=[...])`.

    It holds requests to the executor's deadline, and replies to its budget tracker. Runs of one agent may go on side by
    side; they share the executor, and so its session.

    In an agent that has tools of others too, the answer to an unknown name lists those of the prompt alone.

    Attributes:
        executor: what carries the calls out.
        toolset: the tools, as a toolset.
        line: the calls of the run that have not reached the pipeline yet.
    """

    executor: ToolExecutor
    toolset: HandrailToolset = field(init=False, repr=False)
    line: ArrivalQueue = field(init=False, repr=False, default_factory=ArrivalQueue)
    _mistakes: list[BaseException] = field(init=False, repr=False, default_factory=list[BaseException])
    _used: TokenUsage = field(init=False, repr=False, default=TokenUsage())

    def __post_init__(self) -> None:
        self.toolset = HandrailToolset(self.executor, id=self.id)

    @override
    async def for_run(self, ctx: RunContext[Any]) -> AbstractCapability[Any]:
        """A capability of its own for each run, because it counts tokens and keeps a line of calls."""
        return replace(self)

    @override
    def get_toolset(self) -> HandrailToolset | None:
        """The tools and the text of the prompt; `None` if it has neither, because asking for them takes its time."""
        rendered = self.executor.environment.rendered_prompt
        return self.toolset if rendered.tools or rendered.text else None

    @override
    def get_ordering(self) -> CapabilityOrdering:
        """Around all others: it must see the calls of a reply before anything can hold one up."""
        return CapabilityOrdering(position="outermost")

    @override
    async def wrap_node_run(
        self, ctx: RunContext[Any], *, node: AgentNode[Any], handler: WrapNodeRunHandler[Any]
    ) -> NodeResult[Any]:
        """Raise the developer's mistakes of a reply when all its calls have ended, and before the model is asked again.

        Raises:
            DeveloperMistake: that of the first call which came to one; the others are notes on it.
        """
        try:
            result = await handler(node)
        except BaseException as error:
            note_mistakes(error, self._mistakes)
            raise
        self._raise_mistakes()
        return result

    @override
    async def after_run(self, ctx: RunContext[Any], *, result: AgentRunResult[Any]) -> AgentRunResult[Any]:
        """Raise those of calls that end after the answer, which a streamed run has.

        Raises:
            DeveloperMistake: as for `wrap_node_run`.
        """
        self._raise_mistakes()
        return result

    @contextmanager
    def mistakes_held(self) -> Generator[None]:
        """Hold a developer's mistake that a call of this block comes to; PydanticAI is told that the call failed.

        What it is told reaches no model, because the mistake is raised before the model is asked again.

        Raises:
            ToolFailed: the call came to one.
        """
        try:
            yield
        except Exception as error:
            if not mistakes_in(error):
                raise
            self._mistakes.append(error)
            raise ToolFailed("the call was not carried out") from error

    def _raise_mistakes(self) -> None:
        if self._mistakes:
            mistakes, self._mistakes = self._mistakes, []
            raise first_mistake(mistakes)

    @override
    async def wrap_model_request(
        self, ctx: RunContext[Any], *, request_context: ModelRequestContext, handler: WrapModelRequestHandler
    ) -> ModelResponse:
        """Make a request, for as long as the deadline allows.

        Raises:
            PromptEvaluationError: the deadline passed, or the budget had been exceeded before (by another run).
        """
        self._check_budget()
        deadline = self.executor.environment.deadline
        if deadline is None:
            return await handler(request_context)
        if deadline.expired:
            raise past_deadline(deadline, "before the model was asked")
        bound = asyncio.timeout(deadline.remaining().total_seconds())
        try:
            async with bound:
                response = await handler(request_context)
        except TimeoutError as error:
            if not bound.expired():
                raise
            raise past_deadline(deadline, "while the model was asked") from error
        if deadline.expired:
            raise past_deadline(deadline, "while the model was asked")
        return response

    @override
    async def after_model_request(
        self, ctx: RunContext[Any], *, request_context: ModelRequestContext, response: ModelResponse
    ) -> ModelResponse:
        """Name a reply, count what it used and asks for, and see to it that every name in it reaches the pipeline.

        Raises:
            PromptEvaluationError: the budget is exceeded; none of the reply's calls is run.
        """
        manager = ctx.tool_manager
        tools = {} if manager is None or manager.tools is None else manager.tools
        self._count(ctx, response, sum(1 for call in response.tool_calls if not _is_answer(tools, call.tool_name)))
        response = stamped(ctx, self.executor.environment.session, response, self.taken_ids())
        self.take_unknown(response.tool_calls, tools)
        return response

    def taken_ids(self) -> set[str]:
        """The ids that no call of the next reply may have; those of its calls are added."""
        return set()

    def take_unknown(self, calls: Iterable[ToolCallPart], tools: dict[str, ToolsetTool[Any]]) -> None:
        """Make a tool of each name that is none, so that its call reaches the pipeline."""
        for call in calls:
            if call.tool_name not in tools:
                definition = ToolDefinition(name=call.tool_name, metadata=_UNKNOWN, toolset_id=self.toolset.id)
                tools[call.tool_name] = self.toolset.tool(definition)

    @override
    async def wrap_tool_validate(
        self,
        ctx: RunContext[Any],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: RawToolArgs,
        handler: WrapToolValidateHandler,
    ) -> ValidatedToolArgs:
        """Keep the hooks of others from calls that will be refused: there is nothing that they could judge.

        These are calls of unknown tools, and calls of others' tools whose text holds a key twice in one object. Of such
        a text PydanticAI's validation takes the last value without a word.

        Raises:
            ToolFailed: a key is given twice. It spends none of PydanticAI's retries.
        """
        if tool_def.metadata is _UNKNOWN:
            return self.toolset.validator.validate_json(args) if isinstance(args, str) else args
        if not reaches_pipeline(tool_def) and (error := repeated_key(args)) is not None:
            await self.refuse_misfit(ctx, call=call, args=args, error=error)
        return await handler(args)

    async def refuse_misfit(
        self, ctx: RunContext[Any], *, call: ToolCallPart, args: RawToolArgs, error: ParseError
    ) -> None:
        """Refuse a call of another's tool for its arguments, or return if it may go on with them.

        Args:
            ctx: the run context of the call.
            call: the call.
            args: the arguments as the model wrote them.
            error: what is wrong with them.

        Raises:
            ToolFailed: the call is refused.
        """
        del ctx, args  # only a pipeline records the call
        raise ToolFailed(not_run(call.tool_name, error))

    @override
    async def wrap_tool_execute(
        self,
        ctx: RunContext[Any],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: ValidatedToolArgs,
        handler: WrapToolExecuteHandler,
    ) -> Any:
        """Let a call of this toolset reach the pipeline after those asked for before it.

        Raises:
            ToolFailed: the tool is unknown.
        """
        if tool_def.toolset_id != self.toolset.id:
            return await handler(args)
        with self.mistakes_held(), self.line.join():
            if tool_def.metadata is _UNKNOWN:
                return await self.refuse_unknown(call, args, ctx)
            return await handler(args)

    async def refuse_unknown(self, call: ToolCallPart, args: ValidatedToolArgs, ctx: RunContext[Any]) -> Any:  # noqa: ANN401 - PydanticAI's
        """Let the pipeline answer a call of a tool that there is not.

        Raises:
            ToolFailed: always, with the names that there are.
        """
        return await self.toolset.call(call.tool_name, args, ctx)

    def _check_budget(self) -> None:
        tracker = self.executor.environment.budget_tracker
        if tracker is None:
            return
        try:
            tracker.check()
        except BudgetExceededError as error:
            raise over_budget(error) from error
        except DeadlineExceededError as error:
            raise PromptEvaluationError(str(error), phase="request") from error

    def _count(self, ctx: RunContext[Any], response: ModelResponse, calls: int) -> None:
        """Report to the budget tracker, if there is one, and look whether the budget still holds."""
        tracker = self.executor.environment.budget_tracker
        if tracker is None:
            return
        usage = response.usage
        self._used += TokenUsage(usage.input_tokens, usage.output_tokens, usage.cache_read_tokens)
        tracker.record(ctx.run_id or self.toolset.id, self._used)
        for _ in range(calls):
            tracker.record_call()
        self._check_budget()


def _is_answer(tools: dict[str, ToolsetTool[Any]], name: str) -> bool:
    """Whether a call of that name is PydanticAI's way to give a structured answer."""
    return name in tools and tools[name].tool_def.kind == "output"


def repeated_key(args: RawToolArgs) -> ParseError | None:
    """That an object in the arguments holds a key twice; `None` if none does, or they are not text that is JSON.

    What is not JSON is refused by the validation of the tool.
    """
    if not isinstance(args, str) or args.count(":") < 2:  # noqa: PLR2004 - a key that is given twice has two
        return None
    try:
        faults = repeated_keys(args)
    except (ValueError, RecursionError):
        return None
    return ParseError(fault_message(faults), faults=faults) if faults else None
