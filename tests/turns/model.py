"""A brute-force reading of the rules of `handrail.turns`: slow, without queues, without short cuts."""

from __future__ import annotations

from collections.abc import Iterable


class Place:
    """What the model knows of a ticket; moments are numbers, in the order of time."""

    def __init__(self, turns: set[int], *, exclusive: bool, ancestors: tuple[Place, ...], drawn: int) -> None:
        self.turns = turns
        self.exclusive = exclusive
        self.ancestors = ancestors
        self.drawn = drawn
        self.began: int | None = None
        self.asks = False
        self.excused: set[Place] = set()
        self.waits_on: set[Place] = set()

    def conflicts(self, other: Place) -> bool:
        """Rule 1."""
        return (self.exclusive or other.exclusive) and bool(self.turns & other.turns)


class Model:
    """Unreleased tickets, in the order drawn."""

    def __init__(self) -> None:
        self.alive: list[Place] = []
        self.now = 0

    def ahead(self, one: Place) -> set[Place]:
        """Rules 2 and 3: what a ticket waits for to run."""
        others = [other for other in self.alive if other is not one and one.conflicts(other)]
        if not one.ancestors:
            return {other for other in others if other.ancestors or other.drawn < one.drawn}
        return {other for other in others if (other.drawn < one.drawn if other.ancestors else other.began is not None)}

    def before(self, one: Place) -> set[Place]:
        """Rule 5: what a ticket that runs waits for to be first."""
        others = [other for other in self.alive if other is not one and one.turns & other.turns]
        nested = [other for other in others if other.ancestors]
        calls = [other for other in others if not other.ancestors]
        if one.ancestors:
            # It stands before the calls that waited when it was drawn.
            before = [other for other in calls if other.began is not None and other.began < one.drawn]
            before += [other for other in nested if other.drawn < one.drawn]
        else:
            before = [other for other in calls if other.drawn < one.drawn]
            before += [other for other in nested if other.drawn < (one.began or 0)]
        return set(before) - one.excused

    def reach(self, places: Iterable[Place], *, requests: bool) -> set[Place]:
        """These, and all that they wait for through any chain, also to be first if `requests`."""
        reached: set[Place] = set()
        to_visit = list(places)
        while to_visit:
            one = to_visit.pop()
            if one not in reached:
                reached.add(one)
                to_visit += one.waits_on
                to_visit += [other for other in self.alive if one in other.ancestors]
                if one.began is None:
                    to_visit += self.ahead(one)
                if requests:
                    # The call of a nested ticket may wait until its ancestors are first.
                    to_visit += [other for other in one.ancestors if other.asks]
                    to_visit += self.before(one) if one.asks else ()
        return reached

    def draw(self, turns: Iterable[int], *, exclusive: bool, inside: Place | None) -> Place | None:
        """Rules 2 to 4; returns `None` for a refused ticket."""
        self.now += 1
        ancestors = () if inside is None else (inside, *inside.ancestors)
        one = Place(set(turns), exclusive=exclusive, ancestors=ancestors, drawn=self.now)
        ahead = self.ahead(one)
        if ahead and self.reach(ahead, requests=False) & {*ancestors}:
            return None
        self.alive.append(one)
        self.go_on()
        self.give_way(one)
        return one

    def request_first(self, one: Place) -> None:
        """Rule 5: not for those that wait for it, through the requests of others too."""
        one.asks = True
        one.excused |= {other for other in self.before(one) if one in self.reach([other], requests=True)}
        self.go_on()

    def wait_on(self, one: Place, other: Place) -> bool:
        """Rule 6; returns whether it may."""
        if self.reach([other], requests=False) & {one, *one.ancestors}:
            return False
        one.waits_on.add(other)
        self.give_way(one)
        return True

    def give_way(self, one: Place) -> None:
        """Rules 5 and 6: no request is left that waits for one that waits for a ticket that waits for the request."""
        leading = {other for other in self.alive if one in self.reach([other], requests=False)}
        for other in [other for other in self.reach([one], requests=True) if other.asks]:
            other.excused |= self.before(other) & leading
        self.go_on()

    def release(self, one: Place) -> None:
        """Forgets a ticket, and lets those continue that waited for it alone."""
        self.alive.remove(one)
        one.asks = False
        for other in self.alive:
            other.waits_on.discard(one)
        self.go_on()

    def go_on(self) -> None:
        """Lets those run that wait for nothing, and those be first that need not wait for that."""
        self.now += 1
        for one in [one for one in self.alive if one.began is None and not self.ahead(one)]:
            one.began = self.now
        for one in [one for one in self.alive if one.asks and not self.before(one)]:
            one.asks, one.excused = False, set()
