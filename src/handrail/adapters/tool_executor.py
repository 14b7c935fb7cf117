"""`ToolExecutor`, the entry point for your own agent loop: calls in, messages out.

    with ToolExecutor([pay, ship], session=session) as executor:
        messages = executor.execute_all(calls)

Every call goes through `handrail.runtime.invoke`; this module only sets up what the calls of a run share.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import cache, partial
from itertools import groupby
from types import NoneType, TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeAlias, TypeVar

from handrail import runtime
from handrail.adapters.loop import check_tool, expansion_message, for_neighbours, may_run_beside, session_ledger
from handrail.clock import SYSTEM_CLOCK, Clock
from handrail.errors import CallPostponed, VisibilityExpansionRequired
from handrail.errors.developer import check_argument, first_mistake, mistakes_in, names_near_parameters, note_mistakes
from handrail.lazy_exports import lazy_exports
from handrail.loop_guard import asynchronous_entry, loop_is_running, synchronous_entry
from handrail.prompt import Prompt, RenderedPrompt, Tool
from handrail.prompt.disclosure import PromptRendering
from handrail.prompt.prompt import prompt_over
from handrail.prompt.template import check_bound
from handrail.resources import ResourceRegistry
from handrail.runtime import ToolCall, ToolMessage
from handrail.runtime.environment import Environment
from handrail.runtime.execution import ASYNC, BLOCKING, SIDE_BY_SIDE, ExecutionMode, run_to_completion
from handrail.runtime.invoke import invoke
from handrail.session import Session
from handrail.session.calls import checked_reply, identified
from handrail.transaction import current
from handrail.waiting import run_blocking

if TYPE_CHECKING:
    import asyncio

    from handrail.adapters.settlement import OpenQuestion, SettledCall, Waiting
    from handrail.limits import BudgetTracker, Deadline, Heartbeat, RunContext
    from handrail.prompt import Approver
    from handrail.runtime import EffectLedger
else:
    __getattr__ = lazy_exports(__name__, {".settlement": "OpenQuestion Waiting"})

__all__ = ["Answered", "OpenQuestion", "ToolExecutor", "Waiting"]

T = TypeVar("T")

_EXPECTED: Mapping[str, tuple[str, str]] = {
    "effect_ledger": ("EffectLedger", "an EffectLedger: EffectLedger(store), or None"),
    "deadline": ("Deadline", "a Deadline: Deadline.after(timedelta(minutes=5)), or None"),
    "heartbeat": ("Heartbeat", "a Heartbeat, or None"),
    "run_context": ("RunContext", "a RunContext, or None"),
    "budget_tracker": ("BudgetTracker", "a BudgetTracker: BudgetTracker(budget), or None"),
}
"""The optional arguments of an executor: their classes in `handrail.runtime`, which are loaded with the first such
argument, and what is expected as text."""


class Answered(tuple[ToolMessage, ...]):  # noqa: SLOT001 - a tuple with an attribute
    """The messages of a reply, in the order asked.

    Attributes:
        prompt_changed: whether `executor.text` or `executor.tools` have changed meanwhile: a section was opened or
            closed, or a result was cut for the first time. The next request needs them anew.
    """

    prompt_changed: bool = False


class ToolExecutor:
    """Runs the tool calls of one run; threads and tasks may share it. Its block closes the resources made for the run.

    Attributes:
        environment: what all calls of the run share.
    """

    __slots__ = ("environment",)

    @names_near_parameters
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
        """Set up what the calls of a run share.

        Args:
            tools: the tools, in place of a prompt: short for one whose only section is `ToolsSection(tools=tools)`.
            prompt: the bound prompt; its resources are `context.resources` of handlers.
            session: where results are stored, and what is rolled back. With the `context.session` of a handler, all
                calls are nested in its call, and are refused when that has ended.
            resources: as of `Prompt.bind`, for the tools or for the prompt.
            rendered_prompt: the prompt as the model saw it; rendered if it is not given. It is rendered again when
                sections are opened or closed.
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
            InvalidArgumentError: an argument has a wrong type: a template for a prompt, a span for a deadline; or there
                are both tools and a prompt, or neither.
            PromptRenderError: the prompt lacks parameters that its sections need.
            UnboundResourceError: a tool, or a policy that judges it, needs a resource that nothing binds.
            SchemaError: JSON does not distinguish the members of a union in the result of a tool, which is stored.
            SecondStoreError: a tool has `External(apply=...)`, and session and ledger are not in one store.
        """
        prompt = prompt_over("ToolExecutor", tools, prompt, resources)
        check_argument("ToolExecutor", "session", session, Session, "a Session")
        expected = "what Prompt.render returned, or None"
        check_argument("ToolExecutor", "rendered_prompt", rendered_prompt, (RenderedPrompt, NoneType), expected)
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
        _check_options((effect_ledger, deadline, heartbeat, run_context, budget_tracker), approver)
        for tool, _ in prompt.template.placed_tools():  # also those of closed sections
            session.call_masking.add(tool.name, tool.masking)
            check_tool(tool, self.environment)
        rendered = self.environment.rendered_prompt
        offered = {tool.name for tool in rendered.tools}.union(*(section.tools for section in rendered.sections))
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

    def __enter__(self) -> Self:
        """Enter the resources of the prompt.

        Raises:
            ResourceError: an eager resource could not be built.
        """
        self.environment.resources.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Leave the resources of the prompt; the last user closes them.

        Raises:
            ResourceError: some could not be closed; all were tried.
        """
        self.environment.resources.__exit__(kind, error, traceback)

    def execute(self, call: ToolCall, *, reply: str | None = None) -> ToolMessage:
        """Run a call on this thread; `def` handlers run inline, unless a timeout or the deadline bounds them.

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
        return _run_here(_made, call, reply, self.environment)

    @asynchronous_entry
    async def execute_async(self, call: ToolCall, *, reply: str | None = None) -> ToolMessage:
        """Run a call as `execute` does, without blocking the event loop; `def` handlers run on their own threads.

        Raises:
            BaseException: as for `execute`; a cancellation rolls the call back. One that has not begun has no record.
        """
        return await _made(call, reply, self.environment, ASYNC)

    def answer(self, calls: Iterable[ToolCall] | None = None, *, reply: str | None = None) -> Answered | Waiting:
        """Answer the calls of a reply, also of one that was interrupted: a message for each, in the order asked.

        Calls that have a final record are answered from it, and the others run, as by `execute_all`. A call that an
        approver postpones leaves a question, and the calls after it run. All calls see the prompt as it was before;
        `prompt_changed` says that one has opened sections, so that the next request needs `text` and `tools` anew.

        Args:
            calls: the calls; by default those of the open reply of `session.conversation`.
            reply: identifies the reply, as for `execute`; by default that of the conversation.

        Raises:
            Exception: as for `execute_all`.
        """
        asked, reply = self._reply_of("ToolExecutor.answer", calls, reply)
        before = self._offered()
        return _answered(asked, self._run_each(asked, reply), prompt_changed=self._offered() != before)

    @asynchronous_entry
    async def answer_async(
        self, calls: Iterable[ToolCall] | None = None, *, reply: str | None = None
    ) -> Answered | Waiting:
        """As `answer`; reads run concurrently, as by `execute_all_async`.

        Raises:
            Exception: as for `execute_all_async`.
        """
        reads = self.environment.session.store if calls is None else None
        asked, reply = await ASYNC.write_to(reads, partial(self._reply_of, "ToolExecutor.answer_async", calls, reply))
        before = self._offered()
        return _answered(asked, await self._run_together(asked, reply), prompt_changed=self._offered() != before)

    def execute_all(self, calls: Iterable[ToolCall], *, reply: str | None = None) -> tuple[ToolMessage, ...]:
        """Run the calls of one reply, side by side where they may; a message for each, in the order asked.

        Neighbours that read, or are of a `concurrent` tool, run side by side: `def` handlers on threads of their own,
        others on the loop of this thread's handlers. Every other call runs by itself, on this thread. So do all calls
        on a thread that runs an event loop.

        `reply` identifies the reply, as for `execute`. With it, calls that have one id are different calls: the second
        is recorded as `ID_2`, and so on, and an empty id as `call`. Each message has the id that the model gave the
        call. So `calls` are all calls of the reply, in its order. A call that opens sections is answered, as by
        `answer`. The message of a call whose question is left open is `pending`; with the same `reply`, these calls
        are made again, and only what waits is asked about and run. Without a reply they are not made again.

        Raises:
            CallIdReusedError: a reply without a name is repeated while calls wait; none has been run.
            DeveloperMistake: as for `execute`, after the remaining calls have run. If there are several, the first is
                raised, with the others as notes. An `ExceptionGroup` of a handler that contains one is treated the
                same.
            RunAbortedError: as for `execute`; those that ran beside the call that ended the run have ended, and the
                calls after them have not been run.
        """
        asked = run_blocking(self._asked_once("ToolExecutor.execute_all", calls, reply, BLOCKING))
        return tuple(map(_message, asked, self._run_each(asked, reply)))

    @asynchronous_entry
    async def execute_all_async(
        self, calls: Iterable[ToolCall], *, reply: str | None = None
    ) -> tuple[ToolMessage, ...]:
        """Run the calls of one reply, reads concurrently, writers in the order asked; a message for each.

        The outcome is that of running them one by one. `reply` and ids are as for `execute_all`.

        Raises:
            DeveloperMistake: as for `execute_all`.
            RunAbortedError: as for `execute`; the calls that had not ended by then are cancelled and rolled back.
        """
        asked = await self._asked_once("ToolExecutor.execute_all_async", calls, reply, ASYNC)
        return tuple(map(_message, asked, await self._run_together(asked, reply)))

    async def _asked_once(
        self, function: str, calls: Iterable[ToolCall], reply: str | None, mode: ExecutionMode
    ) -> tuple[ToolCall, ...]:
        """The calls of a reply; raises `CallIdReusedError` if it has no name, and they wait already."""
        _check_calls(function, calls)
        # Before the first of them: an iterable that raises must not leave a call without an owner.
        asked, session = tuple(calls), self.environment.session
        if reply is None and session.store is not None:
            from handrail.runtime.approval import check_made_once, has_pending  # noqa: PLC0415

            if has_pending(session):
                await mode.write_to(session.store, partial(check_made_once, session, asked))
        return asked

    @synchronous_entry
    def settle_open(self) -> tuple[SettledCall, ...]:
        """Settle open calls whose effects are unknown or have happened; call it when a session is resumed.

        Those are the calls that `session.open_calls` lists as `"unknown"`, whose reconciler is asked, and as
        `"unapplied"`. What has happened is applied: `External.apply` runs, policies record the result, reducers apply
        it. No policy and no approver decides, and no handler runs. Each is recorded as a call `settled` nested in the
        open one. Calls that are nested are left to their parents, unless these have final records.

        Returns:
            The outcome of each that is known now, in the order of `session.open_calls`; see `SettledCall`.

        Raises:
            DeveloperMistake: the program is at fault; the other calls have been settled.
            RunAbortedError: the run is over; the calls after that one have not been settled.
            StoreError: the store cannot be read.
        """
        from handrail.adapters.settlement import settle_open  # noqa: PLC0415

        return run_to_completion(settle_open(self.environment, BLOCKING))

    @asynchronous_entry
    async def settle_open_async(self) -> tuple[SettledCall, ...]:
        """As `settle_open`, without blocking the event loop.

        Raises:
            Exception: as `settle_open`.
        """
        from handrail.adapters.settlement import settle_open  # noqa: PLC0415

        return await settle_open(self.environment, ASYNC)

    @asynchronous_entry
    async def settle_before_run_async(self) -> None:
        """Settle the calls of tools with `apply` or `reconcile`, and log what still waits; the adapters call it.

        Raises:
            Exception: as `settle_open`.
        """
        from handrail.adapters.settlement import settle_before_run  # noqa: PLC0415

        await settle_before_run(self.environment, ASYNC)

    @synchronous_entry
    def completion(self, answer: object, *, reply: str | None = None) -> str | None:
        """Check the model's answer, which ends a loop; a prompt without `completion` accepts every answer.

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

    @asynchronous_entry
    async def completion_async(self, answer: object, *, reply: str | None = None) -> str | None:
        """As `completion`; the checker runs on a thread of its own.

        Raises:
            Exception: as `completion`.
        """
        return await self._check_answer(answer, ASYNC, reply)

    async def _check_answer(self, answer: object, mode: ExecutionMode, reply: str | None) -> str | None:
        from handrail.adapters.hooks import check_answer  # noqa: PLC0415

        return await check_answer(self.environment, answer, mode, None if reply is None else checked_reply(reply))

    def _reply_of(
        self, function: str, calls: Iterable[ToolCall] | None, reply: str | None
    ) -> tuple[tuple[ToolCall, ...], str | None]:
        conversation = self.environment.session.conversation
        if calls is None:
            return conversation.calls, conversation.reply if reply is None else reply
        _check_calls(function, calls)
        return tuple(calls), reply

    def _offered(self) -> tuple[object, ...]:
        """What a request would have now."""
        return (self.text, *self.tools)

    def _of_reply(self, reply: str | None) -> Environment:
        """The run as the calls of one reply see it: what one of them opens is for the next reply."""
        environment = self.environment
        # With a name of the reply the calls know by themselves what was opened by one of them.
        is_fixed = reply is not None or not environment.rendering.may_change
        return environment if is_fixed else environment.with_rendered(environment.rendered_prompt)

    def _run_each(self, calls: Sequence[ToolCall], reply: str | None) -> list[ToolMessage | CallPostponed]:
        """Run calls in the order asked; a postponed one does not end the reply."""
        outcomes: list[ToolMessage | CallPostponed] = []
        mistakes: list[BaseException] = []
        for call, outcome in zip(calls, self._each(calls, reply, self._of_reply(reply)), strict=True):
            try:
                outcomes.append(_as_asked(outcome(), call))
            except BaseException as error:
                # A mistake of the developer ends one call, so that the others still run; any other exception ends the
                # run. Mistakes that were deferred so far are attached to it as notes, or they would be lost.
                if not mistakes_in(error):
                    note_mistakes(error, mistakes)
                    raise
                mistakes.append(error)
        if mistakes:
            raise first_mistake(mistakes)
        return outcomes

    def _each(
        self, calls: Sequence[ToolCall], reply: str | None, run: Environment
    ) -> Iterator[Callable[[], ToolMessage | CallPostponed]]:
        """For each call what runs it, or returns or raises what it has ended with beside its neighbours."""
        taken = set[str]()
        named = [identified(call, reply, taken) for call in calls]
        is_alone = len(named) <= 1 or loop_is_running()  # another loop cannot run on this thread then
        for is_beside, part in groupby(named, lambda call: not is_alone and may_run_beside(run, call, reply)):
            neighbours = tuple(part)
            if is_beside and len(neighbours) > 1:
                from handrail.runtime.handler_loop import run_beside  # noqa: PLC0415

                shared = for_neighbours(run, reply)
                yield from run_beside([partial(_outcome, each, reply, shared, SIDE_BY_SIDE) for each in neighbours])
            else:
                yield from (partial(_run_here, _outcome, call, reply, run) for call in neighbours)

    async def _run_together(self, calls: Sequence[ToolCall], reply: str | None) -> list[ToolMessage | CallPostponed]:
        """Run calls concurrently; a postponed one does not end the reply."""
        from asyncio import ensure_future  # noqa: PLC0415

        from handrail.runtime.handler_loop import cancel_all  # noqa: PLC0415

        # Tasks start as they are made, and `invoke` draws its ticket before its first wait: they queue as asked.
        environment = self._of_reply(reply).for_reply(reply)
        taken = set[str]()
        named = (identified(call, reply, taken) for call in calls)
        tasks = [ensure_future(_outcome(call, reply, environment, ASYNC)) for call in named]
        try:
            errors = await _errors_of(tasks)
        finally:
            # Also when this coroutine is cancelled itself: without this, the calls would continue without an owner.
            await cancel_all(tasks)
        mistakes = [error for error in errors if mistakes_in(error)]
        # An error that ends the run takes precedence over mistakes, even if the mistake belongs to an earlier call.
        for error in errors:
            if not mistakes_in(error):
                note_mistakes(error, mistakes)
                raise error
        if mistakes:
            raise first_mistake(mistakes)
        # A call that was cancelled from outside raises `CancelledError` here.
        return [_as_asked(task.result(), call) for task, call in zip(tasks, calls, strict=True)]


_Make: TypeAlias = Callable[[ToolCall, str | None, Environment, ExecutionMode], Coroutine[Any, Any, T]]


async def _made(call: ToolCall, reply: str | None, environment: Environment, mode: ExecutionMode) -> ToolMessage:
    try:
        if type(call.id) is not str:
            _check_call(mode, call)
        name = None if reply is None else checked_reply(reply)
        if environment.within is None:
            return await invoke(call, name, environment, mode)
        with environment.in_call():
            return await invoke(call, name, environment, mode)
    # The pipeline converts those of handlers: `call` is not a `ToolCall`, or the library is at fault.
    except (AttributeError, TypeError):  # only on failure, because every call passes here
        _check_call(mode, call)
        raise


async def _outcome(
    call: ToolCall, reply: str | None, environment: Environment, mode: ExecutionMode
) -> ToolMessage | CallPostponed:
    """The same for one call of several: that its question is left open, or it has opened sections, ends no reply."""
    try:
        return await _made(call, reply, environment, mode)
    except VisibilityExpansionRequired as error:
        return expansion_message(call, error, environment.rendering)
    except CallPostponed as postponed:
        return postponed


@synchronous_entry
def _run_here(make: _Make[T], call: ToolCall, reply: str | None, environment: Environment) -> T:
    # Refused before it begins, and out of `run_to_completion`, in which all waits are allowed.
    if (recorder := environment.session.recorder) is not None and current() is None:
        recorder.check_wait()
    return run_to_completion(make(call, reply, environment, BLOCKING))


def _check_options(options: tuple[object, ...], approver: object) -> None:
    for value, (name, (kind, expected)) in zip(options, _EXPECTED.items(), strict=True):
        check_argument("ToolExecutor", name, value, getattr(runtime, kind) if value else NoneType, expected)
    if approver is not None:
        from handrail.prompt.policy import check_approver  # noqa: PLC0415

        check_approver("ToolExecutor", approver)


def _message(call: ToolCall, outcome: ToolMessage | CallPostponed) -> ToolMessage:
    from handrail.runtime.approval import pending_message  # noqa: PLC0415

    return outcome if isinstance(outcome, ToolMessage) else pending_message(call, outcome)


def _answered(
    calls: Sequence[ToolCall], outcomes: Sequence[ToolMessage | CallPostponed], *, prompt_changed: bool
) -> Answered | Waiting:
    messages = tuple(outcome for outcome in outcomes if isinstance(outcome, ToolMessage))
    if len(messages) == len(outcomes):
        answered = Answered(messages)
        answered.prompt_changed = prompt_changed
        return answered
    from handrail.adapters.settlement import OpenQuestion, Waiting  # noqa: PLC0415
    from handrail.prompt import ApprovalRequest  # noqa: PLC0415

    questions = tuple(
        OpenQuestion(call, outcome.question if isinstance(outcome.question, ApprovalRequest) else None, str(outcome))
        for call, outcome in zip(calls, outcomes, strict=True)
        if isinstance(outcome, CallPostponed)
    )
    return Waiting(messages, questions, prompt_changed)


async def _errors_of(tasks: Sequence[asyncio.Future[ToolMessage | CallPostponed]]) -> list[BaseException]:
    """The exceptions of the calls, in the order asked, when all have ended or one has ended the run."""
    from asyncio import FIRST_EXCEPTION, wait  # noqa: PLC0415

    pending = set(tasks)
    while pending:
        # `FIRST_EXCEPTION` returns at each exception, also at a mistake, after which the other calls are waited for.
        done, pending = await wait(pending, return_when=FIRST_EXCEPTION)
        if any(task.cancelled() or ((error := task.exception()) and not mistakes_in(error)) for task in done):
            break
    return [error for task in tasks if task.done() and not task.cancelled() and (error := task.exception()) is not None]


_TEXT: type[object] = str


def _check_call(mode: ExecutionMode, call: object) -> None:
    if type(call) is ToolCall and _TEXT is type(call.id) is type(call.name) is type(call.arguments):
        return  # as nearly all are
    function = "ToolExecutor.execute" if mode.inline else "ToolExecutor.execute_async"
    check_argument(function, "call", call, ToolCall, "a ToolCall: ToolCall(id, name, arguments)")
    if isinstance(call, ToolCall):
        check_argument(function, "call.id", call.id, str, "text: ToolCall(str(id), name, arguments)")
        check_argument(function, "call.name", call.name, str, "text: the name of a tool")
        expected = "the JSON of an object, or a mapping: {'order': 'A-1'}"
        check_argument(function, "call.arguments", call.arguments, (str, bytes, bytearray, Mapping), expected)


def _check_calls(function: str, calls: object) -> None:
    check_argument(function, "calls", calls, Iterable, "the calls of a reply: [ToolCall(id, name, arguments)]")


def _as_asked(outcome: ToolMessage | CallPostponed, call: ToolCall) -> ToolMessage | CallPostponed:
    """The outcome of a call, with the id that the provider gave it."""
    return outcome._replace(call_id=call.id) if isinstance(outcome, ToolMessage) else outcome
