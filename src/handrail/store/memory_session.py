"""What a `handrail.store.memory.MemoryStore` holds of one session. The store guards it with its lock."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

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

    def records(self) -> Iterator[tuple[CallRef, int]]:
        """The identities of the recorded calls with the numbers of their entries, the newest first."""
        for entry in reversed(self.entries):
            if entry.role == "log" and entry.call_id:
                yield CallRef(entry.reply or None, entry.call_id), entry.number
