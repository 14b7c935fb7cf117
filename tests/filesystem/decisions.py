"""A store that decides, in memory, and can be lost."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from handrail.errors import StoreUnavailableError


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
        self._unit: set[str] | None = None

    @contextmanager
    def unit(self) -> Generator[None]:
        self._answer()
        self._unit = set(self.kept)
        try:
            yield
            if self.lost == "before":
                raise StoreUnavailableError("lost", store=self.url, in_doubt=True)
            self.kept = self._unit
            if self.lost == "after":
                raise StoreUnavailableError("lost", store=self.url, in_doubt=True)
        finally:
            self._unit = None

    def record_commit(self, journal_id: str) -> None:
        self._answer()
        self.seen.add(journal_id)
        (self.kept if self._unit is None else self._unit).add(journal_id)

    def is_committed(self, journal_id: str) -> bool:
        self._answer()
        return journal_id in self.kept

    def delete_commit_record(self, journal_id: str) -> None:
        self._answer()
        self.kept.discard(journal_id)

    def _answer(self) -> None:
        if self.down:
            raise StoreUnavailableError("down", store=self.url)
