"""Where the session of a run is stored."""

from __future__ import annotations

import shlex
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from urllib.parse import quote, unquote

from cyclopts import CycloptsError

from handrail import store as stores
from handrail.cli.agents.options import RunChoices
from handrail.cli.paths import EXAMPLES
from handrail.errors import SessionLockedError, StoreError
from handrail.session import Session
from handrail.store import Store
from handrail.store.urls import harmless_text

STORE_VARIABLE = "HANDRAIL_STORE"
"""The environment variable that names the store by default."""

_SQLITE = "sqlite:///"
_SERVERS = ("postgresql://", "postgres://")
_WAIT = timedelta(seconds=1)  # a run holds its session for much longer, or ends at once


def chosen_store(typed: str | None, project: str | None, folder: Path, environment: Mapping[str, str]) -> str | None:
    """The URL in effect: from the command line, else the project, relative to its folder, else the environment.

    `None` for none, and for a store in memory, whose sessions could never be resumed.
    """
    # `folder` applies only to the project's setting: what is typed is relative to the current folder.
    url = typed or (within(folder, project) if project else environment.get(STORE_VARIABLE, "").strip())
    return None if not url or url.startswith("memory:") else url


def within(folder: Path, url: str) -> str:
    """The URL of a store, with the path of a SQLite database resolved from `folder`."""
    if not url.startswith(_SQLITE):
        return url
    # The path is unquoted first, because a URL may contain `%20`, and quoting it again would change it.
    return f"{_SQLITE}{quote(str(folder.resolve() / unquote(url.removeprefix(_SQLITE))))}"


def lies_in(url: str | None, folder: Path) -> bool:
    """Whether a URL, as `chosen_store` returns it, names a SQLite database in a folder."""
    path = unquote((url or "").removeprefix(_SQLITE).partition("?")[0])
    return url is not None and url.startswith(_SQLITE) and Path(path).resolve().is_relative_to(folder.resolve())


def check_stored(url: str | None, choices: RunChoices) -> None:
    """Check that there is a store if the options need one.

    Raises:
        CycloptsError: no store is given.
    """
    wants = "--session" if choices.session is not None else "--approve later" if choices.approve == "later" else ""
    if wants and url is None:
        raise CycloptsError(msg=f"{wants} needs a durable store: give --store URL or set {STORE_VARIABLE}: {EXAMPLES}")


def check_url(url: str | None) -> None:
    """Check that a URL has the form of a store URL, without opening it.

    Raises:
        StoreError: it has not.
    """
    if url is None or url.startswith(_SERVERS) or (url.startswith(_SQLITE) and url != _SQLITE):
        return
    shown = harmless_text(url)
    raise StoreError(f"{shown!r} is not a store URL; write {EXAMPLES}", store=shown)


@contextmanager
def opened_session(url: str | None, session_id: str) -> Generator[Session | None]:
    """The session of that id, resumed or new, for this block; `None` without a store.

    Raises:
        StoreError: the store cannot be used.
        SessionError: the session is open elsewhere, or holds types that the project does not know.
    """
    if url is None:
        yield None
        return
    # The store is closed after the session, which writes to it until its end.
    with stores.open(url) as store, _held(store, session_id) as session:
        yield session


def _held(store: Store, session_id: str) -> Session:
    try:
        return Session.open(store, session_id, wait=_WAIT)
    except SessionLockedError as error:
        # The fork has another id, so it does not need the lock of the session.
        fork = shlex.join(["handrail", "sessions", "fork", session_id, "--store", store.url])
        raise SessionLockedError(
            f"session {session_id} is in use by another run. Wait until that has ended, or continue with a fork of it: "
            f"{fork}",
            session_id=session_id,
        ) from error
