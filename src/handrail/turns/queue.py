"""The queue of one turn, in groups: neighbouring tickets that share form one, and so does each that is exclusive.

A ticket waits for the groups ahead of its own, not for each ticket in them. The tickets that no group is ahead of are
*open*; the others are in the closed groups, the first group first. When the last open ticket leaves, the first group
is opened, and with it those behind it that share with it. Each ticket is opened once, so joining, leaving and opening
take a constant number of steps for each ticket, however many there are.

A ticket that leaves while it waits leaves its group empty where it is. An empty group is removed when it is the first
or the last one.

Below it is the search for circles: whether what a ticket waits for waits for the ticket.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import takewhile
from typing import Generic, Protocol, TypeAlias, TypeVar


class Exclusive(Protocol):
    """What stands in a queue.

    Attributes:
        exclusive: whether it conflicts with all others, or only with those that are exclusive.
    """

    exclusive: bool


T = TypeVar("T", bound=Exclusive)


class _Group(Generic[T]):
    """Neighbours in a queue that do not conflict, all behind others.

    Attributes:
        exclusive: whether it is a single exclusive ticket.
        members: those that are still there, in the order of joining; the values mean nothing.
        ahead: the closed group before it, which may be empty; `None` if only open tickets are ahead.
    """

    __slots__ = ("ahead", "exclusive", "members")

    def __init__(self, *, exclusive: bool, ahead: _Group[T] | None) -> None:
        self.exclusive = exclusive
        self.members: dict[T, None] = {}
        self.ahead = ahead


class TurnQueue(Generic[T]):
    """Tickets in the order of joining; the lock of the turns guards it.

    Attributes:
        order: all of them, each with a number that its owner gives a meaning. Ordered by a linked list: the first one
            of a `dict` is found only past all that were removed before it.
    """

    __slots__ = ("_closed", "_groups", "order")

    def __init__(self) -> None:
        """Begin empty."""
        self.order: OrderedDict[T, int] = OrderedDict()
        self._groups: deque[_Group[T]] = deque()
        self._closed: dict[T, _Group[T]] = {}

    @property
    def has_exclusive(self) -> bool:
        """Whether one of them is exclusive."""
        # The first group conflicts with the open tickets, so either has one.
        return bool(self._groups) or (bool(self.order) and self.first.exclusive)

    @property
    def first(self) -> T:
        """The first of them; there must be one."""
        return next(iter(self.order))

    def join(self, ticket: T, number: int) -> bool:
        """Put a ticket at the end; returns whether it is open."""
        is_open = not self._groups and not (self.order and (ticket.exclusive or self.first.exclusive))
        self.order[ticket] = number
        if is_open:
            return True
        last = self._groups[-1] if self._groups else None
        if last is None or last.exclusive or ticket.exclusive:
            last = _Group(exclusive=ticket.exclusive, ahead=last)
            self._groups.append(last)
        last.members[ticket] = None
        self._closed[ticket] = last
        return False

    def leave(self, ticket: T) -> Sequence[T]:
        """Remove a ticket; returns those that are open since."""
        del self.order[ticket]
        if not self._groups:
            return ()
        group = self._closed.pop(ticket, None)
        if group is not None:
            del group.members[ticket]
            while self._groups and not self._groups[-1].members:
                self._groups.pop()
        return self._open_groups()

    def ahead(self, ticket: T) -> list[T]:
        """Tickets that a ticket waits for in this queue; what these wait for here, it waits for too."""
        group = self._closed.get(ticket)
        if group is None:
            return []
        found: list[T] = []
        ahead = group.ahead
        while ahead is not None:
            if group.exclusive or ahead.exclusive:
                found += ahead.members
                if ahead.exclusive and ahead.members:
                    return found
            ahead = ahead.ahead
        return found + [each for each in self.open_tickets() if group.exclusive or each.exclusive]

    def open_tickets(self) -> list[T]:
        """Those that no conflicting ticket is ahead of."""
        return list(takewhile(lambda ticket: ticket not in self._closed, self.order))

    def _open_groups(self) -> list[T]:
        opened: list[T] = []
        groups = self._groups
        while groups:
            group = groups[0]
            if group.members:
                first = self.first
                if first not in self._closed and (group.exclusive or first.exclusive):
                    break
                for ticket in group.members:
                    del self._closed[ticket]
                opened += group.members
            groups.popleft()
            if groups:
                groups[0].ahead = None
        return opened


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
