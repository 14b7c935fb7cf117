"""The queue of one turn: what is open, and what a ticket waits for, in groups."""

from __future__ import annotations

from dataclasses import dataclass

from handrail.turns.queue import TurnQueue


@dataclass(eq=False)
class Place:
    """What stands in a queue."""

    name: str
    exclusive: bool


def joined(queue: TurnQueue[Place], letters: str) -> list[Place]:
    """Places that have joined, in this order; a capital is exclusive."""
    places = [Place(letter, letter.isupper()) for letter in letters]
    for number, place in enumerate(places):
        queue.join(place, number)
    return places


def names(places: list[Place]) -> str:
    """Their letters."""
    return "".join(place.name for place in places)


def test_ticket_waits_for_the_group_ahead_of_its_own() -> None:
    """And for no more than the last writer before that: the others ahead are waited for by these."""
    queue: TurnQueue[Place] = TurnQueue()
    places = joined(queue, "AbcDefG")
    assert [names(queue.ahead(place)) for place in places] == ["", "A", "A", "bcA", "D", "D", "efD"]
    assert names(queue.open_tickets()) == "A"
    assert queue.has_exclusive


def test_group_of_one_that_gave_up_is_looked_past() -> None:
    """Neighbours that share do not wait for each other, also where a writer stood between them."""
    queue: TurnQueue[Place] = TurnQueue()
    places = joined(queue, "AbCdEF")
    assert list(queue.leave(places[2])) == []
    assert names(queue.ahead(places[3])) == "A"
    assert sorted(names(queue.ahead(places[4]))) == ["A", "b", "d"]
    assert names(list(queue.leave(places[0]))) == "bd"
    assert [names(list(queue.leave(place))) for place in (places[4], places[1], places[3])] == ["", "", "F"]
    assert list(queue.leave(places[5])) == []
    assert not queue.has_exclusive


def test_last_groups_that_gave_up_are_removed() -> None:
    """One that joins after them is the neighbour of those that are still there."""
    queue: TurnQueue[Place] = TurnQueue()
    _, *gave_up = joined(queue, "aBC")
    for place in gave_up:
        queue.leave(place)
    assert not queue.has_exclusive
    assert queue.join(Place("d", exclusive=False), 4)
