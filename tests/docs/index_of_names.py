"""The index of names, from the commands and the tables of the docs: a page that is made for the site.

The search of the site goes by headings, so each option and each key has one.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from os.path import relpath

from handrail.cli.application import application
from tests.architecture.sources import ROOT
from tests.docs import command_options

DOCS = ROOT / "docs"

_HEAD = """# Index of names

Every option of a command, key of a file, variable of the environment and option of a run,
with what has it. The names of the Python package are on [its pages](python.md).
"""


@dataclass(frozen=True, slots=True)
class Table:
    """A table of the docs whose first column has names.

    Attributes:
        page: the page, below `docs`.
        first: the heading of its first column.
        names: what the names are.
    """

    page: str
    first: str
    names: str


TABLES = (
    Table("reference/agent-file.md", "key", "key of the agent file"),
    Table("reference/approval-rules.md", "key", "key of the file of approval rules"),
    Table("reference/approval-rules.md", "key of a rule", "key of an approval rule"),
    Table("reference/configuration.md", "`[tool.handrail]`", "key of `[tool.handrail]`"),
    Table("reference/configuration.md", "`[tool.handrail.shell]`", "key of `[tool.handrail.shell]`"),
    Table("reference/configuration.md", "variable", "variable of the environment"),
    Table("reference/configuration.md", "option", "option of `store.open`"),
    Table("reference/running-agents.md", "option", "field of `RunOptions`"),
    Table("reference/scripts.md", "key of a reply", "key of a reply in a script"),
    Table("reference/scripts.md", "key of a call", "key of a call in a script"),
    Table("reference/scripts.md", "key of `expect`", "key of `expect` in a script"),
    Table("how-to/run-programs.md", "field", "field of a rule about programs"),
)


def page() -> str:
    """The page: each name with links to what describes it."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for words, app in command_options.commands(application(), ()):
        for name in (name for argument in command_options.arguments(app) for name in argument.names):
            if name.startswith("--"):
                anchor = "-".join(("handrail", *words))
                found[name].append(f"option of [`handrail {' '.join(words)}`](command-options.md#{anchor})")
    for table in TABLES:
        heading, names = names_of(table)
        path = relpath(DOCS / table.page, DOCS / "reference")
        for name in names:
            found[name].append(f"{table.names}: [{heading}]({path}#{_anchor(heading)})")
    entries = sorted(found.items(), key=lambda entry: (entry[0].strip("-").lower(), entry[0]))
    return _HEAD + "".join(f"\n## {name}\n\n{_list(places)}\n" for name, places in entries)


def names_of(table: Table) -> tuple[str, list[str]]:
    """The heading that a table stands below, and the names in its first column."""
    before, _, after = (DOCS / table.page).read_text(encoding="utf-8").partition(f"\n| {table.first} |")
    heading = re.findall(r"^#+ (.*)$", before, re.MULTILINE)[-1]
    rows = after.partition("\n\n")[0].splitlines()[2:]
    return heading, [name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])]


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-")


def _list(places: list[str]) -> str:
    return "\n".join(f"- {place}" for place in dict.fromkeys(places))
