"""`ToolExecutor`, the entry point for your own agent loop: calls in, messages out.

    with ToolExecutor([pay, ship], session=session) as executor:
        messages = executor.execute_all(calls)

Its duties are functions of `handrail.adapters.loop`; every call goes through `handrail.runtime.invoke`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import cache, partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from weakref import ref

from handrail import runtime
from handrail.adapters.loop import (
    LoopOutcome,
    asynchronous_entries,
    check_tool,
    run_call,
    run_concurrently,
    run_here,
    run_in_order,
    session_ledger,
    tool_description,
)
from handrail.clock import SYSTEM_CLOCK, Clock
from handrail.errors import CallPostponed
from handrail.errors.developer import check_argument
from handrail.lazy_exports import lazy_exports
from handrail.prompt import Prompt, RenderedPrompt, Tool
from handrail.prompt.disclosure import PromptRendering
from handrail.prompt.prompt import prompt_over
from handrail.prompt.template import check_bound
from handrail.resources import ResourceRegistry
from handrail.runtime import ToolCall, ToolMessage
from handrail.runtime.environment import Environment
from handrail.runtime.execution import ASYNC, BLOCKING, ExecutionMode, run_to_completion
from handrail.session import Session
from handrail.session.calls import checked_reply
from handrail.waiting import run_blocking, synchronous_entry

if TYPE_CHECKING:
    from handrail.adapters.settlement import OpenQuestion, PendingAnswers, SettledCall
    from handrail.limits import BudgetTracker, Deadline, Heartbeat, RunContext
    from handrail.prompt import Approver
    from handrail.runtime import EffectLedger
else:
    __getattr__ = lazy_exports(__name__, {".settlement": "OpenQuestion PendingAnswers"})

__all__ = ["Answers", "OpenQuestion", "PendingAnswers", "ToolExecutor"]


class Answers(tuple[ToolMessage, ...]):  # noqa: SLOT001 - a tuple with an attribute
    """The messages of a reply, in the order asked.

    Attributes:
        prompt_changed: whether `executor.text` or `executor.tools` have changed meanwhile: a section was opened or
            closed, or a result was cut for the first time. The next request needs them anew.
    """

    prompt_changed: bool = False


@asynchronous_entries
class ToolExecutor:
    """Runs the tool calls of one run; threads and tasks may share it. Its block closes the resources made for the run.

    Attributes:
        environment: what all calls of the run share.
    """

    __slots__ = ("__weakref__", "_digested", "environment")

    def __init__(  # noqa: PLR0913 - everything that the calls of a run share
        self,
        tools: Iterable[Tool[Any, Any]] | None = None,
        *,
        prompt: Prompt[Any] | None = None,
        session: Session,
        resources: ResourceRegistry | Mapping[type[Any], object] | None = None,
        rendered_prompt: RenderedPrompt[Any] | None = None,
        adapter: object = None,
        effect_ledger: EffectLedger | None = None,
        deadline: Deadline | None = None,
        heartbeat: Heartbeat | None = None,
        run_context: RunContext | None = None,
        approver: Approver | None = None,
        budget_tracker: BudgetTracker | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Sets up what the calls of a run share.

        Args:
            tools: the tools, in place of a prompt: short for one whose only section is `ToolsSection(tools=tools)`.
            prompt: the bound prompt; its resources are `context.resources` of handlers.
            session: where results are stored, and what is rolled back. With the `context.session` of a handler, all
                calls are nested in its call, and are refused when that has ended.
            resources: as of `Prompt.bind`, for the tools or for the prompt.
            rendered_prompt: the prompt as the model saw it; rendered by default, and again when sections are opened.
            adapter: `context.adapter` of handlers.
            effect_ledger: records effects. Share one among all executors whose calls may repeat each other; without
                one, the executor has its own, in the store of a stored session and otherwise in memory.
            deadline: no handler starts or runs past it.
            heartbeat: beaten by `context.beat()`.
            run_context: correlation ids, for `ToolInvoked`.
            approver: called when a policy requires approval: takes an `ApprovalRequest`, returns a bool or an
                `Approval`, and may be `async`. Without one, such calls are refused.
            budget_tracker: `context.budget_tracker` of handlers.
            clock: the source of the time.

        Raises:
            InvalidArgumentError: an argument has a wrong type, or there are both tools and a prompt, or neither.
            PromptRenderError: the prompt lacks parameters that its sections need.
            UnboundResourceError: a tool, or a policy that judges it, needs a resource that nothing binds.
            SchemaError: JSON does not distinguish the members of a union in the result of a tool, which is stored.
            SecondStoreError: a tool has `External(apply=...)`, and session and ledger are not in one store.
        """
        prompt = prompt_over("ToolExecutor", tools, prompt, resources)
        check_argument("ToolExecutor", "session", session, Session, "a Session")
        ledger = effect_ledger if effect_ledger or session.store is None else session_ledger(session, clock=clock)
        self.environment: Environment = Environment.begin(
            prompt,
            PromptRendering(prompt, session.unbound, rendered_prompt),
            session,
            adapter=adapter,
            find_ledger=cache(lambda: ledger or session_ledger(session.unbound, clock=clock)),
            deadline=deadline,
            heartbeat=heartbeat,
            run_context=run_context,
            approver=approver,
            budget_tracker=budget_tracker,
            clock=clock,
        )
        if prompt.template.feedback:
            from handrail.adapters.hooks import feedback_hook  # noqa: PLC0415

            self.environment = replace(self.environment, feedback=feedback_hook(self.environment))
        for name, kind, value in (("effect_ledger", "EffectLedger", effect_ledger), ("deadline", "Deadline", deadline)):
            if value is not None:
                check_argument("ToolExecutor", name, value, getattr(runtime, kind), f"one of {kind}, or None")
        if approver is not None:
            from handrail.prompt.policy import check_approver  # noqa: PLC0415

            check_approver("ToolExecutor", approver)
        self._digested: tuple[tuple[object, ...], Mapping[str, str]] = (), {}
        self._check_tools()

    def _check_tools(self) -> None:
        prompt, session = self.environment.prompt, self.environment.session
        for tool, _ in prompt.template.placed_tools():  # also those of closed sections
            session.call_masking.add(tool.name, tool.masking)
            check_tool(tool, self.environment)
        if session.store is not None:
            session.conversation.digest_request = partial(_digest_request, ref(self))
        prompt_now = self.environment.rendered_prompt
        offered = {tool.name for tool in prompt_now.tools}.union(*(section.tools for section in prompt_now.sections))
        check_bound(prompt.template, offered, self.environment.resources)

    def with_approver(self, approver: Approver) -> ToolExecutor:
        """The same run with another approver; it shares everything else."""
        other = copy(self)
        other.environment = replace(self.environment, approver=approver)
        return other

    @property
    def tools(self) -> tuple[Tool[Any, Any], ...]:
        """The tools to offer with the next request, with those that no section brings; see `Environment.added_tools`.

        They may change with each call, so a loop asks before each request.
        """
        return self.environment.tools

    @property
    def text(self) -> str:
        """The text of the prompt for the next request. It changes when a section is opened or closed."""
        return self.environment.rendered_prompt.text

    def request_digests(self) -> Mapping[str, str]:
        """Digests of the text and of each tool that the next request has to send, by their names; for replays."""
        from handrail.session.conversation import digest_request  # noqa: PLC0415

        tools, prompt = self.tools, self.environment.rendered_prompt
        if self._digested[0] != (prompt, *tools):
            plain = [
                {"name": one.name, "text": tool_description(one), "schema": one.parameters_schema} for one in tools
            ]
            self._digested = (prompt, *tools), digest_request({"prompt": prompt.text, "tools": plain})
        return self._digested[1]

    def __enter__(self) -> Self:
        """Enters the resources of the prompt."""
        self.environment.resources.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Leaves the resources of the prompt; the last user closes them. Raises `ResourceError` if some cannot be."""
        self.environment.resources.__exit__(kind, error, traceback)

    def execute(self, call: ToolCall, *, reply: str | None = None) -> ToolMessage:
        """Runs a call on this thread; `def` handlers run inline, unless a timeout or the deadline bounds them.

        Args:
            call: what the model asked for.
            reply: identifies the reply of the model that asked for it, for example the provider's id of the response;
                a long one is replaced by its digest. A call with a reply that has a final record is answered from it.
                Without a reply, a stored session accepts each id once.

        Raises:
            DeveloperMistake: the program is at fault, as when a resource is not bound. The call was rolled back and
                recorded as failed; by `SessionUseError`, it was not begun on an event loop.
            CallPostponed: the question about the call was left open. It is not recorded; make it again.
            InvalidArgumentError: it is not a `ToolCall`, or its id is not text. Nothing was run or recorded.
            CallIdReusedError: reply and id belong to another call, or an id without a reply is used again; nothing ran.
            ValueError: `reply` is not text, or is empty, or begins with `@`.
            RunAbortedError: the run is over. The call has been rolled back and recorded.
            VisibilityExpansionRequired: a `RunAbortedError`: the call has opened sections, its `opened`.
            BaseException: what a handler raises that is not an `Exception`, as for `RunAbortedError`.
        """
        return run_here(run_call, call, reply, self.environment)

    async def execute_async(self, call: ToolCall, *, reply: str | None = None) -> ToolMessage:
        """Runs a call as `execute` does, without blocking the event loop; `def` handlers run on their own threads.

        Raises:
            BaseException: as for `execute`; a cancellation rolls the call back. One that has not begun has no record.
        """
        return await run_call(call, reply, self.environment, ASYNC)

    def answer(self, calls: Iterable[ToolCall] | None = None, *, reply: str | None = None) -> Answers | PendingAnswers:
        """Answers the calls of a reply, also of one that was interrupted: a message for each, in the order asked.

        Calls that have a final record are answered from it, and the others run, as by `execute_all`. A call that an
        approver postpones leaves a question, and the calls after it run. All calls see the prompt as it was before;
        `prompt_changed` says that one has opened sections, so that the next request needs `text` and `tools` anew.

        Args:
            calls: the calls; by default those of the open reply of `session.conversation`.
            reply: identifies the reply, as for `execute`; by default that of the conversation.

        Raises:
            Exception: as for `execute_all`.
        """
        requests, reply = self._find_calls(calls, reply)
        before = (self.text, *self.tools)
        outcomes = run_in_order(self.environment, requests, reply)
        return _answers(requests, outcomes, prompt_changed=(self.text, *self.tools) != before)

    async def answer_async(
        self, calls: Iterable[ToolCall] | None = None, *, reply: str | None = None
    ) -> Answers | PendingAnswers:
        """Answers as `answer` does; reads run concurrently, as by `execute_all_async`."""
        reads = self.environment.session.store if calls is None else None
        requests, reply = await ASYNC.write_to(reads, partial(self._find_calls, calls, reply))
        before = (self.text, *self.tools)
        outcomes = await run_concurrently(self.environment, requests, reply)
        return _answers(requests, outcomes, prompt_changed=(self.text, *self.tools) != before)

    def execute_all(self, calls: Iterable[ToolCall], *, reply: str | None = None) -> tuple[ToolMessage, ...]:
        """Runs the calls of one reply, side by side where they may; a message for each, in the order asked.

        Neighbours that read, or are of a `concurrent` tool, run side by side: `def` handlers on threads of their own,
        others on the loop of this thread's handlers. Every other call runs by itself, on this thread, as do all calls
        on a thread that runs an event loop.

        `reply` identifies the reply, as for `execute`, and `calls` are all its calls in order: of calls with one id,
        the second is recorded as `ID_2`, and so on. A call that opens sections is answered, as by `answer`. The message
        of a call whose question is left open is `pending`; made again with the same `reply`, only these calls run.

        Raises:
            CallIdReusedError: a reply without a name is repeated while calls wait; none has been run.
            DeveloperMistake: as for `execute`, after the remaining calls have run; further ones are its notes.
            RunAbortedError: as for `execute`; the calls after the one that ended the run have not been run.
        """
        requests = run_blocking(self._check_all(calls, reply, BLOCKING))
        return tuple(map(_message, requests, run_in_order(self.environment, requests, reply)))

    async def execute_all_async(
        self, calls: Iterable[ToolCall], *, reply: str | None = None
    ) -> tuple[ToolMessage, ...]:
        """Runs the calls of one reply, reads concurrently, writers in the order asked; a message for each.

        The outcome is that of running them one by one. `reply` and ids are as for `execute_all`.

        Raises:
            DeveloperMistake: as for `execute_all`.
            RunAbortedError: as for `execute`; the calls that had not ended by then are cancelled and rolled back.
        """
        requests = await self._check_all(calls, reply, ASYNC)
        return tuple(map(_message, requests, await run_concurrently(self.environment, requests, reply)))

    @synchronous_entry
    def settle_open(self) -> tuple[SettledCall, ...]:
        """Settles open calls whose effects are unknown or have happened; call it when a session is resumed.

        Those are the calls that `session.open_calls` lists as `"unknown"`, whose reconciler is asked, and as
        `"unapplied"`. What has happened is applied: `External.apply` runs, policies record the result, reducers apply
        it. No policy, approver or handler runs. Each is recorded as a call `settled` nested in the open one.

        Returns:
            The outcome of each that is known now, in the order of `session.open_calls`.

        Raises:
            DeveloperMistake: the program is at fault; the other calls have been settled.
            RunAbortedError: the run is over; the calls after that one have not been settled.
            StoreError: the store cannot be read.
        """
        from handrail.adapters.settlement import settle_open  # noqa: PLC0415

        return run_to_completion(settle_open(self.environment, BLOCKING))

    async def settle_open_async(self) -> tuple[SettledCall, ...]:
        """Settles as `settle_open` does, without blocking the event loop."""
        from handrail.adapters.settlement import settle_open  # noqa: PLC0415

        return await settle_open(self.environment, ASYNC)

    async def settle_before_run_async(self) -> None:
        """Settles the calls of tools with `apply` or `reconcile`, and logs what still waits; adapters call it."""
        from handrail.adapters.settlement import settle_before_run  # noqa: PLC0415

        await settle_before_run(self.environment, ASYNC)

    @synchronous_entry
    def completion(self, answer: object, *, reply: str | None = None) -> str | None:
        """Checks the model's answer, which ends a loop; a prompt without `completion` accepts every answer.

        Args:
            answer: the answer, as the prompt declares it: text, or a dataclass.
            reply: identifies the reply that has the answer, as for `execute`; one that is checked again counts once.

        Returns:
            `None` if the answer is accepted, or else what to send back to the model as the next message of the user: a
            limited number of times, and not past the deadline or the budget.

        Raises:
            DeveloperMistake: the checker failed (`CompletionCheckError`), or uses a resource that is not bound.
            SessionError: the session is closed, or has passed to another process.
            ValueError: `reply` cannot name a reply.
        """
        return run_to_completion(self._check_answer(answer, BLOCKING, reply))

    async def completion_async(self, answer: object, *, reply: str | None = None) -> str | None:
        """Checks as `completion` does; the checker runs on a thread of its own."""
        return await self._check_answer(answer, ASYNC, reply)

    async def _check_answer(self, answer: object, mode: ExecutionMode, reply: str | None) -> str | None:
        from handrail.adapters.hooks import check_answer  # noqa: PLC0415

        return await check_answer(self.environment, answer, mode, None if reply is None else checked_reply(reply))

    async def _check_all(
        self, calls: Iterable[ToolCall], reply: str | None, mode: ExecutionMode
    ) -> tuple[ToolCall, ...]:
        # Before the first of them: an iterable that raises must not leave a call without an owner.
        requests, session = tuple(calls), self.environment.session
        if reply is None and session.store is not None:
            from handrail.runtime.approval import check_made_once, has_pending  # noqa: PLC0415

            if has_pending(session):
                await mode.write_to(session.store, partial(check_made_once, session, requests))
        return requests

    def _find_calls(
        self, calls: Iterable[ToolCall] | None, reply: str | None
    ) -> tuple[tuple[ToolCall, ...], str | None]:
        if calls is not None:
            return tuple(calls), reply
        conversation = self.environment.session.conversation
        return conversation.calls, conversation.reply if reply is None else reply


def _digest_request(executor: ref[ToolExecutor]) -> Mapping[str, str] | None:
    present = executor()
    return None if present is None else present.request_digests()


def _message(call: ToolCall, outcome: LoopOutcome) -> ToolMessage:
    from handrail.runtime.approval import pending_message  # noqa: PLC0415

    return outcome if isinstance(outcome, ToolMessage) else pending_message(call, outcome)


def _answers(
    calls: Sequence[ToolCall], outcomes: Sequence[LoopOutcome], *, prompt_changed: bool
) -> Answers | PendingAnswers:
    messages = tuple(outcome for outcome in outcomes if isinstance(outcome, ToolMessage))
    if len(messages) == len(outcomes):
        answers = Answers(messages)
        answers.prompt_changed = prompt_changed
        return answers
    from handrail.adapters.settlement import OpenQuestion, PendingAnswers  # noqa: PLC0415
    from handrail.prompt import ApprovalRequest  # noqa: PLC0415

    questions = tuple(
        OpenQuestion(call, outcome.question if isinstance(outcome.question, ApprovalRequest) else None, str(outcome))
        for call, outcome in zip(calls, outcomes, strict=True)
        if isinstance(outcome, CallPostponed)
    )
    return PendingAnswers(messages, questions, prompt_changed)
