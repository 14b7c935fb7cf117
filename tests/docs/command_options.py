"""The options of all commands, from the commands: a page that is made for the site."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from cyclopts import App, Argument

from handrail.cli.application import EXIT_CODES, application

_HEAD = f"""# The options of all commands

`handrail COMMAND --help` prints the same. [The command line](command-line.md) has examples.
`--store URL` and `--store=URL` are the same. Every command
has `--help` and `--debug`.

{" ".join(EXIT_CODES.split())}
"""


def page() -> str:
    """The page: each command with its arguments and options."""
    return _HEAD + "".join(_command(words, app) for words, app in commands(application(), ()))


def commands(app: App, words: Sequence[str]) -> Iterator[tuple[tuple[str, ...], App]]:
    """The commands of an application with their words, in the order of the help; groups are left out."""
    names = [name for name in app if not name.startswith("-")]
    if not names:
        yield tuple(words), app
    for name in sorted(names, key=lambda each: app[each].sort_key or 0):
        yield from commands(app[name], (*words, name))


def arguments(app: App) -> list[Argument]:
    """What a command takes, without what is on every command."""
    found = app.assemble_argument_collection(default_parameter=application().default_parameter, parse_docstring=True)
    return [each for each in found if each.show and "--debug" not in each.names]


def _command(words: Sequence[str], app: App) -> str:
    summary = _text(app.help.strip().partition("\n\n")[0])
    rows = [_row(each) for each in arguments(app)]
    table = ["", "| argument or option | means |", "|---|---|", *rows] if rows else []
    return "\n".join(["", f"## handrail {' '.join(words)}", "", summary, *table, ""])


def _row(argument: Argument) -> str:
    parameter = argument.parameter
    shown = ", ".join(f"`{name}`" for name in argument.names)
    value = "|".join(argument.get_choices() or ()) or parameter.metavar or ""
    takes = f" `{_text(value)}`" if value not in {"", *argument.names} else ""
    return f"| {shown}{takes} | {_text(parameter.help or '')} |"


def _text(text: str) -> str:
    # What rich would take for its own markup is escaped in the help.
    return re.sub(r"\s+", " ", text).strip().replace(r"\[", "[").replace("|", r"\|")
