"""What the workers of a run share: the store, the files, the service, and a count that survives a killed process."""

from __future__ import annotations

import logging
import mmap
import os
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from chaos.desk import Policy, session_name
from handrail import store
from handrail.filesystem import HostFilesystem

PATIENCE = timedelta(milliseconds=100)
"""How long a worker waits for a session that another one writes to."""

_BUSY = timedelta(seconds=1)
"""How long a store waits for its database; not for as long as the troubles last."""

_LONGEST_LINE = 300
_BYTES = 8


class Counts:
    """One number for each worker, in memory that its process shares with the conductor.

    Args:
        workers: how many numbers there are.
    """

    def __init__(self, workers: int) -> None:
        self._memory = mmap.mmap(-1, max(1, workers) * _BYTES)

    def add(self, worker: int) -> None:
        """Add one to the number of a worker. Only one process at a time does so."""
        at = slice(worker * _BYTES, (worker + 1) * _BYTES)
        self._memory[at] = (int.from_bytes(self._memory[at]) + 1).to_bytes(_BYTES)

    def total(self) -> int:
        """The sum of all numbers."""
        memory = self._memory[:]
        return sum(int.from_bytes(memory[at : at + _BYTES]) for at in range(0, len(memory), _BYTES))


@dataclass(frozen=True, slots=True)
class World:
    """What all workers of a run share.

    Attributes:
        folder: where files, journals and logs are.
        url: the store.
        service: the address of the outside world.
        policy: how the promise is kept.
        workers: how many there are at a time.
        agents: how many sessions each of them works on. One uses the synchronous entry; several run as tasks of one
            event loop.
        grouped: how many units of work were written beside others in one transaction of the database.
    """

    folder: Path
    url: str
    service: str
    policy: Policy
    workers: int = 1
    agents: int = 1
    grouped: Counts = field(default_factory=lambda: Counts(1))

    @property
    def sessions(self) -> int:
        """How many sessions there are."""
        return self.workers * self.agents

    def sessions_of(self, worker: int) -> range:
        """The sessions of a worker. If there is an even number of workers, two of one pair belong to two of them."""
        return range(worker, self.sessions, self.workers)

    def open_store(self) -> store.Store:
        """The store, opened by this process."""
        return store.open(self.url, busy=_BUSY)

    @property
    def told(self) -> Path:
        """Where the workers say why they ended or were refused a call: a word, a tab, and why."""
        return self.folder / "told"

    def tell(self, what: str, text: str) -> None:
        """Add a line to what the workers have to say; a line is written at once, so that no two are mixed."""
        line = f"{what}\t{' '.join(text.split())[:_LONGEST_LINE]}"
        written = os.open(self.told, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(written, f"{line}\n".encode())
        except OSError:  # the disk is full for this worker, which is what it was to show
            logging.getLogger("chaos").warning("could not say: %s", line)
        finally:
            os.close(written)

    def root(self, session: int) -> Path:
        """The folder of a session's files."""
        return self.folder / "files" / session_name(session)

    def open_files(self, session: int, kept_in: store.Store) -> HostFilesystem:
        """The files of a session; what a crash has left half done is undone."""
        self.root(session).mkdir(parents=True, exist_ok=True)
        journal = self.folder / "journals" / session_name(session)
        return HostFilesystem(self.root(session), journal=journal, store=kept_in, wait=PATIENCE)
