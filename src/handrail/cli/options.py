"""The options of all commands over a store, and its entities: tables of fields that are listed and shown.

A list is a table, or in JSON an object a line; one entity is names with values, or a JSON document.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import islice
from pathlib import Path
from pkgutil import resolve_name
from typing import Annotated, Any, Generic, Literal, TypeVar
from urllib.parse import unquote

from cyclopts import CycloptsError, Group, Parameter, validators

from handrail.cli.process_exit import DONE, FAILED
from handrail.cli.screen import Field, Screen, fields_json
from handrail.errors import StoreError
from handrail.store import Store
from handrail.store import open as open_store

T = TypeVar("T")

SQLITE = "sqlite:///"
"""The beginning of URLs of SQLite."""

EXAMPLES = "sqlite:///desk.db, or postgresql://user@host/database"
"""URLs of stores that several processes can open."""

PAGE = 50
"""The rows of a table without `--limit`; JSON shows all."""

_LONGEST_SPAN = timedelta(days=36_500)
# The beginning of a URL that was made a path. One letter is a drive of Windows.
_URL = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+):/")


def import_object(name: str, expected: str) -> Any:  # noqa: ANN401 - whatever has the name
    """What a program calls MODULE:NAME or FILE.py:NAME, from the current folder; `expected` says what to name."""
    place, _, attribute = name.rpartition(":")
    is_file = place.endswith(".py")
    sys.path.insert(0, os.fspath(Path(place if is_file else "x").parent.resolve()))
    try:
        return resolve_name(f"{Path(place).stem}:{attribute}" if is_file else name)
    except (ImportError, AttributeError, ValueError) as error:
        raise CycloptsError(msg=f"{name} cannot be imported: {error}; {expected}") from error


# ------------------------------------------------------------------------------------------------------------- options


def _check_positive(_type: object, span: timedelta | str | None) -> None:
    if isinstance(span, timedelta) and span <= timedelta(0):
        raise ValueError("Must be more than zero, such as 12h or 30d.")
    if isinstance(span, timedelta) and span > _LONGEST_SPAN:  # longer ones lead to times that do not exist
        raise ValueError("Must be at most 36500d.")


def _check_filled(_type: object, text: str | None) -> None:
    if text is not None and not text.strip():
        raise ValueError("Must not be empty.")


def _check_no_url(_type: object, path: Path | None) -> None:
    # A path does not keep the slashes of a URL, so a password in it would not be found: the message has the scheme.
    if url := _URL.match(str(path)):
        msg = f"a URL ({url['scheme']}:...) stands where a path is expected; that of a store is given by --store"
        raise CycloptsError(msg=msg)


def _read_whole(_type: object, tokens: Any) -> int:  # noqa: ANN401 - of cyclopts, which cuts off a fraction
    if not re.fullmatch(r"-?\d+", text := tokens[0].value):
        raise ValueError(f"{text!r} is not a whole number.")
    return int(text)


MORE_THAN_ZERO = Parameter(metavar="TIME", validator=_check_positive)
"""A span of time, such as 30d, that is more than zero."""

FILLED = Parameter(validator=_check_filled)
"""A text that is not empty."""

A_FILE = Parameter(metavar="FILE", validator=(_check_no_url, validators.Path(exists=True, dir_okay=False)))
"""The path of a file."""

A_FOLDER = Parameter(metavar="FOLDER", validator=(_check_no_url, validators.Path(exists=True, file_okay=False)))
"""The path of a folder."""

WHOLE = Parameter(metavar="N", converter=_read_whole)
"""A whole number."""

COUNT = Parameter(metavar="N", converter=_read_whole, validator=validators.Number(gte=1))
"""A number of 1 or more."""

PORT = Parameter(metavar="PORT", converter=_read_whole, validator=validators.Number(gte=1, lte=65_535))
"""A port of this machine."""

Limit = Annotated[int | None, COUNT, Parameter(help=f"At most N. By default a table shows {PAGE}; JSON all.")]
"""The number of rows to print."""

DryRun = Annotated[bool, Parameter(help="Remove nothing; only show what would be removed.")]
"""An option to remove nothing."""

Yes = Annotated[bool, Parameter(name=("--yes", "-y"), help="Do not ask. Needed without a terminal.")]
"""An option to remove without asking."""

_STORE = Parameter(env_var="HANDRAIL_STORE", metavar="URL")

IN_GROUP = Group("Store and output", sort_key=9)
"""The group of these options in the help."""


@Parameter(name="*", group=IN_GROUP)
@dataclass(frozen=True, slots=True, kw_only=True)
class StoreOptions:
    """The options of all commands over a store.

    Attributes:
        store: the URL of the store, as it was typed.
        format: `table` for people; `json` for programs: an object a line from `list`, else one document.
    """

    store: Annotated[str | None, _STORE, Parameter(help=f"The store: {EXAMPLES}. It must exist.")] = None
    format: Literal["table", "json"] = "table"

    @property
    def as_json(self) -> bool:
        """True if a program reads the output."""
        return self.format == "json"

    def open(self, *, writing: bool = False) -> Store:
        """Opens the store, for reading unless `writing` is given; it is closed by leaving its `with` block."""
        if not self.store or self.store.startswith("memory:"):
            msg = (
                f"which store? Give --store URL or set HANDRAIL_STORE: {EXAMPLES}. One in memory ends with its process"
            )
            raise CycloptsError(msg=msg)
        name = unquote(self.store.removeprefix(SQLITE)) if self.store.startswith(SQLITE) else ""
        if name and not isinstance(self, NewStoreOptions) and not Path(name).exists():
            raise StoreError(f"the database {name} does not exist; check --store", store=self.store)
        return open_store(self.store, read_only=not writing)


@Parameter(name="*", group=IN_GROUP)
@dataclass(frozen=True, slots=True, kw_only=True)
class NewStoreOptions(StoreOptions):
    """The options of a command that makes the store if it does not exist."""

    store: Annotated[str | None, _STORE, Parameter(help=f"The store: {EXAMPLES}. It is made if missing.")] = None


def check_can_ask(screen: Screen, what: str, *, yes: bool) -> None:
    """Checks that a person can be asked before something is changed; `yes` needs no question."""
    if not (yes or screen.can_ask):
        raise CycloptsError(msg=f"this {what}; without a terminal to ask on, give --yes")


# ------------------------------------------------------------------------------------------------------------ entities


@dataclass(frozen=True)
class Entity(Generic[T]):
    """A kind of things that commands list and show: its name in the plural, the columns of a table, and all fields."""

    noun: str
    columns: Sequence[str]
    fields: Sequence[Field[T]]

    def print_list(
        self, rows: Iterable[T], limit: int | None, options: StoreOptions, faults: Sequence[str] = ()
    ) -> int:
        """Prints the first rows, whether there are more, and `faults` of those left out; returns the exit code."""
        self._print_rows(rows, limit, options)
        for fault in faults:
            Screen().fault(fault)
        return FAILED if faults else DONE

    def _print_rows(self, rows: Iterable[T], limit: int | None, options: StoreOptions) -> None:
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
        """Prints one."""
        if options.as_json:
            Screen().json(self.json(row))
        else:
            cells = ((column.name, column.text_for_people(row, indent=2)) for column in self.fields if column.name)
            texts = ((name, f"{cell:,}" if isinstance(cell, int) else cell) for name, cell in cells)
            Screen().record((name, text) for name, text in texts if text)

    def json(self, row: T) -> dict[str, Any]:
        """One, for programs."""
        return fields_json(self.fields, row)

    def table(self, screen: Screen, rows: Sequence[T]) -> None:
        """Prints several as a table."""
        screen.table([column for column in self.fields if column.name in self.columns], rows)
