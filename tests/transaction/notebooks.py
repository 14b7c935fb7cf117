"""Participants for the tests of transactions, and calls that use them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any

from handrail.transaction import Snapshotable, Transaction, UnitStore, check_write
from handrail.transaction.unit_of_work import WriteQueue
from handrail.turns import Turn, draw_ticket, find_turn

PATIENCE = 30.0
"""Seconds after which a thread that waits has been forgotten."""


class Notebook:
    """Carries its turn and asks before each change, as sessions and filesystems do.

    Attributes:
        lines: what is written in it.
        snapshots: how many were taken.
        meanwhile: called by a write between asking and changing, under the lock.
        on_snapshot: called while a snapshot is taken.
        on_restore: called while it is restored, before anything changes.
    """

    def __init__(self, *lines: str) -> None:
        self.turn = Turn()
        self.lines = lines
        self.snapshots = 0
        self.meanwhile: Callable[[], None] = nothing
        self.on_snapshot: Callable[[], None] = nothing
        self.on_restore: Callable[[], None] = nothing
        self._lock = threading.RLock()

    def write(self, line: str) -> None:
        with self._lock:
            check_write(self, f"write {line}")
            self.meanwhile()
            self.lines = (*self.lines, line)

    def snapshot(self) -> tuple[str, ...]:
        self.snapshots += 1
        self.on_snapshot()
        return self.lines

    def restore(self, snapshot: tuple[str, ...]) -> None:
        with self._lock:
            self.on_restore()
            self.lines = snapshot


class Shelf:
    """Cannot tell when it is written to: it carries no turn, and asks nobody."""

    def __init__(self, *things: str) -> None:
        self.things = list(things)

    def snapshot(self) -> tuple[str, ...]:
        return tuple(self.things)

    def restore(self, snapshot: tuple[str, ...]) -> None:
        self.things = list(snapshot)


class Receipt:
    """A participant in commits: remembers how it was settled, and may refuse to be."""

    def __init__(self, *, refuses: bool = False) -> None:
        self.settled: list[str] = []
        self.refuses = refuses
        self.store: UnitStore | None = None
        self.queue: WriteQueue | None = None
        self.waits = False

    def prepare(self) -> None:
        """Nothing has to be looked at."""

    def write(self) -> Sequence[object]:
        if self.refuses:
            raise ValueError("refused")
        self.settled.append("write")
        return ()

    def after_commit(self) -> None:
        self.settled.append("after_commit")

    def in_doubt(self) -> None:
        self.settled.append("in_doubt")

    def after_rollback(self) -> None:
        self.settled.append("after_rollback")


def nothing() -> None:
    """Do nothing."""


def raising(error: BaseException) -> Callable[[], None]:
    """What raises an error when it is called."""

    def fail() -> None:
        raise error

    return fail


@contextmanager
def call(
    *participants: Snapshotable[Any], tool: str = "edit", writes: bool = True, parent: Transaction | None = None
) -> Generator[Transaction]:
    """A call that holds the turns of its participants, as the pipeline makes it; to be committed inside."""
    turns = tuple(find_turn(participant) for participant in participants)
    if parent is not None:
        turns = (find_turn(parent), *(turn for turn in turns if not parent.holds(turn)))
    ticket = draw_ticket(turns, exclusive=writes, inside=None if parent is None else parent.ticket)
    try:
        assert ticket.waiter is None
        with Transaction(tool, ticket=ticket, writes=writes, parent=parent) as transaction:
            yield transaction
    finally:
        ticket.release()
