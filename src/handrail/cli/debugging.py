"""Tracebacks, for who asks for them: `--debug` on any command, or `HANDRAIL_DEBUG=1`.

Without them a command says in one line what went wrong. With them the traceback stands above that line, and that of
every tool, policy and subscriber that raises while the run goes on is shown, too.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import takewhile
from typing import Annotated

from cyclopts import Parameter

from handrail.cli.screen import Screen

VARIABLE = "HANDRAIL_DEBUG"
"""The environment variable that asks for tracebacks, unless it is empty or says no."""

OPTION = "--debug"
"""The option that does."""

_HELP = f"Show the traceback of whatever is raised. {VARIABLE}=1 does so for all commands."
Debug = Annotated[bool, Parameter(name=OPTION, help=_HELP)]
"""The option as a parameter, for the help of a command and for completion; `without_option` takes it out before."""

_NO = frozenset({"", "0", "no", "off", "false"})
_DEBUGGING: ContextVar[bool] = ContextVar("handrail_debugging", default=False)


def without_option(argv: Sequence[str]) -> list[str]:
    """A command line without the option, wherever it stands before `--`: before the command, too.

    It is taken out before the command line is parsed, because that may fail.
    """
    options = list(takewhile(lambda word: word != "--", argv))
    return [*(word for word in options if word != OPTION), *argv[len(options) :]]


def is_set(environment: Mapping[str, str]) -> bool:
    """Whether the environment asks for tracebacks."""
    return environment.get(VARIABLE, "").strip().lower() not in _NO


@contextmanager
def debugging() -> Generator[None]:
    """A block in which what is raised is shown with its traceback, and what is logged with one too."""
    handler = _Tracebacks()
    log = logging.getLogger("handrail")
    log.addHandler(handler)
    token = _DEBUGGING.set(True)
    try:
        yield
    finally:
        _DEBUGGING.reset(token)
        log.removeHandler(handler)


def show_traceback(screen: Screen, error: BaseException) -> None:
    """Print the traceback of an error that is about to be told, if tracebacks are asked for."""
    if _DEBUGGING.get():
        screen.trace("".join(traceback.format_exception(error)))


class _Tracebacks(logging.Handler):
    """Prints the tracebacks of what is logged: exceptions that a run survives are shown nowhere else."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1] is not None:
            Screen().trace("".join(traceback.format_exception(record.exc_info[1])))
