"""The one place that decides what an exception becomes.

| raised by a step, a handler, a policy, a reducer or a subscriber | becomes |
|---|---|
| `Refusal` (a step of the pipeline says no), `ParseError` | failed result with its message |
| `ToldToModel`: `ToolValidationError`, `ReadOnlyViolation`, `EffectUncertain`, ... | failed result with its message |
| `TypeError` that comes from calling the handler wrongly | failed result that says what the handler must accept |
| a handler's timeout | failed result |
| `VisibilityExpansionRequired`, `PromptEvaluationError`, `BudgetExceededError` | raised again |
| `DeadlineExceededError` | `PromptEvaluationError(phase="tool")`, raised |
| `CancelledError`, `KeyboardInterrupt`, any other `BaseException` | raised again |
| `CallPostponed` | raised again, and not recorded: the call will be made again |
| `DeveloperMistake`: nothing is bound, a policy returned no decision | raised again, after the reply's other calls |
| `CallIdReusedError` | the same, and not recorded: the record of the other call stays the only one |
| any other `Exception` | logged with its traceback; failed result with type and message |

Whatever it becomes, the call has been rolled back before, and one `ToolInvoked` is recorded after. A postponed call is
recorded when it is carried out. What an exception says of an effect outside is decided in `handrail.runtime.outcomes`.
"""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any, NamedTuple

from handrail.errors import (
    CallPostponed,
    DeadlineExceededError,
    DeveloperMistake,
    EndsRun,
    ParseError,
    PromptEvaluationError,
    ToldToModel,
)
from handrail.prompt import Tool, ToolResult

_log = logging.getLogger("handrail.runtime")

_LONGEST_MESSAGE = 2_000
"""Characters of a foreign exception's message that are told to the model."""


class Refusal(Exception):
    """A step of the pipeline says no; the message is for the model. Never leaves the runtime."""


class FinalRefusal(Refusal):
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
        return Failure(ToolResult.error(str(error)), None)
    if isinstance(error, DeadlineExceededError):
        ends = PromptEvaluationError(f"{tool_name}: {error}", phase="tool", tool=tool_name)
        ends.__cause__ = error
        return Failure(ToolResult.error(str(ends)), ends)
    if isinstance(error, EndsRun | CallPostponed | DeveloperMistake) or not isinstance(error, Exception):
        return Failure(ToolResult.error(f"{tool_name} was ended by {told(error)}"), error)
    _log.error("%s failed with %s", tool_name, type(error).__name__, exc_info=error)
    return Failure(ToolResult.error(f"{tool_name} failed: {told(error)}"), None)


def is_for_model(error: BaseException) -> bool:
    """Whether the message of an exception was written for the model: a refusal, or one of the tree's branch for it."""
    return isinstance(error, Refusal | ParseError | ToldToModel)


def wrong_handler(tool: Tool[Any, Any], error: TypeError) -> Refusal:
    """What to say when calling the handler, not the handler, raised `TypeError`."""
    params = "None" if tool.params_type is None else tool.params_type.__name__
    return Refusal(
        f"{tool.name} could not be called: {error}. "
        f"Its handler must accept (params: {params}, *, context: ToolContext)."
    )


def overran(tool: Tool[Any, Any], timeout: timedelta) -> Refusal:
    """What to say when the handler took longer than its timeout."""
    seconds = timeout.total_seconds()
    return Refusal(f"{tool.name} was stopped after its timeout of {seconds:g} s, and its changes were undone.")


def told(error: BaseException) -> str:
    """An exception in words for the model: type and message, cut; of what is no `Exception`, the type alone."""
    name = type(error).__name__
    if not isinstance(error, Exception):
        return name  # who cancelled, and where, is none of the model's business
    try:
        message = str(error)
    except Exception:  # noqa: BLE001 - an exception that cannot say what it is must not become another one
        return name
    return f"{name}: {cut(message)}" if message else name


def cut(text: str) -> str:
    """A text of somebody else's, as long as a model should be made to read."""
    return text if len(text) <= _LONGEST_MESSAGE else f"{text[:_LONGEST_MESSAGE]}... ({len(text)} characters)"
