"""Assembles the commands, runs one, and reports its errors.

`handrail completion` prints what a shell needs to complete commands, options and files.
"""

from __future__ import annotations

import io
import logging
import os
import sys
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from importlib.metadata import version
from typing import IO, Annotated, Literal

from cyclopts import App, CycloptsError, Parameter

from handrail.cli.agents.commands import CHECK_CODES, NEW_CODES, RUN_CODES, RUN_USAGE, check_agent, new_agent, run_agent
from handrail.cli.approvals.answer import ANSWER_USAGE, answer_question
from handrail.cli.approvals.show import list_questions, show_question
from handrail.cli.ledger.changes import invalidate_effects, prune_effects, reconcile_effect
from handrail.cli.ledger.show import list_effects, show_effect
from handrail.cli.options import GONE, folder_here, os_error_text
from handrail.cli.process_exit import FAILED, READER_GONE, USAGE
from handrail.cli.screen import (
    Debug,
    GuardedStream,
    OutputError,
    ReaderGoneError,
    Screen,
    debugging,
    is_set,
    show_traceback,
    without_option,
)
from handrail.cli.sessions.removal import delete_sessions, prune_sessions
from handrail.cli.sessions.show import fork_session, list_sessions, show_session
from handrail.errors import HandrailError

_SILENCE = logging.NullHandler()
"""The logger of the libraries: an error is reported once, by the exception."""

_HELP = """Run agents in which every tool call is a transaction, inspect a store of sessions and effects, answer calls
that wait for approval, and resolve effects that need a human decision.

The store is named by --store URL, or for all commands by the environment variable HANDRAIL_STORE. --debug, or the
environment variable HANDRAIL_DEBUG, shows tracebacks. Every command has a help: handrail ledger reconcile --help.
"""
_EXIT_CODES = """Exit codes: 0 done; 1 refused, failed, not found, or the store cannot be used; 2 the command line is
wrong; 3 a run waits for approvals; 130 interrupted by Ctrl-C; 141 output pipe closed."""

CompletionShell = Literal["bash", "zsh", "fish"]
"""The shells with a completion script."""

_COMPLETION_HELP = """Print the script with which a shell completes the commands and options of `handrail`.

Install it once, and again after an upgrade:

* bash: `handrail completion bash > ~/.local/share/bash-completion/completions/handrail`
* zsh: `handrail completion zsh > ~/.zfunc/_handrail`, with `fpath+=~/.zfunc` before `compinit` in `~/.zshrc`
* fish: `handrail completion fish > ~/.config/fish/completions/handrail.fish`

Then start a new shell.
"""


def application() -> App:
    """All commands under one name."""
    app = App(
        name="handrail",
        help=_HELP,
        help_epilogue=_EXIT_CODES,
        help_format="markdown",
        version=lambda: version("handrail"),
        suppress_keyboard_interrupt=False,
        default_parameter=Parameter(negative=(), show_default=False),
    )
    app.command(run_agent, name="run", sort_key=1, help_epilogue=RUN_CODES, usage=RUN_USAGE)
    app.command(check_agent, name="check", sort_key=2, help_epilogue=CHECK_CODES)
    app.command(new_agent, name="new", sort_key=3, help_epilogue=NEW_CODES)
    sessions = App(name="sessions", sort_key=4, help="List, show, fork and delete the sessions of a store.")
    sessions.command(list_sessions, name="list", sort_key=1)
    sessions.command(show_session, name="show", sort_key=2)
    sessions.command(fork_session, name="fork", sort_key=3)
    sessions.command(delete_sessions, name="delete", sort_key=4)
    sessions.command(prune_sessions, name="prune", sort_key=5)
    approvals = App(name="approvals", sort_key=5, help="List, show and answer the questions about calls that wait.")
    approvals.command(list_questions, name="list", sort_key=1)
    approvals.command(show_question, name="show", sort_key=2)
    approvals.command(answer_question, name="answer", sort_key=3, usage=ANSWER_USAGE)
    ledger = App(name="ledger", sort_key=6, help="Show the effects of the ledger, and resolve or remove them.")
    ledger.command(list_effects, name="list", sort_key=1)
    ledger.command(show_effect, name="show", sort_key=2)
    ledger.command(reconcile_effect, name="reconcile", sort_key=3)
    ledger.command(invalidate_effects, name="invalidate", sort_key=4)
    ledger.command(prune_effects, name="prune", sort_key=5)
    app.command(sessions)
    app.command(approvals)
    app.command(ledger)
    add_completion(app)
    return app


def run(argv: Sequence[str]) -> int:
    """Run one command, and return its exit code."""
    # Before any output, also before errors of the command line are printed.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a key may have characters that the terminal cannot encode
    for name in ("handrail", "psycopg"):
        logging.getLogger(name).addHandler(_SILENCE)
    try:
        # A shell can start a process with `>&-`; without this check the work would be done, and its result lost.
        if _closed(sys.stdout):
            Screen().fault("standard output is closed; nothing was done")
            return FAILED
        words = without_option(argv)
        asked_for = len(words) < len(argv) or is_set(os.environ)
        with debugging() if asked_for else nullcontext():
            code = _run(words)
        # What is still buffered may fail as well, and must not fail at the end of the interpreter, when the exit code
        # is fixed.
        GuardedStream(sys.stdout).flush()
    except ReaderGoneError:
        _give_output_up()
        return READER_GONE
    except OutputError as error:  # for example, the disk of standard output is full
        _give_output_up()
        with suppress(OutputError):
            Screen().fault(f"the output cannot be written: {error}")
        return FAILED
    return code


def _run(argv: Sequence[str]) -> int:
    app = application()
    try:
        # Checked before parsing, because the parser would repeat such a word in its own message.
        _check_text(argv)
        answer: object = app(list(argv), result_action="return_value", exit_on_error=False, print_error=False)
    except CycloptsError as error:
        show_traceback(Screen(), error)
        # Only the words that name a command: the others may contain the password of a store.
        words = app.parse_commands(argv)[0]
        Screen().fault(f"{error} (see {' '.join(('handrail', *words, '--help'))})")
        return USAGE
    except (HandrailError, ImportError) as error:
        show_traceback(Screen(), error)
        Screen().fault(str(error))
        return FAILED
    except OutputError:
        raise
    except OSError as error:
        show_traceback(Screen(), error)
        Screen().fault(_file_fault(error))
        return FAILED
    return answer if isinstance(answer, int) else 0


def _closed(stream: IO[str] | None) -> bool:
    """Whether the process was started without the stream."""
    return stream is None


def _file_fault(error: OSError) -> str:
    """An unexpected error of a file, with its path."""
    if error.filename is not None:
        return f"{error.filename}: {os_error_text(error)}"
    if isinstance(error, FileNotFoundError) and folder_here() == GONE:
        return f"the current folder does not exist any more, so no file can be named from it: {os_error_text(error)}"
    return str(error)


def _give_output_up() -> None:
    """Discard what is still buffered; writing it at the end of the interpreter would fail again."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def _check_text(argv: Sequence[str]) -> None:
    for word in argv:
        # `isprintable` is false for lone surrogates, and fast for the common case.
        if not word.isprintable() and any("\ud800" <= character <= "\udfff" for character in word):
            raise CycloptsError(msg=f"{word!a} is not UTF-8, so a store cannot hold it")


def add_completion(app: App) -> None:
    """Add the command `completion` for all commands of an application."""

    def completion(
        shell: Annotated[CompletionShell, Parameter(metavar="SHELL", help="The shell: bash, zsh or fish.")],
        /,
        *,
        debug: Debug = False,  # noqa: ARG001 - for the help; it is removed before parsing
    ) -> int:
        Screen().raw(app.generate_completion(prog_name="handrail", shell=shell).rstrip("\n"))
        return 0

    app.command(completion, name="completion", help=_COMPLETION_HELP, sort_key=7)
