"""What is made once for a key, and when a codec is built."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import make_dataclass
from datetime import date
from typing import Any

import pytest

from handrail.errors import SchemaError
from handrail.serde import Codec, codec
from handrail.serde.core_schemas import MAX_CACHED, BoundedCache
from tests.wording import Wording


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


def is_built(made: Codec[Any]) -> bool:
    """Whether there is a validator."""
    try:
        object.__getattribute__(made, "_validate")
    except AttributeError:
        return False
    return True


def test_a_simple_type_is_built_when_it_is_first_used(wording: Wording) -> None:
    """Many functions are made tools, and few are called; the threads that use one first agree."""
    kind: type[Any] = make_dataclass("Order", [("number", str), ("cents", int)])
    made: Codec[Any] = codec(kind)
    assert not is_built(made)
    ready = threading.Barrier(4)

    def parsed(cents: int) -> object:
        ready.wait(timeout=30)
        return made.parse({"number": "a", "cents": cents})

    with ThreadPoolExecutor(4) as threads:
        assert [*threads.map(parsed, range(4))] == [kind("a", cents) for cents in range(4)]
    assert is_built(made)
    assert codec(kind) is made
    with pytest.raises(AttributeError) as raised:
        getattr(made, "other")  # noqa: B009 - checkers know that there is none
    assert str(raised.value) == wording


def test_a_thread_that_comes_late_to_a_first_use_finds_all_there() -> None:
    """Another one has built the codec since this one asked for what was not there."""
    made: Codec[Any] = codec(make_dataclass("Order", [("number", str)]))
    ask: Any = type(made).__dict__["__getattr__"]
    value = made.parse({"number": "a"})
    assert ask(made, "kind") is type(value)


def test_a_type_that_may_be_at_fault_is_built_at_once() -> None:
    """So that its fault is reported where it is declared."""
    kind: type[Any] = make_dataclass("Order", [("day", date)])
    assert is_built(codec(kind))
    wrong: type[Any] = make_dataclass("Order", [("number", complex)])
    with pytest.raises(SchemaError):
        codec(wrong)
