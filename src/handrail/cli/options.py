"""What the commands over a store share: their options, and how what it holds many of is listed and shown.

Sessions, effects and questions are tables of fields. A list is a table, or in JSON an object a line; one of them is
names with values, or a JSON document.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, TypeVar
from urllib.parse import unquote

from cyclopts import CycloptsError, Group, Parameter, validators

from handrail.cli.screen import Field, Screen, fields_json, fields_record
from handrail.errors import StoreError
from handrail.serde.formatting import did_you_mean
from handrail.store import Store
from handrail.store import open as open_store

T = TypeVar("T")

SQLITE = "sqlite:///"
"""How URLs of SQLite begin."""

EXAMPLES = "sqlite:///desk.db, or postgresql://user@host/database"
"""URLs of stores that several processes can open."""

PAGE = 50
"""How many rows a table shows without `--limit`; JSON shows all."""

# The beginning of a URL that was made a path. One letter is a drive of Windows.
_URL = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+):/")


# ------------------------------------------------------------------------------------------------------------- options


def _check_positive(_type: object, span: timedelta | str | None) -> None:
    if isinstance(span, timedelta) and span <= timedelta(0):
        raise ValueError("Must be more than zero, such as 12h or 30d.")


def _check_filled(_type: object, text: str | None) -> None:
    if text is not None and not text.strip():
        raise ValueError("Must not be empty.")


def _check_no_url(_type: object, path: Path | None) -> None:
    # A path does not keep the slashes of a URL, so a password in it would not be found: the message has the scheme.
    if url := _URL.match(str(path)):
        msg = f"a URL ({url['scheme']}:...) stands where a path is expected; that of a store is given by --store"
        raise CycloptsError(msg=msg)


def _check_file(kind: object, path: Path | None) -> None:
    _check_no_url(kind, path)
    if path is not None and not os.path.isfile(path):  # noqa: PTH113 - which raises nothing for a name that is too long
        near = did_you_mean(path, suffix="" if path.suffix else ".agent")
        raise CycloptsError(msg=f"{path} is not an existing file.{near}")


MORE_THAN_ZERO = Parameter(metavar="TIME", validator=_check_positive)
"""A span of time, such as 30d, that is more than zero."""

FILLED = Parameter(validator=_check_filled)
"""A text that is not empty."""

A_FILE = Parameter(metavar="FILE", validator=_check_file)
"""The path of a file."""

A_FOLDER = Parameter(metavar="FOLDER", validator=(_check_no_url, validators.Path(exists=True, file_okay=False)))
"""The path of a folder."""

COUNT = Parameter(metavar="N", validator=validators.Number(gte=1))
"""A number of 1 or more."""

Limit = Annotated[int | None, COUNT, Parameter(help=f"At most N. By default a table shows {PAGE}; JSON all.")]
"""How many rows to print."""

DryRun = Annotated[bool, Parameter(help="Remove nothing; only show what would be removed.")]
"""Whether to remove nothing."""

Yes = Annotated[bool, Parameter(name=("--yes", "-y"), help="Do not ask. Needed without a terminal.")]
"""Whether to remove without asking."""

IN_GROUP = Group("Store and output", sort_key=9)
"""Where the help has them."""


@Parameter(name="*", group=IN_GROUP)
@dataclass(frozen=True, slots=True, kw_only=True)
class StoreOptions:
    """The options of all commands over a store.

    Attributes:
        store: the URL of the store, as it was typed.
        format: `table` for people; `json` for programs: an object a line from `list`, else one document.
    """

    store: Annotated[
        str | None,
        Parameter(env_var="HANDRAIL_STORE", metavar="URL", help=f"The store: {EXAMPLES}. It must exist."),
    ] = None
    format: Literal["table", "json"] = "table"

    @property
    def as_json(self) -> bool:
        """Whether a program reads the output."""
        return self.format == "json"

    def open(self, *, writing: bool = False) -> Store:
        """Open the store, for reading unless `writing` is given; it is closed by leaving its `with` block.

        Raises:
            CycloptsError: no store is named, or one in memory.
            StoreError: the store cannot be used; no command makes a database that is not there.
        """
        if not self.store or self.store.startswith("memory:"):
            msg = (
                f"which store? Give --store URL or set HANDRAIL_STORE: {EXAMPLES}. One in memory ends with its process"
            )
            raise CycloptsError(msg=msg)
        name = unquote(self.store.removeprefix(SQLITE)) if self.store.startswith(SQLITE) else ""
        if name and not Path(name).exists():
            raise StoreError(f"the database {name} does not exist; check --store", store=self.store)
        return open_store(self.store, read_only=not writing)


def check_can_ask(screen: Screen, what: str, *, yes: bool) -> None:
    """Check that a person can be asked before something is changed, unless that is not wanted.

    Args:
        screen: where to ask.
        what: what the command does, in words.
        yes: whether not to ask, or nothing is changed.

    Raises:
        CycloptsError: there is no terminal to ask on.
    """
    if not (yes or screen.can_ask):
        raise CycloptsError(msg=f"this {what}; without a terminal to ask on, give --yes")


# ------------------------------------------------------------------------------------------------------------ entities


@dataclass(frozen=True)
class Entity(Generic[T]):
    """What commands list and show.

    Attributes:
        noun: what several are called.
        columns: the names of the fields that a table has.
        fields: what is known of one.
    """

    noun: str
    columns: Sequence[str]
    fields: Sequence[Field[T]]

    def print_list(self, rows: Iterable[T], limit: int | None, options: StoreOptions) -> None:
        """Print the first rows, and whether there are more.

        Args:
            rows: the rows, in their order; what is not printed is not read.
            limit: how many to print; by default those of a page, and in JSON all.
            options: the store and the output format.
        """
        screen, rest = Screen(), iter(rows)
        if options.as_json:
            for row in islice(rest, limit):
                screen.json(self.json(row), lines=True)
            return
        page = list(islice(rest, PAGE if limit is None else limit))
        if not page:
            screen.note(f"No {self.noun} found in {options.store}.")
            return
        self.table(screen, page)
        if any(True for _ in rest):
            screen.note(f"There are more {self.noun}; --limit shows them.")

    def print_one(self, row: T, options: StoreOptions) -> None:
        """Print one."""
        if options.as_json:
            Screen().json(self.json(row))
        else:
            Screen().record(self.record(row))

    def json(self, row: T) -> dict[str, Any]:
        """One, for programs."""
        return fields_json(self.fields, row)

    def record(self, row: T) -> list[tuple[str, str]]:
        """What people read of one: names and values."""
        return fields_record(self.fields, row)

    def table(self, screen: Screen, rows: Sequence[T], *, most: int | None = None) -> None:
        """Print several as a table."""
        screen.table([each for each in self.fields if each.name in self.columns], rows, most=most)
