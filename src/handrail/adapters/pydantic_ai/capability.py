"""`HandrailCapability`: the duties of `handrail.adapters.loop` at the steps of a PydanticAI run, which a toolset lacks.

- An unknown name becomes a tool for this one reply, whose call the pipeline refuses with the list of known names. The
  model is never offered it.
- The developer's mistakes of a reply are raised before the next request, when its other calls have ended. PydanticAI
  cancels the other calls when one raises.
- A model is sent back with what its answer lacks. That is a step of its own and no retry, so it does not count against
  PydanticAI's limit of output retries. An answer that is streamed (`run_stream`) is not checked.
- With a conversation, what the user says is stored before the model is asked, and each reply before its calls run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Literal, cast

from pydantic_ai import (
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
    UserPromptNode,
    UserPromptPart,
)
from pydantic_ai.agent import AgentRunResult
from pydantic_ai.capabilities import (
    AbstractCapability,
    AgentNode,
    CapabilityOrdering,
    Instrumentation,
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

from handrail.adapters.engines import refuse_in_temporal_workflow
from handrail.adapters.loop import DeferredMistakes, asynchronous_entries, check_budget, count_reply, make_request
from handrail.adapters.pydantic_ai.conversation import StoredHistory, refuse_second_owner
from handrail.adapters.pydantic_ai.recorded_replies import describe_parts, guarded_reply
from handrail.adapters.pydantic_ai.replies import mark_outside_results, name_answer, name_new_reply, record_answers
from handrail.adapters.pydantic_ai.toolset import (
    ANY_ARGUMENTS,
    PIPELINE_METADATA_KEY,
    HandrailToolset,
    WithAddedTools,
    in_pydantic_ai,
    in_queue,
)
from handrail.adapters.tool_executor import ToolExecutor
from handrail.errors import InvalidArgumentError, PromptEvaluationError
from handrail.errors.developer import check_argument, mistakes_in
from handrail.limits import TokenUsage
from handrail.prompt import Approval, ApprovalRequest
from handrail.runtime.execution import ASYNC
from handrail.serde import schema_masking
from handrail.session.conversation import digest_request

OnAsk = Literal["deny", "defer"]
"""What a policy's question becomes without an approver: the call is refused, or is a deferred request."""

_UNKNOWN = {"handrail": "unknown"}
"""The metadata of a tool for an unknown name."""


async def defer_question(request: ApprovalRequest) -> Approval:
    """The approver that leaves every question to the caller of the run."""
    questions = "; ".join(question.text for question in request.questions)
    return Approval.later(f"{request.tool.name} waits for approval: {questions}")


@asynchronous_entries
@dataclass
class HandrailCapability(AbstractCapability[Any]):
    """A prompt's tools, its text, and the limits of its run, for any PydanticAI agent: `Agent(capabilities=[...])`.

    It applies the executor's deadline to requests, and its budget tracker to replies. Runs of one agent may be
    concurrent; they share the executor, and so its session.

    If the agent has other tools too, the answer to an unknown name lists only those of the prompt.

    Attributes:
        executor: runs the calls.
        conversation: where the messages of a run are stored, so that another process can resume it; `None` stores none,
            as inside a durable engine, which stores them itself.
        on_ask: what a policy's question becomes, if the executor has no approver: `"deny"` refuses the call, `"defer"`
            makes it a deferred request, which the run returns with the others as `DeferredToolRequests`.
        toolset: the tools, as a toolset.
        queue: the calls of the run that have not reached the pipeline yet.
        outside_tools: the tools that the program does not run, and that are marked as untrusted, by name.
    """

    sends_all_calls: ClassVar[bool] = False
    """Whether the calls of all tools of the agent reach the pipeline: their untrusted marks hold, and their order."""

    executor: ToolExecutor
    conversation: StoredHistory | None = field(default=None, kw_only=True)
    on_ask: OnAsk = field(default="deny", kw_only=True)
    toolset: HandrailToolset = field(init=False, repr=False)
    queue: list[asyncio.Event] = field(init=False, repr=False, default_factory=list[asyncio.Event])
    outside_tools: dict[str, ToolDefinition] = field(init=False, repr=False, default_factory=dict[str, ToolDefinition])
    _mistakes: DeferredMistakes = field(init=False, repr=False, default_factory=DeferredMistakes)
    _usage: TokenUsage = field(init=False, repr=False, default=TokenUsage())
    _schemas: dict[str, object] = field(init=False, repr=False, default_factory=dict[str, object])

    def __post_init__(self) -> None:
        expected = "a ToolExecutor: ToolExecutor(tools, session=session)"
        check_argument(type(self).__name__, "executor", self.executor, ToolExecutor, expected)
        history, session = cast("object", self.conversation), self.executor.environment.session.unbound
        if history is not None and not (isinstance(history, StoredHistory) and history.session.unbound is session):
            expected = "a StoredHistory of the session of the executor: StoredHistory(session, name)"
            raise InvalidArgumentError(
                function=type(self).__name__, argument="conversation", value=history, expected=expected
            )
        if self.on_ask == "defer" and self.executor.environment.approver is None:
            self.executor = self.executor.with_approver(defer_question)
        self.executor = in_pydantic_ai(self.executor)
        self.toolset = HandrailToolset(self.executor, id=self.id, in_capability=True)

    @override
    async def for_run(self, ctx: RunContext[Any]) -> AbstractCapability[Any]:
        """A separate capability for each run, because it counts tokens and has a queue of calls.

        Raises:
            DurableEngineError: a Temporal workflow runs the agent.
        """
        refuse_in_temporal_workflow(type(self).__name__)
        # `replace` copies the fields of `__init__` only; queue, mistakes and counts start anew.
        return replace(self)

    @override
    def get_toolset(self) -> HandrailToolset | None:
        """The tools and the text of the prompt; `None` if it has neither, to save the time of requesting them."""
        prompt = self.executor.environment.rendered_prompt
        return self.toolset if prompt.tools or prompt.text else None

    @override
    def get_wrapper_toolset(self, toolset: AbstractToolset[Any]) -> AbstractToolset[Any]:
        """All toolsets of the agent, with the tools that the session adds."""
        return WithAddedTools(toolset, self.toolset, capability=type(self).__name__)

    @override
    def get_ordering(self) -> CapabilityOrdering:
        """Outermost: it must see the calls of a reply before any hook can delay one. `Instrumentation` delays none."""
        return CapabilityOrdering(position="outermost", wrapped_by=(Instrumentation,))

    # --------------------------------------------------------------------------------------------------- steps of a run

    @override
    async def wrap_run(self, ctx: RunContext[Any], *, handler: WrapRunHandler) -> AgentRunResult[Any]:
        """Applies what waits for the tools, and stores what was said, however the run ends.

        Raises:
            DurableEngineError: a durable engine stores the conversation, too.
        """
        if self.conversation is not None:
            refuse_second_owner(ctx)
        await self.settle()
        async with nullcontext() if self.conversation is None else self.conversation.run(ctx.messages):
            result = await handler()
            self._mistakes.raise_first()  # of calls that end after the answer, as in a streamed run
            waits = isinstance(result.output, DeferredToolRequests)
            if waits:  # of a reply some of whose calls have been answered
                await record_answers(self.executor.environment, result.all_messages())
            # A run that waits for approvals has not ended; the answers of its other calls are stored all the same.
            if self.conversation is not None:
                await self.conversation.save_async(result.all_messages(), has_ended=not waits)
            return result

    async def settle(self) -> None:
        """Applies the results that wait for the tools of the run, before the model is asked."""
        await self.executor.settle_before_run_async()

    @override
    async def wrap_node_run(
        self, ctx: RunContext[Any], *, node: AgentNode[Any], handler: WrapNodeRunHandler[Any]
    ) -> NodeResult[Any]:
        """Raises the developer's mistakes of a reply when all its calls have ended, and before the next request.

        If something is missing from the answer, the run continues with a request that says what. A run that resumes
        with an answer that was not checked begins with the check, and makes no request for another answer.
        """
        conversation = self.conversation
        # A prompt with which the history ends is sent from there.
        if conversation and isinstance(node, UserPromptNode) and conversation.is_awaiting(node.user_prompt):
            node = replace(node, user_prompt=None)
        if isinstance(node, ModelRequestNode):
            await record_answers(self.executor.environment, [*ctx.messages, node.request])
        try:
            result = await handler(node)
        except BaseException as error:
            # The run ends with this exception, so the mistakes of the reply cannot be raised any more.
            self._mistakes.add_notes(error)
            raise
        self._mistakes.raise_first()
        if isinstance(node, CallToolsNode) and isinstance(result, ModelRequestNode):
            results, environment = node.tool_call_results or {}, self.executor.environment
            outside = self.outside_tools
            result.request = await mark_outside_results(result.request, ctx, environment, outside, results)
        is_resumed = isinstance(node, UserPromptNode) and isinstance(result, ModelRequestNode) and ctx.prompt is None
        if is_resumed and conversation and (answer := conversation.unchecked_answer):
            return CallToolsNode(answer)
        if isinstance(result, End) and not isinstance(result.data.output, DeferredToolRequests):
            return await self._check_answer(node, result)
        return result

    async def _check_answer(self, node: AgentNode[Any], result: End[Any]) -> NodeResult[Any]:
        reply = name_answer(node.model_response) if isinstance(node, CallToolsNode) else None
        missing = await self.executor.completion_async(result.data.output, reply=reply)
        if missing is None:
            return result
        if isinstance(node, UserPromptNode | ModelRequestNode | CallToolsNode):
            return ModelRequestNode(ModelRequest(parts=[UserPromptPart(missing)]))
        # The node with which `run_stream` ends: PydanticAI takes its result as it is, so no request can follow.
        raise PromptEvaluationError(
            f"the streamed answer of {self.executor.environment.prompt.name} is not accepted, and the model cannot be "
            "sent back, because the program has received the answer. Use run with event_stream_handler, which streams "
            f"too. The model would have read: {missing}",
            phase="response",
        )

    # -------------------------------------------------------------------------------------------- requests and replies

    @override
    async def wrap_model_request(
        self, ctx: RunContext[Any], *, request_context: ModelRequestContext, handler: WrapModelRequestHandler
    ) -> ModelResponse:
        """Makes a request, bounded by the deadline; what the user says is stored before."""
        if self.conversation is not None:
            await self.conversation.record_request(ctx.messages)
            if self.conversation.session.store is not None:
                self.conversation.note_request(digest_request(describe_parts(request_context)))
        environment = self.executor.environment
        check_budget(environment)
        ask = partial(make_request, environment.deadline, partial(handler, request_context))
        if environment.guard is None:
            return await ask()
        reply, is_recorded = await guarded_reply(environment.guard, environment.session, request_context, ask)
        if not is_recorded:  # the steps after a request have been taken
            return reply
        return await self.after_model_request(ctx, request_context=request_context, response=reply)

    @override
    async def after_model_request(
        self, ctx: RunContext[Any], *, request_context: ModelRequestContext, response: ModelResponse
    ) -> ModelResponse:
        """Names a reply, counts its tokens and calls, and routes every name in it to the pipeline."""
        manager, environment = ctx.tool_manager, self.executor.environment
        tools = {} if manager is None or manager.tools is None else manager.tools
        # Counted before the reply is named and stored: a reply over the budget raises here, and none of its calls runs.
        usage = response.usage
        self._usage += TokenUsage(usage.input_tokens, usage.output_tokens, usage.cache_read_tokens)
        answers = {name for name, tool in tools.items() if tool.tool_def.kind == "output"}
        calls = sum(1 for call in response.tool_calls if call.tool_name not in answers)
        count_reply(environment, ctx.run_id or self.toolset.id, self._usage, calls)
        # Some providers refuse a conversation in which an id stands twice.
        used_ids = set[str]() if self.conversation is None else self.conversation.call_ids
        session = environment.session
        response = await ASYNC.write_to(session.store, partial(name_new_reply, ctx, session, response, used_ids))
        self.take_unknown(response.tool_calls, tools)
        if self.conversation is not None:
            self._hide_secrets(tools)
            # Stored before this method returns, and so before any call of the reply starts. A copy of the list, because
            # PydanticAI continues to append to its own; it does not have the response yet.
            unchecked = environment.prompt.template.accepts is not None and not response.tool_calls
            await self.conversation.record([*ctx.messages, response], unchecked=unchecked)
        return response

    def _hide_secrets(self, tools: Mapping[str, ToolsetTool[Any]]) -> None:
        masking = self.executor.environment.session.call_masking
        for name, tool in tools.items():
            schema = tool.tool_def.parameters_json_schema
            # Schemas and tools are mostly the same objects at each step.
            if self._schemas.get(name) is schema:
                continue
            self._schemas[name] = schema
            # What is known of a tool of Handrail's, under the name without any prefix.
            own_name = (tool.tool_def.metadata or {}).get(PIPELINE_METADATA_KEY)
            own = () if own_name is None else masking.of(str(own_name))
            for item in own or (schema_masking(schema),):
                masking.add(name, item)

    def take_unknown(self, calls: Iterable[ToolCallPart], tools: dict[str, ToolsetTool[Any]]) -> None:
        """Creates a tool for each unknown name, so that its call reaches the pipeline."""
        for call in calls:
            # The dictionary is PydanticAI's own for this step, so the tool exists only until the next request.
            if call.tool_name not in tools:
                definition = ToolDefinition(name=call.tool_name, metadata=_UNKNOWN, toolset_id=self.toolset.id)
                tools[call.tool_name] = self.toolset.tool(definition)

    # -------------------------------------------------------------------------------------------------------- the calls

    @contextmanager
    def defer_mistakes(self) -> Generator[None]:
        """Defers a developer's mistake of a call in this block; for PydanticAI the call fails.

        That failure does not reach a model, because the mistake is raised before the next request.
        """
        try:
            yield
        except Exception as error:
            if not mistakes_in(error):
                raise
            self._mistakes.defer(error)
            raise ToolFailed("the call was not run") from error

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
        """Skips other hooks for calls of unknown tools."""
        # Compared by identity: another toolset may use the same key and value in its metadata.
        if tool_def.metadata is _UNKNOWN:
            return ANY_ARGUMENTS.validate_json(args) if isinstance(args, str) else args
        return await handler(args)

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
        """Lets a call of this toolset reach the pipeline after those asked for before it."""
        if tool_def.toolset_id != self.toolset.id and not self.sends_all_calls:
            return await handler(args)
        # The mistakes are deferred outside of the queue, so that a call with a mistake has left it, and later calls
        # continue.
        with self.defer_mistakes(), in_queue(self.queue):
            if tool_def.metadata is _UNKNOWN:
                return await self.refuse_unknown(call, args, ctx)
            return await handler(args)

    async def refuse_unknown(self, call: ToolCallPart, args: ValidatedToolArgs, ctx: RunContext[Any]) -> Any:  # noqa: ANN401 - PydanticAI's
        """Lets the pipeline answer a call of an unknown tool."""
        return await self.toolset.call(call.tool_name, args, ctx)
