"""What an exception becomes, for the model and for the effect: the one place that decides.

| raised by a step, a handler, a policy, a reducer or a subscriber | becomes |
|---|---|
| `CallRefusedError` (a step of the pipeline says no), `ParseError` | failed result with its message |
| `ModelVisibleError`: `ToolValidationError`, `ReadOnlyViolation`, `EffectUncertain`, ... | failed result, its message |
| `TypeError` that comes from calling the handler wrongly | failed result that says what the handler must accept |
| `HandlerTimeoutError` | failed result with its message |
| `VisibilityExpansionRequired`, `PromptEvaluationError`, `BudgetExceededError` | raised again |
| `DeadlineExceededError` | `PromptEvaluationError(phase="tool")`, raised |
| `CancelledError`, `KeyboardInterrupt`, any other `BaseException` | raised again |
| `CallPostponed` | raised again, and not recorded: the call will be made again |
| `DeveloperMistake`: nothing is bound, a policy returned no decision | raised again, after the reply's other calls |
| an `ExceptionGroup` that holds one, at any depth | the same |
| `CallIdReusedError` | the same, and not recorded: the record of the other call stays the only one |
| any other `Exception` | logged with its traceback; failed result with type and message |

Whatever it becomes, the call has been rolled back before, and one `ToolInvoked` is recorded after. A postponed call is
recorded when it is carried out.

An exception that a program raises from a developer's mistake, or while it handles one, is the program's own: it fails
the call. The text of the mistake is replaced in what the model reads of it.

What the end of a handler says of an effect outside:

| an external handler | its effect is |
|---|---|
| returned a result that is a success | applied |
| returned `ToolResult.error(...)` | not applied |
| was not entered: it cannot be called so, the deadline had passed | not applied |
| raised `ToolValidationError` or `EffectNotApplied` | not applied |
| raised `VisibilityExpansionRequired`, `CallPostponed`, or control flow of PydanticAI | not applied |
| raised a type in `External.not_applied_on` | not applied |
| raised an `ExceptionGroup` | not applied, if each of its members says so |
| raised anything else, overran its time, was cancelled or interrupted | unknown |

PydanticAI's control flow is `ModelRetry`, `ApprovalRequired` and `CallDeferred`. The effect of any other tool is undone
with the call, so it was not applied, unless the handler says by `EffectUncertain` that it may have been.
"""

from __future__ import annotations

import logging
import traceback
from datetime import timedelta
from typing import Any, NamedTuple, cast

from handrail.errors import (
    CallPostponed,
    DeadlineExceededError,
    DeveloperMistake,
    DispatchError,
    EffectNotApplied,
    EffectUncertain,
    ModelVisibleError,
    ParseError,
    PromptEvaluationError,
    RunAbortedError,
    ToolValidationError,
    VisibilityExpansionRequired,
)
from handrail.errors.developer import mistakes_in
from handrail.prompt import Tool, ToolResult

_log = logging.getLogger("handrail.runtime")

_LONGEST_MESSAGE = 2_000
"""Characters of a foreign exception's message that are told to the model."""

_NOT_APPLIED = (ToolValidationError, EffectNotApplied, VisibilityExpansionRequired, CallPostponed)

_PYDANTIC_AI = "pydantic_ai.exceptions"

_CONTROL_FLOW = frozenset({"ModelRetry", "ApprovalRequired", "CallDeferred"})
"""Exceptions of PydanticAI, by name: the runtime does not import it."""

_MISTAKE = "a mistake of the program"
"""What a model reads in the place of the text of a developer's mistake."""

_MOST_CHARACTERS = 16_000
"""How much of a traceback is kept with an effect; its end says most."""


class CallRefusedError(Exception):
    """A step of the pipeline says no; the message is for the model. Never leaves the runtime."""


class HandlerTimeoutError(CallRefusedError):
    """The handler took longer than its timeout. It may still be running."""

    def __init__(self, tool: Tool[Any, Any], timeout: timedelta) -> None:
        super().__init__(
            f"{tool.name} was stopped after its timeout of {timeout.total_seconds():g} s, and its changes were undone."
        )


class FinalRefusal(CallRefusedError):
    """A refusal that is decided: the same call, asked again under its identity, is answered with it from the record."""


class Denial(FinalRefusal):
    """A policy or an approver has decided that a call may not run; the same call, asked again, is refused again."""


class Failure(NamedTuple):
    """What an exception becomes.

    Attributes:
        result: the failed result that is recorded, and told to the model if nothing is raised.
        raises: what leaves the pipeline; `None` when the model is told instead.
    """

    result: ToolResult[Any]
    raises: BaseException | None


def failure_of(error: BaseException, tool_name: str) -> Failure:
    """Decide what an exception becomes; the table above, row by row. `tool_name` is for the log and the message."""
    if is_for_model(error):
        return Failure(ToolResult.error(without_mistakes(str(error), error)), None)
    if isinstance(error, DeadlineExceededError):
        ends = PromptEvaluationError(f"{tool_name}: {error}", phase="tool", tool=tool_name)
        ends.__cause__ = error
        return Failure(ToolResult.error(str(ends)), ends)
    if isinstance(error, RunAbortedError | CallPostponed) or not isinstance(error, Exception) or mistakes_in(error):
        return Failure(ToolResult.error(f"{tool_name} was ended by {describe_error(error)}"), error)
    _log.error("%s failed with %s", tool_name, type(error).__name__, exc_info=error)
    return Failure(ToolResult.error(f"{tool_name} failed: {describe_error(error)}"), None)


def is_for_model(error: BaseException) -> bool:
    """Whether the message of an exception was written for the model: a refusal, or one of the tree's branch for it."""
    return isinstance(error, CallRefusedError | ParseError | ModelVisibleError)


def handler_mismatch(tool: Tool[Any, Any], error: TypeError) -> CallRefusedError:
    """What to say when calling the handler, not the handler, raised `TypeError`."""
    params = "None" if tool.params_type is None else tool.params_type.__name__
    return CallRefusedError(
        f"{tool.name} could not be called: {error}. "
        f"Its handler must accept (params: {params}, *, context: ToolContext)."
    )


def describe_error(error: BaseException) -> str:
    """An exception in words for the model: type and message, cut; of what is no `Exception`, the type alone."""
    name = type(error).__name__
    if not isinstance(error, Exception):
        return name  # who cancelled, and where, is none of the model's business
    try:
        message = without_mistakes(str(error), error)
    except Exception:  # noqa: BLE001 - an exception that cannot say what it is must not become another one
        return name
    return f"{name}: {truncate(message)}" if message not in {"", name} else name


def without_mistakes(text: str, error: BaseException) -> str:
    """What an exception says, without the texts of developer's mistakes that it was raised from.

    An exception that is a mistake says what it says: it is raised to the developer.
    """
    for mistake in _mistakes_behind(error):
        quoted = str(mistake)
        for form in (quoted, repr(quoted)[1:-1]):
            text = text.replace(form, _MISTAKE) if form else text
    return text


def _mistakes_behind(error: BaseException) -> list[DeveloperMistake]:
    """The mistakes that an exception was raised from or while they were handled, and those of its subscribers."""
    found: list[DeveloperMistake] = []
    seen = {id(error)}
    unseen: list[BaseException] = [error]
    while unseen:
        each = unseen.pop()
        if isinstance(each, DeveloperMistake) and each is not error:
            found.append(each)
        behind = [each.__cause__, each.__context__]
        if isinstance(each, BaseExceptionGroup):
            behind += cast("BaseExceptionGroup[BaseException]", each).exceptions  # of whatever it is
        if isinstance(each, DispatchError):
            behind += [failure for _, failure in each.failures]
        new = [one for one in behind if one is not None and id(one) not in seen]
        seen.update(map(id, new))
        unseen += new
    return found


def truncate(text: str) -> str:
    """A text of somebody else's, as long as a model should be made to read."""
    return text if len(text) <= _LONGEST_MESSAGE else f"{text[:_LONGEST_MESSAGE]}... ({len(text)} characters)"


def unknown_because(error: BaseException, tool: Tool[Any, Any], *, entered: bool) -> str | None:
    """Why it is not known whether an effect was applied, for people; `None` if it surely was not.

    The first line names the exception; the traceback follows.

    Args:
        error: what has ended the handler.
        tool: the tool.
        entered: whether the handler may have run its first line.
    """
    if tool.external is None:
        return _described(error) if isinstance(error, EffectUncertain) else None
    if not entered or _was_not_applied(error, tool.external.not_applied_on):
        return None
    return _described(error)


def _was_not_applied(error: BaseException, declared: tuple[type[Exception], ...]) -> bool:
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)  # of whatever it is
        return all(_was_not_applied(member, declared) for member in group.exceptions)
    if isinstance(error, EffectUncertain):
        return False
    return isinstance(error, (*_NOT_APPLIED, *declared)) or _is_control_flow(error)


def _is_control_flow(error: BaseException) -> bool:
    return any(kind.__module__ == _PYDANTIC_AI and kind.__qualname__ in _CONTROL_FLOW for kind in type(error).__mro__)


def _described(error: BaseException) -> str:
    first = describe_error(error).replace("\n", " ")
    if not isinstance(error, Exception):
        return f"its call was ended by {first}"
    if isinstance(error, HandlerTimeoutError):
        return str(error)  # where the runtime stopped waiting says nothing of the handler
    if isinstance(error, EffectUncertain):
        first = without_mistakes(str(error), error)
        if error.__cause__ is None:
            return first
    elif isinstance(error, DeveloperMistake):  # the model reads the first line
        first = _MISTAKE
    lines = "".join(traceback.format_exception(error))
    if len(lines) > _MOST_CHARACTERS:
        lines = f"[... {len(lines) - _MOST_CHARACTERS:,} characters left out ...]\n{lines[-_MOST_CHARACTERS:]}"
    return f"{first}\n{lines}"
