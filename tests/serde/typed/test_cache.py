"""What is made once for a key, and when a codec is built."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import make_dataclass
from datetime import date
from typing import Any

import pytest

from handrail.errors import SchemaError
from handrail.serde import Codec, codec
from handrail.serde.core_schemas import MAX_CACHED, cached
from tests.kit import refusal
from tests.wording import Wording


def test_a_value_is_made_once() -> None:
    """Asked for again, the first one is given."""
    made: Callable[[str], list[str]] = cached(lambda name: [name])
    assert made("a") is made("a")


def test_a_type_that_cannot_be_hashed_is_not_kept() -> None:
    """Its value is made each time."""
    made: Callable[[list[int]], list[int]] = cached(lambda _: [1])
    key: list[int] = []
    assert made(key) == made(key)
    assert made(key) is not made(key)


def test_one_goes_when_there_are_too_many() -> None:
    """So that types made at run time do not fill the memory."""
    made: Callable[[int], list[int]] = cached(lambda number: [number])
    first, last = made(-1), [made(number) for number in range(MAX_CACHED)][-1]
    assert made(-1) == first
    assert made(-1) is not first
    assert made(MAX_CACHED - 1) is last


def test_what_could_not_be_made_is_asked_again() -> None:
    """A name may be defined by then."""
    names: dict[str, int] = {}
    made: Callable[[str], int] = cached(lambda name: names[name])
    refusal(KeyError, made, "a")
    names["a"] = 1
    assert made("a") == 1


def test_two_caches_may_ask_each_other() -> None:
    """No lock is held while a value is made: what makes it is code of the program, which may ask for another one."""
    both_make = threading.Barrier(2)

    def ask(name: str, others: list[Callable[[str], str]]) -> str:
        if name == "inner":
            return "made"
        both_make.wait(timeout=30)
        return others[0]("inner")

    one: Callable[[str], str] = cached(lambda name: ask(name, [other]))
    other: Callable[[str], str] = cached(lambda name: ask(name, [one]))
    with ThreadPoolExecutor(2) as pool:
        asked = [pool.submit(one, "a"), pool.submit(other, "b")]
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
    refusal(SchemaError, codec, wrong)
