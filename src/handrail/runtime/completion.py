"""Whether the answer of a model is accepted, or it is sent back with what is missing.

Theory of operation
    A prompt may declare a `CompletionCheck`. When the model gives its answer, its checker is asked. If something is
    missing, the run does not end: the model reads what is missing, at most `most_sent_back` times. Then its answer is
    accepted as it is, and this is logged. Past the deadline or the budget no answer is sent back, because nothing could
    follow; this is looked at before and after the check, which may take long. A check that has not ended at the
    deadline is left behind. A checker cannot write, in time or late (`handrail.runtime.read_only_transaction`).

    Which answers were sent back is in the session: a LOG of `SentBack`. So a run that is resumed in another process
    does not begin to count anew. An answer with a name that is checked again, because the process or the request after
    it failed, counts once. An answer that is accepted after others were sent back ends the count, and stays accepted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import takewhile
from typing import Any, ClassVar, cast

from handrail.errors import (
    BudgetExceededError,
    CompletionCheckError,
    DeadlineExceededError,
)
from handrail.errors.developer import DeveloperMistake
from handrail.limits import BudgetTracker, seconds_left
from handrail.prompt.completion import CompletionCheck, CompletionContext
from handrail.redaction import redacted_logger
from handrail.runtime.environment import Environment
from handrail.runtime.execution import ExecutionMode, ExecutionTimeoutError
from handrail.runtime.read_only_transaction import read_only_transaction
from handrail.serde.formatting import shorten
from handrail.session import Session, SlicePolicy, stored_as

MAX_MISSING_CHARS = 4_000
"""The longest text with which a model is sent back, in characters; a longer one is cut."""

_log = redacted_logger("handrail.runtime")


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


async def check_completion(
    environment: Environment, answer: object, mode: ExecutionMode, reply: str | None = None
) -> str | None:
    """The text with which the model is sent back; `None` if its answer is accepted.

    Args:
        environment: the run.
        answer: the answer, as the prompt declares it.
        mode: how to run what may take long.
        reply: the name of the answer, by which it is known when it is checked again.

    Raises:
        CompletionCheckError: the checker failed, or returned something else than sentences.
        DeveloperMistake: another mistake of the program, as a resource that is not bound.
        SessionError: the session is closed, or has passed to another process.
    """
    completion = environment.prompt.template.accepts
    if completion is None or _is_over(environment):
        return None
    session, name = environment.session, environment.prompt.name
    if reply is not None and await mode.write_to(session.store, partial(_was_accepted, session, name, reply)):
        return None
    missing = await _missing(completion, environment, answer, mode)
    sent_back = await mode.write_to(session.store, partial(_sent_back, session, name))
    is_noted = reply is not None and any(each.reply == reply for each in sent_back)
    others = len(sent_back) - is_noted
    if missing and others < completion.most_sent_back and not _is_over(environment):
        if not is_noted:
            _note(environment, missing, reply, accepted=False)
        return _text(missing)
    if missing:
        _log.warning("the answer of %s is accepted, although something is missing: %s", name, " ".join(missing))
    if sent_back:
        _note(environment, missing, reply, accepted=True)
    return None


def _is_over(environment: Environment) -> bool:
    """Whether nothing can follow, because the deadline has passed or the budget is exceeded."""
    deadline, tracker = environment.deadline, environment.budget_tracker
    if deadline is not None and deadline.expired:
        return True
    try:
        if tracker is not None:
            tracker.check()
    except (BudgetExceededError, DeadlineExceededError):
        return True
    return False


async def _missing(
    completion: CompletionCheck, environment: Environment, answer: object, mode: ExecutionMode
) -> tuple[str, ...]:
    """What the checker misses; nothing if the deadline passes before it says so, which is logged."""
    view = environment.run_view()
    context = CompletionContext(
        prompt=view.prompt,
        session=view.session,
        resources=view.resources,
        deadline=view.deadline,
        budget_tracker=view.resources.get(BudgetTracker, view.budget_tracker),
        clock=view.clock,
        answer=answer,
    )
    seconds = seconds_left(environment.deadline)
    try:
        with read_only_transaction(f"the completion check of {view.prompt}") as reading:
            check = partial(completion.missing, context.bound_to(reading))
            found = await mode.run(check, is_async=False, seconds=seconds)
    except DeveloperMistake:
        raise
    except ExecutionTimeoutError:
        _log.warning("the answer of %s is accepted, because the deadline passed during its check", view.prompt)
        return ()
    except Exception as error:
        raise CompletionCheckError(view.prompt, f"raised {type(error).__name__}: {error}") from error
    return _sentences(view.prompt, found)


def _sentences(prompt: str, found: object) -> tuple[str, ...]:
    sentences = cast("Sequence[Any]", found) if isinstance(found, list | tuple) else None
    if sentences is None or not all(isinstance(each, str) and each.strip() for each in sentences):
        raise CompletionCheckError(
            prompt,
            f"returned {shorten(f'{found!r}', 80)}; it must return what is missing as text, or in a sequence of texts, "
            "and None or nothing for complete",
        )
    return tuple(sentences)


def _newest_first(session: Session, prompt: str) -> Iterator[SentBack]:
    return (each for each in reversed(session[SentBack]) if each.prompt == prompt)


def _was_accepted(session: Session, prompt: str, reply: str) -> bool:
    newest = next(_newest_first(session, prompt), None)
    return newest is not None and newest.accepted and newest.reply == reply


def _sent_back(session: Session, prompt: str) -> list[SentBack]:
    """The answers that were sent back since one was accepted, the newest first."""
    return list(takewhile(lambda each: not each.accepted, _newest_first(session, prompt)))


def _note(environment: Environment, missing: tuple[str, ...], reply: str | None, *, accepted: bool) -> None:
    noted = SentBack(environment.prompt.name, missing, accepted, environment.clock.now(), reply)
    environment.session.log_item(SentBack, noted, written="deferred")


def _text(missing: Sequence[str]) -> str:
    listed = missing[0] if len(missing) == 1 else "\n".join(f"- {each}" for each in missing)
    text = f"Your answer is not accepted yet, because something is missing.\n{listed}\nComplete it, then answer again."
    return shorten(text, MAX_MISSING_CHARS)
