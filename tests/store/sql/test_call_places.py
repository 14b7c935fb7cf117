"""Places are given in the order of asking, to units of work before calls, and none is lost."""

from __future__ import annotations

import asyncio
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from handrail.errors import SessionUseError, StoreUnavailableError
from handrail.store.sql.driver import CallPlaces

PATIENCE = timedelta(seconds=20)
"""A thread that waits for longer has been forgotten."""


def places_for(number: int, busy: timedelta = PATIENCE) -> CallPlaces:
    """The places of a database."""
    return CallPlaces(number, busy=busy, url="desk.db")


def test_units_go_before_calls_and_each_in_the_order_of_asking() -> None:
    """Calls that have ended wait for their units."""
    places = places_for(1)
    held = places.ask()
    asked = {name: places.ask(for_call=name.startswith("call")) for name in ("call 1", "unit 1", "call 2", "unit 2")}
    assert places.waiting == len(asked)
    for name in ("unit 1", "unit 2", "call 1", "call 2"):
        places.release(held)
        held = asked[name]
        assert held.done()
    assert places.waiting == 0


def test_a_place_that_is_withdrawn_is_passed_over() -> None:
    """One that was given already cannot be withdrawn, but released."""
    places = places_for(1)
    held, withdrawn, following = (places.ask(for_call=True) for _ in range(3))
    assert not held.cancel()
    places.release(withdrawn)
    assert following.behind_call
    places.release(held)
    assert following.done()
    assert places.is_used_by_calls()
    places.release(following)
    assert not places.is_used_by_calls()
    assert places.ask().done()


@pytest.mark.parametrize("number", [1, 3])
def test_no_more_hold_a_place_than_there_are(number: int) -> None:
    """A storm of threads, some of which give up; afterwards all places are free."""
    places = places_for(number)
    holding, most, lock = 0, 0, threading.Lock()

    def work(seed: int) -> int:
        nonlocal holding, most
        dice, times = random.Random(seed), 0  # noqa: S311
        for _ in range(200):
            place = places.ask(for_call=dice.random() < 0.5)
            if dice.random() < 0.7:
                places.wait(place)
            if place.cancel():
                continue
            with lock:
                holding += 1
                most = max(most, holding)
            times += 1
            with lock:
                holding -= 1
            places.release(place)
        return times

    with ThreadPoolExecutor(8) as pool:
        assert min(pool.map(work, range(8))) > 0
    assert most <= number
    assert places.waiting == 0
    assert not places.is_used_by_calls()
    assert [places.ask().done() for _ in range(number + 1)] == [*[True] * number, False]


def test_tasks_wait_in_the_queues_of_threads() -> None:
    """A task that was cancelled has its place until that is withdrawn; the others are woken in the order of asking."""
    places = places_for(1)
    held = places.ask(for_call=True)
    admitted = list[str]()

    async def wait_as(name: str) -> None:
        place = places.ask(for_call=True)
        try:
            await places.wait_async(place)
            places.check(place)
            admitted.append(name)
        finally:
            places.release(place)

    async def tasks() -> None:
        cancelled, first, second = (asyncio.create_task(wait_as(name)) for name in ("cancelled", "first", "second"))
        await asyncio.sleep(0)
        assert places.waiting == 3
        cancelled.cancel()
        await asyncio.wait((cancelled,))
        places.release(held)
        await asyncio.gather(first, second)

    asyncio.run(tasks())
    assert admitted == ["first", "second"]
    assert places.ask().done()


def test_a_place_is_waited_for_as_long_as_busy() -> None:
    """Whoever has waited in vain is refused, and leaves the queue; a loop does not wait for a call at all."""
    places = places_for(1, busy=timedelta(0))
    places.ask(for_call=True)

    async def on_loop() -> None:
        place = places.ask(for_call=True)
        await places.wait_async(place)
        with pytest.raises(SessionUseError):
            places.check(place)

    asyncio.run(on_loop())
    place = places.ask()
    places.wait(place)
    with pytest.raises(StoreUnavailableError):
        places.check(place)
    assert places.waiting == 0
