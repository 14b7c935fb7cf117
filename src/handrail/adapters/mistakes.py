"""The developer's mistakes of one reply: held until its other calls have ended, then raised as one exception.

Each is an exception in which `handrail.errors.mistakes.mistakes_in` finds one.
"""

from __future__ import annotations

from collections.abc import Sequence

from handrail.errors.mistakes import mistakes_in


def first_of(mistakes: Sequence[BaseException]) -> BaseException:
    """The first of one or more mistakes, with the others as notes on it."""
    first, *others = mistakes
    note_mistakes(first, others)
    return first


def note_mistakes(error: BaseException, mistakes: Sequence[BaseException]) -> None:
    """Add mistakes as notes to an exception that is raised instead of them; of a group, all that it holds."""
    for held in mistakes:
        if held is not error:
            for mistake in mistakes_in(held):
                error.add_note(f"another call of the reply: {type(mistake).__name__}: {mistake}")
