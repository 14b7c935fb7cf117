"""Turns against a model: who waits for whom is kept here as a plain graph, and compared after every step.

The model of a ticket is the set of tickets that it was told to wait for when it was drawn, by the rules' own words. A
wish to be first (rule 5) is not predicted but judged: it must not be given up without need, nor ever close a circle.
"""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from handrail.errors import TurnConflictError
from handrail.turns import Ticket, Turn, draw_ticket
from tests.extent import examples

TURNS = 4
subsets = st.sets(st.integers(0, TURNS - 1), max_size=TURNS).map(sorted)
picks = st.integers(0, 1_000)


class TurnsMachine(RuleBasedStateMachine):
    """Random calls on a few participants, also inside each other, that ask, grow, give up and end in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.turns = [Turn() for _ in range(TURNS)]
        self.alive: list[Ticket] = []
        self.must_wait_for: dict[Ticket, set[Ticket]] = {}
        self.wishes: dict[Ticket, set[Ticket]] = {}
        self.leans: dict[Ticket, set[Ticket]] = {}

    @rule(places=subsets, exclusive=st.booleans())
    def draw_outside(self, places: list[int], exclusive: bool) -> None:
        """Rule 2: behind all that conflict."""
        ticket = draw_ticket(tuple(self.turns[place] for place in places), exclusive=exclusive)
        self.must_wait_for[ticket] = {other for other in self.alive if conflict(ticket, other)}
        self.alive.append(ticket)

    @rule(places=subsets, kinds=st.lists(st.booleans(), min_size=2, max_size=6))
    def draw_many(self, places: list[int], kinds: list[bool]) -> None:
        """Rule 2: neighbours that share, and those that do not, on the same turns."""
        for exclusive in kinds:
            self.draw_outside(places, exclusive)

    @precondition(lambda self: self.running())
    @rule()
    def all_request_first_in_reverse_order(self) -> None:
        """Rule 5: as reads do that end in the reverse of the order drawn."""
        for pick in reversed(range(len(self.running()))):
            self.request_first(pick)

    @precondition(lambda self: len(self.alive) > len(self.running()))
    @rule(pick=picks)
    def those_that_wait_give_up(self, pick: int) -> None:
        """As when a reply is cancelled; one of them may stay."""
        waiting = [ticket for ticket in self.alive if not ticket.runs]
        stays = waiting[pick % len(waiting)] if pick % 2 else None
        for ticket in waiting:
            if ticket is not stays and ticket in self.alive:
                self.end(ticket)

    @precondition(lambda self: self.running())
    @rule(pick=picks, places=subsets, exclusive=st.booleans())
    def draw_inside(self, pick: int, places: list[int], exclusive: bool) -> None:
        """Rules 3 and 4: ahead of what waits and is not nested, unless the caller would wait for itself."""
        caller = self.running()[pick % len(self.running())]
        turns = tuple(self.turns[place] for place in places)
        probe = Ticket(turns, caller, exclusive)
        ahead = {other for other in self.alive if conflict(probe, other) and (other.runs or other.parent)}
        before = [list(turn.queue) for turn in self.turns]
        if self.awaited(ahead, wishes=False) & {caller, *caller.ancestors()}:
            with pytest.raises(TurnConflictError):
                draw_ticket(turns, exclusive=exclusive, inside=caller)
            assert [turn.queue for turn in self.turns] == before
            return
        waiting = [other for other in self.alive if conflict(probe, other) and other not in ahead]
        ticket = draw_ticket(turns, exclusive=exclusive, inside=caller)
        self.must_wait_for[ticket] = ahead
        for other in waiting:
            self.must_wait_for[other].add(ticket)
        self.alive.append(ticket)

    @precondition(lambda self: self.running())
    @rule(pick=picks)
    def request_first(self, pick: int) -> None:
        """Rule 5: a wish is for all that stand before it but those that wait for the wisher."""
        ticket = self.running()[pick % len(self.running())]
        standing = {other for turn in ticket.turns for other in turn.queue[: turn.queue.index(ticket)]}
        hopeless = {other for other in standing if ticket in self.awaited({other}, wishes=False)}
        asked = ticket.request_first()
        if asked is None:
            assert standing == hopeless or any(self.wishes.values())
        else:
            assert not asked.done()
            self.wishes[ticket] = self.wishes.get(ticket, set()) | standing

    @precondition(lambda self: len(self.running()) > 1)
    @rule(pick=picks, which=picks)
    def wait_on(self, pick: int, which: int) -> None:
        """Rule 6: a call waits for another one's effect, unless that one waits for it."""
        ticket = self.running()[pick % len(self.running())]
        others = [other for other in self.running() if other is not ticket]
        other = others[which % len(others)]
        if self.awaited({other}, wishes=False) & {ticket, *ticket.ancestors()}:
            with pytest.raises(TurnConflictError):
                ticket.wait_on(other)
        else:
            ticket.wait_on(other)
            self.leans.setdefault(ticket, set()).add(other)

    @precondition(lambda self: self.running())
    @rule(pick=picks, places=subsets)
    def extend(self, pick: int, places: list[int]) -> None:
        """More turns are taken if they are free, and else nothing changes."""
        ticket = self.running()[pick % len(self.running())]
        more = [self.turns[place] for place in places if self.turns[place] not in ticket.turns]
        held = ticket.turns
        taken = ticket.extend(tuple(more))
        assert taken == (not any(other in turn.queue for turn in more for other in self.alive if other is not ticket))
        assert set(ticket.turns) == {*held, *(more if taken else ())}

    @precondition(lambda self: self.alive)
    @rule(pick=picks)
    def release(self, pick: int) -> None:
        """A call ends, or gives up waiting; calls that it has left behind stay."""
        self.end(self.alive[pick % len(self.alive)])

    @invariant()
    def those_run_that_the_model_lets_run(self) -> None:
        """Rules 2 and 3, exactly: nobody waits without need, and nobody goes too early."""
        for ticket in self.alive:
            assert ticket.runs == (not self.must_wait_for[ticket])

    @invariant()
    def no_two_that_conflict_run(self) -> None:
        """Rule 1."""
        running = self.running()
        assert not any(conflict(one, other) for one in running for other in running if one is not other)

    @invariant()
    def a_waiter_is_there_for_those_that_wait(self) -> None:
        """And for nobody else, but for those with a wish."""
        for ticket in self.alive:
            waiter = ticket.waiter
            assert waiter is None or not waiter.done()
            assert not (waiter is None and not ticket.runs)
            assert not (waiter is not None and ticket.runs and not self.wishes.get(ticket))

    def teardown(self) -> None:
        """Nothing starves: calls end when nothing inside them is left and they need not wait, and all of them do."""
        while self.alive:
            free = [
                ticket
                for ticket in self.alive
                if ticket.runs
                and ticket.waiter is None
                and not self.leans.get(ticket)
                and not any(ticket in other.ancestors() for other in self.alive)
            ]
            assert free, "nobody can go on"
            self.end(free[-1])
            self.those_run_that_the_model_lets_run()
        assert all(turn.queue == [] for turn in self.turns)

    def running(self) -> list[Ticket]:
        return [ticket for ticket in self.alive if ticket.runs]

    def end(self, ticket: Ticket) -> None:
        ticket.release()
        self.alive.remove(ticket)
        for others in (*self.must_wait_for.values(), *self.wishes.values()):
            others.discard(ticket)
        for leaning, others in self.leans.items():
            if ticket in others:
                leaning.stop_waiting_on(ticket)
                others.remove(ticket)
        assert all(ticket not in turn.queue for turn in self.turns)

    def awaited(self, tickets: set[Ticket], *, wishes: bool) -> set[Ticket]:
        """What must end before `tickets` do, themselves included."""
        found: set[Ticket] = set()
        while tickets - found:
            found |= tickets
            tickets = {
                other
                for ticket in found
                for other in (
                    *self.must_wait_for[ticket],
                    *(self.wishes.get(ticket, ()) if wishes else ()),
                    *self.leans.get(ticket, ()),
                    *(inner for inner in self.alive if ticket in inner.ancestors()),
                )
            }
        return found


def conflict(one: Ticket, other: Ticket) -> bool:
    """Rule 1."""
    return (one.exclusive or other.exclusive) and bool({*one.turns} & {*other.turns})


TestTurns = TurnsMachine.TestCase
TestTurns.settings = settings(max_examples=examples(200), stateful_step_count=40)
