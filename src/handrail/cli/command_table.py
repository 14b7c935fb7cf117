"""The commands by name, what the help of `handrail` says of each, and where each is defined.

`handrail --help` and `handrail --version` answer from this table: without the modules of the commands, and without
the libraries that parse a command line and style its output, which take five times as long to import as Python to
start. The help looks like that of each command, which cyclopts prints.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, NamedTuple

from handrail import __version__

HELP = """Run agents in which every tool call is a transaction, inspect a store of sessions and effects, answer calls
that wait for approval, and resolve effects that need a human decision.

The store is named by --store URL, or for all commands by the environment variable HANDRAIL_STORE. --debug, or the
environment variable HANDRAIL_DEBUG, shows tracebacks. Every command has a help: handrail ledger reconcile --help.
The documentation is printed by handrail docs; the page of the commands by handrail docs command-line.
"""
"""What the command is for."""

EXIT_CODES = """Exit codes: 0 done; 1 refused, failed, not found, or the store cannot be used; 2 the command line is
wrong; 3 a run waits for approvals, or left an effect unknown; 75 a run has lost its session or store: try again; 129 or
143 a run was ended by SIGHUP or SIGTERM; 130 interrupted by Ctrl-C; 141 output pipe closed."""
"""The exit codes of all commands together."""

_RUN_CODES = """Exit codes: 0 the agent has answered; 1 the run failed; 2 the command line, or a file or model that it
names, is invalid, and nothing has run; 3 the run waits for approvals, or left an effect unknown; 75 the session was
lost, or its store does not answer: try again; 129 or 143 ended by SIGHUP or SIGTERM; 130 interrupted by Ctrl-C."""
_CHECK_CODES = (
    """Exit codes: 0 the agent can run; 1 it cannot, and every problem was listed; 2 the command line is invalid."""
)
_NEW_CODES = (
    """Exit codes: 0 the folder was made; 1 it already exists, or cannot be written; 2 the command line is invalid."""
)

# All words after AGENT_FILE are accepted, to report that INPUT needs quotes.
_RUN_USAGE = "Usage: handrail run [OPTIONS] AGENT_FILE [INPUT]"


class CommandEntry(NamedTuple):
    """A command, or a group of commands.

    Attributes:
        name: its name.
        summary: the first sentence of its help.
        path: the function, or for a group the application, as `module:name`; imported when the command is used. `None`
            for what needs all commands.
        settings: more that the parser is given.
    """

    name: str
    summary: str
    path: str | None
    settings: Mapping[str, str] = {}


COMMANDS: Sequence[CommandEntry] = (
    CommandEntry(
        "run",
        "Run an agent to its answer.",
        "handrail.cli.agents.commands:run_agent",
        {"help_epilogue": _RUN_CODES, "usage": _RUN_USAGE},
    ),
    CommandEntry(
        "check",
        "Check an agent without a model: all files of its project, all names, and the tools of a run.",
        "handrail.cli.agents.commands:check_agent",
        {"help_epilogue": _CHECK_CODES},
    ),
    CommandEntry(
        "new",
        "Make the folder of a new agent that runs: agent file, tools, approval rules, settings, and a test.",
        "handrail.cli.agents.commands:new_agent",
        {"help_epilogue": _NEW_CODES},
    ),
    CommandEntry(
        "sessions",
        "List, show, fork and delete the sessions of a store.",
        "handrail.cli.sessions.group:sessions",
    ),
    CommandEntry(
        "approvals",
        "List, show and answer the questions about calls that wait.",
        "handrail.cli.approvals.group:approvals",
    ),
    CommandEntry(
        "ledger",
        "Show the effects of the ledger, and resolve or remove them.",
        "handrail.cli.ledger.group:ledger",
    ),
    CommandEntry(
        "docs",
        "Print a page of the documentation, or list all.",
        "handrail.cli.pages:print_page",
    ),
    CommandEntry(
        "completion",
        "Print the script with which a shell completes the commands and options of handrail.",
        None,
    ),
)
"""All commands, in the order of the help."""

_FLAGS = (("--help (-h)", "Display this message and exit."), ("--version", "Display application version."))
_HELP_WORDS = ((), ("--help",), ("-h",))
_USUAL_WIDTH = 80
_LEAST_WIDTH = 10
_BOX, _ASCII_BOX = ("╭", "─", "╮", "│", "╰", "╯"), ("+", "-", "+", "|", "+", "+")


def answer_without_command(words: Sequence[str], stream: IO[str] | None) -> str | None:
    """What a command line that names no command prints; `None` for all others.

    Args:
        words: the command line.
        stream: where it will be printed, for the width and the style of the help.
    """
    if tuple(words) == ("--version",):
        return f"{__version__}\n"
    if tuple(words) not in _HELP_WORDS:
        return None
    is_terminal = stream is not None and stream.isatty()
    styled = is_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") not in {"dumb", "unknown"}
    encoding = (getattr(stream, "encoding", None) or "").lower()
    lines = _help_lines(_width(), _BOX if encoding.startswith("utf") else _ASCII_BOX, styled=styled)
    return "\n".join(lines) + "\n"


def _help_lines(width: int, box: Sequence[str], *, styled: bool) -> Iterator[str]:
    top_left, edge, top_right, side, bottom_left, bottom_right = box
    rows = [*((entry.name, entry.summary) for entry in COMMANDS), *_FLAGS]
    names = max(len(name) for name, _ in rows)
    room = max(width - names - len(f"{side}   {side} "), _LEAST_WIDTH)
    yield _style("Usage: handrail COMMAND", "1", on=styled)
    for paragraph in HELP.strip().split("\n\n"):
        yield ""
        yield from _wrapped(paragraph, width)
    yield ""
    inner = names + room + len("    ")
    heading = f"{edge} Commands "
    yield f"{top_left}{heading}{edge * (inner - len(heading))}{top_right}"
    for name, summary in rows:
        label = name
        for line in _wrapped(summary, room):
            yield f"{side} {_style(f'{label:{names}}', '36', on=styled)}  {line:{room}} {side}"
            label = ""
    yield f"{bottom_left}{edge * inner}{bottom_right}"
    yield ""
    yield from _wrapped(EXIT_CODES, width)


def _wrapped(text: str, width: int) -> Iterator[str]:
    """The text in lines; a word that is longer than a line stands on one of its own."""
    line = ""
    for word in text.split():
        if line and len(line) + 1 + len(word) > width:
            yield line
            line = word
        else:
            line = f"{line} {word}" if line else word
    yield line


def _style(text: str, code: str, *, on: bool) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if on else text


def _width() -> int:
    """The width of the terminal, as rich finds it; 80 without one."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isdigit() and int(columns):
        return int(columns)
    for stream in (sys.__stdin__, sys.__stderr__, sys.__stdout__):
        try:
            width = os.get_terminal_size(stream.fileno()).columns if stream is not None else 0
        except (OSError, ValueError):  # it is not a terminal, or closed
            continue
        if width:
            return width
    return _USUAL_WIDTH
