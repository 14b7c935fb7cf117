"""The two hooks of a run: what is added to the message of a call, and whether the answer of the model is accepted.

Feedback ends the message of a call, behind a line that marks it; the result and the record of the call stay as they
are. Each feedback is an item of a LOG, `FeedbackGiven`, with its text: a provider counts from its last one, also in
another process, and a message that is made again from the record of its call is the same. Such a message, one from the
ledger and that of a nested call have no other feedback.

If something is missing from an answer, the model reads what, at most `most_sent_back` times; then its answer is
accepted as it is, which is logged. Past the deadline or the budget no answer is sent back: nothing could follow. A LOG
of `SentBack` has the count, until an answer is accepted. An answer with a name that is checked again counts once.

Neither hook can write: both run between two calls of the model, where no call would roll a write back. Their
transaction takes no writes, and is closed when one is left behind. Tools that it calls are calls of their own.
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
from handrail.errors.outcomes import DeveloperMistake
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
"""The most calls that are compared with one that has failed."""

MAX_MISSING_CHARS = 4_000
"""The longest text with which a model is sent back; a longer one is cut."""

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
    """Asks the feedback providers of a run after its calls. It has no state of its own: that is in the session."""

    view: RunView
    providers: Sequence[FeedbackProvider]

    async def __call__(self, message: ToolMessage, call: ToolCall, ref: CallRef, mode: ExecutionMode) -> ToolMessage:
        """The message of a call with the feedback that is due, or that it has been given before if it is made again.

        What the ledger answers is not what the model has just done, and is due none. A provider that fails is logged.
        """
        if message.replayed:
            items = (item for item in self.view.session[FeedbackGiven] if (item.reply, item.call_id) == ref)
            return _with_feedback(message, "\n\n".join(item.text for item in items if item.prompt == self.view.prompt))
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
        """The text of a provider whose trigger applies, which is stored in the session; empty for none."""
        view, trigger = self.view, provider.trigger
        last = next(self._newest_first(provider.name), None)
        count = len(view.session[ToolInvoked])
        calls = count - (0 if last is None else last.calls)
        files: tuple[str, ...] = ()
        if trigger.on_file is not None:
            files = await mode.in_thread(partial(self._new_files, provider.name, trigger.on_file))
        if not files and not self._applies(trigger, last, calls, call, success=success):
            return ""
        function = f"feedback {provider.name}"
        with read_only_transaction(function) as reading:
            context = view.within(reading, FeedbackContext, call=call, success=success, calls=calls, files=files)
            is_async = inspect.iscoroutinefunction(provider.provide)
            advice = await mode.run(partial(provider.provide, context), is_async=is_async, seconds=None)
        if advice is None:
            return ""
        if not isinstance(advice, Feedback):
            raise InvalidReturnError(function=function, tool=call.name, value=advice, expected="a Feedback, or None")
        text = advice.render(provider.name)
        item = FeedbackGiven(view.prompt, provider.name, *ref, text, count, files, view.clock.now())
        view.session[FeedbackGiven].log(item, write="deferred")
        return text

    def _newest_first(self, provider: str) -> Iterator[FeedbackGiven]:
        owner = self.view.prompt, provider
        return (item for item in reversed(self.view.session[FeedbackGiven]) if (item.prompt, item.provider) == owner)

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
        same = (record for record in reversed(newest) if is_same_call(call, record.call))
        return sum(1 for _ in takewhile(lambda record: not record.success, same)) >= trigger.on_repeated_failure

    def _new_files(self, provider: str, pattern: str) -> tuple[str, ...]:
        if (filesystem := self.view.filesystem) is None:
            return ()
        paths = {file.path for file in filesystem.glob(pattern)}
        return tuple(sorted(paths.difference(*(item.files for item in self._newest_first(provider)))))


def feedback_hook(environment: Environment) -> FeedbackHook:
    """The hook that asks the feedback providers of a run."""
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

    By its name, `reply`, an answer counts once when it is checked again.

    Raises:
        CompletionCheckError: the checker failed, or returned something else than sentences.
        DeveloperMistake: another mistake of the program, as a resource that is not bound.
        SessionError: the session is closed, or has passed to another process.
    """
    view, completion = _run_view(environment), environment.prompt.template.accepts
    if completion is None or _is_over(view):
        return None
    session, missing = view.session, await _missing(view, completion, answer, mode)
    earlier = await mode.write_to(session.store, partial(_earlier_answers, session, view.prompt))
    is_counted = reply is not None and any(item.reply == reply for item in earlier)
    accepted = not missing or len(earlier) - is_counted >= completion.most_sent_back or _is_over(view)
    if missing and accepted:
        _log.warning("the answer of %s is accepted, although something is missing: %s", view.prompt, " ".join(missing))
    if earlier if accepted else not is_counted:
        item = SentBack(view.prompt, missing, accepted, view.clock.now(), reply)
        session[SentBack].log(item, write="deferred")
    return None if accepted else _text(missing)


def _is_over(view: RunView) -> bool:
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
            result: object = await mode.run(check, is_async=False, seconds=seconds_left(view.deadline))
    except DeveloperMistake:
        raise
    except ExecutionTimeoutError:
        _log.warning("the answer of %s is accepted, because the deadline passed during its check", view.prompt)
        return ()
    except Exception as error:
        raise CompletionCheckError(view.prompt, f"raised {type(error).__name__}: {error}") from error
    texts = cast("Sequence[Any]", result) if isinstance(result, list | tuple) else None
    if texts is None or not all(isinstance(text, str) and text.strip() for text in texts):
        raise CompletionCheckError(
            view.prompt,
            f"returned {shorten(f'{result!r}', 80)}; it must return what is missing as text, or in a sequence of "
            "texts, and None or nothing for complete",
        )
    return tuple(texts)


def _earlier_answers(session: Session, prompt: str) -> list[SentBack]:
    newest_first = (item for item in reversed(session[SentBack]) if item.prompt == prompt)
    return list(takewhile(lambda item: not item.accepted, newest_first))


def _text(missing: Sequence[str]) -> str:
    items = missing[0] if len(missing) == 1 else "\n".join(f"- {item}" for item in missing)
    text = f"Your answer is not accepted yet, because something is missing.\n{items}\nComplete it, then answer again."
    return shorten(text, MAX_MISSING_CHARS)


@contextmanager
def read_only_transaction(name: str) -> Generator[Transaction]:
    """A block in which nothing can be written; what runs on in a thread after it cannot write either.

    It sees what its caller sees: in the handler of a call, also what that call has written. `name` is for messages.

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
