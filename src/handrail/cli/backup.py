"""`handrail backup`: copies a store into a file, also while programs use it.

The copy has what was committed before it began, and is checked before it takes the place of an older one.
"""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Annotated

from cyclopts import CycloptsError, Parameter

from handrail.cli.options import SQLITE, StoreOptions
from handrail.cli.screen import Screen
from handrail.errors import StoreError
from handrail.store.rehearsal import copy_database
from handrail.store.sqlite.store import SqliteStore


def back_up(target: Annotated[Path, Parameter(metavar="FILE")], /, *, options: StoreOptions = StoreOptions()) -> None:
    """Copy a store of SQLite into a file, also while programs use it.

    The copy is checked. One of PostgreSQL is backed up by pg_dump, or by its server.

    Example: `handrail backup copy.db --store sqlite:///desk.db`

    Args:
        target: The copy; a file that exists is replaced once the copy is complete.
        options: The store and the output format.
    """
    with options.open() as store:
        if not isinstance(store, SqliteStore):
            text = f"{store.url} is not a file: back it up with pg_dump, or with what its server has for that"
            raise StoreError(text, store=store.url)
        path = Path(store.url.removeprefix(SQLITE))
        if target.exists() and target.samefile(path):
            raise CycloptsError(msg=f"{target} is the store itself; name another file")
        part = target.with_name(f"{target.name}.part")
        part.unlink(missing_ok=True)
        part.touch()
        shutil.copymode(path, part)
        try:
            copy_database(path, part)
            with closing(sqlite3.connect(part)) as copy:
                (verdict,) = copy.execute("PRAGMA integrity_check").fetchone()
        except sqlite3.Error as error:
            verdict = str(error)
        if verdict != "ok":
            raise StoreError(f"{store.url} was not copied to {target}: {verdict}; look at {part}", store=store.url)
        part.replace(target)
        if options.as_json:
            Screen().json({"store": store.url, "file": str(target), "bytes": target.stat().st_size})
        else:
            Screen().say(f"{target} is a copy of {store.url}.")
