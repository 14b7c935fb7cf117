"""The folders that the runs of this process work on: each is opened once, shared, and closed with its last run.

One `HostFilesystem` at a time works on a folder, whatever the process. Runs side by side that use the same folder
therefore share one; the turns that their calls take on it keep them apart.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from handrail.errors import AgentError
from handrail.filesystem import DecisionStore, HostFilesystem
from handrail.filesystem.journal.folder import default_path

_AT_ONCE = timedelta(0)
"""Waiting for another process would hold up the event loop."""


@dataclass(slots=True)
class _Open:
    """A folder that is open, and how many runs use it."""

    filesystem: HostFilesystem
    store: DecisionStore | None
    users: int = 0


class Folders:
    """The one owner of what is open. Threads may share it."""

    def __init__(self) -> None:
        """Begin with nothing open."""
        self._lock = threading.Lock()
        self._open: dict[Path, _Open] = {}

    @contextmanager
    def opened(self, folder: Path, store: DecisionStore | None) -> Generator[HostFilesystem]:
        """The filesystem over a folder, for the time of the block.

        Args:
            folder: where it is, without links.
            store: decides whether calls were committed: that of the run's session, if it is stored.

        Raises:
            AgentError: another run uses the folder with another store, or with another object for the same one; or its
                journal would lie in it.
            FilesystemError: the folder cannot be opened, or another process works on it.
        """
        with self._lock:
            found = self._open.get(folder)
            if found is None:
                _check_journal(folder)
                filesystem = HostFilesystem(folder, store=store, wait=_AT_ONCE)
                found = self._open[folder] = _Open(filesystem, store)
            elif found.store is not store:
                raise AgentError(
                    f"{folder} is used by another run of this process, whose session is kept in "
                    f"{_name_of(found.store)}, and this one's in {_name_of(store)}: nobody could decide for both what "
                    "was committed there. Open one store for both sessions, or run one after the other."
                )
            found.users += 1
        try:
            yield found.filesystem
        finally:
            with self._lock:
                found.users -= 1
                if not found.users:
                    del self._open[folder]
                    found.filesystem.close()


FOLDERS = Folders()
"""The folders of this process."""


def _check_journal(folder: Path) -> None:
    """Refuse a folder that holds what is to undo its changes: the home folder, say."""
    journal = default_path(folder, os.environ)
    if folder in (*journal.parents, *journal.resolve().parents):
        raise AgentError(
            f"{folder} cannot be worked on as a whole, because {journal}, where its changes are noted in order to undo "
            "them, lies in it. Work on a folder below it (--root FOLDER, or RunOptions(root=...)), or set "
            "XDG_STATE_HOME to a folder outside of it."
        )


def _name_of(store: DecisionStore | None) -> str:
    return "memory" if store is None else store.url
