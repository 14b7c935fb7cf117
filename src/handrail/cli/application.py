"""Assembles the commands, each of which is imported when it is used, runs one, and reports its errors."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from contextlib import nullcontext

from cyclopts import App, CycloptsError, Parameter, UnknownCommandError, UnusedCliTokensError
from rich.console import Console

from handrail import __version__
from handrail.cli.process_exit import FAILED, USAGE, OutputError
from handrail.cli.screen import Screen, debugging, is_set, show_traceback, without_option
from handrail.errors import DocumentError, HandrailError, InvalidArgumentError

_HELP = """Run agents in which every tool call is a transaction, inspect a store of sessions and effects, answer calls
that wait for approval, and resolve effects that need a human decision.

The store is named by --store URL, or for all commands by the environment variable HANDRAIL_STORE. --debug, or the
environment variable HANDRAIL_DEBUG, shows tracebacks. Every command has a help: handrail ledger reconcile --help.
The documentation is printed by handrail docs; the page of the commands by handrail docs command-line.
"""

EXIT_CODES = """Exit codes: 0 done; 1 refused, failed, not found, or the store cannot be used; 2 the command line, or a
file or model that it names, is invalid, and nothing has run; 3 a run waits for approvals, or left an effect unknown; 75
a run has lost its session or store: try again; 129 or 143 a run was ended by SIGHUP or SIGTERM; 130 interrupted by
Ctrl-C; 141 output pipe closed."""
"""The exit codes of all commands together."""

_COMMANDS: Mapping[str, tuple[str, str | Mapping[str, str]]] = {
    "run": ("Run an agent to its answer.", "handrail.cli.agents:run_agent"),
    "apply": (
        "Execute exactly the plan that handrail run --plan has written, once it is approved.",
        "handrail.cli.agents:apply_plan_file",
    ),
    "check": (
        "Check an agent without a model: all files of its project, all names, and the tools of a run.",
        "handrail.cli.agents:check_agent",
    ),
    "new": (
        "Make the folder of a new agent that runs: agent file, tools, approval rules, settings, and a test.",
        "handrail.cli.agents:new_agent",
    ),
    "sessions": (
        "List, show, fork, export and delete the sessions of a store.",
        {
            "list": "handrail.cli.sessions.listing:list_sessions",
            "show": "handrail.cli.sessions.show:show_session",
            "fork": "handrail.cli.sessions.show:fork_session",
            "export": "handrail.cli.replay:export_session",
            "delete": "handrail.cli.sessions.removal:delete_sessions",
            "prune": "handrail.cli.sessions.removal:prune_sessions",
        },
    ),
    "approvals": (
        "List, show and answer the questions about calls that wait.",
        {
            "list": "handrail.cli.approvals:list_questions",
            "show": "handrail.cli.approvals:show_question",
            "answer": "handrail.cli.approvals:answer_question",
        },
    ),
    "ledger": (
        "Show the effects of the ledger, resolve them, and remove expired ones.",
        {
            "list": "handrail.cli.ledger:list_effects",
            "show": "handrail.cli.ledger:show_effect",
            "reconcile": "handrail.cli.ledger:reconcile_effect",
            "prune": "handrail.cli.ledger:prune_effects",
        },
    ),
    "undo": (
        "Undo the calls of a session: what they changed is restored, and what they did outside is compensated.",
        "handrail.cli.undo:undo_calls",
    ),
    "replay": (
        "Run a recorded session again on copies, and compare each call: exit code 1 if something differs.",
        "handrail.cli.replay:replay_session",
    ),
    "worker": (
        "Carry out the runs that are submitted, and those of workers that have died.",
        "handrail.cli.worker:run_worker",
    ),
    "submit": (
        "Hand a run to workers. The session is its key: submitted twice, it is one run.",
        "handrail.cli.runs:submit_run",
    ),
    "runs": (
        "List, show and await the runs of workers, cancel them, and have them carried out again.",
        {
            "list": "handrail.cli.runs:list_runs",
            "show": "handrail.cli.runs:show_run",
            "wait": "handrail.cli.runs:wait_for_run",
            "cancel": "handrail.cli.runs:cancel",
            "retry": "handrail.cli.runs:retry",
        },
    ),
    "view": (
        (
            "Look at sessions in a browser, while they run: what was said, and each call with its times, changes and "
            "effect."
        ),
        "handrail.cli.view:view_session",
    ),
    "backup": (
        "Copy a store of SQLite into a file, also while programs use it.",
        "handrail.cli.backup:back_up",
    ),
    "proxy": (
        "Put MCP servers behind Handrail: each call of a client is validated, judged by rules, and recorded.",
        "handrail.cli.mcp:serve_proxy",
    ),
    "serve": (
        "Serve tools to MCP clients: those of an agent, or of a prompt, a section or a list in a Python module.",
        "handrail.cli.mcp:serve_tools",
    ),
    "docs": ("Print a page of the documentation, or list all.", "handrail.cli.pages:print_page"),
}
"""The commands by name, in the order of the help: a sentence for each, and where it, or each of a group, is defined."""

# The logger of the libraries: an error is reported once, by the exception.
_SILENCE = logging.NullHandler()


def application(words: Sequence[str] = tuple(_COMMANDS)) -> App:
    """All commands under one name; those that `words` do not name are listed without being imported."""
    app = App(
        name="handrail",
        help=_HELP,
        help_epilogue=EXIT_CODES,
        help_format="markdown",
        version=__version__,
        suppress_keyboard_interrupt=False,
        default_parameter=Parameter(negative=(), show_default=False),
        console=Console(file=Screen().out.file),  # which has a width in a pipe, too
    )
    for place, (name, (summary, target)) in enumerate(_COMMANDS.items()):
        if isinstance(target, str):
            # The summary would replace the whole help of a command that is imported.
            app.command(target, name=name, help=None if name in words else summary, sort_key=place)
            continue
        group = App(name=name, help=summary, sort_key=place)
        for position, (command, path) in enumerate(target.items()):
            group.command(path, name=command, sort_key=position)
            if name in words and not any(subcommand in words for subcommand in target):
                group.parse_commands((command,))  # which imports it, for the help of the group
        app.command(group)
    return app


def run(argv: Sequence[str]) -> int:
    """Runs one command, and returns its exit code."""
    for name in ("handrail", "psycopg"):
        logging.getLogger(name).addHandler(_SILENCE)
    words = without_option(argv)
    asked_for = len(words) < len(argv) or is_set(os.environ)
    with debugging() if asked_for else nullcontext():
        return _run(words)


def _run(argv: Sequence[str]) -> int:
    app = application(argv)
    try:
        code: object = app(list(argv), result_action="return_value", exit_on_error=False, print_error=False)
    except (CycloptsError, InvalidArgumentError, OverflowError) as error:
        show_traceback(Screen(), error)
        # Only the words that name a command: the others may contain the password of a store.
        words = app.parse_commands(argv)[0]
        more = "there are more words than arguments; put a text with spaces in quotes"
        text: object = more if isinstance(error, UnusedCliTokensError) else error
        if isinstance(error, UnknownCommandError) and not words:
            text = _unknown_text(argv)
        if isinstance(error, OverflowError):
            text = f"a number, a time or a span of time is too large: {error}"
        Screen().fault(f"{text} (see {' '.join(('handrail', *words, '--help'))})")
        return USAGE
    except OutputError:
        raise
    except (HandrailError, ImportError, OSError, UnicodeError) as error:
        show_traceback(Screen(), error)
        # The module of a command names the extra that it needs; cyclopts raises another error from that one.
        Screen().fault(str(error.__cause__ if type(error.__cause__) is ImportError else error))
        return USAGE if isinstance(error, DocumentError) else FAILED
    return code if isinstance(code, int) else 0


def _unknown_text(argv: Sequence[str]) -> str:
    # The text of cyclopts lists the commands, for which it imports each, and some need other extras.
    from handrail.serde.formatting import nearest  # noqa: PLC0415 - a help needs none of it

    near = nearest(argv[0], (*_COMMANDS, "--help", "--version"))
    return f"there is no command {argv[0]}" + (f"; did you mean {near}?" if near else "")
