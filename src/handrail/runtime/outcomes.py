"""What the end of a handler says of its effect: the one place that decides whether it was surely not applied.

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

import traceback
from typing import Any, cast

from handrail.errors import (
    CallPostponed,
    EffectNotApplied,
    EffectUncertain,
    ToolValidationError,
    VisibilityExpansionRequired,
)
from handrail.prompt import Tool
from handrail.runtime.failures import Refusal, told

_NOT_APPLIED = (ToolValidationError, EffectNotApplied, VisibilityExpansionRequired, CallPostponed)
_PYDANTIC_AI = "pydantic_ai.exceptions"
_CONTROL_FLOW = frozenset({"ModelRetry", "ApprovalRequired", "CallDeferred"})
"""Exceptions of PydanticAI, by name: the runtime does not import it."""

_MOST_CHARACTERS = 16_000
"""How much of a traceback is kept with an effect; its end says most."""


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
    first = told(error).replace("\n", " ")
    if not isinstance(error, Exception):
        return f"its call was ended by {first}"
    if isinstance(error, Refusal | EffectUncertain) and error.__cause__ is None:
        return str(error)
    if isinstance(error, Refusal | EffectUncertain):
        first = str(error)
    lines = "".join(traceback.format_exception(error))
    if len(lines) > _MOST_CHARACTERS:
        lines = f"[... {len(lines) - _MOST_CHARACTERS:,} characters left out ...]\n{lines[-_MOST_CHARACTERS:]}"
    return f"{first}\n{lines}"
