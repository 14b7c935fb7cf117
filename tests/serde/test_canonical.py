"""One text for equal values."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import math
from collections import OrderedDict, UserDict
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from random import Random
from types import MappingProxyType
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from handrail.errors import DumpError
from handrail.serde import canonical_json, digest
from tests.kit import refusal
from tests.serde.kit import Everything, Json, Page, Status, Step, everything, outputs
from tests.wording import Wording


class Word(StrEnum):
    YES = "yes"


class Number(IntEnum):
    ONE = 1


class Weight(float):
    """A float of another name."""


class Count(int):
    """An integer of another name."""


class Pair(NamedTuple):
    left: int
    right: str


class Shade(Enum):
    DARK = (1, 2)


@dataclass
class Traced:
    text: str
    trace: str = field(default="", compare=False)


UTC, BERLIN = dt.UTC, dt.timezone(dt.timedelta(hours=1))
NOON = dt.datetime(2026, 1, 31, 12, tzinfo=UTC)

EQUAL: dict[str, tuple[Any, ...]] = {
    "numbers": (1, 1.0, Decimal(1), Decimal("1.00"), Decimal("1E+0"), Number.ONE, Weight(1.0), Count(1)),
    "zeros": (0, 0.0, -0.0, Decimal(0), Decimal("-0.00")),
    "fractions": (0.5, Decimal("0.5"), Decimal("0.500"), Weight(0.5)),
    "exact fractions": (Decimal("0.1"), Decimal("0.10"), Decimal("1E-1")),
    "large numbers": (10**22, 1e22, Decimal("1E+22")),
    "large floats": (2**1000, 2.0**1000),
    "long decimals": (Decimal(f"1.{'0' * 37}1"), Decimal(f"1.{'0' * 37}10")),
    "objects": ({"a": 1, "b": 2}, {"b": 2.0, "a": 1}, OrderedDict(b=2, a=1), MappingProxyType({"b": 2, "a": 1})),
    "keys": ({1: "a"}, {1.0: "a"}, {Decimal(1): "a"}, {Number.ONE: "a"}),
    "arrays": ([1, 2], (1, 2), [1.0, 2]),
    "sets": ({3, 1, 2}, frozenset({2, 3, 1}), {1.0, 2.0, 3.0}),
    "sets of strings": ({"b", "a", "é"}, frozenset({"é", "a", "b"})),
    "moments": (NOON, NOON.astimezone(BERLIN), NOON.astimezone(ZoneInfo("Asia/Tokyo"))),
    "hours": (dt.time(12, tzinfo=UTC), dt.time(13, tzinfo=BERLIN)),
    "words": ("yes", Word.YES),
    "dataclasses": (Traced("a"), Traced("a", "b")),
    "bytes": (b"\xff", bytearray(b"\xff")),
    "views": ({"a", "b"}, {"b": 1, "a": 2}.keys()),
}


@pytest.mark.parametrize("values", EQUAL.values(), ids=EQUAL.keys())
def test_equal_values_have_one_text(values: tuple[Any, ...]) -> None:
    """Whatever they are written as in Python; alone and inside of others."""
    assert len({canonical_json(value) for value in values}) == 1
    assert len({canonical_json({"in": [value]}) for value in values}) == 1
    assert len({digest(Page([value])) for value in values}) == 1


def test_the_texts_are_the_same_for_ever() -> None:
    """A hash that was stored must be found again by every later version; test_pinned has it of more values."""
    value: list[Any] = [
        *(Pair(1, "a"), {True: 1}, {None: 1}, {Status.DONE: Shade.DARK}, UserDict({"a": 1.5e30}), 1e-7),
        *(dt.time(1, tzinfo=BERLIN), NOON.replace(tzinfo=None), {"z": 1, "é": 2, "": 3, "10": 4, "9": 5, "Z": 6}),
    ]
    assert canonical_json(value).decode() == (
        '[[1,"a"],{"true":1},{"null":1},{"done":[1,2]},{"a":1499999999999999889089448902656},1e-07,'
        '"P0DT0.000000SZ","2026-01-31T12:00:00",{"":3,"10":4,"9":5,"Z":6,"z":1,"é":2}]'
    )
    assert digest({"b": 1, "a": 2}) == hashlib.sha256(b'{"a":2,"b":1}').hexdigest()


def test_the_text_is_the_same_in_every_process() -> None:
    """Sets of strings have another order in each."""
    program = "from handrail.serde import digest; print(digest({'a': {'x', 'y', 'z', frozenset({'u', 'v'})}}))"
    assert outputs(program) == {digest({"a": {"x", "y", "z", frozenset({"u", "v"})}})}


@settings(max_examples=40)
@given(everything(), everything())
def test_equality_decides(one: Everything, other: Everything) -> None:
    """Equal values have equal texts; values that differ in what JSON can say have different ones."""
    assert (canonical_json(one) == canonical_json(other)) == (one == other)


def plain_json() -> st.SearchStrategy[Any]:
    """Whatever JSON can say."""
    scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
    return st.recursive(scalars, lambda some: st.lists(some) | st.dictionaries(st.text(), some), max_leaves=20)


@given(plain_json())
def test_the_text_is_json_and_says_the_same(value: Json) -> None:
    """Read back it is equal, and its text is the same again."""
    text = canonical_json(value)
    assert json.loads(text) == value
    assert canonical_json(json.loads(text)) == text


@given(st.dictionaries(st.text(), plain_json()), st.randoms(use_true_random=False))
def test_the_order_of_keys_does_not_matter(value: dict[str, Any], random: Random) -> None:
    """At any level: the text is that of the standard library with sorted keys, where no number differs."""
    keys = list(value)
    random.shuffle(keys)
    assert canonical_json({key: value[key] for key in keys}) == canonical_json(value)


@given(st.sets(st.integers() | st.text() | st.none() | st.dates() | st.frozensets(st.text())))
def test_the_order_of_a_set_does_not_matter(value: set[Any]) -> None:
    """A set is an array in the order of its members' texts."""
    assert canonical_json(value) == canonical_json(frozenset(reversed(list(value))))
    texts = [json.dumps(item, sort_keys=True) for item in json.loads(canonical_json(value))]
    assert len(texts) == len(value)


def test_booleans_are_not_numbers() -> None:
    """Though Python holds `True` equal to `1`, JSON does not."""
    assert canonical_json([True, 1]) == b"[true,1]"


def _endless() -> list[Any]:
    endless: list[Any] = []
    endless.append({"a": endless})
    return endless


def _deep(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


REFUSED: dict[str, tuple[Any, str]] = {
    "NaN": (math.nan, "$"),
    "infinity": ({"a": [1, math.inf]}, "$.a[1]"),
    "decimal NaN": (Page([Decimal("sNaN")]), "$.items[0]"),
    "infinity in a set": ({"a": {math.inf}}, "$.a[0]"),
    "surrogate": ({"a": ["\ud800"]}, "$.a[0]"),
    "surrogate at last": ({"a": [1, "b"], "b": {"c": 1}, "d": "\ud800"}, "$.d"),
    "surrogate key": ({"a": {"\ud800": 1}}, "$.a"),
    "object": (Page([object()]), "$.items[0]"),
    "class": ([Step], "$[0]"),
    "long integer": ({"a": 10**4300}, "$.a"),
    "long in a set": ({"a": [{10**4300}]}, "$.a[0][0]"),
    "long decimal": ([Decimal("1E+5000")], "$[0]"),
    "clashing keys": ({"a": {1: "a", "1": "b"}}, "$.a"),
    "tuple key": ({(1, 2): 1}, "$"),
    "endless": (_endless(), "$"),
    "deep": (_deep(201), "$"),
    "year 0": (dt.datetime(1, 1, 1, tzinfo=BERLIN), "$"),
}


@pytest.mark.parametrize("value, path", REFUSED.values(), ids=REFUSED.keys())
def test_what_has_no_text_is_refused_at_its_place(value: object, path: str, wording: Wording) -> None:
    """With the path, and what is wrong there."""
    told: set[str] = set()
    for ask in (canonical_json, digest):
        call: Callable[[object], object] = ask
        error = refusal(DumpError, call, value)
        ((found, text),) = error.faults
        assert found == path
        assert str(error) == f"{path}: {text}"
        told.add(text)
    (text,) = told
    assert text == wording
