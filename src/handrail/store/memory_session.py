"""What a `handrail.store.memory.MemoryStore` holds of one session. The store guards it with its lock."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice

from handrail.session.call_ref import CallRef
from handrail.session.persistence.protocol import AnswerRow, Checkpoint, SessionAppend, SessionEntry, SessionRow


@dataclass(slots=True)
class MemorySession:
    """A session; entry `n` stands at index `n - 1`.

    Attributes:
        row: its row.
        entries: its entries.
        checkpoints: its checkpoints, the oldest first.
        token: that of the lock that is valid; empty while no holder has it.
        answers: the answers of people to calls of the session.
    """

    row: SessionRow
    entries: list[SessionEntry] = field(default_factory=list[SessionEntry])
    checkpoints: list[Checkpoint] = field(default_factory=list[Checkpoint])
    token: str = ""
    answers: dict[CallRef, AnswerRow] = field(default_factory=dict[CallRef, AnswerRow])

    def append(self, append: SessionAppend) -> None:
        """Add entries; doing it twice has the same effect."""
        _, head, entries, checkpoint = append
        self.entries[head:] = entries
        if checkpoint is not None and (not self.checkpoints or self.checkpoints[-1].number < checkpoint.number):
            self.checkpoints.append(checkpoint)
        self.row = self.row._replace(head=head + len(entries))

    def checkpoint(self, until: int | None) -> Checkpoint | None:
        """The newest checkpoint that covers no entry after `until`; `None` if there is none."""
        found = self.checkpoints
        place = len(found) if until is None else bisect_right(found, until, key=lambda one: one.number)
        return found[place - 1] if place else None

    def newest_changes(self, type_name: str, *, after: int, until: int, limit: int) -> list[SessionEntry]:
        """The newest entries with `after < number <= until` that change a slice, at most `limit`, in order."""
        places = range(min(until, len(self.entries)) - 1, after - 1, -1)
        found = (self.entries[place] for place in places)
        newest = islice((one for one in found if one.type_name == type_name and one.role != "event"), limit)
        return list(newest)[::-1]

    def entries_at(self, numbers: Iterable[int]) -> list[SessionEntry]:
        """The entries of these numbers, in order; those that are missing are left out."""
        found = self.entries
        return [found[number - 1] for number in sorted(numbers) if 0 < number <= len(found)]

    def records(self) -> Iterator[tuple[CallRef, int]]:
        """The identities of the recorded calls with the numbers of their entries, the newest first."""
        for entry in reversed(self.entries):
            if entry.role == "log" and entry.call_id:
                yield CallRef(entry.reply or None, entry.call_id), entry.number
