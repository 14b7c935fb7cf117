"""When feedback is given, and how it is added to a message.

Theory of operation
    After a call has been recorded, its message is rendered, and the providers of the prompt are asked whose trigger
    applies. What they say is added to that message: at its end, behind a line that marks it. The result and the record
    of the call stay as they are, so `read_result`, reducers and the ledger never see it.

    A reply is given feedback once, with the message of the first call after which any is due. Calls of a reply may run
    at the same time, so it is noted before the providers are asked which call it is.

    Each feedback is an item of a LOG, `FeedbackGiven`, with its text. So a provider counts from its last one, also in
    another process, and is not asked again for what it has said. A message that is made again from the record of its
    call has the same text at its end: the request that the model is sent is the same, byte for byte. A message that is
    answered from the record, or from the ledger, has no other feedback.

    A provider only reads (`handrail.runtime.read_only_transaction`), also when it has been left behind.

    The item is written at once: a process that is killed after that answers the call again, from its record, with the
    same text.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from itertools import islice, takewhile
from typing import ClassVar
from weakref import WeakKeyDictionary

from handrail.errors import InvalidReturnError, SessionError, StoreUnavailableError
from handrail.limits import BudgetTracker
from handrail.prompt import Feedback, FeedbackContext, FeedbackProvider, FeedbackTrigger, TextPart
from handrail.prompt.run_view import RunView
from handrail.redaction import redacted_logger
from handrail.runtime.calls import ToolInvoked, ToolMessage, is_same_call
from handrail.runtime.execution import ExecutionMode
from handrail.runtime.read_only_transaction import read_only_transaction
from handrail.session import Session, SlicePolicy, stored_as
from handrail.session.call_ref import NESTED_SEPARATOR, CallRef, ToolCall

PROVIDER_TIMEOUT = timedelta(seconds=5)
"""How long a provider may take, or until the deadline; after that the message goes without its feedback."""

_LEAST_TIME = timedelta(milliseconds=100)
"""How long a provider may take at least, so that the model can be sent that the deadline has passed."""

MOST_COMPARED = 200
"""How many calls are looked through for the same call that has failed before."""

_WILD = frozenset("*?[")

_log = redacted_logger("handrail.runtime")

_LOCK = threading.Lock()
_CLAIMED: WeakKeyDictionary[Session, set[tuple[str, str]]] = WeakKeyDictionary()
"""The replies whose feedback is being made, by session, each with its prompt; guarded by the lock.

A run of an agent has an executor for each toolset, and its session has them all.
"""


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
        calls: how many calls the session had recorded, nested ones included.
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


def with_feedback(message: ToolMessage, text: str) -> ToolMessage:
    """The message with feedback at its end; as it is if there is none."""
    if not text:
        return message
    parts = (*message.parts, TextPart(text)) if message.parts else ()
    return message._replace(content=f"{message.content}\n\n{text}", parts=parts, feedback=text)


@dataclass(frozen=True, slots=True)
class _Asked:
    """When a provider was asked last: how many calls had been recorded, the time, and the paths it was asked about.

    Of one that was asked in this process also the newest record, by which it is known that the session was reset.
    """

    calls: int
    at: datetime
    files: frozenset[str] = frozenset()
    newest: tuple[CallRef, datetime] | None = None


@dataclass(frozen=True, slots=True)
class _Due:
    """A provider that is to be asked."""

    provider: FeedbackProvider
    calls: int
    files: tuple[str, ...]


class RunFeedback:
    """Decides about the feedback of one run; the calls of an executor share it. Thread-safe.

    Args:
        view: the run as providers see it.
        providers: the providers of the prompt.
    """

    __slots__ = ("_asked", "_providers", "_view")

    def __init__(self, view: RunView, providers: Sequence[FeedbackProvider]) -> None:
        self._view = view
        self._providers = tuple(providers)
        # By name. What a provider has said is in the session; that it had nothing to say is only here.
        self._asked: dict[str, _Asked] = {}

    def given_to(self, ref: CallRef) -> str:
        """The feedback that the message of a call has been given; empty for none."""
        items = (each for each in self._view.session[FeedbackGiven] if each.ref == ref)
        return "\n\n".join(each.text for each in items if each.prompt == self._view.prompt)

    async def give(self, call: ToolCall, ref: CallRef, mode: ExecutionMode, *, success: bool) -> str:
        """The feedback for the message of a call that has just been recorded; empty for none.

        It does not fail: what goes wrong is logged.

        Args:
            call: the call.
            ref: its identity.
            mode: how to wait and to run what may take long.
            success: whether it succeeded.
        """
        reply = ref.reply
        if not self._claim(reply):
            return ""
        try:
            newest = islice(self._newest_first(), len(self._providers))  # of one reply there are no more
            if reply is not None and any(each.reply == reply for each in newest):
                return ""
            find = partial(self._due, call, success=success)
            watches = any(each.trigger.on_file is not None for each in self._providers)
            due = await mode.in_thread(find) if watches else find()
            texts = [text for each in due if (text := await self._ask(each, call, ref, mode, success=success))]
            return "\n\n".join(texts)
        except Exception:  # noqa: BLE001 - logged, because the call is over
            _log.exception("the message of %s has no feedback", call.name)
            return ""
        finally:
            self._release(reply)

    def _claim(self, reply: str | None) -> bool:
        """Whether no other call of the reply has feedback made at this moment."""
        if reply is None:
            return True
        with _LOCK:
            claimed = _CLAIMED.setdefault(self._view.session, set())
            if (self._view.prompt, reply) in claimed:
                return False
            claimed.add((self._view.prompt, reply))
            return True

    def _release(self, reply: str | None) -> None:
        if reply is not None:
            with _LOCK:
                _CLAIMED[self._view.session].discard((self._view.prompt, reply))

    def _newest_first(self) -> Iterator[FeedbackGiven]:
        return (each for each in reversed(self._view.session[FeedbackGiven]) if each.prompt == self._view.prompt)

    def _due(self, call: ToolCall, *, success: bool) -> list[_Due]:
        """The providers whose trigger applies now."""
        due: list[_Due] = []
        for provider in self._providers:
            base = self._base(provider.name)
            files = self._appeared(provider.name, provider.trigger.on_file)
            if files or self._applies(provider.trigger, base, call, success=success):
                due.append(_Due(provider, len(self._calls_since(base)), files))
        return due

    def _applies(self, trigger: FeedbackTrigger, base: _Asked | None, call: ToolCall, *, success: bool) -> bool:
        """Whether a trigger applies, whatever files there are."""
        calls = trigger.every_calls
        # With nested calls there are fewer calls than records, so these are counted first.
        if calls is not None and self._records_since(base) >= calls and len(self._calls_since(base)) >= calls:
            return True
        if trigger.every is not None and self._has_passed(trigger.every, base):
            return True
        failures = trigger.on_repeated_failure
        return failures is not None and not success and self._failures_of(call, base) >= failures

    def _base(self, name: str) -> _Asked | None:
        """When a provider has had feedback, or has been asked in this process; the later of both."""
        given = next((_Asked(each.calls, each.at) for each in self._newest_first() if each.provider == name), None)
        asked = self._asked_here(name)
        if given is None or asked is None:
            return given or asked
        return max(given, asked, key=lambda each: each.at)

    def _asked_here(self, name: str) -> _Asked | None:
        """When a provider was asked in this process; `None` if the session has been reset since."""
        asked, records = self._asked.get(name), self._view.session[ToolInvoked]
        if asked is None or asked.calls > len(records):
            return None
        return asked if asked.newest == _identity(records[asked.calls - 1]) else None

    def _records_since(self, base: _Asked | None) -> int:
        """How many calls have been recorded since then, nested ones included."""
        length = len(self._view.session[ToolInvoked])
        start = 0 if base is None else base.calls
        return length - start if start <= length else length  # the session has been reset

    def _calls_since(self, base: _Asked | None, most: int | None = None) -> list[ToolInvoked]:
        """The calls of the model that have been recorded since then; `most` bounds how many records are looked at."""
        records = self._view.session[ToolInvoked]
        count = self._records_since(base)
        newest = records[len(records) - (count if most is None else min(count, most)) : len(records)]
        return [each for each in newest if each.reply is None or not each.reply.startswith(NESTED_SEPARATOR)]

    def _has_passed(self, span: timedelta, base: _Asked | None) -> bool:
        records = self._view.session[ToolInvoked]
        since = base.at if base is not None else records[0].at if len(records) else None
        return since is not None and self._view.clock.now() - since >= span

    def _failures_of(self, call: ToolCall, base: _Asked | None) -> int:
        """How often the same call has failed since then, and since it succeeded last."""
        same = (each for each in reversed(self._calls_since(base, MOST_COMPARED)) if is_same_call(call, each.call))
        return sum(1 for _ in takewhile(lambda each: not each.success, same))

    def _appeared(self, name: str, pattern: str | None) -> tuple[str, ...]:
        """The paths that match and have not had feedback of the provider yet, sorted."""
        filesystem = None if pattern is None else self._view.filesystem
        if filesystem is None or pattern is None:
            return ()
        try:
            if _WILD.isdisjoint(pattern):
                found = {pattern} if filesystem.exists(pattern) else set[str]()
            else:
                found = {each.path for each in filesystem.glob(pattern)}
        except Exception:  # noqa: BLE001 - logged; the other conditions of the trigger still apply
            _log.exception("feedback %s cannot look for %s", name, pattern)
            return ()
        if not found:
            return ()
        known = {path for each in self._newest_first() if each.provider == name for path in each.files}
        asked = self._asked_here(name)
        known |= frozenset() if asked is None else asked.files
        return tuple(sorted(found - known))

    async def _ask(self, due: _Due, call: ToolCall, ref: CallRef, mode: ExecutionMode, *, success: bool) -> str:
        """What a provider says, noted in the session; empty for nothing."""
        view, provider = self._view, due.provider
        records, at = view.session[ToolInvoked], view.clock.now()
        calls, before = len(records), self._asked_here(provider.name)
        files = frozenset(due.files) if before is None else before.files.union(due.files)
        self._asked[provider.name] = _Asked(calls, at, files, _identity(records[calls - 1]))
        context = FeedbackContext(
            prompt=view.prompt,
            session=view.session,
            resources=view.resources,
            deadline=view.deadline,
            budget_tracker=view.resources.get(BudgetTracker, view.budget_tracker),
            clock=view.clock,
            call=call,
            success=success,
            calls=due.calls,
            files=due.files,
        )
        try:
            with read_only_transaction(f"feedback {provider.name}") as reading:
                feedback = await _provided(provider, context.bound_to(reading), mode)
            if feedback is None:
                return ""
            text = feedback.render(provider.name)
            given = FeedbackGiven(view.prompt, provider.name, *ref, text, calls, due.files, at)
            await self._note(given, mode)
        except SessionError as error:  # closed, or passed to another process: the model is not sent anything any more
            _log.warning("feedback %s was not given: %s", provider.name, error)
            return ""
        except Exception:  # noqa: BLE001 - logged, because the call is over
            _log.exception("feedback %s failed", provider.name)
            return ""
        return text

    async def _note(self, given: FeedbackGiven, mode: ExecutionMode) -> None:
        session = self._view.session
        try:
            await mode.write_to(session.store, partial(session.log_item, FeedbackGiven, given))
        except StoreUnavailableError as error:  # the session has it all the same, and writes it with its next unit
            _log.warning("feedback %s is not stored yet: %s", given.provider, error)


def _identity(record: ToolInvoked) -> tuple[CallRef, datetime]:
    """What distinguishes a record from others of the session, and of the session before it was reset."""
    return record.ref, record.at


async def _provided(provider: FeedbackProvider, context: FeedbackContext, mode: ExecutionMode) -> Feedback | None:
    """What a provider says.

    Raises:
        InvalidReturnError: it returned something else.
        Exception: it failed, or takes longer than `PROVIDER_TIMEOUT`, or past the deadline.
    """
    provide: Callable[[FeedbackContext], object] = provider.provide
    is_async = inspect.iscoroutinefunction(provide)
    left = PROVIDER_TIMEOUT if context.deadline is None else context.deadline.remaining()
    seconds = min(PROVIDER_TIMEOUT, max(left, _LEAST_TIME)).total_seconds()
    said: object = await mode.run(partial(provide, context), is_async=is_async, seconds=seconds)
    if said is None or isinstance(said, Feedback):
        return said
    raise InvalidReturnError(
        function=f"feedback {provider.name}", tool=context.call.name, returned=said, expected="a Feedback, or None"
    )
