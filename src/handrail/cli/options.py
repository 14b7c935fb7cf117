"""What all commands take: which store, and for whom to print."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import unquote

from cyclopts import CycloptsError, Group, Parameter

from handrail.cli.debugging import Debug
from handrail.cli.paths import folder_here, found_at
from handrail.errors import StoreError, StoreReadOnlyError
from handrail.serde.near_paths import did_you_mean
from handrail.store import Store
from handrail.store import open as open_store

_SQLITE = "sqlite:///"

EXAMPLES = "sqlite:///desk.db, or postgresql://user@host/database"
"""URLs of stores that more than one process can see."""


@Parameter(name="*", group=Group("Store and output", sort_key=9))
@dataclass(frozen=True, slots=True, kw_only=True)
class StoreOptions:
    """The options that all commands share.

    Attributes:
        store: the URL of the store, as it was typed.
        format: for whom to print.
        debug: whether tracebacks are shown.
    """

    store: Annotated[
        str | None,
        Parameter(env_var="HANDRAIL_STORE", metavar="URL", help=f"The store: {EXAMPLES}. It must be there already."),
    ] = None
    format: Annotated[
        Literal["table", "json"],
        Parameter(help="`table` for people; `json` for programs: an object a line from `list`, else one document."),
    ] = "table"

    debug: Debug = False

    @property
    def as_json(self) -> bool:
        """Whether a program reads the output."""
        return self.format == "json"

    def open(self, *, writing: bool = False) -> Store:
        """Open the store, for reading unless `writing` is given; it is closed by leaving its `with` block.

        Raises:
            CycloptsError: no store is named, or one that no second process can see.
            StoreError: the store cannot be used.
        """
        if not self.store:
            raise CycloptsError(msg=f"which store? Give --store URL or set HANDRAIL_STORE: {EXAMPLES}")
        if self.store.startswith("memory:"):
            raise CycloptsError(
                msg="a store in memory lives and dies with its process, so there is nothing to see of it from here. "
                f"Give --store the URL of one that stays: {EXAMPLES}"
            )
        check_there(self.store)
        try:
            return open_store(self.store, read_only=not writing)
        except StoreReadOnlyError as error:
            if writing:
                raise
            # Opening for reading needs to write nothing, unless the tables are still to be made or brought forward.
            told = (
                "has no tables of this version of Handrail yet, and a command that only reads makes none. Open it with"
            )
            raise StoreReadOnlyError(
                f"{error.store} {told} the program that it belongs to", store=error.store
            ) from error


AS_SET = StoreOptions()
"""Nothing said on the command line."""


def check_there(url: str) -> None:
    """Make sure that no command creates the SQLite database that it is to work on.

    Raises:
        StoreError: there is no such file.
        CycloptsError: whether there is one cannot be found out.
    """
    name = unquote(url.removeprefix(_SQLITE)) if url.startswith(_SQLITE) else ""
    if name and found_at(Path(name)) == "nothing":
        told = f"there is no database {name}; look at --store, and at the folder you are in ({folder_here()})"
        near = did_you_mean(Path(name))
        raise StoreError(f"{told}.{near}" if near else told, store=url)
