"""Messages about problems with an agent or its run, one for each problem."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from textwrap import wrap

from handrail.agents.error_text import error_location
from handrail.cli.screen import Screen, show_traceback
from handrail.errors import AgentError, HandrailError
from handrail.serde.formatting import count_noun

_LINES = 22  # of 24: two are left for the number of the others
_COLUMNS = 80
_LONGEST_LINE = 300
_BEFORE = len("handrail: ")
_ALL_OF_THEM = "handrail check FILE --format json has all."


def problems_of(error: HandrailError) -> list[HandrailError]:
    """The problems that an error contains, in order, each once; the error itself if it is a single one."""
    if not isinstance(error, AgentError) or not error.problems:
        return [error]
    return once(problem for part in error.problems for problem in problems_of(part))


def once(problems: Iterable[HandrailError]) -> list[HandrailError]:
    """The problems, each message once."""
    # A dictionary preserves the order, and the last of several equal messages.
    return list({str(problem): problem for problem in problems}.values())


def print_problem(screen: Screen, error: HandrailError) -> None:
    """Print the problems that an error contains; see `print_problems`."""
    print_problems(screen, problems_of(error))


def print_problems(screen: Screen, problems: Sequence[HandrailError]) -> None:
    """Print problems by class, at most a screenful of each.

    If tracebacks are shown, those of all problems come first.
    """
    for problem in problems:
        show_traceback(screen, problem)
    classes: dict[str, list[str]] = defaultdict(list)
    for problem in problems:
        classes[type(problem).__name__].append(str(problem))
    for name, said in classes.items():
        messages = [fold_lines(message) for message in said]
        shown, more = within_a_screen(messages)
        for message in shown:
            screen.problem(message)
        if more:
            screen.remark(f"{count_noun(more, 'more problem')} of this class ({name}); {_ALL_OF_THEM}")


def fold_lines(message: str) -> str:
    """A message with its long lines wrapped and indented."""
    return "\n".join(part for line in message.splitlines() for part in _parts(line))


def _parts(line: str) -> list[str]:
    if len(line) <= _LONGEST_LINE:
        return [line]
    margin = " " * (len(line) - len(line.lstrip()))
    return wrap(line, _LONGEST_LINE, initial_indent=margin, subsequent_indent=f"{margin}  ", break_on_hyphens=False)


def within_a_screen(messages: Sequence[str]) -> tuple[list[str], int]:
    """As many messages as fit on a screen of 24 lines and 80 columns, and how many others there are.

    A first message that does not fit is cut, and ends with a note of that.
    """
    shown: list[str] = []
    room = _LINES
    for message in messages:
        taken = sum(_rows(line) for line in message.splitlines()) or 1
        # The first message is always shown, even if it is cut.
        if taken > room and shown:
            break
        shown.append(message if taken <= room else _cut(message))
        room -= taken
    return shown, len(messages) - len(shown)


def _rows(line: str) -> int:
    """How many lines of a screen a line needs, including its prefix."""
    # Division that rounds up.
    return -(-(len(line) + _BEFORE) // _COLUMNS)


def _cut(message: str) -> str:
    """The lines of a message that fit on a screen, and how much of it is left out."""
    kept: list[str] = []
    room = _LINES - 1
    for line in message.splitlines():
        kept.append(line[: room * _COLUMNS - _BEFORE])
        room -= _rows(line)
        if room <= 0:
            break
    text = "\n".join(kept)
    return f"{text}\n... and {count_noun(len(message) - len(text), 'more character')}; {_ALL_OF_THEM}"


def format_problem(error: BaseException, folder: Path) -> str:
    """An exception of other code: its type, message and notes, and where in the user's code it was raised.

    Args:
        error: the exception.
        folder: the folder of the project, from which paths are given.
    """
    notes = "; ".join(getattr(error, "__notes__", ()))
    place = error_location(error, folder)
    return f"{type(error).__name__}: {error}{f' ({notes})' if notes else ''}{f' [{place}]' if place else ''}"
