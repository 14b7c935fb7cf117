"""What a toolset cannot do: answer unknown names, preserve the order of calls, bound requests, store the conversation.

A PydanticAI capability wraps each step of a run. This one does ten things:

- It applies the deadline to each request, and the budget to each reply.
- It names each reply before any of it is stored (`handrail.adapters.pydantic_ai.replies`).
- An unknown name becomes a tool for this one reply, whose call goes to the pipeline, which refuses it with the list of
  known names. The model is never offered it.
- PydanticAI starts the calls of a reply in the order asked. If other hooks delay one, later calls wait until it has
  reached the pipeline and is queued; from then on, turns decide what runs concurrently.
- It defers the developer's mistakes of a reply until its other calls have ended, and raises them before the next
  request. PydanticAI cancels the other calls when one raises.
- It refuses arguments with a duplicate key, also those of tools that PydanticAI validates: decoded arguments do not
  show it.
- It checks the answer, and sends the model back with what is missing. That is a step of its own and no retry, so it
  does not count against PydanticAI's limit of output retries. An answer that is streamed (`run_stream`) is not checked.
- With a conversation, it stores what the user says before the model is asked, and each reply before its calls run.
- It records calls that waited, and that PydanticAI answers itself (`handrail.adapters.pydantic_ai.outside_answers`).
- It provides the toolset, and adds the tools that the session adds (`handrail.adapters.pydantic_ai.added_tools`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, get_args

from pydantic_ai import (
    ApprovalRequired,
    CallToolsNode,
    DeferredToolRequests,
    ModelRequest,
    ModelRequestContext,
    ModelRequestNode,
    ModelResponse,
    RunContext,
    ToolCallPart,
    ToolDefinition,
    ToolFailed,
    ToolsetTool,
    UserError,
    UserPromptNode,
    UserPromptPart,
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
    WrapRunHandler,
    WrapToolExecuteHandler,
    WrapToolValidateHandler,
)
from pydantic_ai.toolsets import AbstractToolset
from pydantic_graph import End  # a dependency of PydanticAI
from typing_extensions import override  # a dependency of pydantic; in `typing` since Python 3.12

from handrail.adapters.pydantic_ai.added_tools import WithAddedTools
from handrail.adapters.pydantic_ai.arrival_order import ArrivalQueue
from handrail.adapters.pydantic_ai.conversation import StoredHistory
from handrail.adapters.pydantic_ai.evaluation import over_budget, past_deadline
from handrail.adapters.pydantic_ai.outside_answers import record_answers
from handrail.adapters.pydantic_ai.outside_results import OutsideResults
from handrail.adapters.pydantic_ai.pipeline_reach import PIPELINE_METADATA_KEY, reaches_pipeline
from handrail.adapters.pydantic_ai.questions import (
    OnAsk,
    check_permits_deferred,
    defer_question,
    unanswerable,
    with_caller_answers,
)
from handrail.adapters.pydantic_ai.replies import name_of_answer, stamped
from handrail.adapters.pydantic_ai.toolset import HandrailToolset
from handrail.adapters.tool_executor import ToolExecutor
from handrail.errors import (
    BudgetExceededError,
    CallPostponed,
    DeadlineExceededError,
    InvalidArgumentError,
    ParseError,
    PromptEvaluationError,
)
from handrail.errors.developer import check_argument, first_mistake, mistakes_in, note_mistakes
from handrail.limits import TokenUsage
from handrail.loop_guard import asynchronous_entry
from handrail.runtime.execution import ASYNC
from handrail.runtime.steps import not_run
from handrail.serde import Masking, schema_masking
from handrail.serde.formatting import fault_message
from handrail.serde.json_values import repeated_keys

_UNKNOWN = {"handrail": "unknown"}
"""The metadata of a tool for an unknown name."""


@dataclass
class HandrailCapability(AbstractCapability[Any]):
    """A prompt's tools, its text, and the limits of its run, for any PydanticAI agent: `Agent(capabilities=[...])`.

    It applies the executor's deadline to requests, and its budget tracker to replies. Runs of one agent may be
    concurrent; they share the executor, and so its session.

    If the agent has other tools too, the answer to an unknown name lists only those of the prompt.

    Attributes:
        executor: runs the calls.
        conversation: where the messages of a run are stored, so that another process can resume it; `None` stores none.
        on_ask: what a policy's question becomes, if the executor has no approver: `"deny"` refuses the call, `"defer"`
            makes it a deferred request, which the run returns with the others as `DeferredToolRequests`.
        toolset: the tools, as a toolset.
        line: the calls of the run that have not reached the pipeline yet.
        outside: delimits results that the program gives to calls that a run has left open.
    """

    executor: ToolExecutor
    conversation: StoredHistory | None = field(default=None, kw_only=True)
    on_ask: OnAsk = field(default="deny", kw_only=True)
    toolset: HandrailToolset = field(init=False, repr=False)
    line: ArrivalQueue = field(init=False, repr=False, default_factory=ArrivalQueue)
    outside: OutsideResults = field(init=False, repr=False)
    _mistakes: list[BaseException] = field(init=False, repr=False, default_factory=list[BaseException])
    _left_open: list[CallPostponed] = field(init=False, repr=False, default_factory=list[CallPostponed])
    _used: TokenUsage = field(init=False, repr=False, default=TokenUsage())
    _schemas: dict[str, object] = field(init=False, repr=False, default_factory=dict[str, object])

    def __post_init__(self) -> None:
        expected = "a ToolExecutor: ToolExecutor(prompt=..., session=...)"
        check_argument(type(self).__name__, "executor", self.executor, ToolExecutor, expected)
        self._check_on_ask()
        if self.on_ask == "defer":
            self.executor = self.executor.with_approver(defer_question)
        self.executor = with_caller_answers(self.executor)
        self.toolset = HandrailToolset(self.executor, id=self.id, in_capability=True)
        self.outside = OutsideResults(self.executor.environment)

    def _check_on_ask(self) -> None:
        what = type(self).__name__
        if self.on_ask not in get_args(OnAsk):
            expected = "'deny' or 'defer'"
            raise InvalidArgumentError(function=what, argument="on_ask", given=self.on_ask, expected=expected)
        # A capability is copied for each run, with the executor that it has made.
        if self.on_ask == "defer" and self.executor.environment.approver not in {None, defer_question}:
            expected = "'deny', because the executor has an approver, which is asked; or an executor without one"
            raise InvalidArgumentError(function=what, argument="on_ask", given="defer", expected=expected)

    @override
    @asynchronous_entry
    async def for_run(self, ctx: RunContext[Any]) -> AbstractCapability[Any]:
        """A separate capability for each run, because it counts tokens and has a queue of calls."""
        # `replace` copies the fields of `__init__` only; queue, mistakes and counts start anew.
        return replace(self)

    @override
    def get_toolset(self) -> HandrailToolset | None:
        """The tools and the text of the prompt; `None` if it has neither, to save the time of requesting them."""
        rendered = self.executor.environment.rendered_prompt
        return self.toolset if rendered.tools or rendered.text else None

    @override
    def get_wrapper_toolset(self, toolset: AbstractToolset[Any]) -> AbstractToolset[Any]:
        """All toolsets of the agent, with the tools that the session adds."""
        return WithAddedTools(toolset, self.toolset, used=type(self).__name__)

    @override
    def get_ordering(self) -> CapabilityOrdering:
        """Outermost: it must see the calls of a reply before any hook can delay one."""
        return CapabilityOrdering(position="outermost")

    @override
    @asynchronous_entry
    async def wrap_run(self, ctx: RunContext[Any], *, handler: WrapRunHandler) -> AgentRunResult[Any]:
        """Apply what waits for the tools, and store what was said, however the run ends.

        Raises:
            DeveloperMistake: an `apply` is at fault.
            AgentError: the conversation has another run, or an unfinished one that this run does not continue.
            SessionError: the messages cannot be stored.
            InvalidArgumentError: `on_ask` is `"defer"`, and the output type of the agent has no `DeferredToolRequests`.
        """
        if self.on_ask == "defer" and ctx.agent is not None:
            check_permits_deferred(ctx.agent.output_type)
        await self.settle()
        if self.conversation is None:
            return await self._to_the_end(handler)
        async with self.conversation.run(ctx.messages):
            result = await self._to_the_end(handler)
            # A run that waits for approvals has not ended; the answers of its other calls are stored all the same.
            waits = isinstance(result.output, DeferredToolRequests)
            await self.conversation.save_async(result.all_messages(), ended=not waits)
            return result

    async def _to_the_end(self, handler: WrapRunHandler) -> AgentRunResult[Any]:
        result = await handler()
        if isinstance(result.output, DeferredToolRequests):  # of a reply some of whose calls have been answered
            await record_answers(self.executor.environment, result.all_messages())
        return result

    @asynchronous_entry
    async def settle(self) -> None:
        """Apply the results that wait for the tools of the run, before the model is asked.

        Raises:
            DeveloperMistake: as for `wrap_run`.
        """
        await self.executor.settle_before_run_async()

    @override
    @asynchronous_entry
    async def on_run_error(self, ctx: RunContext[Any], *, error: BaseException) -> AgentRunResult[Any]:
        """Say how an unfinished run is resumed, if PydanticAI refuses a new prompt because of its calls.

        Raises:
            AgentError: that is so.
            BaseException: any other error of the run.
        """
        conversation, is_prompted = self.conversation, ctx.prompt is not None
        if conversation is not None and is_prompted and conversation.has_left_calls and isinstance(error, UserError):
            raise conversation.unfinished_error() from error
        raise error

    @override
    @asynchronous_entry
    async def wrap_node_run(
        self, ctx: RunContext[Any], *, node: AgentNode[Any], handler: WrapNodeRunHandler[Any]
    ) -> NodeResult[Any]:
        """Raise the developer's mistakes of a reply when all its calls have ended, and before the next request.

        If something is missing from the answer, the run continues with a request that says what. A run that resumes
        with an answer that was not checked begins with the check, and makes no request for another answer.

        Raises:
            DeveloperMistake: that of the first call that had one, with the others as notes, or of the checker.
            InvalidArgumentError: an approver has left a question open, and the output type of the run has no
                `DeferredToolRequests`.
            PromptEvaluationError: something is missing from an answer that `run_stream` has streamed.
        """
        self._left_open.clear()
        node = self._asked_once(node)
        if isinstance(node, ModelRequestNode):
            await record_answers(self.executor.environment, [*ctx.messages, node.request])
        try:
            result = await handler(node)
        except BaseException as error:
            # PydanticAI raises its own for calls that wait, if the run cannot return them.
            raised = error
            if self._left_open and isinstance(error, UserError) and ctx.agent is not None:
                raised = unanswerable(self._left_open, ctx.agent.output_type)
            # The run ends with this exception, so the mistakes of the reply cannot be raised any more.
            note_mistakes(raised, self._mistakes)
            if raised is error:
                raise
            raise raised from error
        self._raise_mistakes()
        if isinstance(node, CallToolsNode) and isinstance(result, ModelRequestNode):
            result.request = await self.outside.marked(result.request, ctx, node.tool_call_results)
        if isinstance(node, UserPromptNode) and isinstance(result, ModelRequestNode) and ctx.prompt is None:
            answer = None if self.conversation is None else self.conversation.unchecked_answer
            return result if answer is None else CallToolsNode(answer)
        if isinstance(result, End) and not isinstance(result.data.output, DeferredToolRequests):
            reply = name_of_answer(node.model_response) if isinstance(node, CallToolsNode) else None
            missing = await self.executor.completion_async(result.data.output, reply=reply)
            if missing is not None and isinstance(node, UserPromptNode | ModelRequestNode | CallToolsNode):
                return ModelRequestNode(ModelRequest(parts=[UserPromptPart(missing)]))
            if missing is not None:
                # The node with which `run_stream` ends: PydanticAI takes its result as it is, so no request can follow.
                raise PromptEvaluationError(
                    f"the streamed answer of {self.executor.environment.prompt.name} is not accepted, and the model "
                    "cannot be sent back, because the program has received the answer. Use run with "
                    f"event_stream_handler, which streams too. The model would have read: {missing}",
                    phase="response",
                )
        return result

    def _asked_once(self, node: AgentNode[Any]) -> AgentNode[Any]:
        # A prompt with which the history ends is sent from there.
        if self.conversation is None or not isinstance(node, UserPromptNode):
            return node
        return replace(node, user_prompt=None) if self.conversation.is_awaiting(node.user_prompt) else node

    @override
    @asynchronous_entry
    async def after_run(self, ctx: RunContext[Any], *, result: AgentRunResult[Any]) -> AgentRunResult[Any]:
        """Raise the mistakes of calls that end after the answer, as in a streamed run.

        Raises:
            DeveloperMistake: as for `wrap_node_run`.
        """
        self._raise_mistakes()
        return result

    @contextmanager
    def mistakes_held(self) -> Generator[None]:
        """Defer a developer's mistake of a call in this block; for PydanticAI the call fails.

        That failure does not reach a model, because the mistake is raised before the next request. A question about the
        call that is left open is noted.

        Raises:
            ToolFailed: the call had one.
        """
        try:
            yield
        except ApprovalRequired as error:
            if isinstance(error.__cause__, CallPostponed):
                self._left_open.append(error.__cause__)
            raise
        except Exception as error:
            if not mistakes_in(error):
                raise
            self._mistakes.append(error)
            raise ToolFailed("the call was not run") from error

    def _raise_mistakes(self) -> None:
        if self._mistakes:
            # Emptied before raising, because `after_run` checks the same list again.
            mistakes, self._mistakes = self._mistakes, []
            raise first_mistake(mistakes)

    @override
    @asynchronous_entry
    async def wrap_model_request(
        self, ctx: RunContext[Any], *, request_context: ModelRequestContext, handler: WrapModelRequestHandler
    ) -> ModelResponse:
        """Make a request, bounded by the deadline; what the user says is stored before.

        Raises:
            StoreError: it cannot be stored.
            PromptEvaluationError: the deadline passed, or the budget had been exceeded before (by another run).
        """
        if self.conversation is not None:
            await self.conversation.note_request(ctx.messages)
        self._check_budget()
        deadline = self.executor.environment.deadline
        if deadline is None:
            # The timeout below would cancel the request only at its first wait, when it may have been sent.
            return await handler(request_context)
        if deadline.expired:
            raise past_deadline(deadline, "before the model was asked")
        bound = asyncio.timeout(deadline.remaining().total_seconds())
        try:
            async with bound:
                response = await handler(request_context)
        except TimeoutError as error:
            # A `TimeoutError` of the HTTP client is not the deadline's, and keeps its own meaning.
            if not bound.expired():
                raise
            raise past_deadline(deadline, "while the model was asked") from error
        # A model that does not yield to the event loop is not interrupted by the timeout.
        if deadline.expired:
            raise past_deadline(deadline, "while the model was asked")
        return response

    @override
    @asynchronous_entry
    async def after_model_request(
        self, ctx: RunContext[Any], *, request_context: ModelRequestContext, response: ModelResponse
    ) -> ModelResponse:
        """Name a reply, count its tokens and calls, and route every name in it to the pipeline.

        Raises:
            PromptEvaluationError: the budget is exceeded; none of the reply's calls is run.
        """
        manager = ctx.tool_manager
        tools = {} if manager is None or manager.tools is None else manager.tools
        # Counted before the reply is named and stored: a reply over the budget raises here, and none of its calls runs.
        self._count(ctx, response, sum(1 for call in response.tool_calls if not _is_answer(tools, call.tool_name)))
        # Some providers refuse a conversation in which an id stands twice.
        taken = set[str]() if self.conversation is None else self.conversation.call_ids
        session = self.executor.environment.session
        response = await ASYNC.write_to(session.store, partial(stamped, ctx, session, response, taken))
        self.take_unknown(response.tool_calls, tools)
        if self.conversation is not None:
            self._note_secrets(tools)
            # Stored before this method returns, and so before any call of the reply starts. A copy of the list, because
            # PydanticAI continues to append to its own; it does not have the response yet.
            is_checked = self.executor.environment.prompt.template.accepts is not None
            await self.conversation.note([*ctx.messages, response], unchecked=is_checked and not response.tool_calls)
        return response

    def _note_secrets(self, tools: Mapping[str, ToolsetTool[Any]]) -> None:
        """Let the session know which arguments it must not store, by the names that the model says."""
        masking, own = self.executor.environment.session.call_masking, self._own_masking
        for name, tool in tools.items():
            schema = tool.tool_def.parameters_json_schema
            # Schemas and tools are mostly the same objects at each step.
            if self._schemas.get(name) is schema:
                continue
            self._schemas[name] = schema
            for each in own(tool.tool_def) or (schema_masking(schema),):
                masking.add(name, each)

    def _own_masking(self, definition: ToolDefinition) -> tuple[Masking, ...]:
        """What is known of a tool of Handrail's, under the name without any prefix."""
        own = (definition.metadata or {}).get(PIPELINE_METADATA_KEY)
        return () if own is None else self.executor.environment.session.call_masking.of(str(own))

    def take_unknown(self, calls: Iterable[ToolCallPart], tools: dict[str, ToolsetTool[Any]]) -> None:
        """Create a tool for each unknown name, so that its call reaches the pipeline."""
        for call in calls:
            # The dictionary is PydanticAI's own for this step, so the tool exists only until the next request.
            if call.tool_name not in tools:
                definition = ToolDefinition(name=call.tool_name, metadata=_UNKNOWN, toolset_id=self.toolset.id)
                tools[call.tool_name] = self.toolset.tool(definition)

    @override
    @asynchronous_entry
    async def wrap_tool_validate(
        self,
        ctx: RunContext[Any],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: RawToolArgs,
        handler: WrapToolValidateHandler,
    ) -> ValidatedToolArgs:
        """Skip other hooks for calls that will be refused.

        These are calls of unknown tools, and calls of foreign tools whose text has a duplicate key in one object, of
        which PydanticAI's validation silently takes the last value.

        Raises:
            ToolFailed: a key is given twice. It spends none of PydanticAI's retries.
        """
        # Compared by identity: another toolset may use the same key and value in its metadata.
        if tool_def.metadata is _UNKNOWN:
            return self.toolset.validator.validate_json(args) if isinstance(args, str) else args
        if not reaches_pipeline(tool_def) and (error := repeated_key(args)) is not None:
            await self.refuse_misfit(ctx, call=call, tool_def=tool_def, args=args, error=error)
        return await handler(args)

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
        """Refuse a call of a foreign tool for its arguments, or return if it may continue.

        Args:
            ctx: the run context of the call.
            call: the call.
            tool_def: the tool.
            args: the arguments as the model wrote them.
            error: what is wrong with them.

        Raises:
            ToolFailed: the call is refused.
        """
        del ctx, tool_def, args  # only a pipeline records the call
        raise ToolFailed(not_run(call.tool_name, error))

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
        """Let a call of this toolset reach the pipeline after those asked for before it.

        Raises:
            ToolFailed: the tool is unknown.
        """
        # The pipeline does not order calls of other tools here; `PipelineCapability` overrides this.
        if tool_def.toolset_id != self.toolset.id:
            return await handler(args)
        # The mistakes are held outside of the queue, so that a call with a mistake has left it, and later calls
        # continue.
        with self.mistakes_held(), self.line.join():
            if tool_def.metadata is _UNKNOWN:
                return await self.refuse_unknown(call, args, ctx)
            return await handler(args)

    @asynchronous_entry
    async def refuse_unknown(self, call: ToolCallPart, args: ValidatedToolArgs, ctx: RunContext[Any]) -> Any:  # noqa: ANN401 - PydanticAI's
        """Let the pipeline answer a call of an unknown tool.

        Raises:
            ToolFailed: always, with the known names.
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
        tracker = self.executor.environment.budget_tracker
        if tracker is None:
            return
        usage = response.usage
        # The tracker takes the total of a run, not the difference, so a reply must not be counted by itself.
        self._used += TokenUsage(usage.input_tokens, usage.output_tokens, usage.cache_read_tokens)
        tracker.record(ctx.run_id or self.toolset.id, self._used)
        for _ in range(calls):
            tracker.record_call()
        self._check_budget()


def _is_answer(tools: dict[str, ToolsetTool[Any]], name: str) -> bool:
    """Whether a call of that name is PydanticAI's way to give a structured answer."""
    return name in tools and tools[name].tool_def.kind == "output"


def repeated_key(args: RawToolArgs) -> ParseError | None:
    """The fault that an object in the arguments has a duplicate key; `None` if none has, or they are not JSON text.

    The validation of the tool refuses text that is not JSON.
    """
    if not isinstance(args, str) or args.count(":") < 2:  # noqa: PLR2004 - a duplicate key occurs twice
        return None
    try:
        faults = repeated_keys(args)
    # Not JSON, or nested too deep: the validation of the tool reports this with a better message.
    except (ValueError, RecursionError):
        return None
    return ParseError(fault_message(faults), faults=faults) if faults else None
