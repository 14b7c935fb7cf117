"""Putting everything back, whatever the parts come to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextvars import ContextVar
from typing import Any, NoReturn

from handrail.errors import RollbackError
from handrail.transaction.participants import Enlisted, Snapshotable

_UNDOING: ContextVar[bool] = ContextVar("handrail_undoing", default=False)


def undoing() -> bool:
    """Whether a rollback is what calls in this context: how `restore` knows it from somebody's own wish to go back."""
    return _UNDOING.get()


def undo_all(tool: str, saved: Iterable[tuple[Snapshotable[Any], Any]], enlisted: Iterable[Enlisted]) -> None:
    """Restore each participant and settle what is enlisted, each of them even if one before it raised.

    Args:
        tool: name of the tool whose call is undone, for messages.
        saved: the participants with their snapshots, in the order of restoring.
        enlisted: what to settle after that.

    Raises:
        RollbackError: some raised an `Exception`.
        BaseException: what is not an `Exception` (Ctrl-C) goes on when all have been tried, with a note of what it met.
    """
    failures: list[tuple[object, BaseException]] = []
    token = _UNDOING.set(True)
    try:
        for participant, snapshot in saved:
            try:
                participant.restore(snapshot)
            except BaseException as error:  # noqa: BLE001 - it must not keep the others from being restored
                failures.append((participant, error))
        for part in enlisted:
            try:
                part.undone()
            except BaseException as error:  # noqa: BLE001 - as above
                failures.append((part, error))
    finally:
        _UNDOING.reset(token)
    if failures:
        _raise(tool, failures)


def _raise(tool: str, failures: Sequence[tuple[object, BaseException]]) -> NoReturn:
    """Raise for all failures at once: the first interrupt, if there is one, or else a `RollbackError`."""
    errors = [(who, error) for who, error in failures if isinstance(error, Exception)]
    interrupts = [(who, error) for who, error in failures if not isinstance(error, Exception)]
    if interrupts:
        interrupt = interrupts[0][1]
        names = ", ".join(type(who).__name__ for who, _ in interrupts)
        interrupt.add_note(f"it interrupted the restoring of {names}: the call of {tool} may not be undone in full")
        raise interrupt from (RollbackError(tool, errors) if errors else None)
    raise RollbackError(tool, errors) from errors[0][1]
