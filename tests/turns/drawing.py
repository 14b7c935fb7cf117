"""Drawing tickets, for the tests of turns."""

from __future__ import annotations

from concurrent.futures import Future

from handrail.turns import Ticket, Turn, draw_ticket


def write(*turns: Turn, inside: Ticket | None = None) -> Ticket:
    """An exclusive ticket."""
    return draw_ticket(turns, exclusive=True, inside=inside)


def read(*turns: Turn, inside: Ticket | None = None) -> Ticket:
    """A shared ticket."""
    return draw_ticket(turns, exclusive=False, inside=inside)


def waiter_of(ticket: Ticket) -> Future[None]:
    """The waiter of a ticket that has to wait."""
    waiter = ticket.waiter
    assert waiter is not None
    return waiter
