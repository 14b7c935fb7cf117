"""The options of all commands over a store: the store and the output format."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import unquote

from cyclopts import CycloptsError, Group, Parameter

from handrail.cli.paths import EXAMPLES, folder_here, path_status
from handrail.cli.screen import Debug
from handrail.errors import StoreError, StoreReadOnlyError
from handrail.serde.near_paths import did_you_mean
from handrail.store import Store
from handrail.store import open as open_store

_SQLITE = "sqlite:///"

PAGE = 50
"""How many rows a table shows without `--limit`; JSON shows all."""

Limit = Annotated[int | None, Parameter(metavar="N", help=f"At most N. By default a table shows {PAGE}; JSON all.")]
"""How many rows to print."""


_GROUP = Group("Store and output", sort_key=9)


@Parameter(name="*", group=_GROUP)
@dataclass(frozen=True, slots=True, kw_only=True)
class StoreOptions:
    """The options of all commands over a store.

    Attributes:
        store: the URL of the store, as it was typed.
        debug: whether tracebacks are shown.
        format: the output format.
    """

    store: Annotated[
        str | None,
        Parameter(env_var="HANDRAIL_STORE", metavar="URL", help=f"The store: {EXAMPLES}. It must exist."),
    ] = None
    debug: Debug = False
    format: Annotated[
        Literal["table", "json"],
        Parameter(help="`table` for people; `json` for programs: an object a line from `list`, else one document."),
    ] = "table"

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
            # Opening for reading writes nothing, unless the tables have to be made or migrated.
            text = (
                "has no tables of this version of Handrail yet, and a command that only reads makes none. Open it with"
            )
            raise StoreReadOnlyError(
                f"{error.store} {text} the program that it belongs to", store=error.store
            ) from error


AS_SET = StoreOptions()
"""The defaults."""


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


def paginate(limit: int | None, options: StoreOptions) -> int | None:
    """How many rows to print; `None` for all.

    Raises:
        CycloptsError: `limit` is less than 1.
    """
    if limit is None:
        return None if options.as_json else PAGE
    if limit < 1:
        raise CycloptsError(msg=f"--limit is {limit}; it must be 1 or more")
    return limit
