"""Whether a program's changes in the folder are kept, as a word for programs and as text for the model.

==================  ====================================================================================================
`ProgramChanges`    means
==================  ====================================================================================================
`"none"`            its rule says that it only reads
`"kept"`            the call succeeds, and they stay
`"rolled back"`     the call fails, and they are rolled back, except what `not_restored` names
`"not rolled back"`  the call fails, and they stay, because the folder is a plain folder
==================  ====================================================================================================
"""

from __future__ import annotations

import signal
from contextlib import suppress
from typing import Literal

from handrail.contrib.tools.shell.rules import ShellRule

ProgramChanges = Literal["none", "kept", "rolled back", "not rolled back"]
"""Whether a program's changes in the folder are kept."""

_TEXTS: dict[ProgramChanges, str] = {
    "kept": " Its changes in the folder are kept",
    "rolled back": " Its changes in the folder are rolled back",
    "not rolled back": " Its changes are not rolled back",
}


def changes_of(rule: ShellRule, *, commits: bool, has_filesystem: bool) -> ProgramChanges:
    """Whether the changes of a program are kept.

    Args:
        rule: the rule.
        commits: whether the call succeeds.
        has_filesystem: whether the folder is that of a filesystem, which rolls changes back.
    """
    if rule.reads:
        return "none"
    if commits:
        return "kept"
    return "rolled back" if has_filesystem else "not rolled back"


def text_of(changes: ProgramChanges, not_restored: tuple[str, ...]) -> str:
    """Whether the changes are kept, as sentences that follow others; empty if there is nothing to say."""
    text = _TEXTS.get(changes, "")
    return f"{text}, but {', and '.join(not_restored)}." if not_restored else f"{text}." if text else ""


def end_of(name: str, code: int) -> str:
    """How a program ended, by its exit code, as the beginning of a sentence; negative for the signal that killed it."""
    return f"{name} has ended with exit code {code}" if code >= 0 else f"{name} was ended by {_signal(-code)}"


def _signal(number: int) -> str:
    with suppress(ValueError):
        return signal.Signals(number).name
    return f"signal {number}"
