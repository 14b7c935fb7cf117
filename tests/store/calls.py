"""Calls as far as a store sees them: a transaction that is current, and what is settled with it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from handrail.transaction import Transaction, UnitStore
from handrail.transaction.unit_of_work import WriteQueue
from handrail.turns import draw_ticket


def call(tool: str = "pay", *, inside: Transaction | None = None, writes: bool = True) -> Transaction:
    """The transaction of a call, to be entered; inside another one, if it is given."""
    ticket = draw_ticket((), exclusive=writes, inside=None if inside is None else inside.ticket)
    return Transaction(tool, ticket=ticket, writes=writes, parent=inside)


class Record:
    """Something that is settled with a call in the store: the row of the ledger, say."""

    def __init__(self, store: UnitStore, *writes: object, settle: Callable[[], object] = lambda: None) -> None:
        self.store: UnitStore | None = store
        self._writes = writes
        self._settle = settle
        self.queue: WriteQueue | None = None
        self.waits = False
        self.heard: list[str] = []

    def prepare(self) -> None:
        """Nothing has to be looked at."""

    def write(self) -> Sequence[object]:
        self._settle()
        return self._writes

    def after_commit(self) -> None:
        self.heard.append("committed")

    def in_doubt(self) -> None:
        self.heard.append("in doubt")

    def after_rollback(self) -> None:
        self.heard.append("undone")
