"""Turns against a model (`model.py`): one schedule is played on both, and they are compared after every step."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from handrail.errors import TurnConflictError
from handrail.turns import Ticket, Turn, draw_ticket
from tests.extent import examples
from tests.turns.model import Model, Place

TURNS = 4
subsets = st.sets(st.integers(0, TURNS - 1), max_size=3).map(sorted)
picks = st.integers(0, 1_000)
MOST = 24
"""As many calls are alive before one more: what the model does for each takes the cube of that."""

few = precondition(lambda machine: len(machine.model.alive) < MOST)


class TurnsMachine(RuleBasedStateMachine):
    """Random calls on a few participants, also inside each other, that ask, grow, give up and end in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.turns = [Turn() for _ in range(TURNS)]
        self.model = Model()
        self.tickets: dict[Place, Ticket] = {}

    @few
    @rule(places=subsets, exclusive=st.booleans())
    def draw(self, places: list[int], *, exclusive: bool, inside: Place | None = None) -> None:
        """Rules 1 to 4."""
        turns = tuple(self.turns[place] for place in places)
        ticket = None if inside is None else self.tickets[inside]
        before = [list(turn.queue) for turn in self.turns]
        place = self.model.draw(places, exclusive=exclusive, inside=inside)
        if place is None:
            with pytest.raises(TurnConflictError):
                draw_ticket(turns, exclusive=exclusive, inside=ticket)
            assert [turn.queue for turn in self.turns] == before
        else:
            self.tickets[place] = draw_ticket(turns, exclusive=exclusive, inside=ticket)

    @few
    @rule(places=subsets, kinds=st.lists(st.booleans(), min_size=2, max_size=6))
    def draw_many(self, places: list[int], kinds: list[bool]) -> None:
        """Rule 2: neighbours that share, and those that do not, on the same turns."""
        for exclusive in kinds:
            self.draw(places, exclusive=exclusive)

    @precondition(lambda self: self.running() and len(self.model.alive) < MOST)
    @rule(pick=picks, places=subsets, exclusive=st.booleans())
    def draw_inside(self, pick: int, places: list[int], *, exclusive: bool) -> None:
        """Rules 3 and 4."""
        self.draw(places, exclusive=exclusive, inside=self.running()[pick % len(self.running())])

    @precondition(lambda self: self.running())
    @rule(pick=picks)
    def request_first(self, pick: int) -> None:
        """Rule 5."""
        place = self.running()[pick % len(self.running())]
        self.model.request_first(place)
        waiter = self.tickets[place].request_first()
        assert (waiter is not None) == place.asks

    @precondition(lambda self: self.running())
    @rule()
    def all_request_first_in_reverse_order(self) -> None:
        """Rule 5: as reads do that end in the reverse of the order drawn."""
        for pick in reversed(range(len(self.running()))):
            self.request_first(pick)

    @precondition(lambda self: len(self.running()) > 1)
    @rule(pick=picks, which=picks)
    def wait_on(self, pick: int, which: int) -> None:
        """Rule 6."""
        one, other = (self.running()[number % len(self.running())] for number in (pick, which))
        if self.model.wait_on(one, other):
            self.tickets[one].wait_on(self.tickets[other])
        else:
            with pytest.raises(TurnConflictError):
                self.tickets[one].wait_on(self.tickets[other])

    @precondition(lambda self: any(place.waits_on for place in self.model.alive))
    @rule(pick=picks)
    def stop_waiting_on(self, pick: int) -> None:
        """Rule 6."""
        leaning = [place for place in self.model.alive if place.waits_on]
        one = leaning[pick % len(leaning)]
        other = min(one.waits_on, key=lambda place: place.drawn)
        one.waits_on.remove(other)
        self.tickets[one].stop_waiting_on(self.tickets[other])

    @precondition(lambda self: self.running())
    @rule(pick=picks, where=st.integers(0, TURNS - 1))
    def extend(self, pick: int, where: int) -> None:
        """One more turn is taken if it is free, and else nothing changes."""
        place = self.running()[pick % len(self.running())]
        free = not any(where in other.turns for other in self.model.alive)
        assert self.tickets[place].extend(self.turns[where]) == free
        place.turns |= {where} if free else set()

    @precondition(lambda self: self.model.alive)
    @rule(pick=picks)
    def release(self, pick: int) -> None:
        """A call ends, or gives up waiting; calls that it has left behind stay."""
        self.end(self.model.alive[pick % len(self.model.alive)])

    @precondition(lambda self: len(self.model.alive) > len(self.running()))
    @rule(pick=picks)
    def those_that_wait_give_up(self, pick: int) -> None:
        """As when a reply is cancelled; one of them may stay."""
        waiting = [place for place in self.model.alive if place.began is None]
        for place in waiting:
            if place is not waiting[pick % len(waiting)] or pick % 2:
                self.end(place)

    @invariant()
    def those_continue_that_the_model_lets_continue(self) -> None:
        """Nobody waits without need, and nobody goes too early."""
        for place in self.model.alive:
            ticket = self.tickets[place]
            waiter = ticket.waiter
            assert (ticket.runs, waiter is None) == (place.began is not None, ticket.runs and not place.asks)
            assert waiter is None or not waiter.done()

    def teardown(self) -> None:
        """Nothing starves: calls end when nothing inside them is left and they need not wait, and all of them do."""
        while self.model.alive:
            newest = reversed(self.model.alive)
            free = next((place for place in newest if self.model.reach([place], requests=True) == {place}), None)
            assert free, "nobody can go on"
            self.end(free)
            self.those_continue_that_the_model_lets_continue()
        assert all(turn.queue == [] for turn in self.turns)

    def running(self) -> list[Place]:
        return [place for place in self.model.alive if place.began is not None]

    def end(self, place: Place) -> None:
        self.model.release(place)
        leaving = self.tickets.pop(place)
        leaving.release()
        for ticket in self.tickets.values():
            ticket.stop_waiting_on(leaving)


TestTurns = TurnsMachine.TestCase
TestTurns.settings = settings(max_examples=examples(200), stateful_step_count=40)
