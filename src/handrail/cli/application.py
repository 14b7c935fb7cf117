"""Assembles the commands, runs one, and reports its errors.

`handrail completion` prints what a shell needs to complete commands, options and files.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from typing import IO, Annotated, Literal, cast

from cyclopts import App, CycloptsError, Parameter
from rich.console import Console

from handrail import __version__
from handrail.cli.command_table import COMMANDS, EXIT_CODES, HELP, answer_without_command
from handrail.cli.output_streams import OutputError, UnpaddedStream, print_guarded
from handrail.cli.paths import file_fault
from handrail.cli.process_exit import FAILED, USAGE
from handrail.cli.screen import Debug, Screen, debugging, is_set, show_traceback, without_option
from handrail.errors import HandrailError

_SILENCE = logging.NullHandler()
"""The logger of the libraries: an error is reported once, by the exception."""

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
    """All commands under one name. A command is imported when it is used, from the path that the table has."""
    app = App(
        name="handrail",
        help=HELP,
        help_epilogue=EXIT_CODES,
        help_format="markdown",
        version=__version__,
        suppress_keyboard_interrupt=False,
        default_parameter=Parameter(negative=(), show_default=False),
        console=Console(file=cast("IO[str]", UnpaddedStream(sys.stdout))),  # it delegates the rest to the stream
    )
    for place, entry in enumerate(COMMANDS, 1):
        if entry.path is None:
            add_completion(app, sort_key=place)
        else:
            app.command(entry.path, name=entry.name, sort_key=place, **entry.settings)
    return app


def run(argv: Sequence[str]) -> int:
    """Run one command, and return its exit code."""
    for name in ("handrail", "psycopg"):
        logging.getLogger(name).addHandler(_SILENCE)
    words = without_option(argv)
    asked_for = len(words) < len(argv) or is_set(os.environ)
    with debugging() if asked_for else nullcontext():
        return _run(words)


def _run(argv: Sequence[str]) -> int:
    answer = answer_without_command(argv, sys.stdout)
    if answer is not None:
        return print_guarded(answer)
    app = application()
    try:
        # Checked before parsing, because the parser would repeat such a word in its own message.
        _check_text(argv)
        code: object = app(list(argv), result_action="return_value", exit_on_error=False, print_error=False)
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
        Screen().fault(file_fault(error))
        return FAILED
    return code if isinstance(code, int) else 0


def _check_text(argv: Sequence[str]) -> None:
    for word in argv:
        # `isprintable` is false for lone surrogates, and fast for the common case.
        if not word.isprintable() and any("\ud800" <= character <= "\udfff" for character in word):
            raise CycloptsError(msg=f"{word!a} is not UTF-8, so a store cannot hold it")


def add_completion(app: App, *, sort_key: int) -> None:
    """Add the command `completion` for all commands of an application."""

    def completion(
        shell: Annotated[CompletionShell, Parameter(metavar="SHELL", help="The shell: bash, zsh or fish.")],
        /,
        *,
        debug: Debug = False,  # noqa: ARG001 - for the help; it is removed before parsing
    ) -> int:
        Screen().raw(app.generate_completion(prog_name="handrail", shell=shell).rstrip("\n"))
        return 0

    app.command(completion, name="completion", help=_COMPLETION_HELP, sort_key=sort_key)
