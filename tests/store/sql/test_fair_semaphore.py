"""Places are given in the order of asking, to units of work before calls, and none is lost."""

from __future__ import annotations

import asyncio
import random
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from handrail.store.sql.fair_semaphore import FairSemaphore

PATIENCE = 20.0
"""Seconds after which a thread that waits has been forgotten."""


def queued(semaphore: FairSemaphore, waiting: int) -> None:
    """Wait until so many threads wait for a place."""
    while semaphore.waiting < waiting:
        threading.Event().wait(0)


def test_units_go_before_calls_and_each_in_the_order_of_asking() -> None:
    """Calls that have ended wait for their units."""
    semaphore = FairSemaphore(1)
    assert semaphore.acquire(PATIENCE)
    admitted = list[str]()

    def wait_as(name: str) -> None:
        assert semaphore.acquire(PATIENCE, for_call=name.startswith("call"))
        admitted.append(name)
        semaphore.release()

    names = ["call 1", "unit 1", "call 2", "unit 2"]
    with ThreadPoolExecutor(len(names)) as pool:
        for number, name in enumerate(names, 1):
            pool.submit(wait_as, name)
            queued(semaphore, number)
        semaphore.release()
    assert admitted == ["unit 1", "unit 2", "call 1", "call 2"]


class Interrupted(threading.Event):
    """A wait that Ctrl-C interrupts, after something has happened."""

    happens = staticmethod(lambda: None)

    def wait(self, timeout: float | None = None) -> bool:
        """Raise."""
        type(self).happens()
        raise KeyboardInterrupt


@pytest.mark.parametrize("given", [False, True])
def test_interrupt_of_who_waits_loses_no_place(monkeypatch: pytest.MonkeyPatch, *, given: bool) -> None:
    """Also if the place was given in the very moment of the interrupt."""
    semaphore = FairSemaphore(1)
    assert semaphore.acquire(PATIENCE)
    with monkeypatch.context() as patch:
        patch.setattr(Interrupted, "happens", staticmethod(semaphore.release if given else lambda: None))
        patch.setattr(threading, "Event", Interrupted)
        with pytest.raises(KeyboardInterrupt):
            semaphore.acquire(PATIENCE)
    if not given:
        semaphore.release()
    assert semaphore.waiting == 0
    assert semaphore.acquire(0.0)
    assert not semaphore.acquire(0.0)


@pytest.mark.parametrize("places", [1, 3])
def test_no_more_hold_a_place_than_there_are(places: int) -> None:
    """A storm of threads, some of which give up; afterwards all places are free."""
    semaphore = FairSemaphore(places)
    holding, most, lock = 0, 0, threading.Lock()

    def work(seed: int) -> int:
        nonlocal holding, most
        dice, times = random.Random(seed), 0  # noqa: S311
        for _ in range(200):
            if not semaphore.acquire(dice.choice((PATIENCE, PATIENCE, 0.0)), for_call=dice.random() < 0.5):
                continue
            with lock:
                holding += 1
                most = max(most, holding)
            times += 1
            with lock:
                holding -= 1
            semaphore.release()
        return times

    with ThreadPoolExecutor(8) as pool:
        assert min(pool.map(work, range(8))) > 0
    assert most <= places
    assert semaphore.waiting == 0
    assert [semaphore.acquire(0.0) for _ in range(places + 1)] == [*[True] * places, False]


def test_tasks_wait_in_the_queues_of_threads() -> None:
    """In the order of asking; one that was cancelled, or whose loop was closed, is passed over."""
    semaphore = FairSemaphore(1)
    assert semaphore.acquire(PATIENCE, for_call=True)
    assert not semaphore.acquire(PATIENCE, for_call=True, behind_calls=False)
    admitted = list[str]()

    async def wait_as(name: str) -> None:
        assert await semaphore.acquire_async(PATIENCE, for_call=True)
        admitted.append(name)
        semaphore.release(for_call=True)

    left = asyncio.new_event_loop()
    stuck = wait_as("whose loop was closed")
    left.call_soon(left.stop)
    kept = left.create_task(stuck)
    left.run_forever()
    left.close()

    async def tasks() -> None:
        cancelled, first, second = (asyncio.create_task(wait_as(name)) for name in ("cancelled", "first", "second"))
        await asyncio.sleep(0)
        assert semaphore.waiting == 4
        cancelled.cancel()
        await asyncio.wait((cancelled,))
        assert not await semaphore.acquire_async(0.0)
        semaphore.release(for_call=True)
        await asyncio.gather(first, second)

    asyncio.run(tasks())
    assert admitted == ["first", "second"]
    assert semaphore.acquire(0.0)
    with pytest.raises(RuntimeError):
        stuck.throw(RuntimeError())
    assert semaphore.waiting == 0
    assert not kept.done()
