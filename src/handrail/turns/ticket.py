"""Turns and tickets: which tickets run, and which are first; `handrail.turns` has the rules.

A turn has two queues: one of calls, and one of nested tickets, which go ahead of the calls that wait (rule 3). A ticket
is in one queue of each of its turns. It may run when two things hold:

| | a call | a nested ticket |
|---|---|---|
| it is open in all its queues (`handrail.turns.queue`) | no earlier call conflicts | no earlier nested one conflicts |
| no ticket of the other queue of a turn holds it back | no nested one conflicts | no call that runs conflicts |

The first is counted: a ticket knows in how many queues others are ahead of it. The second comes and goes, so a ticket
that is open everywhere is *held* at one turn that holds it back, and looks at all its turns again when that one does
not any more.

A call that runs has no call ahead of it that conflicts, whatever is drawn later, and no nested ticket that conflicts
runs with it: neither begins while the other is there.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from itertools import count
from weakref import WeakSet

from handrail.errors import TurnConflictError
from handrail.turns.queue import CircleSearch, Leading, TurnQueue

_LOCK = threading.Lock()

_CIRCLE = (
    "this call would wait for a call that itself waits for the one this was made in, so neither could continue. Make "
    "the calls one after the other."
)

_next_number: Callable[[], int] = count(1).__next__
"""Numbers tickets, and what they ask for, in the order of time; called with the lock held."""


class Turn:
    """The turn of one participant.

    Attributes:
        calls: the queue of the tickets that are not nested, each with its number.
        nested: the queue of the nested ones, each with the number of the first call that waited when it was drawn; it
            stands before the calls from that number on.
        waiting: the calls that do not run, in the order drawn; the values mean nothing.
        held_calls: the calls that nothing but nested tickets hold back, among them one of this turn.
        held_nested: the nested tickets that nothing but calls hold back, among them one of this turn.
        asking: the tickets that ask to be first.
    """

    __slots__ = ("asking", "calls", "held_calls", "held_nested", "nested", "waiting")

    def __init__(self) -> None:
        """Make a turn that no ticket holds."""
        self.calls: TurnQueue[Ticket] = TurnQueue()
        self.nested: TurnQueue[Ticket] = TurnQueue()
        self.waiting: OrderedDict[Ticket, None] = OrderedDict()
        self.held_calls: dict[Ticket, None] = {}
        self.held_nested: dict[Ticket, None] = {}
        self.asking: dict[Ticket, None] = {}

    @property
    def queue(self) -> list[Ticket]:
        """The tickets that run or wait for it, in the order in which they go; for diagnostics."""
        with _LOCK:
            places = [(number, 1, ticket) for ticket, number in self.calls.order.items()]
            places += [(number, 0, ticket) for ticket, number in self.nested.order.items()]
        return [ticket for _, _, ticket in sorted(places, key=lambda place: place[:2])]

    @property
    def is_free(self) -> bool:
        """Whether no ticket runs or waits for it."""
        return not self.calls.order and not self.nested.order

    def before(self, ticket: Ticket) -> Iterator[Ticket]:
        """The tickets that stood before one of its tickets when that one asked to be first (rule 5)."""
        place = ticket.number if ticket.parent is None else self.nested.order[ticket]
        for call, number in self.calls.order.items():
            if number >= place:
                break
            yield call
        yield from self.nested_before(ticket)

    def nested_before(self, ticket: Ticket) -> Iterator[Ticket]:
        """The nested ones of them that were drawn before it asked to be first."""
        place = ticket.number if ticket.parent is None else self.nested.order[ticket]
        asked = ticket.links.asked
        for nested, its_place in self.nested.order.items():
            # They come in the order drawn.
            if nested is ticket or its_place > place or nested.number > asked:
                break
            yield nested

    def holds_back(self, ticket: Ticket) -> bool:
        """Whether a ticket of the other queue keeps one from running (rules 2 and 3)."""
        if ticket.parent is None:
            return bool(self.nested.order) if ticket.exclusive else self.nested.has_exclusive
        some_call_runs = len(self.calls.order) > len(self.waiting)
        return some_call_runs and (ticket.exclusive or self.calls.first.exclusive)

    def holding_back(self, ticket: Ticket) -> list[Ticket]:
        """The tickets of the other queue that keep one from running."""
        others = list(self.nested.order) if ticket.parent is None else self.calls.open_tickets()
        return [
            other
            for other in others
            if (ticket.exclusive or other.exclusive) and (other.runs or other.parent is not None)
        ]

    def join(self, ticket: Ticket) -> bool:
        """Put a ticket in its queue; returns whether it is open there."""
        if ticket.parent is None:
            return self.calls.join(ticket, ticket.number)
        first = next(iter(self.waiting), ticket)
        return self.nested.join(ticket, first.number)

    def leave(self, ticket: Ticket) -> list[Ticket]:
        """Remove a ticket; returns those that may run since, as far as this turn goes."""
        free: list[Ticket] = []
        if ticket.parent is None:
            queue, held, other_held = self.calls, self.held_calls, self.held_nested
            self.waiting.pop(ticket, None)
        else:
            queue, held, other_held = self.nested, self.held_nested, self.held_calls
        held.pop(ticket, None)
        self.asking.pop(ticket, None)
        for opened in queue.leave(ticket):
            opened.links.closed -= 1
            if not opened.links.closed:
                free.append(opened)
        # One of them stands for all: of those that are held, either all share or there is one.
        if other_held and not self.holds_back(next(iter(other_held))):
            free += other_held
            other_held.clear()
        return free

    def hold(self, ticket: Ticket) -> None:
        """Note that a ticket looks at its turns again when this one does not hold it back any more."""
        held = self.held_calls if ticket.parent is None else self.held_nested
        held[ticket] = None

    def may_be_first(self) -> list[Ticket]:
        """The tickets that ask to be first, and may be it on this turn."""
        found: list[Ticket] = []
        if not self.asking:
            return found
        for queue in (self.calls, self.nested):
            for ticket in queue.order:
                if ticket.asks:
                    found.append(ticket)
                # Only a ticket that is excused stands before one that is first.
                if not (ticket.is_linked and ticket.links.is_excused):
                    break
        return found


class TicketLinks:
    """What a ticket has to do with others; made when it first meets one, because most tickets never do.

    The dictionaries are ordered sets: their values mean nothing.

    Attributes:
        closed: in how many of its queues others are ahead of it.
        inside: the unreleased tickets that were drawn inside it, at any depth.
        waits_on: the tickets whose calls it waits for outside of any queue; see `Ticket.wait_on`.
        asked: a number of the time when it asked to be first; 0 if it does not ask.
        excused: the tickets that it does not wait for to be first, because they wait for it.
        is_excused: whether it has been one of these for another ticket.
    """

    __slots__ = ("asked", "closed", "excused", "inside", "is_excused", "waits_on")

    def __init__(self) -> None:
        """Connect with no other ticket yet."""
        self.closed: int = 0
        self.inside: dict[Ticket, None] = {}
        self.waits_on: dict[Ticket, None] = {}
        self.asked: int = 0
        self.excused: dict[Ticket, None] = {}
        self.is_excused: bool = False


class Ticket:
    """A place in the queues of some turns; made by `draw_ticket`, ended by `release`.

    Attributes:
        turns: the turns in whose queues it is, each once.
        parent: the ticket of the call that this one was drawn inside.
        exclusive: whether it writes.
        runs: whether its turn has come; so it stays until it is released.
        released: whether it has left all queues.
        number: tickets that were drawn later have a greater one.
    """

    __slots__ = ("__weakref__", "_links", "_waiter", "exclusive", "number", "parent", "released", "runs", "turns")

    def __init__(self, turns: tuple[Turn, ...], parent: Ticket | None, exclusive: bool) -> None:  # noqa: FBT001 - a keyword would cost each call a tenth of what its turn costs
        """Make a ticket that is in no queue yet; use `draw_ticket`."""
        self.turns: tuple[Turn, ...] = turns
        self.parent: Ticket | None = parent
        self.exclusive: bool = exclusive
        self.runs: bool = True
        self.released: bool = False
        self.number: int = 0
        self._links: TicketLinks | None = None
        self._waiter: Future[None] | None = None

    @property
    def links(self) -> TicketLinks:
        """What it has to do with other tickets; read and changed with the lock held."""
        if self._links is None:
            self._links = TicketLinks()
        return self._links

    @property
    def asks(self) -> bool:
        """Whether it asks to be first, and is not yet."""
        return self._links is not None and self._links.asked > 0

    @property
    def is_linked(self) -> bool:
        """Whether it has to do with others; one that has not has never waited."""
        return self._links is not None

    @property
    def waiter(self) -> Future[None] | None:
        """What to wait on before continuing; `None` when nothing blocks the ticket.

        It is done when nothing blocks the ticket any more, and cancelled when the ticket is released while it waits.
        To cancel it is to give up this wait, not the place: asked again, the ticket has another waiter.
        """
        # Read without the lock: another thread lets a ticket wait no more, but never wait.
        if self._links is None:
            return None
        with _LOCK:
            if self.released or (self.runs and not self.asks):
                return None
            if self._waiter is None or self._waiter.cancelled():
                self._waiter = Future()
            return self._waiter

    @property
    def is_first(self) -> bool:
        """Whether no ticket stands before it that it waits for to be first."""
        excused = self.links.excused
        return all(other in excused for other in self.before())

    def before(self) -> Iterator[Ticket]:
        """The tickets that stood before it on its turns when it asked to be first."""
        for turn in self.turns:
            yield from turn.before(self)

    def request_first(self) -> Future[None] | None:
        """Ask to be the first of its turns (rule 5); returns what to wait on, or `None` if it is first already.

        A ticket asks once it runs.
        """
        with _LOCK:
            if self.released or self._heads_its_turns():
                return None
            links = self.links
            links.asked = _next_number()
            links.excused.clear()
            for turn in self.turns:
                turn.asking[self] = None
            if self.parent is not None:
                _TIES.nested.add(self)
            if self._may_be_awaited():
                leading = Leading(self, _Waits)
                for other in self.before():
                    # It cannot be released before this one, so waiting for it would never end.
                    if other in leading:
                        self.excuse(other)
            if self.is_first:
                self.stop_asking()
                return None
        return self.waiter

    def extend(self, turns: tuple[Turn, ...]) -> bool:
        """Take more turns if no other ticket holds or awaits them; returns whether it did."""
        with _LOCK:
            more = tuple(turn for turn in dict.fromkeys(turns) if turn not in self.turns)
            # Refused instead of queued: the call holds turns, and waiting with them could close a circle.
            if self.released or not all(turn.is_free for turn in more):
                return False
            for turn in more:
                turn.join(self)
                if self.parent is None and not self.runs:
                    turn.waiting[self] = None
            self.turns += more
        return True

    def wait_on(self, other: Ticket) -> None:
        """Note that this call waits for another one outside of any queue (rule 6); end it with `stop_waiting_on`.

        Raises:
            TurnConflictError: the other one waits for this call, or for one that this was made in.
        """
        with _LOCK:
            # Preferences do not count here: those that close a circle with this wait are withdrawn below.
            if CircleSearch(_WaitsByRules()).finds((other,), (self, *self.ancestors())):
                raise TurnConflictError(_CIRCLE)
            self.links.waits_on[other] = None
            _TIES.waiting_on.add(self)
            woken = self._open_circles()
        _wake(woken)

    def stop_waiting_on(self, other: Ticket) -> None:
        """Note that it waits no more."""
        with _LOCK:
            self.links.waits_on.pop(other, None)
            if not self.links.waits_on:
                _TIES.waiting_on.discard(self)

    def release(self) -> None:
        """Leave all queues, whether it ran or still waited, and wake those behind it. Idempotent."""
        with _LOCK:
            if self.released:
                return
            self.released = True
            # The fast path of most calls: a ticket that is alone in its turns has none to wake.
            if self._links is None and self.parent is None:
                for turn in self.turns:
                    if len(turn.calls.order) > 1 or turn.nested.order:
                        break
                else:
                    for turn in self.turns:
                        del turn.calls.order[self]
                    return
            given_up = self._waiter
            ready = self._leave()
        # Outside of the lock, because a callback of a future may draw or release a ticket, and the lock is not
        # reentrant.
        if given_up is not None:
            given_up.cancel()
        _wake(ready)

    def ancestors(self) -> tuple[Ticket, ...]:
        """The tickets that this one was drawn inside, the nearest first."""
        ancestors: list[Ticket] = []
        ticket = self.parent
        while ticket is not None:
            ancestors.append(ticket)
            ticket = ticket.parent
        return tuple(ancestors)

    def wait_for_others(self, closed: int) -> None:
        """Wait if the ticket, which is not nested, may not run yet; called with the lock held.

        Args:
            closed: in how many of its queues others are ahead of it.
        """
        if not closed and not any(turn.holds_back(self) for turn in self.turns):
            return
        self.runs = False
        for turn in self.turns:
            turn.waiting[self] = None
        self.links.closed = closed
        if not closed:
            self.run_or_be_held()

    def stand_inside(self) -> list[Future[None] | None]:
        """Take the place of a nested ticket (rules 3 and 4); called with the lock held.

        Returns the waiters of those that gave up being first, because this ticket has to wait for them (rule 5).
        """
        closed = sum(not turn.join(self) for turn in self.turns)
        ancestors = self.ancestors()
        if closed or any(turn.holds_back(self) for turn in self.turns):
            self.runs = False
            if self._waits_for(ancestors):
                for turn in self.turns:
                    turn.leave(self)
                raise TurnConflictError(_CIRCLE)
            self.links.closed = closed
            _TIES.nested.add(self)
            if not closed:
                self.run_or_be_held()
        for ancestor in ancestors:
            ancestor.links.inside[self] = None
        return [] if self.runs else self._open_circles()

    def run_or_be_held(self) -> Future[None] | None:
        """Run if no turn holds back this ticket, which is open in all queues; returns the waiter to wake, if any."""
        for turn in self.turns:
            if turn.holds_back(self):
                turn.hold(self)
                return None
        self.runs = True
        if self.parent is None:
            for turn in self.turns:
                del turn.waiting[self]
        else:
            _TIES.nested.discard(self)
        return self._take_waiter()

    def excuse(self, other: Ticket) -> None:
        """Do not wait for a ticket to be first."""
        self.links.excused[other] = None
        other.links.is_excused = True

    def stop_asking(self) -> Future[None] | None:
        """Note that it need not ask to be first any more; returns the waiter to wake, if any."""
        self.links.asked = 0
        self.links.excused.clear()
        for turn in self.turns:
            turn.asking.pop(self, None)
        _TIES.nested.discard(self)
        return self._take_waiter()

    def _take_waiter(self) -> Future[None] | None:
        # A resolved future is not waited on again: `request_first` may need another one.
        waiter, self._waiter = self._waiter, None
        return waiter

    def _heads_its_turns(self) -> bool:
        if self.parent is not None:
            return False
        for turn in self.turns:  # noqa: SIM110 - `all` takes twice as long
            if turn.calls.first is not self or turn.nested.order:
                return False
        return True

    def _leave(self) -> list[Future[None] | None]:
        """Leave the queues and all ties with others; returns the waiters of those that may continue now."""
        free = [ticket for turn in self.turns for ticket in turn.leave(self)]
        for ancestor in self.ancestors():
            del ancestor.links.inside[self]
        _TIES.nested.discard(self)
        _TIES.waiting_on.discard(self)
        ready = [ticket.run_or_be_held() for ticket in free]
        ready += [
            ticket.stop_asking()
            for turn in self.turns
            for ticket in turn.may_be_first()
            if ticket.asks and ticket.is_first
        ]
        return ready

    def _waits_for(self, ancestors: tuple[Ticket, ...]) -> bool:
        # What waits for an ancestor is nested in one of its turns, or waits on it, or is an ancestor too.
        if not _TIES.waiting_on and not any(turn.nested.order for each in ancestors for turn in each.turns):
            return False
        return CircleSearch(_WaitsByRules()).finds((self,), ancestors)

    def _may_be_awaited(self) -> bool:
        """Whether one that stands before this ticket may wait for it: each way from there leads over a tie."""
        if self.parent is not None:
            return True
        # What waits for it is nested in one of its turns, or waits on it, or is a call behind it.
        if _TIES.waiting_on or _TIES.nested or any(turn.nested.order or turn.waiting for turn in self.turns):
            return CircleSearch(_Waits()).finds((*_TIES.nested, *_TIES.waiting_on), (self,))
        return False

    def _open_circles(self) -> list[Future[None] | None]:
        """Withdraw the preferences that form a circle with this ticket; returns the waiters to wake."""
        woken: list[Future[None] | None] = []
        # What waits for this ticket waits on it, is a call behind it, or waits for an ancestor, also to be first.
        if not _TIES.waiting_on and not any(turn.waiting for turn in self.turns):
            turns = [turn for ancestor in self.ancestors() for turn in ancestor.turns]
            if not any(turn.asking or turn.nested.order for turn in turns):
                return woken
        leading = Leading(self, _WaitsByRules)
        search = CircleSearch(_WaitsByRules())
        search.add((self,))
        for ticket in search:
            if ticket.asks:
                for other in [each for each in ticket.before() if each not in ticket.links.excused]:
                    if other in leading:
                        ticket.excuse(other)
                    else:
                        search.add((other,))
                if ticket.is_first:
                    woken.append(ticket.stop_asking())
        return woken


class _Ties:
    """The tickets that may close a circle; while there are none, no circle is looked for.

    Every ticket waits for tickets of smaller numbers and for those inside it, but for these. They are not kept alive
    by this: a ticket may be abandoned together with its turns.

    Attributes:
        nested: the nested tickets that wait or ask to be first.
        waiting_on: the tickets that wait on another one.
    """

    __slots__ = ("nested", "waiting_on")

    def __init__(self) -> None:
        self.nested: WeakSet[Ticket] = WeakSet()
        self.waiting_on: WeakSet[Ticket] = WeakSet()


_TIES = _Ties()


class _WaitsByRules:
    """What tickets wait for, but for preferences (rule 5); for one search, because nothing is returned twice."""

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held: set[tuple[Turn, bool, bool]] = set()

    def __call__(self, ticket: Ticket) -> list[Ticket]:
        if ticket.released:
            return []
        links = ticket.links
        found = [*links.inside, *links.waits_on]
        if not ticket.runs:
            is_nested = ticket.parent is not None
            for turn in ticket.turns:
                found += (turn.nested if is_nested else turn.calls).ahead(ticket)
                key = (turn, is_nested, ticket.exclusive)
                if key not in self._held:
                    self._held.add(key)
                    found += turn.holding_back(ticket)
        return found


class _Waits:
    """The same with preferences."""

    __slots__ = ("_by_rules", "_last", "_standing")

    def __init__(self) -> None:
        self._by_rules = _WaitsByRules()
        self._standing: dict[Turn, Iterator[Ticket]] = {}
        self._last: dict[Turn, int] = {}

    def __call__(self, ticket: Ticket) -> list[Ticket]:
        found = self._by_rules(ticket)
        found += [each for each in ticket.ancestors() if each.asks]  # its call may wait until these are first
        if not ticket.asks:
            return found
        excused = ticket.links.excused
        if excused or ticket.parent is not None:
            return found + [other for other in ticket.before() if other not in excused]
        for turn in ticket.turns:
            found += self._calls_before(turn, ticket)
            found += turn.nested_before(ticket)
        return found

    def _calls_before(self, turn: Turn, ticket: Ticket) -> Iterator[Ticket]:
        """The calls that stand before one, but for those that are known of another one that stood behind them."""
        calls = self._standing.setdefault(turn, iter(turn.calls.order))
        while self._last.get(turn, 0) < ticket.number:
            call = next(calls)
            self._last[turn] = call.number
            yield call


def _wake(waiters: Iterable[Future[None] | None]) -> None:
    """Wake those that wait, unless they stopped waiting; called without the lock, because it calls back."""
    for waiter in waiters:
        if waiter is not None and waiter.set_running_or_notify_cancel():
            waiter.set_result(None)


def draw_ticket(turns: tuple[Turn, ...], *, exclusive: bool, inside: Ticket | None = None) -> Ticket:
    """Draw a place in the queues of all `turns` at once; look at `Ticket.waiter` before continuing.

    Args:
        turns: the turns of all participants.
        exclusive: whether the call writes.
        inside: the running ticket of the call that this one is made in, if any (rules 3 and 4).

    Raises:
        TurnConflictError: waiting would never end (rule 4). No place was taken.
    """
    # A turn that is given twice, as by a session that is a resource too, would put the ticket behind itself.
    if len(turns) > 1 and len(set(turns)) < len(turns):
        turns = tuple(dict.fromkeys(turns))
    ticket = Ticket(turns, inside, exclusive)
    if inside is not None:
        with _LOCK:
            ticket.number = _next_number()
            woken = ticket.stand_inside()
        _wake(woken)
        return ticket
    closed, is_behind_nested = 0, False
    with _LOCK:
        ticket.number = number = _next_number()
        for turn in turns:
            order = turn.calls.order
            if order:
                closed += not turn.calls.join(ticket, number)
            else:
                order[ticket] = number
            if turn.nested.order:
                is_behind_nested = True
        if closed or is_behind_nested:
            ticket.wait_for_others(closed)
    return ticket
