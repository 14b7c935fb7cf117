"""The developer's mistakes of one reply: held until its other calls have ended, then raised as one exception."""

from __future__ import annotations

from collections.abc import Sequence

from handrail.errors import DeveloperMistake


def first_of(mistakes: Sequence[DeveloperMistake]) -> DeveloperMistake:
    """The first of one or more mistakes, with the others as notes on it."""
    first, *others = mistakes
    note_mistakes(first, others)
    return first


def note_mistakes(error: BaseException, mistakes: Sequence[DeveloperMistake]) -> None:
    """Add mistakes as notes to an exception that is raised instead of them."""
    for mistake in mistakes:
        if mistake is not error:
            error.add_note(f"another call of the reply: {type(mistake).__name__}: {mistake}")
