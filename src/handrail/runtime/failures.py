"""Maps the exceptions that a step lets through to their outcome, for the model and for the effect.

| raised by a step, a handler, a policy, a reducer or a subscriber | becomes |
|---|---|
| `CallRefusedError` (a step of the pipeline refuses), `ParseError` | failed result with its message |
| `ModelVisibleError`: `ToolValidationError`, `ReadOnlyViolation`, `EffectUncertain`, ... | failed result, its message |
| `TypeError` from calling the handler wrongly | failed result that states what the handler must accept |
| `HandlerTimeoutError` | failed result with its message |
| `VisibilityExpansionRequired`, `PromptEvaluationError`, `BudgetExceededError` | raised again |
| `SessionLostError` of the session of the run | `RecordingError`, raised |
| a `StoreError` when a record is read or an effect claimed, one of `STORE_GONE` at a commit | the same |
| `DeadlineExceededError` | `PromptEvaluationError(phase="tool")`, raised |
| `CancelledError` of what the call awaited, while the call is not being cancelled | failed result |
| any other `CancelledError`, `KeyboardInterrupt`, any other `BaseException` | raised again |
| `CallPostponed` | raised again, and not recorded: the call will be repeated |
| `DeveloperMistake`: nothing is bound, a policy returned no decision | raised again, after the reply's other calls |
| an `ExceptionGroup` that holds one, at any depth | the same |
| `CallIdReusedError` | the same, and not recorded: only the other call has a record |
| any other `Exception` | logged with its traceback; failed result with type and message |

In each case the call is rolled back first, and one `ToolInvoked` is recorded after (`handrail.runtime.invoke`). A
postponed call is recorded when it runs.

An exception that a program raises from a developer's mistake, or while it handles one, is the program's own: it fails
the call. The model does not read the text of the mistake, nor that of an error of the store, which names paths, hosts
and users: both are replaced (`HandrailError.text_for_model`). Secrets are removed from all texts of exceptions
(`handrail.redaction`).

How the end of a handler determines its external effect:

| an external handler | its effect is |
|---|---|
| returned a result that is a success | applied |
| returned `ToolResult.error(...)` | not applied |
| was not entered: its signature does not match, the deadline had passed | not applied |
| raised `ToolValidationError` or `EffectNotApplied` | not applied |
| raised `VisibilityExpansionRequired`, `CallPostponed`, or control flow of PydanticAI, and made no call | not applied |
| raised a type in `External.not_applied_on` | not applied |
| raised an `ExceptionGroup` | not applied, if that holds for each of its members |
| raised anything else, overran its time, was cancelled; returned a generator or a future | unknown |

The effect of any other tool is undone with the call, so it was not applied, unless the handler raises
`EffectUncertain`.

A handler may be a function that was written for PydanticAI, and steer the run by its exceptions:

| a handler raised, of PydanticAI | is |
|---|---|
| `ModelRetry`, `ToolFailed` | `ToolValidationError`: failed result with its message |
| `ApprovalRequired`, `CallDeferred` | `CallPostponed`: the call will be repeated |
| `UsageLimitExceeded` | `PromptEvaluationError(phase="budget")`: the run ends |
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from contextlib import suppress
from typing import Any, cast

from handrail.errors import (
    CallPostponed,
    DeadlineExceededError,
    DeveloperMistake,
    DispatchError,
    EffectNotApplied,
    EffectUncertain,
    HandrailError,
    ModelVisibleError,
    ParseError,
    PromptEvaluationError,
    RunAbortedError,
    StoreCorruptError,
    StoreReadOnlyError,
    StoreUnavailableError,
    StoreVersionError,
    ToolValidationError,
    VisibilityExpansionRequired,
)
from handrail.errors.developer import mistakes_in
from handrail.prompt import Tool, ToolResult
from handrail.redaction import redacted, redacted_logger
from handrail.runtime.calls import Step
from handrail.serde.formatting import shorten

_log = redacted_logger("handrail.runtime")

LONGEST_MESSAGE = 2_000
"""Characters of a foreign text that the model reads."""

_PYDANTIC_AI = "pydantic_ai.exceptions"

# Exceptions of PydanticAI, by name: the runtime does not import it.
_REFUSALS = frozenset({"ModelRetry", "ToolFailed"})

_POSTPONING = frozenset({"ApprovalRequired", "CallDeferred"})

STORE_GONE = (StoreUnavailableError, StoreReadOnlyError, StoreCorruptError, StoreVersionError)
"""Errors at a commit that no other call would escape. Any other `StoreError` is about what this call has written."""

SECRETS_GONE = "the secrets that it began with are not stored"
"""Why the result of an effect is not applied in another process; see `cannot_apply`."""


class CallRefusedError(Exception):
    """A step of the pipeline refuses the call; the message is for the model. Never leaves the runtime."""


class OutcomeUnknownError(CallRefusedError):
    """The effect of the call was started before, and its outcome is unknown."""


class HandlerTimeoutError(CallRefusedError):
    """The handler took longer than its timeout. It may still be running."""


class HandlerMismatchError(CallRefusedError):
    """The handler cannot be called with the arguments that handlers are given, and has not run its first line."""


class FinalRefusal(CallRefusedError):
    """A final refusal, as that of a policy: a repeat of the call under its identity is answered with it."""


_NOT_APPLIED = (ToolValidationError, EffectNotApplied, VisibilityExpansionRequired, CallPostponed, HandlerMismatchError)


def describe_outcome(error: BaseException, tool_name: str) -> tuple[ToolResult[Any], BaseException | None]:
    """The outcome of an exception, by the table above.

    Returns:
        The failed result, which is recorded; and what leaves the pipeline, `None` if the result is sent to the model.
    """
    if is_for_model(error):
        return ToolResult.error(text_for_model(error)), None
    if isinstance(error, DeadlineExceededError):
        ends = PromptEvaluationError(f"{tool_name}: {error}", phase="tool", tool=tool_name)
        ends.__cause__ = error
        return ToolResult.error(redacted(str(ends))), ends
    if isinstance(error, RunAbortedError | CallPostponed) or not isinstance(error, Exception) or mistakes_in(error):
        return ToolResult.error(f"{tool_name} was ended by {describe_error(error)}"), error
    # What Handrail raises says what to do; the program's own exceptions stand at the end of the traceback.
    reason = f": {error}" if isinstance(error, HandrailError) else ""
    _log.error("%s failed with %s%s", tool_name, type(error).__name__, reason, exc_info=error)
    return ToolResult.error(f"{tool_name} failed: {describe_error(error)}"), None


def is_for_model(error: BaseException) -> bool:
    """True if the message of an exception is for the model: a refusal, or a `ModelVisibleError`."""
    return isinstance(error, CallRefusedError | ParseError | ModelVisibleError)


def safe_refusal(error: ToolValidationError) -> ToolValidationError:
    """A copy of a handler's refusal of its call, without secrets, and of the exception of PydanticAI behind it."""
    refusal = ToolValidationError(redacted(str(error)))
    if error.__cause__ is not None and (kind := _kind_of_pydantic_ai(error.__cause__, _REFUSALS)) is not None:
        refusal.__cause__ = kind(redacted(str(error.__cause__)))
    return refusal


def handler_mismatch(tool: Tool[Any, Any], error: TypeError) -> HandlerMismatchError:
    """The error when calling the handler, not the handler itself, raised `TypeError`."""
    params = "None" if tool.params_type is None else tool.params_type.__name__
    return HandlerMismatchError(
        f"{tool.name} could not be called: {error}. "
        f"Its handler must accept (params: {params}, *, context: ToolContext)."
    )


def describe_error(error: BaseException) -> str:
    """An exception as the model reads it: type and message, shortened; the type alone if it is not an `Exception`."""
    name = type(error).__name__
    if isinstance(error, Exception):  # the model does not need to know who cancelled
        with suppress(Exception):  # one whose text cannot be formatted must not raise another one
            message = text_for_model(error)
            return f"{name}: {shorten(message, LONGEST_MESSAGE)}" if message not in {"", name} else name
    return name


def text_for_model(error: BaseException, text: str | None = None) -> str:
    """The text of an exception as a model may read it, without secrets and causes; its own text is `text` or `str`."""
    if text is None:
        text = str(error)
        if isinstance(error, HandrailError) and not isinstance(error, DeveloperMistake):
            text = error.text_for_model or text
    # What it was raised from, or while it was handled: developer's mistakes and errors of the store.
    for hidden in _list_chain(error)[1:]:
        if not isinstance(hidden, HandrailError) or not hidden.text_for_model:
            continue
        hidden_text = str(hidden)
        # As text, and in the form inside quotes: the text of a `KeyError` is the `repr` of its argument.
        for form in (hidden_text, repr(hidden_text)[1:-1]):
            text = text.replace(form, hidden.text_for_model) if form else text
    return redacted(text)


def _list_chain(error: BaseException) -> list[BaseException]:
    """An exception, and those that it was raised from, or while they were handled, or that it groups."""
    errors = [error]
    for link in errors:  # which grows meanwhile
        behind = [link.__cause__, link.__context__]
        if isinstance(link, BaseExceptionGroup):
            behind += cast("BaseExceptionGroup[BaseException]", link).exceptions  # of whatever it is
        if isinstance(link, DispatchError):
            behind += [failure for _, failure in link.failures]
        for one in behind:  # a program may set `__context__` itself, so chains may share exceptions or be circular
            if one is not None and not any(one is other for other in errors):
                errors.append(one)
    return errors


def unknown_because(error: BaseException, tool: Tool[Any, Any]) -> str | None:
    """Why it is unknown if an effect was applied, in one line; `None` if it certainly was not."""
    if tool.external is None:
        return _described(error) if isinstance(error, EffectUncertain) else None
    return None if _was_not_applied(error, tool.external.not_applied_on) else _described(error)


def _was_not_applied(error: BaseException, types: tuple[type[Exception], ...]) -> bool:
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)  # of whatever it is
        return all(_was_not_applied(member, types) for member in group.exceptions)
    if isinstance(error, EffectUncertain):
        return False
    steers = _kind_of_pydantic_ai(error, _REFUSALS | _POSTPONING) is not None
    return steers or isinstance(error, (*_NOT_APPLIED, *types))


def raise_as_meant(error: BaseException, tool_name: str) -> None:
    """Raises what a handler means by an exception of PydanticAI, by the table above; does nothing for any other one."""
    if _kind_of_pydantic_ai(error, _REFUSALS):
        raise ToolValidationError(str(error)) from error
    if _kind_of_pydantic_ai(error, _POSTPONING):
        why = str(error) or f"its handler raised {type(error).__name__}"
        raise CallPostponed(f"{tool_name} is postponed: {why}") from error
    if _kind_of_pydantic_ai(error, {"UsageLimitExceeded"}):
        raise PromptEvaluationError(f"{tool_name}: {error}", phase="budget", tool=tool_name) from error


def _kind_of_pydantic_ai(error: BaseException, names: AbstractSet[str]) -> type[BaseException] | None:
    # Over all base classes, so that a subclass that the program defines counts too.
    kinds = (kind for kind in type(error).__mro__ if issubclass(kind, BaseException))
    return next((kind for kind in kinds if kind.__module__ == _PYDANTIC_AI and kind.__qualname__ in names), None)


def _described(error: BaseException) -> str:
    if isinstance(error, DeveloperMistake):
        return error.text_for_model  # which the model may read
    is_own = isinstance(error, HandlerTimeoutError | EffectUncertain)
    text = (text_for_model(error) if is_own else describe_error(error)).replace("\n", " ")
    return text if isinstance(error, Exception) else f"its call was ended by {text}"


def cannot_apply(tool_name: str, why: str) -> str:
    """The message for an effect that has happened, and whose result the program cannot apply, because of `why`."""
    return (
        f"{tool_name} took effect, and was not run again. Its result cannot be applied, because {why}. Do not ask for "
        "it again; a person has to see to it."
    )


def as_sentence(text: str) -> str:
    """The text with its final punctuation, so that another sentence can follow."""
    return text + ("" if text.endswith("\n") else " " if text.endswith((".", "!", "?", ":")) else ". ")


def is_final_refusal(error: BaseException, step: Step) -> bool:
    """True if an exception refuses a call because of its request, and not because of the current state.

    Arguments that do not parse never will. The cause of any other exception may be temporary.
    """
    if isinstance(error, CallRefusedError):
        return isinstance(error, FinalRefusal)
    return step is Step.PARSE or (step is Step.HANDLER and isinstance(error, ToolValidationError))
