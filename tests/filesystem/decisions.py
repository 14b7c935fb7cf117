"""A store that decides, in memory, and can be lost."""

from __future__ import annotations

from concurrent.futures import Future
from functools import partial

from handrail.errors import StoreUnavailableError
from handrail.transaction import RecordCommit, UnitOfWork
from handrail.transaction.unit_of_work import Refusal
from handrail.waiting import run_in_thread


class Decisions:
    """Keeps what its units have committed.

    Attributes:
        url: its name.
        kept: the ids it knows.
        seen: the ids it was ever told.
        down: whether it does not answer.
        lost: whether the connection is lost in the moment of the next commits, before (`"before"`) or after it.
    """

    def __init__(self, url: str = "fake:one") -> None:
        self.url = url
        self.kept: set[str] = set()
        self.down = False
        self.lost: str | None = None
        self.seen: set[str] = set()

    waits = False

    def submit(self, unit: UnitOfWork) -> Future[Refusal | None]:
        return run_in_thread(partial(self.apply, unit))

    def apply(self, unit: UnitOfWork) -> Refusal | None:
        self._answer()
        journals = {write.journal_id for write in unit.writes if isinstance(write, RecordCommit)}
        self.seen |= journals
        if self.lost == "before":
            raise StoreUnavailableError("lost", store=self.url, in_doubt=True)
        self.kept |= journals
        if self.lost == "after":
            raise StoreUnavailableError("lost", store=self.url, in_doubt=True)
        return None

    def is_committed(self, journal_id: str) -> bool:
        self._answer()
        return journal_id in self.kept

    def delete_commit_record(self, journal_id: str) -> None:
        self._answer()
        self.kept.discard(journal_id)

    def _answer(self) -> None:
        if self.down:
            raise StoreUnavailableError("down", store=self.url)
