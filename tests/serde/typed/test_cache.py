"""What is made once for a key."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

from handrail.serde.bounded_cache import MAX_CACHED, BoundedCache


def test_a_value_is_made_once() -> None:
    """Asked for again, the first one is given."""
    kept: BoundedCache[list[int]] = BoundedCache()
    assert kept.get("a", lambda: [1]) is kept.get("a", lambda: [2])


def test_a_key_that_cannot_be_hashed_is_not_kept() -> None:
    """Its value is made each time."""
    kept: BoundedCache[list[int]] = BoundedCache()
    key: list[int] = []
    assert kept.get(key, lambda: [1]) is not kept.get(key, lambda: [1])


def test_the_oldest_goes_when_there_are_too_many() -> None:
    """So that types made at run time do not fill the memory."""
    kept: BoundedCache[list[int]] = BoundedCache()
    first = kept.get(-1, lambda: [-1])
    for number in range(MAX_CACHED):
        kept.get(number, lambda: [0])
    assert kept.get(-1, lambda: [-2]) == [-2]
    assert first == [-1]
    assert kept.get(MAX_CACHED - 1, lambda: [1]) == [0]


def test_a_maker_may_ask_for_another_value() -> None:
    """What is made may consist of what is kept."""
    kept: BoundedCache[list[int]] = BoundedCache()
    assert kept.get("outer", lambda: [*kept.get("inner", lambda: [1]), 2]) == [1, 2]


def test_threads_that_ask_at_once_get_one_value() -> None:
    """Each may make one; the first of them stays."""
    kept: BoundedCache[object] = BoundedCache()
    start = threading.Barrier(32)

    def make() -> object:
        return object(), sum(range(1_000_000))  # long enough for the others to arrive

    def ask(_: int) -> object:
        start.wait()
        return kept.get("a", make)

    with ThreadPoolExecutor(32) as pool:
        assert len({id(value) for value in pool.map(ask, range(32))}) == 1


def test_two_caches_may_ask_each_other() -> None:
    """No lock is held while a value is made: what makes it is code of the program, which may ask for another one."""
    one: BoundedCache[str] = BoundedCache()
    other: BoundedCache[str] = BoundedCache()
    both_make = threading.Barrier(2)

    def ask(first: BoundedCache[str], second: BoundedCache[str], name: str) -> str:
        def make() -> str:
            both_make.wait()
            return second.get("inner", lambda: "made")

        return first.get(name, make)

    with ThreadPoolExecutor(2) as pool:
        asked = [pool.submit(ask, one, other, "a"), pool.submit(ask, other, one, "b")]
        assert [each.result() for each in asked] == ["made", "made"]
