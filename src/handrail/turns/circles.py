"""The search for circles: whether what a ticket waits for waits for the ticket."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Generic, TypeAlias, TypeVar

T = TypeVar("T")

Waits: TypeAlias = Callable[[T], Iterable[T]]
"""Returns what a ticket waits for. It is called once for each ticket of a search, and need not repeat what it has
returned in that search before.
"""


class CircleSearch(Generic[T]):
    """Tickets, and all that must be released before they are; iterates over each once, also over those added meanwhile.

    Args:
        waits: of this search alone.
    """

    __slots__ = ("_seen", "_to_visit", "_waits")

    def __init__(self, waits: Waits[T]) -> None:
        """Search from nothing yet."""
        self._waits = waits
        self._seen: set[T] = set()
        self._to_visit: list[T] = []

    def add(self, tickets: Iterable[T]) -> None:
        """Search from these tickets too."""
        self._to_visit += tickets

    def __iter__(self) -> Iterator[T]:
        """Each ticket, before what it waits for."""
        while self._to_visit:
            ticket = self._to_visit.pop()
            if ticket not in self._seen:
                self._seen.add(ticket)
                yield ticket
                self._to_visit += self._waits(ticket)

    def finds(self, tickets: Iterable[T], sought: Collection[T]) -> bool:
        """Whether these tickets are, or wait for, one that is sought. A search that has found one is over."""
        self.add(tickets)
        return any(ticket in sought for ticket in self)


class Leading(Generic[T]):
    """Which tickets wait for a certain one, themselves or through others; what is asked is remembered.

    Args:
        target: the ticket.
        new_waits: makes the `waits` of a search.
    """

    __slots__ = ("_clear", "_leading", "_new_waits", "_target")

    def __init__(self, target: T, new_waits: Callable[[], Waits[T]]) -> None:
        """Nothing is known yet."""
        self._target = target
        self._new_waits = new_waits
        self._leading: set[T] = set()
        self._clear: CircleSearch[T] = CircleSearch(new_waits())

    def __contains__(self, ticket: T) -> bool:
        """Whether this ticket waits for the target, or is it."""
        if ticket in self._leading:
            return True
        if not self._clear.finds((ticket,), {self._target}):
            return False
        self._leading.add(ticket)
        # Of the tickets on the way to the target it is not known whether they are clear.
        self._clear = CircleSearch(self._new_waits())
        return True
