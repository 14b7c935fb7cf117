"""The door for people with their own loop: calls in, messages out.

    executor = ToolExecutor(prompt=prompt, session=session)
    messages = executor.execute_all(calls)

Every call goes through `handrail.runtime.invoke`; this module only says what the calls of a run share.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from types import NoneType, TracebackType
from typing import Any, Self

from handrail.clock import SYSTEM_CLOCK, Clock
from handrail.errors.developer import check_argument, first_mistake, mistakes_in, note_mistakes
from handrail.limits import BudgetTracker, Deadline, Heartbeat, RunContext
from handrail.prompt import Approver, Prompt, RenderedPrompt
from handrail.prompt.policies.policy import check_approver
from handrail.runtime import EffectLedger, ToolCall, ToolMessage
from handrail.runtime.environment import Environment, session_ledger
from handrail.runtime.execution import ASYNC, BLOCKING, run_to_completion
from handrail.runtime.invoke import invoke
from handrail.session import Session
from handrail.session.calls import MAX_IDENTITY_CHARACTERS, NESTED_SEPARATOR, is_reply

_EXPECTED: Mapping[str, tuple[tuple[type[object], ...], str]] = {
    "rendered_prompt": ((RenderedPrompt,), "what Prompt.render returned, or None"),
    "effect_ledger": ((EffectLedger,), "an EffectLedger: EffectLedger(store), or None"),
    "deadline": ((Deadline, NoneType), "a Deadline: Deadline.after(timedelta(minutes=5)), or None"),
    "heartbeat": ((Heartbeat, NoneType), "a Heartbeat, or None"),
    "run_context": ((RunContext, NoneType), "a RunContext, or None"),
    "budget_tracker": ((BudgetTracker, NoneType), "a BudgetTracker: BudgetTracker(budget), or None"),
}
"""What an executor may be given beside prompt and session, as types and in words."""


class ToolExecutor:
    """Runs the tool calls of one run. Threads and tasks may share it.

    As a context manager it closes at the end what the providers of the prompt have made for the run::

        with ToolExecutor(prompt=prompt, session=session) as executor:
            messages = executor.execute_all(calls)

    Attributes:
        environment: what all calls of the run share.
    """

    __slots__ = ("environment",)

    def __init__(  # noqa: PLR0913 - the one place where all that a run shares comes together
        self,
        *,
        prompt: Prompt[Any],
        session: Session,
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
        """Bring together what the calls of a run share.

        Args:
            prompt: the bound prompt; its resources are what handlers find in `context.resources`.
            session: where results go, and what is rolled back.
            rendered_prompt: the prompt as the model saw it; rendered anew when it is not given.
            adapter: handed to handlers as `context.adapter`.
            effect_ledger: remembers effects. Share one among all executors whose calls may repeat each other; without
                one, the executor has its own, in the store of a stored session and otherwise in memory.
            deadline: no handler starts or runs past it.
            heartbeat: beaten by `context.beat()`.
            run_context: correlation ids, for `ToolInvoked`.
            approver: asked when a policy says ask: takes an `ApprovalRequest`, returns a bool or an `Approval`, or is
                `async`. Without one, what would have to be asked is refused.
            budget_tracker: handed to handlers as `context.budget_tracker`.
            clock: tells the time for `ToolInvoked`.

        Raises:
            InvalidArgumentError: something is of another type: a template for a prompt, a span for a deadline.
            PromptRenderError: the prompt lacks parameters that its sections need.
        """
        check_argument("ToolExecutor", "prompt", prompt, Prompt, "a Prompt: Prompt(template)")
        check_argument("ToolExecutor", "session", session, Session, "a Session")
        self.environment = Environment(
            prompt=prompt,
            rendered_prompt=prompt.render() if rendered_prompt is None else rendered_prompt,
            session=session,
            adapter=adapter,
            effect_ledger=session_ledger(session, clock=clock) if effect_ledger is None else effect_ledger,
            deadline=deadline,
            heartbeat=heartbeat,
            run_context=run_context,
            approver=approver,
            budget_tracker=budget_tracker,
            clock=clock,
        )
        for name, (kinds, expected) in _EXPECTED.items():
            check_argument("ToolExecutor", name, getattr(self.environment, name), kinds, expected)
        check_approver("ToolExecutor", approver)

    def __enter__(self) -> Self:
        """Enter the resources of the prompt.

        Raises:
            ResourceError: an eager one could not be built.
        """
        self.environment.resources.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Leave the resources of the prompt: the last one to leave closes them.

        Raises:
            ResourceError: some could not be closed; all were tried.
        """
        self.environment.resources.__exit__(kind, error, traceback)

    def execute(self, call: ToolCall, *, reply: str | None = None) -> ToolMessage:
        """Carry a call out on this thread; `def` handlers run inline, unless a timeout or the deadline bounds them.

        Args:
            call: what the model asked for.
            reply: names the reply of the model that asked for it: the id that the provider gave the response, say. A
                call with a reply that has a final record is answered from it. Without one, a stored session takes each
                id once; see `docs/effects.md`.

        Raises:
            DeveloperMistake: the program is at fault: a resource is not bound, a policy returned no decision. The call
                has been rolled back and recorded as failed.
            InvalidArgumentError: it is not a `ToolCall`, or its id is not text. Nothing was run or recorded.
            CallIdReusedError: reply and id stand for another call, or an id without a reply is used again. Nothing was
                run or recorded.
            ValueError: `reply` is not text of 1 to 500 characters, or begins with `@`.
            RunAbortedError: the run is over. The call has been rolled back and recorded.
            BaseException: what a handler raises that is not an `Exception`, as for `RunAbortedError`.
        """
        try:
            if type(call.id) is not str:
                _check_call("ToolExecutor.execute", call)
            return run_to_completion(
                invoke(call, None if reply is None else _checked(reply), self.environment, BLOCKING)
            )
        except (AttributeError, TypeError):  # here and not before, because this is on the way of every call
            _check_call("ToolExecutor.execute", call)
            raise

    async def execute_async(self, call: ToolCall, *, reply: str | None = None) -> ToolMessage:
        """Carry a call out without blocking the event loop; `def` handlers run on threads of their own.

        Args:
            call: what the model asked for.
            reply: names the reply, as for `execute`.

        Raises:
            DeveloperMistake: as for `execute`.
            CallIdReusedError: as for `execute`.
            ValueError: as for `execute`.
            RunAbortedError: as for `execute`.
            BaseException: as for `execute`; a cancellation rolls the call back.
        """
        try:
            if type(call.id) is not str:
                _check_call("ToolExecutor.execute_async", call)
            return await invoke(call, None if reply is None else _checked(reply), self.environment, ASYNC)
        except (AttributeError, TypeError):  # as in `execute`
            _check_call("ToolExecutor.execute_async", call)
            raise

    def execute_all(self, calls: Iterable[ToolCall], *, reply: str | None = None) -> tuple[ToolMessage, ...]:
        """Carry the calls of one reply out, one after the other; a message for each, in the order asked.

        `reply` names the reply, as for `execute`.

        Raises:
            DeveloperMistake: as for `execute`, once the calls after it have been carried out. If there are several, the
                first is raised; the others are notes on it. So is an `ExceptionGroup` of a handler that holds one.
            RunAbortedError: as for `execute`; the calls after the one that ended the run have not been run.
        """
        _check_calls("ToolExecutor.execute_all", calls)
        messages: list[ToolMessage] = []
        mistakes: list[BaseException] = []
        for call in calls:
            try:
                messages.append(self.execute(call, reply=reply))
            except BaseException as error:
                if not mistakes_in(error):
                    note_mistakes(error, mistakes)
                    raise
                mistakes.append(error)
        if mistakes:
            raise first_mistake(mistakes)
        return tuple(messages)

    async def execute_all_async(
        self, calls: Iterable[ToolCall], *, reply: str | None = None
    ) -> tuple[ToolMessage, ...]:
        """Carry the calls of one reply out, reads beside each other, writers in the order asked; a message for each.

        The outcome is that of running them one by one. `reply` names the reply, as for `execute`.

        Raises:
            DeveloperMistake: as for `execute_all`.
            RunAbortedError: as for `execute`; the calls that had not ended by then are cancelled and rolled back.
        """
        _check_calls("ToolExecutor.execute_all_async", calls)
        tasks = [asyncio.ensure_future(self.execute_async(call, reply=reply)) for call in calls]
        try:
            errors = await _errors_of(tasks)
        finally:
            await _cancelled(tasks)
        mistakes = [error for error in errors if mistakes_in(error)]
        for error in errors:
            if not mistakes_in(error):
                note_mistakes(error, mistakes)
                raise error
        if mistakes:
            raise first_mistake(mistakes)
        return tuple([task.result() for task in tasks])


async def _errors_of(tasks: Sequence[asyncio.Future[ToolMessage]]) -> list[BaseException]:
    """What the calls have raised, in the order asked, when all have ended or one has ended the run."""
    pending = set(tasks)
    while pending:
        done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_EXCEPTION)
        if any(task.cancelled() or _ends_reply(task.exception()) for task in done):
            break
    ended = [task for task in tasks if task.done() and not task.cancelled()]
    return [error for task in ended if (error := task.exception()) is not None]


def _ends_reply(error: BaseException | None) -> bool:
    """Whether what a call has raised keeps the other calls of its reply from ending."""
    return error is not None and not mistakes_in(error)


async def _cancelled(tasks: Sequence[asyncio.Future[ToolMessage]]) -> None:
    """Cancel the calls that have not ended, and wait until they have been rolled back."""
    unfinished = [task for task in tasks if not task.done()]
    for task in unfinished:
        task.cancel()
    if unfinished:
        await asyncio.wait(unfinished)


def _check_call(function: str, call: object) -> None:
    check_argument(function, "call", call, ToolCall, "a ToolCall: ToolCall(id, name, arguments)")
    if isinstance(call, ToolCall):
        check_argument(function, "call.id", call.id, str, "text: ToolCall(str(id), name, arguments)")
        check_argument(function, "call.name", call.name, str, "text: the name of a tool")


def _check_calls(function: str, calls: object) -> None:
    check_argument(function, "calls", calls, Iterable, "the calls of a reply: [ToolCall(id, name, arguments)]")


def _checked(reply: str) -> str:
    if is_reply(reply):
        return reply
    raise ValueError(
        f"reply is {reply!r:.80}; it names a reply of the model, in 1 to {MAX_IDENTITY_CHARACTERS} characters of valid "
        f"Unicode without a zero, and does not begin with {NESTED_SEPARATOR!r}, as the replies of nested calls do. "
        "Give the id that the provider gave the response, for one"
    )
