"""The two hooks of a run: what is added to the message of a call, and whether the answer of the model is accepted.

Theory of operation
    After a call has been recorded, its message is rendered, and the feedback providers of the prompt are asked whose
    trigger applies. What they say ends that message, behind a line that marks it. The result and the record of the call
    stay as they are, so `read_result`, reducers and the ledger never see it. Each feedback is an item of a LOG,
    `FeedbackGiven`, with its text: a provider counts from its last one, also in another process, and a message that is
    made again from the record of its call is the same, byte for byte. Such a message, one from the ledger and that of a
    nested call have no other feedback.

    When the model gives its answer, the completion checker of the prompt is asked. If something is missing, the model
    reads what, at most `most_sent_back` times; then its answer is accepted as it is, which is logged. Past the deadline
    or the budget no answer is sent back, because nothing could follow; a check that has not ended at the deadline is
    left behind. A LOG of `SentBack` has the count, until an answer is accepted. An answer with a name that is checked
    again, because the process or the request after it failed, counts once.

    Neither can write: both run between two calls of the model, where no call would roll a write back. Their transaction
    takes no writes, and is closed when one is left behind, so what it writes is refused, in time or late: through the
    views that it was given in any thread, and through a session or resource that it has reached otherwise in its own
    thread or task. Tools that it calls are calls of their own.
"""

from __future__ import annotations

import inspect
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING, Any, ClassVar, cast

from handrail.errors import BudgetExceededError, CompletionCheckError, DeadlineExceededError, InvalidReturnError
from handrail.errors.developer import DeveloperMistake
from handrail.limits import seconds_left
from handrail.prompt import TextPart
from handrail.prompt.hooks import CompletionContext, Feedback, FeedbackContext, RunView
from handrail.redaction import redacted_logger
from handrail.runtime.calls import ToolInvoked, ToolMessage, is_same_call
from handrail.runtime.environment import Environment
from handrail.runtime.execution import ExecutionMode, ExecutionTimeoutError
from handrail.serde.formatting import shorten
from handrail.session import Session, SlicePolicy, stored_as
from handrail.session.calls import CallRef, ToolCall
from handrail.transaction import Transaction, current
from handrail.turns import draw_ticket

if TYPE_CHECKING:
    from handrail.prompt.hooks import CompletionCheck, FeedbackProvider, FeedbackTrigger

MOST_COMPARED = 200
"""How many calls are looked through for the same call that has failed before."""

MAX_MISSING_CHARS = 4_000
"""The longest text with which a model is sent back, in characters; a longer one is cut."""

_CURE = "Return what the model is to read; a tool or a reducer writes."

_log = redacted_logger("handrail.runtime")


@stored_as("handrail.feedback_given")
@dataclass(frozen=True, slots=True)
class FeedbackGiven:
    """A provider had feedback, and the message of a call ended with it. Its slice is a LOG.

    Attributes:
        prompt: the name of the prompt.
        provider: the name of the provider.
        reply: the reply of the model that asked for the call; `None` if it was not given.
        call_id: the id of the call.
        text: what was added, with the line that marks it.
        calls: how many calls the session had recorded.
        files: the paths whose appearance it answered.
        at: when it was given.
    """

    slice_policy: ClassVar[SlicePolicy] = SlicePolicy.LOG

    prompt: str
    provider: str
    reply: str | None
    call_id: str
    text: str
    calls: int
    files: tuple[str, ...]
    at: datetime

    @property
    def ref(self) -> CallRef:
        """The identity of the call within its session."""
        return CallRef(self.reply, self.call_id)


@stored_as("handrail.sent_back")
@dataclass(frozen=True, slots=True)
class SentBack:
    """An answer was not accepted, or the first one that was after such answers. Its slice is a LOG.

    Attributes:
        prompt: the name of the prompt.
        missing: what was missing; empty for an answer that was accepted.
        accepted: whether the answer was accepted.
        at: when it was checked.
        reply: the name of the answer; `None` if the caller has not named it.
    """

    slice_policy: ClassVar[SlicePolicy] = SlicePolicy.LOG

    prompt: str
    missing: tuple[str, ...]
    accepted: bool
    at: datetime
    reply: str | None = None


def _with_feedback(message: ToolMessage, text: str) -> ToolMessage:
    if not text:
        return message
    parts = (*message.parts, TextPart(text)) if message.parts else ()
    return message._replace(content=f"{message.content}\n\n{text}", parts=parts, feedback=text)


@dataclass(frozen=True, slots=True)
class FeedbackHook:
    """Asks the feedback providers of a run after its calls. It has no state of its own: that is in the session.

    Attributes:
        view: the run as providers see it.
        providers: the providers of the prompt.
    """

    view: RunView
    providers: Sequence[FeedbackProvider]

    async def __call__(self, message: ToolMessage, call: ToolCall, ref: CallRef, mode: ExecutionMode) -> ToolMessage:
        """The message of a call with the feedback that is due, or that it has been given before if it is made again.

        What the ledger answers is not what the model has just done, and is due none. It does not fail: what goes wrong
        is logged.

        Args:
            message: the message.
            call: the call.
            ref: its identity.
            mode: how to wait and to run what may take long.
        """
        if message.replayed:
            items = (each for each in self.view.session[FeedbackGiven] if each.ref == ref)
            return _with_feedback(message, "\n\n".join(each.text for each in items if each.prompt == self.view.prompt))
        texts: list[str] = []
        for provider in self.providers:
            try:
                texts.append(await self._ask(provider, call, ref, mode, success=message.success))
            except Exception:  # noqa: BLE001 - logged, because the call is over
                _log.exception("the message of %s has no feedback of %s", call.name, provider.name)
        return _with_feedback(message, "\n\n".join(filter(None, texts)))

    async def _ask(
        self, provider: FeedbackProvider, call: ToolCall, ref: CallRef, mode: ExecutionMode, *, success: bool
    ) -> str:
        """The text of a provider whose trigger applies, which is stored in the session; empty for none.

        Raises:
            InvalidReturnError: it returned something else than feedback.
            Exception: it failed, or what it has said cannot be stored.
        """
        view, trigger = self.view, provider.trigger
        last = next(self._newest_first(provider.name), None)
        recorded = len(view.session[ToolInvoked])
        calls = recorded - (0 if last is None else last.calls)
        files: tuple[str, ...] = ()
        if trigger.on_file is not None:
            files = await mode.in_thread(partial(self._appeared, provider.name, trigger.on_file))
        if not files and not self._applies(trigger, last, calls, call, success=success):
            return ""
        with read_only_transaction(f"feedback {provider.name}") as reading:
            context = view.within(reading, FeedbackContext, call=call, success=success, calls=calls, files=files)
            is_async = inspect.iscoroutinefunction(provider.provide)
            advice = await mode.run(partial(provider.provide, context), is_async=is_async, seconds=None)
        if advice is None:
            return ""
        if not isinstance(advice, Feedback):
            function = f"feedback {provider.name}"
            raise InvalidReturnError(function=function, tool=call.name, returned=advice, expected="a Feedback, or None")
        text = advice.render(provider.name)
        given = FeedbackGiven(view.prompt, provider.name, *ref, text, recorded, files, view.clock.now())
        view.session[FeedbackGiven].log(given, write="deferred")
        return text

    def _newest_first(self, provider: str) -> Iterator[FeedbackGiven]:
        whose = self.view.prompt, provider
        return (each for each in reversed(self.view.session[FeedbackGiven]) if (each.prompt, each.provider) == whose)

    def _applies(
        self, trigger: FeedbackTrigger, last: FeedbackGiven | None, calls: int, call: ToolCall, *, success: bool
    ) -> bool:
        """Whether a trigger applies, whatever files there are; `calls` is how many there were since the last one."""
        if trigger.every_calls is not None and calls >= trigger.every_calls:
            return True
        records = self.view.session[ToolInvoked]
        if trigger.every is not None:
            since = records[0].at if last is None else last.at
            if self.view.clock.now() - since >= trigger.every:
                return True
        if trigger.on_repeated_failure is None or success:
            return False
        newest = records[len(records) - min(calls, MOST_COMPARED) : len(records)]
        same = [each for each in reversed(newest) if is_same_call(call, each.call)]
        return sum(1 for _ in takewhile(lambda each: not each.success, same)) >= trigger.on_repeated_failure

    def _appeared(self, provider: str, pattern: str) -> tuple[str, ...]:
        """The paths that match and have not had feedback of the provider yet, sorted."""
        filesystem = self.view.filesystem
        if filesystem is None:
            return ()
        paths = {each.path for each in filesystem.glob(pattern)}
        return tuple(sorted(paths.difference(*(each.files for each in self._newest_first(provider)))))


def feedback_hook(environment: Environment) -> FeedbackHook:
    """What asks the feedback providers of a run."""
    return FeedbackHook(_run_view(environment), environment.prompt.template.feedback)


def _run_view(environment: Environment) -> RunView:
    return RunView(
        prompt=environment.prompt.name,
        session=environment.session,
        resources=environment.resources,
        deadline=environment.deadline,
        budget_tracker=environment.budget_tracker,
        clock=environment.clock,
    )


async def check_answer(environment: Environment, answer: object, mode: ExecutionMode, reply: str | None) -> str | None:
    """The text with which the model is sent back; `None` if its answer is accepted.

    Args:
        environment: the run.
        answer: the answer, as the prompt declares it.
        mode: how to run what may take long.
        reply: the name of the answer, by which it counts once when it is checked again.

    Raises:
        CompletionCheckError: the checker failed, or returned something else than sentences.
        DeveloperMistake: another mistake of the program, as a resource that is not bound.
        SessionError: the session is closed, or has passed to another process.
    """
    view, completion = _run_view(environment), environment.prompt.template.accepts
    if completion is None or _is_over(view):
        return None
    session, missing = view.session, await _missing(view, completion, answer, mode)
    sent_back = await mode.write_to(session.store, partial(_sent_back, session, view.prompt))
    is_counted = reply is not None and any(each.reply == reply for each in sent_back)
    accepted = not missing or len(sent_back) - is_counted >= completion.most_sent_back or _is_over(view)
    if missing and accepted:
        _log.warning("the answer of %s is accepted, although something is missing: %s", view.prompt, " ".join(missing))
    if sent_back if accepted else not is_counted:
        item = SentBack(view.prompt, missing, accepted, view.clock.now(), reply)
        session[SentBack].log(item, write="deferred")
    return None if accepted else _text(missing)


def _is_over(view: RunView) -> bool:
    """Whether nothing can follow, because the deadline has passed or the budget is exceeded."""
    try:
        if view.budget_tracker is not None:
            view.budget_tracker.check()
    except (BudgetExceededError, DeadlineExceededError):
        return True
    return view.deadline is not None and view.deadline.expired


async def _missing(view: RunView, completion: CompletionCheck, answer: object, mode: ExecutionMode) -> tuple[str, ...]:
    """What the checker misses; nothing if the deadline passes before it says so, which is logged."""
    try:
        with read_only_transaction(f"the completion check of {view.prompt}") as reading:
            check = partial(completion.missing, view.within(reading, CompletionContext, answer=answer))
            found = await mode.run(check, is_async=False, seconds=seconds_left(view.deadline))
    except DeveloperMistake:
        raise
    except ExecutionTimeoutError:
        _log.warning("the answer of %s is accepted, because the deadline passed during its check", view.prompt)
        return ()
    except Exception as error:
        raise CompletionCheckError(view.prompt, f"raised {type(error).__name__}: {error}") from error
    sentences = cast("Sequence[Any]", found) if isinstance(found, list | tuple) else None
    if sentences is None or not all(isinstance(each, str) and each.strip() for each in sentences):
        raise CompletionCheckError(
            view.prompt,
            f"returned {shorten(f'{found!r}', 80)}; it must return what is missing as text, or in a sequence of texts, "
            "and None or nothing for complete",
        )
    return tuple(sentences)


def _sent_back(session: Session, prompt: str) -> list[SentBack]:
    """The answers that were sent back since one was accepted."""
    newest_first = (each for each in reversed(session[SentBack]) if each.prompt == prompt)
    return list(takewhile(lambda each: not each.accepted, newest_first))


def _text(missing: Sequence[str]) -> str:
    listed = missing[0] if len(missing) == 1 else "\n".join(f"- {each}" for each in missing)
    text = f"Your answer is not accepted yet, because something is missing.\n{listed}\nComplete it, then answer again."
    return shorten(text, MAX_MISSING_CHARS)


@contextmanager
def read_only_transaction(name: str) -> Generator[Transaction]:
    """A block in which nothing can be written; what runs on in a thread after it cannot write either.

    It sees what its caller sees: in the handler of a call, also what that call has written.

    Args:
        name: who reads, for messages.

    Raises:
        ReadOnlyViolation: something was written in the block. Nothing has been.
        TransactionClosedError: the call that this is in has ended.
    """
    outer = current()
    # Without turns, so that a call which is made in the block takes those that it needs.
    ticket = draw_ticket((), exclusive=False, inside=None if outer is None else outer.ticket)
    try:
        with Transaction(name, ticket=ticket, writes=False, parent=outer, concurrent=True, cure=_CURE) as reading:
            yield reading
    finally:
        ticket.release()
