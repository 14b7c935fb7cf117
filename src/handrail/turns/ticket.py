"""Turns and tickets: which tickets run, and which are first, and whose turn it is; `handrail.turns` has the rules.

Whether a ticket waits on a turn is decided from the first tickets of its queues, in constant time; so is which tickets
a released one has held back. Only `_search` lists what waits for what.
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from itertools import chain, count, islice, product, takewhile

from handrail.errors import TurnConflictError

# Of the process: a ticket is in the queues of any turns, of sessions and resources that know nothing of each other.
_LOCK = threading.Lock()

_CIRCLE = "this call would wait for a call that waits for the one it was made in. Make the calls one after the other."

# Of the process, as `_LOCK`: numbers the moments at which tickets are drawn and begin to run; called with it held.
_next_number = count(1).__next__


class Turn:
    """The turn of one participant: its tickets in the order drawn, calls and nested ones; the values mean nothing.

    Linked lists, because the first key of a `dict` is found only past all that were removed before it. `waiting` has
    those that wait, by whether they are nested and exclusive.
    """

    __slots__ = ("calls", "nested", "waiting")

    def __init__(self) -> None:
        self.calls: OrderedDict[Ticket, None] = OrderedDict()
        self.nested: OrderedDict[Ticket, None] = OrderedDict()
        self.waiting: defaultdict[tuple[bool, bool], OrderedDict[Ticket, None]] = defaultdict(OrderedDict)

    @property
    def queue(self) -> list[Ticket]:
        """The tickets that run or wait for it, the nested ones first; for diagnostics."""
        with _LOCK:
            return [*self.nested, *self.calls]

    def conflicts(self, ticket: Ticket, *, nested: bool) -> bool:
        """True if a ticket conflicts with a call, or a nested one, that is listed: before it, if it is listed too."""
        tickets = self.nested if nested else self.calls
        first = next(iter(tickets), ticket)
        # An exclusive ticket that runs is the first one.
        if ticket.exclusive or first.exclusive:
            return first is not ticket
        writer = next(iter(self.waiting[nested, True]), None)
        return writer is not None and (writer.number < ticket.number or ticket not in tickets)

    def holds_back(self, ticket: Ticket) -> bool:
        """True if a ticket has to wait for another one on this turn: to run, or if it runs, to be first."""
        if ticket.began:
            return not ticket.excused.issuperset(self.before(ticket))
        if not ticket.ancestors:
            return self.conflicts(ticket, nested=True) or self.conflicts(ticket, nested=False)
        # Calls that run are all shared, or one that is exclusive and the first.
        runs = self.calls_running() > 0 and (ticket.exclusive or next(iter(self.calls)).exclusive)
        return runs or self.conflicts(ticket, nested=True)

    def calls_running(self) -> int:
        """How many calls run."""
        return len(self.calls) - len(self.waiting[False, False]) - len(self.waiting[False, True])

    def blockers(self, ticket: Ticket) -> Iterator[Ticket]:
        """The tickets that hold back one that waits, but for those that one of them waits for here."""
        running = islice((call for call in self.calls if call.began), self.calls_running())
        others = list(running if ticket.ancestors else self.nested)
        for other in reversed(self.nested if ticket.ancestors else self.calls):
            if other.number < ticket.number:
                others.append(other)
                if other.exclusive:
                    break  # it waits for all before it
        return (other for other in others if ticket.exclusive or other.exclusive)

    def before(self, ticket: Ticket) -> Iterable[Ticket]:
        """The tickets before one that runs (rule 5)."""
        if not self.nested and next(iter(self.calls)) is ticket:
            return ()
        ahead = takewhile(lambda other: other is not ticket, self.nested if ticket.ancestors else self.calls)
        if ticket.ancestors:
            return chain(ahead, (other for other in self.calls if 0 < other.began < ticket.number))
        return chain(ahead, takewhile(lambda other: other.number < ticket.began, self.nested))

    def may_continue(self, ticket: Ticket, *, nested: bool) -> list[Ticket]:
        """The calls, or nested tickets, that it held back, and may not hold back since a ticket has left it."""
        shared, exclusive = self.waiting[nested, False], self.waiting[nested, True]
        free = [*islice(exclusive, 1)]
        # A shared one has held back no shared ones; and what holds back the first of these holds back all.
        if ticket.exclusive and shared and not self.holds_back(next(iter(shared))):
            end = next((other.number for other in exclusive), float("inf"))
            free += takewhile(lambda other: other.number < end, shared)
        for first in self.nested if nested else self.calls:
            free.append(first)
            # Only a ticket that is excused is before one that is first.
            if not first.is_excused:
                break
        return free


class Ticket:
    """A place in the queues of some turns; made by `draw_ticket`, ended by `release`.

    Attributes:
        turns: the turns in whose queues it is, each once.
        exclusive: it writes.
        ancestors: the tickets that it was drawn inside, the nearest first; only a nested ticket has some.
        number: tickets that were drawn later have a greater one.
        began: the number of the moment at which it began to run: `number` if it has not waited, 0 while it waits.
        released: it has left all queues.
        held_at: a turn that holds it back: from running, or if it runs, from being first.
        excused: the tickets that it does not wait for to be first, because they wait for it.
        is_excused: it has been one of these for another ticket.
        waits_on: the tickets whose calls it waits for outside of any queue; see `wait_on`.
        inside: the unreleased tickets that were drawn inside it, at any depth.
    """

    # Defaults of the class, because most tickets never differ from them.
    held_at: Turn | None = None
    excused: frozenset[Ticket] = frozenset()
    is_excused: bool = False
    waits_on: frozenset[Ticket] = frozenset()
    inside: set[Ticket] = set()  # noqa: RUF012 - empty for ever: one that has some gets its own

    def __init__(self, turns: tuple[Turn, ...], exclusive: bool, ancestors: tuple[Ticket, ...], number: int) -> None:  # noqa: FBT001 - a keyword would cost each call a tenth of what its turn costs
        self.turns: tuple[Turn, ...] = turns
        self.exclusive: bool = exclusive
        self.ancestors: tuple[Ticket, ...] = ancestors
        self.number: int = number
        self.began: int = number
        self.released: bool = False
        self._waiter: Future[None] | None = None

    @property
    def runs(self) -> bool:
        """True once its turn has come, until it is released."""
        return self.began > 0

    @property
    def waiter(self) -> Future[None] | None:
        """The future to wait on before continuing; `None` when nothing blocks the ticket.

        It is done when nothing blocks the ticket any more, and cancelled when the ticket is released while it waits. To
        cancel it is to give up this wait, not the place: asked again, the ticket has another waiter.
        """
        # Read without the lock: another thread lets a ticket wait no more, but never wait.
        if self.held_at is None:
            return None
        with _LOCK:
            if self._waiter is not None and self._waiter.cancelled():
                self._waiter = Future()
            return self._waiter

    def request_first(self) -> Future[None] | None:
        """Asks to be the first of its turns, once it runs (rule 5); returns what to wait on, `None` if it is first."""
        with _LOCK:
            if self.released or self.is_free():
                return None
            self._waiter = self._waiter or Future()
            _TIED.update([self] if self.ancestors or self.inside else [])
            if self in _search(*_TIED):
                _give_way(self, own=True)
        _wake()
        return self.waiter

    def extend(self, turn: Turn) -> bool:
        """Takes one more turn, in a ticket that runs; returns `False` if another one holds or awaits it."""
        with _LOCK:
            # Refused instead of queued: the call holds turns, and waiting with them could close a circle.
            if self.released or not self.began or turn.calls or turn.nested:
                return False
            (turn.nested if self.ancestors else turn.calls)[self] = None
            self.turns += (turn,)
        return True

    def wait_on(self, other: Ticket) -> None:
        """Records that this call waits for another one outside of any queue (rule 6); raises `TurnConflictError`."""
        with _LOCK:
            if not {self, *self.ancestors}.isdisjoint(_search(other, requests=False)):
                raise TurnConflictError(_CIRCLE)
            self.waits_on |= {other}
            _TIED.add(self)
            _give_way(self)
        _wake()

    def stop_waiting_on(self, other: Ticket) -> None:
        """Ends a wait that `wait_on` has begun."""
        with _LOCK:
            self.waits_on -= {other}

    def release(self) -> None:
        """Leaves all queues, whether it ran or still waited, and wakes those behind it. Idempotent."""
        with _LOCK:
            if self.released or self.leave():
                return
            waiter, self._waiter = self._waiter, None
        # Outside of the lock, because a callback of a future may draw or release a ticket, and the lock is not
        # reentrant.
        if waiter is not None:
            waiter.cancel()
        _wake()

    def is_free(self) -> bool:
        """True if nothing holds it back any more."""
        for turn in self.turns:
            if turn.holds_back(self):
                self.held_at = turn
                return False
        self.held_at = None
        return True

    def enter(self) -> None:
        """Takes its place where others are, or inside others (rules 2 to 4)."""
        for ancestor in self.ancestors:
            ancestor.inside = ancestor.inside or set()
            ancestor.inside.add(self)
        _TIED.update(waiting_ancestors := [ancestor for ancestor in self.ancestors if ancestor.held_at])
        self.began = 0
        if self.is_free():
            self.began = self.number
            if waiting_ancestors:
                _give_way(self)
            return
        self._waiter = Future()
        for turn in self.turns:
            turn.waiting[bool(self.ancestors), self.exclusive][self] = None
        if self.ancestors:
            _TIED.add(self)
            # Those inside the same call wait for none of its ancestors: this has been refused to them.
            are_inside = all(self.ancestors[0] in it.ancestors for turn in self.turns for it in turn.blockers(self))
            if not are_inside and _search(self, requests=False)[self]:
                self.leave()
                raise TurnConflictError(_CIRCLE)
            if not are_inside or any(turn.waiting[False, writes] for turn in self.turns for writes in (False, True)):
                _give_way(self)

    def leave(self) -> bool:
        """Leaves all queues, and resumes those that waited for that; returns `True` if it was alone in them."""
        self.released = True
        is_alone = not self.ancestors
        for turn in self.turns:
            del (turn.nested if self.ancestors else turn.calls)[self]
            if not self.began:
                del turn.waiting[bool(self.ancestors), self.exclusive][self]
            is_alone = is_alone and not turn.calls and not turn.nested
        if is_alone:
            return True
        for ancestor in self.ancestors:
            ancestor.inside.remove(self)
        _TIED.discard(self)
        self.held_at = None
        for turn, nested in product(self.turns, (True, False)):
            for ticket in turn.may_continue(self, nested=nested):
                if ticket.held_at is turn and ticket.is_free():
                    ticket.resume()
        return False

    def resume(self) -> None:
        """Run, or be first."""
        if not self.began:
            self.began = _next_number()
            for turn in self.turns:
                del turn.waiting[bool(self.ancestors), self.exclusive][self]
        self.excused = frozenset()
        # A resolved future is not waited on again: `request_first` may need another one.
        waiter, self._waiter = self._waiter, None
        if waiter is not None:
            _WOKEN.append(waiter)


# Of the process, as `_LOCK`: the tickets that have waited while others could wait for them, that is nested ones that
# wait or ask to be first, those with nested ones that ask to be first, and those that wait on another one. Each circle
# has one of them. Weak, because a ticket may be abandoned together with its turns.
_TIED: weakref.WeakSet[Ticket] = weakref.WeakSet()

# Of the process, as `_LOCK`: the waiters to wake once it is released.
_WOKEN: deque[Future[None]] = deque()


def _search(*tickets: Ticket, requests: bool = True, back: bool = False) -> dict[Ticket, list[Ticket]]:
    # All that some tickets wait for, through any chain, also to be first, if `requests`; each with those that wait for
    # it, if `back`, also to be first.
    waits: dict[Ticket, list[Ticket]] = {ticket: [] for ticket in tickets}
    to_visit = [*waits]
    for ticket in to_visit:
        needs = [] if ticket.released else [*ticket.inside, *ticket.waits_on]
        if not (ticket.began or ticket.released):
            needs += [other for turn in ticket.turns for other in turn.blockers(ticket)]
        # The call of a nested ticket may wait until its ancestors are first.
        wants = [other for other in ticket.ancestors if other.held_at and requests]
        if ticket.began and ticket.held_at and requests:
            wants += {other for turn in ticket.turns for other in turn.before(ticket)} - ticket.excused
        fresh: dict[Ticket, list[Ticket]] = {other: [] for other in needs + wants if other not in waits}
        to_visit += fresh
        waits |= fresh
        for other in needs + wants if back else needs:
            waits[other].append(ticket)
    return waits


def _give_way(start: Ticket, *, own: bool = False) -> None:
    # Withdraws requests that form a circle with a ticket: its own ones, or else the last ones before it.
    waits, circle, to_visit = _search(start, back=own), {start}, [start]
    for ticket in to_visit:
        to_visit += [other for other in waits[ticket] if other not in circle]
        circle.update(waits[ticket])
    for ticket in [start] if own else [other for other in waits if other.began and other.held_at]:
        ticket.excused |= {other for turn in ticket.turns for other in turn.before(ticket)} & circle
        for other in ticket.excused:
            other.is_excused = True
        if ticket.is_free():
            ticket.resume()


def _wake() -> None:
    # Called without the lock, because it calls back.
    with suppress(IndexError):
        for waiter in iter(_WOKEN.popleft, None):
            if waiter.set_running_or_notify_cancel():
                waiter.set_result(None)


def draw_ticket(turns: tuple[Turn, ...], *, exclusive: bool, inside: Ticket | None = None) -> Ticket:
    """Draws a place in the queues of all `turns` at once; look at `Ticket.waiter` before continuing.

    Raises:
        TurnConflictError: waiting would never end (rule 4). No place was taken.
    """
    # A turn that is named twice, as by a session that is a resource too, would put the ticket behind itself.
    if len(turns) > 1 and len(set(turns)) < len(turns):
        turns = tuple(dict.fromkeys(turns))
    ancestors = () if inside is None else (inside, *inside.ancestors)
    with _LOCK:
        ticket = Ticket(turns, exclusive, ancestors, _next_number())
        is_alone = inside is None
        for turn in turns:
            is_alone = is_alone and not turn.calls and not turn.nested
            (turn.calls if inside is None else turn.nested)[ticket] = None
        if not is_alone:
            ticket.enter()
    if _WOKEN:
        _wake()
    return ticket


# Of the process: all executors that have one object as a resource take turns on it. The turns of participants that have
# none of their own, by identity, for as long as the participant lives.
_LENT: dict[int, Turn] = {}


def own_turn(participant: object) -> Turn | None:
    """The turn that a participant carries itself, as sessions do; it calls `check_write` before each change."""
    turn = getattr(participant, "turn", None)
    return turn if isinstance(turn, Turn) else None


def find_turn(participant: object) -> Turn:
    """The turn of a participant: its own, or one that is kept for it; raises `TypeError` if it has neither."""
    turn = own_turn(participant) or _LENT.get(id(participant))
    if turn is None:
        # Before the turn is stored: this raises for what cannot be weakly referenced, and its id may name another
        # object later. Two threads that come here get one turn, and to remove it twice is harmless.
        weakref.finalize(participant, _LENT.pop, id(participant), None).atexit = False
        return _LENT.setdefault(id(participant), Turn())
    return turn
