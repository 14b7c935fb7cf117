"""The options of all commands over a store: the store and the output format."""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import unquote

from cyclopts import CycloptsError, Group, Parameter, validators

from handrail.cli.paths import EXAMPLES, folder_here, path_status
from handrail.cli.screen import Debug, Screen
from handrail.errors import StoreError, StoreReadOnlyError
from handrail.serde.formatting import did_you_mean
from handrail.store import Store
from handrail.store import open as open_store

_SQLITE = "sqlite:///"

PAGE = 50
"""How many rows a table shows without `--limit`; JSON shows all."""

AT_LEAST_ONE = validators.Number(gte=1)
"""Refuses a number less than 1."""


def _check_positive(_type: object, span: timedelta | str | None) -> None:
    if isinstance(span, timedelta) and span <= timedelta(0):
        raise ValueError("Must be more than zero, such as 12h or 30d.")


MORE_THAN_ZERO = Parameter(metavar="TIME", validator=_check_positive)
"""A span of time, such as 30d, that is more than zero."""

Limit = Annotated[
    int | None,
    Parameter(metavar="N", validator=AT_LEAST_ONE, help=f"At most N. By default a table shows {PAGE}; JSON all."),
]
"""How many rows to print."""

DryRun = Annotated[bool, Parameter(help="Remove nothing; only show what would be removed.")]
"""Whether to remove nothing."""

Yes = Annotated[bool, Parameter(name=("--yes", "-y"), help="Do not ask. Needed without a terminal.")]
"""Whether to remove without asking."""

_GROUP = Group("Store and output", sort_key=9)


@Parameter(name="*", group=_GROUP)
@dataclass(frozen=True, slots=True, kw_only=True)
class StoreOptions:
    """The options of all commands over a store.

    Attributes:
        store: the URL of the store, as it was typed.
        debug: whether tracebacks are shown.
        format: `table` for people; `json` for programs: an object a line from `list`, else one document.
    """

    store: Annotated[
        str | None,
        Parameter(env_var="HANDRAIL_STORE", metavar="URL", help=f"The store: {EXAMPLES}. It must exist."),
    ] = None
    debug: Debug = False
    format: Literal["table", "json"] = "table"

    @property
    def as_json(self) -> bool:
        """Whether a program reads the output."""
        return self.format == "json"

    def open(self, *, writing: bool = False) -> Store:
        """Open the store, for reading unless `writing` is given; it is closed by leaving its `with` block.

        Raises:
            CycloptsError: no store is named, or one in memory.
            StoreError: the store cannot be used.
        """
        if not self.store:
            raise CycloptsError(msg=f"which store? Give --store URL or set HANDRAIL_STORE: {EXAMPLES}")
        if self.store.startswith("memory:"):
            raise CycloptsError(
                msg="a store in memory exists only within its process, so this command cannot read it. "
                f"Give --store the URL of a durable one: {EXAMPLES}"
            )
        # Otherwise SQLite would create an empty database under a misspelled name.
        check_there(self.store)
        try:
            return open_store(self.store, read_only=not writing)
        except StoreReadOnlyError as error:
            if writing:
                raise
            # Opening for reading writes nothing, unless the tables have to be made.
            text = (
                "has no tables of this version of Handrail yet, and a command that only reads makes none. Open it with"
            )
            raise StoreReadOnlyError(
                f"{error.store} {text} the program that it belongs to", store=error.store
            ) from error


AS_SET = StoreOptions()
"""The defaults."""


def typed_options(choice: Any) -> tuple[str, ...]:  # noqa: ANN401 - a dataclass of options
    """The options of a group that differ from their defaults, as they are typed."""
    return tuple(f"--{each.name}" for each in fields(choice) if getattr(choice, each.name) != each.default)


def check_there(url: str) -> None:
    """Check that the SQLite database exists, so that no command creates it.

    Raises:
        StoreError: the file does not exist.
        CycloptsError: the path cannot be accessed.
    """
    name = unquote(url.removeprefix(_SQLITE)) if url.startswith(_SQLITE) else ""
    if name and path_status(Path(name)) == "nothing":
        text = f"the database {name} does not exist; check --store, and the current folder ({folder_here()})"
        near = did_you_mean(Path(name))
        raise StoreError(f"{text}.{near}" if near else text, store=url)


def check_can_ask(screen: Screen, what: str, *, yes: bool, dry_run: bool | None = None) -> None:
    """Check that a person can be asked before something is changed, unless that is not wanted.

    Args:
        screen: where to ask.
        what: what the command does, in words.
        yes: whether not to ask.
        dry_run: whether nothing is changed; `None` if the command has no such option.

    Raises:
        CycloptsError: there is no terminal to ask on.
    """
    if not (yes or dry_run or screen.can_ask):
        look = "" if dry_run is None else ", or --dry-run to look"
        raise CycloptsError(msg=f"this {what}; without a terminal to ask on, give --yes{look}")
