"""Fair turns: who may touch a session or a resource, and when.

Every participant of calls (a session, a snapshotable resource) has a `Turn`. A call draws a `Ticket` for the turns of
all its participants at once. The rules:

1. A ticket is *exclusive* (a call that writes) or *shared* (a call that reads). Two tickets conflict on a turn when one
   of them is exclusive.
2. A ticket may run when no earlier ticket conflicts with it on any of its turns. "Earlier" is the order in which the
   tickets were drawn, which is one order for all turns, because all are drawn under one lock. A ticket takes all its
   turns at one moment and holds nothing while it waits, so tickets cannot wait for each other in a circle.
3. A ticket drawn *inside* another (a nested call) goes ahead of those that wait and are not nested: they hold nothing,
   and they may be waiting for the call that this one is a part of.
4. Rule 3 lets a ticket hold turns while it waits for more, so here a circle is possible. It is looked for before the
   ticket waits, and found, it is refused with `TurnConflictError`: the model reads why, and nothing has run.
5. A shared ticket that runs may ask to be *first*: it then waits until every ticket that stands before it on its turns
   has been released. Reads run concurrently, and their results are applied in the order in which they were asked for.
   This is a
   preference: a ticket does not wait, or stops waiting, for one that cannot continue until this one is released.

6. A call may wait for another one outside of any queue, as for its effect: it *waits on* it. What would close a circle
   is refused as by rule 4, and withdraws preferences as by rule 5.

What waits for what is a graph: a ticket waits for its `blockers`, a call for the calls inside it and for those that it
waits on. Rules 2 and 4 to 6 keep it free of circles, so each that waits runs once those that run are released, in
whatever order.

Threads and tasks can both wait: a waiter is a `concurrent.futures.Future`, on which a thread blocks and which a task
awaits wrapped.

State: each `Turn` owns the queue of its unreleased tickets. All queues and tickets are guarded by one lock of the
module, which is held for a few list operations and never while a waiter is woken.

Whose turn it is: participants that carry their own, and turns that are kept for those that do not.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Collection, Iterable
from concurrent.futures import Future
from typing import Protocol, runtime_checkable

from handrail.errors import TurnConflictError

__all__ = ["HasTurn", "Ticket", "TicketLinks", "Turn", "draw_ticket", "own_turn", "turn_of"]


_LOCK = threading.Lock()

_CIRCLE = (
    "this call would wait for a call that itself waits for the one this was made in, so neither could continue. Make "
    "the calls one after the other."
)


class Turn:
    """The turn of one participant.

    Attributes:
        queue: the tickets that run or wait for it, in the order in which they go; to be read, for diagnostics.
    """

    __slots__ = ("queue",)

    def __init__(self) -> None:
        """Make a turn that no ticket holds."""
        self.queue: list[Ticket] = []


class TicketLinks:
    """What connects a ticket with others; made when it first meets one, because most tickets never do.

    The dictionaries are ordered sets: their values mean nothing.

    Attributes:
        blockers: the tickets it waits for.
        behind: the tickets that wait for it.
        inside: the unreleased tickets that were drawn inside it, at any depth.
        leans: the tickets whose calls it waits for outside of any queue; see `Ticket.wait_on`.
    """

    __slots__ = ("behind", "blockers", "inside", "leans")

    def __init__(self) -> None:
        """Connect with no other ticket yet."""
        self.blockers: dict[Ticket, None] = {}
        self.behind: dict[Ticket, None] = {}
        self.inside: dict[Ticket, None] = {}
        self.leans: dict[Ticket, None] = {}


class Ticket:
    """A place in the queues of some turns; made by `draw_ticket`, ended by `release`.

    Attributes:
        turns: the turns in whose queues it is, each once.
        parent: the ticket of the call that this one was drawn inside.
        exclusive: whether it writes.
        runs: whether its turn has come; so it stays until it is released.
        released: whether it has left all queues.
    """

    __slots__ = ("_links", "_waiter", "exclusive", "parent", "released", "runs", "turns")

    def __init__(self, turns: tuple[Turn, ...], parent: Ticket | None, exclusive: bool) -> None:  # noqa: FBT001 - a keyword would cost each call a tenth of what its turn costs
        """Make a ticket that is in no queue yet; use `draw_ticket`."""
        self.turns: tuple[Turn, ...] = turns
        self.parent: Ticket | None = parent
        self.exclusive: bool = exclusive
        self.runs: bool = True
        self.released: bool = False
        self._links: TicketLinks | None = None
        self._waiter: Future[None] | None = None

    @property
    def links(self) -> TicketLinks:
        """What connects it with other tickets; read and changed with the lock held."""
        if self._links is None:
            self._links = TicketLinks()
        return self._links

    @property
    def waiter(self) -> Future[None] | None:
        """What to wait on before continuing; `None` when nothing blocks the ticket.

        It is done when nothing blocks the ticket any more, and cancelled when the ticket is released while it waits.
        To cancel it is to give up this wait, not the place: asked again, the ticket has another waiter.
        """
        # Read without the lock: another thread adds blockers only to a ticket that waits already, and that one has
        # links.
        if self._links is None:
            return None
        with _LOCK:
            if not self._links.blockers:
                return None
            if self._waiter is None or self._waiter.cancelled():
                self._waiter = Future()
            return self._waiter

    def request_first(self) -> Future[None] | None:
        """Ask to be the first of its turns (rule 5); returns what to wait on, or `None` if it is first already."""
        if self.released or self._is_first():
            return None
        with _LOCK:
            clear: set[Ticket] = set()  # known not to wait for this one
            for turn in self.turns:
                for earlier in turn.queue[: turn.queue.index(self)]:
                    if earlier not in clear:
                        found = _awaited((earlier,), known=clear)
                        # The earlier ticket cannot be released before this one, so waiting for it would never end.
                        if self in found:
                            continue
                        clear |= found
                    self.wait_for(earlier)
        return self.waiter

    def _is_first(self) -> bool:
        # Read without the lock: this ticket runs, so no other is inserted before it once it heads a queue.
        for turn in self.turns:  # noqa: SIM110 - `all` takes twice as long
            if turn.queue[0] is not self:
                return False
        return True

    def extend(self, turns: tuple[Turn, ...]) -> bool:
        """Take more turns if no other ticket holds or awaits them; returns whether it did."""
        with _LOCK:
            more = tuple(turn for turn in dict.fromkeys(turns) if turn not in self.turns)
            # Refused instead of queued: the call holds turns, and waiting with them could close a circle.
            if self.released or any(turn.queue for turn in more):
                return False
            for turn in more:
                turn.queue.append(self)
            self.turns += more
        return True

    def wait_on(self, other: Ticket) -> None:
        """Note that this call waits for another one outside of any queue (rule 6); end it with `stop_waiting_on`.

        Raises:
            TurnConflictError: the other one waits for this call, or for one that this was made in.
        """
        with _LOCK:
            # Preferences do not count here: those that close a circle with this wait are withdrawn below.
            if not _awaited((other,), preferences=False).isdisjoint((self, *self.ancestors())):
                raise TurnConflictError(_CIRCLE)
            self.links.leans[other] = None
            woken = self._open_circles()
        _wake(woken)

    def stop_waiting_on(self, other: Ticket) -> None:
        """Note that it waits no more."""
        with _LOCK:
            self.links.leans.pop(other, None)

    def release(self) -> None:
        """Leave all queues, whether it ran or still waited, and wake those behind it. Idempotent."""
        with _LOCK:
            if self.released:
                return
            self.released = True
            for turn in self.turns:
                turn.queue.remove(self)
            # The fast path of most calls: a ticket that has met no other one has none to wake.
            if self._links is None and self.parent is None:
                return
            given_up = self._waiter
            ready = self._part()
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

    def stand_behind(self, queue: list[Ticket]) -> None:
        """Wait for every ticket of a queue that conflicts (rule 2); called with the lock held."""
        for other in queue:
            if self.exclusive or other.exclusive:
                self.wait_for(other)
                self.runs = False

    def stand_inside(self) -> list[Future[None] | None]:
        """Take the place ahead of the waiting tickets that are not nested (rules 3 and 4); called with the lock held.

        Returns the waiters of those that gave up being first, because this ticket has to wait for them (rule 5).
        """
        ahead = [
            other
            for turn in self.turns
            for other in turn.queue
            if _goes_first(other) and (self.exclusive or other.exclusive)
        ]
        ancestors = self.ancestors()
        # Checked before the first link is made, so that a refused ticket leaves nothing to undo.
        if not _awaited(ahead, preferences=False).isdisjoint(ancestors):
            raise TurnConflictError(_CIRCLE)
        for other in ahead:
            self.wait_for(other)
        self.runs = not ahead
        for turn in self.turns:
            waiting = [other for other in turn.queue if not _goes_first(other)]
            for other in waiting:
                if self.exclusive or other.exclusive:
                    other.wait_for(self)
            turn.queue.insert(turn.queue.index(waiting[0]) if waiting else len(turn.queue), self)
        for ancestor in ancestors:
            ancestor.links.inside[self] = None
        return self._open_circles()

    def wait_for(self, other: Ticket) -> None:
        """Note that this ticket cannot continue before `other` is released; called with the lock held."""
        self.links.blockers[other] = None
        other.links.behind[self] = None

    def stop_waiting_for(self, other: Ticket) -> Future[None] | None:
        """Note that `other` does not block it any more, with the lock held; returns the waiter to wake, if any."""
        blockers = self.links.blockers
        del blockers[other]
        del other.links.behind[self]
        if blockers:
            return None
        self.runs = True
        # A resolved future is not waited on again: `request_first` may need another one.
        waiter, self._waiter = self._waiter, None
        return waiter

    def _part(self) -> list[Future[None] | None]:
        """Undo every link with another ticket; returns the waiters of those that may continue now."""
        for ancestor in self.ancestors():
            del ancestor.links.inside[self]
        for blocker in self.links.blockers:
            del blocker.links.behind[self]
        self.links.blockers.clear()
        # A copy, because each of them removes itself from `behind`.
        return [waiting.stop_waiting_for(self) for waiting in tuple(self.links.behind)]

    def _open_circles(self) -> list[Future[None] | None]:
        """Withdraw the preferences that form a cycle with this ticket; returns the waiters to wake."""
        woken: list[Future[None] | None] = []
        for ticket in _awaited((self,)):
            # A ticket that runs waits only by preference (rule 5); no other wait may be withdrawn.
            if ticket.runs:
                circles = [blocker for blocker in ticket.links.blockers if ticket in _awaited((blocker,))]
                woken += [ticket.stop_waiting_for(blocker) for blocker in circles]
        return woken


def _goes_first(other: Ticket) -> bool:
    """Whether a nested ticket stands behind this one: it runs, or it is nested too and was drawn earlier."""
    return other.runs or other.parent is not None


def _awaited(tickets: Iterable[Ticket], *, preferences: bool = True, known: Collection[Ticket] = ()) -> set[Ticket]:
    """The tickets themselves, and all that must be released before they are; `preferences` includes those of rule 5.

    Those that are `known`, and what stands behind them alone, are left out.
    """
    seen: set[Ticket] = set()
    to_visit = list(tickets)
    while to_visit:
        ticket = to_visit.pop()
        if ticket not in seen and ticket not in known:
            seen.add(ticket)
            to_visit += (*ticket.links.inside, *ticket.links.leans)
            if preferences or not ticket.runs:
                to_visit += ticket.links.blockers
    return seen


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
            woken = ticket.stand_inside()
        _wake(woken)
        return ticket
    with _LOCK:
        for turn in turns:
            queue = turn.queue
            if queue:
                ticket.stand_behind(queue)
            queue.append(ticket)
    return ticket


@runtime_checkable
class HasTurn(Protocol):
    """A participant that carries its own turn, as sessions and filesystems do.

    It calls `handrail.transaction.check_write` before each change.
    """

    @property
    def turn(self) -> Turn:
        """The one turn of this participant; always the same object."""
        ...


class _LentTurns:
    """Turns for participants that carry none, kept by identity for as long as the participant lives."""

    def __init__(self) -> None:
        self._turns: dict[int, Turn] = {}
        self._lock = threading.Lock()

    def of(self, participant: object) -> Turn:
        key = id(participant)
        with self._lock:
            turn = self._turns.get(key)
            if turn is None:
                # Before the turn is stored: this raises for what cannot be weakly referenced, and its id may name
                # another object later. The finalizer takes no lock, because it may run in a thread that holds this one.
                weakref.finalize(participant, self._turns.pop, key, None).atexit = False
                turn = self._turns[key] = Turn()
        return turn


_LENT = _LentTurns()


def own_turn(participant: object) -> Turn | None:
    """The turn that a participant carries itself, if it does (`HasTurn`)."""
    turn = getattr(participant, "turn", None)
    return turn if isinstance(turn, Turn) else None


def turn_of(participant: object) -> Turn:
    """The turn of a participant: its own, or one that is kept for it.

    Raises:
        TypeError: the participant carries no turn and cannot be weakly referenced (a class with `__slots__` and no
            `__weakref__`); give it a `turn` attribute.
    """
    return own_turn(participant) or _LENT.of(participant)
