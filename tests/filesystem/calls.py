"""Calls over a filesystem."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from handrail.filesystem import Filesystem
from handrail.transaction import Transaction
from handrail.turns import draw_ticket


@contextmanager
def call(fs: Filesystem, *, inside: Transaction | None = None, writes: bool = True) -> Generator[Transaction]:
    """A call that holds the turn of a filesystem; rolled back unless the block commits."""
    turns, outer = ((fs.turn,), None) if inside is None else ((), inside.ticket)
    ticket = draw_ticket(turns, exclusive=writes, inside=outer)
    try:
        with Transaction("tool", ticket=ticket, writes=writes, parent=inside) as transaction:
            yield transaction
    finally:
        ticket.release()
