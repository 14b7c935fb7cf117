"""What is wrong with an agent or its run, in words: every problem for itself."""

from __future__ import annotations

import traceback
from collections.abc import Iterable

from handrail.cli.screen import Screen
from handrail.errors import AgentError, HandrailError


def problems_of(error: HandrailError) -> list[HandrailError]:
    """The problems that an error is made of, in their order, each once; the error itself if it is but one."""
    if not isinstance(error, AgentError) or not error.problems:
        return [error]
    return once(problem for part in error.problems for problem in problems_of(part))


def once(problems: Iterable[HandrailError]) -> list[HandrailError]:
    """The problems, each message once."""
    return list({str(problem): problem for problem in problems}.values())


def tell(screen: Screen, error: HandrailError) -> None:
    """Print every problem that an error is made of."""
    for problem in problems_of(error):
        screen.problem(str(problem))


def described(error: Exception) -> str:
    """An exception that is none of Handrail's: its type, its message, its notes, and where it was raised."""
    notes = "; ".join(getattr(error, "__notes__", ()))
    frames = traceback.extract_tb(error.__traceback__)
    place = f" [{frames[-1].filename}:{frames[-1].lineno}]" if frames else ""
    return f"{type(error).__name__}: {error}{f' ({notes})' if notes else ''}{place}"
