"""Runs a whole prompt with PydanticAI, on any model that it supports.

On a stored session the conversation is stored too, each reply before its calls start, and an evaluation that was
interrupted is resumed. An evaluation inside a call is not stored: it is rolled back with that call.

| the last evaluation of the prompt in the session | the new one |
|---|---|
| does not exist | starts a conversation |
| has no reply yet, and `unfinished="resume"` | resumes it; another user prompt is asked after the one that is stored |
| is unfinished, and `unfinished="resume"` | resumes it, if it has no user prompt or the same; else it is refused |
| is unfinished, and `unfinished="discard"` | starts a conversation |
| is finished, and `finished="return"` | returns the stored response, if it has no user prompt or the same |
| is finished, otherwise | starts a conversation |
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial, wraps
from typing import Any, Concatenate, Final, Generic, Literal, ParamSpec, TypeVar, cast, get_args

from pydantic_ai import (
    Agent,
    DeferredToolRequests,
    ModelMessage,
    ModelResponse,
    ModelRetry,
    StructuredDict,
    UsageLimits,
)
from pydantic_ai.agent import AgentRunResult
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.models import Model
from pydantic_ai.usage import UsageBase

from handrail.adapters.loop import budget_error, read_ahead
from handrail.adapters.pydantic_ai.capability import HandrailCapability
from handrail.adapters.pydantic_ai.conversation import StoredHistory, UserPrompt, one_at_a_time
from handrail.adapters.pydantic_ai.models import RUN_ERRORS, check_model_name, evaluation_error, open_model
from handrail.adapters.pydantic_ai.replies import record_discarded
from handrail.adapters.tool_executor import ToolExecutor
from handrail.errors import BudgetExceededError, CallPostponed, ParseError, PromptEvaluationError
from handrail.limits import Budget, BudgetTracker, Deadline, Heartbeat, RunContext, TokenUsage
from handrail.prompt import Approver, Prompt
from handrail.prompt.policy import check_approver
from handrail.runtime import EffectLedger
from handrail.runtime.execution import ASYNC
from handrail.serde import codec
from handrail.serde.annotations import subscriptable
from handrail.serde.formatting import count_noun
from handrail.session import Session
from handrail.transaction import current
from handrail.waiting import asynchronous_entry, loop_is_running, run_on_new_loop

Out = TypeVar("Out")
Out_co = TypeVar("Out_co", covariant=True)
T = TypeVar("T")
S = TypeVar("S")
P = ParamSpec("P")

Unfinished = Literal["resume", "discard"]
"""How an unfinished conversation of the prompt is treated: it is resumed, or replaced by a new one."""

WhenFinished = Literal["repeat", "return"]
"""How a finished conversation of the prompt is treated: a new one is started, or its response is returned."""

_OUTPUT_RETRIES = 2
"""How often the model may retry an answer that does not match the prompt's output type."""

BEGIN = "Begin."
"""The default user prompt: some providers refuse a conversation without a user message."""


@subscriptable
@dataclass(frozen=True, slots=True, kw_only=True)
class PromptResponse(Generic[Out_co]):
    """The model's answer to a prompt.

    Attributes:
        prompt_name: the name of the prompt.
        text: the text of the model's last reply; may be empty if the answer is structured.
        output: the answer as the prompt declares it: a dataclass, the text again for `str`, or `None`.
        usage: the tokens of all requests of the run.
        messages: the whole conversation, as PydanticAI messages; pass it as `message_history` to continue.
    """

    prompt_name: str
    text: str
    output: Out_co | None
    usage: TokenUsage
    messages: tuple[ModelMessage, ...] = field(repr=False)


def _blocking(method: Callable[Concatenate[S, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[S, P], T]:
    # On a new loop: a model that is opened by name is closed with that.
    name = method.__name__.removesuffix("_async")

    @wraps(method)
    def run(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        if loop_is_running():
            raise PromptEvaluationError(
                f"{name} would stop the event loop of this thread; on an event loop, use `await adapter.{name}_async"
                "(...)`",
                phase="request",
            )
        return run_on_new_loop(method(self, *args, **kwargs))

    run.__name__, run.__qualname__ = name, method.__qualname__.removesuffix("_async")
    run.__doc__ = f"Runs `{name}_async`, and waits for it; refused by a `PromptEvaluationError` on an event loop."
    return run


class PydanticAIAdapter:
    """Runs prompts on one model. Threads and tasks may share it.

    Attributes:
        model: the model, or its name.
        effect_ledger: records the effects of all runs of this adapter.
    """

    def __init__(
        self,
        model: Model | str,
        *,
        effect_ledger: EffectLedger | None = None,
        approver: Approver | None = None,
        capabilities: Sequence[AbstractCapability[Any]] = (),
    ) -> None:
        """Sets the model, and what all runs on it share.

        Args:
            model: a model of PydanticAI, or its name, e.g. `"openai:gpt-5.2"`. A model keeps its connections between
                runs, and the caller closes it; for a name, each run opens its own, and closes them.
            effect_ledger: records effects; by default in memory, and for stored sessions in their store.
            approver: called where a policy requires approval; without one, such calls are refused.
            capabilities: other PydanticAI capabilities: settings, hooks, tools outside the prompt.

        Raises:
            UnknownModelError: no model can have that name.
        """
        if isinstance(model, str):
            check_model_name(model)
        check_approver("PydanticAIAdapter", approver)
        self.model = model
        self.effect_ledger: EffectLedger = EffectLedger() if effect_ledger is None else effect_ledger
        self._has_own_ledger = effect_ledger is not None
        self._approver = approver
        self._capabilities = tuple(capabilities)

    @asynchronous_entry
    async def evaluate_async(  # noqa: PLR0913 - the options of one evaluation
        self,
        prompt: Prompt[Out],
        *,
        session: Session,
        user_prompt: UserPrompt | None = None,
        deadline: Deadline | None = None,
        budget: Budget | None = None,
        heartbeat: Heartbeat | None = None,
        run_context: RunContext | None = None,
        unfinished: Unfinished = "resume",
        finished: WhenFinished = "repeat",
    ) -> PromptResponse[Out]:
        """Runs a prompt to its answer; resumes the last evaluation if it was interrupted, in a stored session.

        Args:
            prompt: the bound prompt. Its text becomes the instructions; its resources are open during the run.
            session: the session of the calls.
            user_prompt: the user message; `BEGIN` by default.
            deadline: bounds requests and calls; the budget's own deadline applies too, if it is earlier.
            budget: limits of the run. By default, PydanticAI's limit of 50 requests applies.
            heartbeat: beaten by `context.beat()`.
            run_context: correlation ids, for `context.run_context` and `ToolInvoked`.
            unfinished: `"resume"` resumes an unfinished evaluation, and refuses another `user_prompt` if the model has
                replied; `"discard"` starts a new one, and committed changes remain.
            finished: for one with the same `user_prompt`, `"repeat"` starts a new one; `"return"` returns its response,
                and no model is asked.

        Raises:
            PromptEvaluationError: the evaluation stopped, in the phase `phase`. Committed changes remain. Or there is
                another `user_prompt` and an unfinished evaluation, or the prompt is being evaluated on this session.
            InvalidArgumentError: an argument has a wrong type, such as a template for a prompt.
            DeveloperMistake: the program is at fault, in a call; the other calls of the reply have ended.
            VisibilityExpansionRequired: a handler asks for sections that the prompt does not have.
            PromptRenderError: the prompt lacks parameters that its sections need.
            CallPostponed: calls wait for an approval, and the others of their reply have ended. In a stored session the
                next evaluation makes them again.
            CancelledError: it was cancelled; the calls that ran have been rolled back.
        """
        await read_ahead(session)
        bounds = [bound for bound in (deadline, None if budget is None else budget.deadline) if bound is not None]
        executor = ToolExecutor(
            prompt=prompt,
            session=session,
            adapter=self,
            # A stored session needs a ledger in its own store, so that claims survive the process. The ledger in memory
            # is only passed where it was asked for, or where the session itself is in memory.
            effect_ledger=self.effect_ledger if self._has_own_ledger or session.store is None else None,
            deadline=min(bounds, key=lambda bound: bound.expires_at, default=None),
            heartbeat=heartbeat,
            run_context=run_context,
            approver=self._approver,
            budget_tracker=None if budget is None else BudgetTracker(budget),
        )
        response = await self._evaluate(executor, user_prompt, unfinished, finished)
        return cast("PromptResponse[Out]", response)  # the executor's prompt is `prompt`

    evaluate: Final = _blocking(evaluate_async)

    async def _evaluate(
        self, executor: ToolExecutor, user_prompt: UserPrompt | None, unfinished: Unfinished, finished: WhenFinished
    ) -> PromptResponse[Any]:
        environment, history = executor.environment, list[ModelMessage]()
        session, name = environment.session, environment.rendered_prompt.name
        async with _stored_conversation(session, name, user_prompt, unfinished, finished) as conversation:
            if conversation is not None and conversation.has_ended:
                return _stored_response(conversation, executor)
            if conversation is not None and unfinished == "discard":
                await record_discarded(environment, conversation.previous)
            if conversation is not None and conversation.history:
                user_prompt = None if conversation.is_asked(user_prompt) else user_prompt
                history = conversation.resumable
            result = await self._run(executor, user_prompt, history, conversation)
        if isinstance(result.output, DeferredToolRequests):
            raise _postponed(result.output, executor)
        return _response(result, executor)

    async def _run(
        self,
        executor: ToolExecutor,
        user_prompt: UserPrompt | None,
        message_history: Sequence[ModelMessage],
        conversation: StoredHistory | None,
    ) -> AgentRunResult[Any]:
        environment = executor.environment
        if user_prompt is None and not message_history:
            user_prompt = BEGIN
        # A budget takes the place of PydanticAI's default limit of 50 requests.
        limits = UsageLimits() if environment.budget_tracker is None else UsageLimits(request_limit=None)
        try:
            async with open_model(self.model) as model:
                agent = self._agent(model, executor, conversation)
                with environment.prompt.resources:
                    return await agent.run(
                        user_prompt,
                        message_history=message_history,
                        deferred_tool_results=None if conversation is None else conversation.deferred_results,
                        usage_limits=limits,
                        infer_name=False,
                    )
        except BudgetExceededError as error:
            raise budget_error(error) from error
        except RUN_ERRORS as error:
            raise evaluation_error(error, environment.rendered_prompt.name) from error

    def _agent(self, model: Model, executor: ToolExecutor, conversation: StoredHistory | None) -> Agent[None, Any]:
        tools = HandrailCapability(executor, conversation=conversation)
        prompt = executor.environment.rendered_prompt
        kind = prompt.output_type
        agent: Agent[None, Any] = Agent(
            model,
            name=prompt.name,
            # `_output_parser` converts the answer. Calls that wait for an approval end the run.
            output_type=cast("type[Any]", [_output_type(kind), DeferredToolRequests]),
            capabilities=[tools, *self._capabilities],
            retries={"output": _OUTPUT_RETRIES},
        )
        if kind is not None and kind is not str:
            agent.output_validator(_output_parser(kind))
        return agent


def _postponed(requests: DeferredToolRequests, executor: ToolExecutor) -> CallPostponed:
    waiting = [*requests.approvals, *requests.calls]
    reasons = [str(requests.metadata.get(call.tool_call_id, {}).get("reason") or call.tool_name) for call in waiting]
    name = executor.environment.rendered_prompt.name
    return CallPostponed(f"the evaluation of {name} waits for {count_noun(len(waiting), 'call')}: {'; '.join(reasons)}")


def _response(result: AgentRunResult[Any], executor: ToolExecutor) -> PromptResponse[Any]:
    prompt = executor.environment.rendered_prompt
    return PromptResponse(
        prompt_name=prompt.name,
        text=result.response.text or "",
        output=None if prompt.output_type is None else result.output,
        usage=_tokens(result.usage),
        messages=tuple(result.all_messages()),
    )


def _stored_response(conversation: StoredHistory, executor: ToolExecutor) -> PromptResponse[Any]:
    prompt, kind = executor.environment.rendered_prompt, executor.environment.rendered_prompt.output_type
    replies = [message for message in conversation.history if isinstance(message, ModelResponse)]
    text, tools = replies[-1].text or "", {tool.name for tool in executor.tools}
    # A call of another name than the tools have is the answer.
    answers = (call.args for call in replies[-1].tool_calls if call.tool_name not in tools)
    output = None if kind is None else text if kind is str else codec(kind).parse(next(answers, text) or "")
    usage = sum((_tokens(reply.usage) for reply in replies), start=TokenUsage())
    messages = tuple(conversation.history)
    return PromptResponse(prompt_name=prompt.name, text=text, output=output, usage=usage, messages=messages)


def _tokens(usage: UsageBase) -> TokenUsage:
    return TokenUsage(usage.input_tokens, usage.output_tokens, usage.cache_read_tokens)


def _output_type(kind: type[Any] | None) -> type[str | dict[str, Any]]:
    return str if kind is None or kind is str else StructuredDict(codec(kind).schema, name=kind.__name__)


def _output_parser(kind: type[Any]) -> Callable[[Any], Any]:
    answer = codec(kind)

    def parse(data: Any) -> Any:  # noqa: ANN401 - what PydanticAI has decoded, and the prompt's declared type
        try:
            return answer.parse(data)
        except ParseError as error:
            raise ModelRetry(str(error)) from error

    return parse


@asynccontextmanager
async def _stored_conversation(
    session: Session, name: str, user_prompt: UserPrompt | None, unfinished: Unfinished, finished: WhenFinished
) -> AsyncGenerator[StoredHistory | None]:
    """The conversation of an evaluation, for the block; `None` if it is not stored."""
    for option, value, words in (("unfinished", unfinished, Unfinished), ("finished", finished, WhenFinished)):
        if value not in get_args(words):
            raise ValueError(f"{option} is {value!r}; it is one of {', '.join(map(repr, get_args(words)))}")
    if session.store is None or current() is not None:
        yield None
        return
    with one_at_a_time(session, name, of="prompt"):
        # Loaded under the exclusion, or a run that has just ended could add messages after the load.
        load = partial(StoredHistory, session, name, of="prompt", is_held=True)
        conversation = await ASYNC.write_to(session.store, load)
        is_same = conversation.is_asked(user_prompt)
        if unfinished == "resume" and not (is_same or conversation.takes_input):
            raise PromptEvaluationError(
                f"the last evaluation of {name} in session {session.session_id!r} is unfinished. Resume it with the "
                "same user_prompt or without one: calls that have a final record are answered from it. Or start a new "
                "one with unfinished='discard'",
                phase="request",
            )
        is_repeated = is_same and finished == "return"
        if not (unfinished == "resume" if conversation.unfinished else is_repeated):
            conversation.begin_anew()
        yield conversation
