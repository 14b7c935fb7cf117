"""Named points at which a process may be made to die, so that people can test what their own tools leave behind.

The pipeline, the stores and the file journal call `reached` at each of their boundaries. It does nothing until
`handrail.testing.crash_at` arms it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

POINTS: Mapping[str, str] = MappingProxyType(
    {
        "before-claim": "policies and approval have said yes; nothing has been written",
        "after-claim": "the ledger says that the effect is running; the handler has not been started",
        "before-handler": "the transaction is open; the handler is about to be started",
        "after-handler": "the handler has returned; nothing of it has been recorded",
        "after-apply": "the tool's `apply` has written what belongs to the effect; nothing of it has been committed",
        "before-commit": "policies, reducers and subscribers have seen the result; nothing has been committed",
        "unit-begun": "the database transaction of a unit of work is open and empty",
        "unit-ledger-written": "it holds the row of the ledger",
        "unit-session-written": "it holds the events and changes of the session",
        "unit-group-written": "it holds one unit of several; nothing has been committed",
        "unit-before-commit": "it holds everything; the commit has not been sent to the database",
        "unit-after-commit": "the database has committed; the process does not know yet",
        "after-commit": "the call has been committed",
        "after-record": "the call has been recorded, and its message is about to be returned",
        "participant-prepared": "a participant of the program has prepared; the unit of work has not been begun",
        "participant-before-commit": "the call has been committed; a participant of the program has not",
        "participant-after-commit": "a participant of the program has committed",
        "undo-begun": "the plan of an undo has been compared and approved; nothing of it has been undone",
        "undo-call-done": "a call of the plan is undone and recorded; the next one has not been begun",
        "journal-before-image": "a path is about to change on disk; nothing about it is in the journal",
        "journal-after-image": "what was at the path is in the journal, safely; the path has not been touched",
        "journal-after-change": "the path has been changed",
        "journal-prepared": "the changed files are safely on disk, and the journal is complete",
        "journal-before-discard": "the call has been committed; the journal could still undo its files",
        "journal-after-discard": "the journal is removed, or kept for undo",
    }
)
"""Every point by its name, with what is true there."""

# Of the process: the points are of its life, and it is the process that ends at one.
_hook: Callable[[str], object] | None = None


def reached(point: str) -> None:
    """Records that the process has come to a point, one of `POINTS`."""
    if _hook is not None:
        _hook(point)


def arm(hook: Callable[[str], object] | None) -> None:
    """Calls `hook` with the name of every point that this process reaches; `None` ends it."""
    global _hook  # noqa: PLW0603 - one process has one hook, because it has one life
    _hook = hook
