"""Canonical digests and stored forms stay as they were; `python -m tests.serde.test_pinned` prints them."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import math
import sys
from collections import OrderedDict, UserDict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, is_dataclass
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from fractions import Fraction
from ipaddress import IPv4Address
from pathlib import Path, PurePosixPath
from random import Random
from types import MappingProxyType
from typing import Any, Final, NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import SecretStr

from handrail.errors import DumpError
from handrail.prompt.idempotency import IdempotencyConfig
from handrail.serde import canonical_json, digest
from handrail.session.persistence.stored_types import stored_type
from tests.kit import refusal
from tests.serde.kit import (
    Circle,
    Drawing,
    Empty,
    Everything,
    Json,
    Level,
    Loose,
    Page,
    Plan,
    Square,
    Status,
    Step,
    Tree,
    everything,
    outputs,
)
from tests.wording import Wording

FILE: Final = Path(__file__).with_name("pinned.json")
"""The digests and stored forms of before, by the name of the value."""

STORE_KEY: Final = bytes(range(32))

UTC, BERLIN = dt.UTC, dt.timezone(dt.timedelta(hours=1))


class Half(Enum):
    HALF = 0.5


@dataclass(frozen=True, slots=True)
class Traced:
    text: str
    trace: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Choice:
    """Unions whose members JSON distinguishes."""

    either: int | str | None = None
    several: int | list[int] | dict[str, int] | None = None
    shape: Circle | Square | None = None
    flag: bool | int | float = False
    when: dt.datetime | int | None = None
    exact: Decimal | None = None
    rows: tuple[Step, ...] | str = ()
    status: Status | Level | None = None
    place: Path | None = None
    raw: bytes | int = 0


@dataclass(frozen=True, slots=True)
class Moments:
    at: dt.datetime
    day: dt.date
    hour: dt.time
    span: dt.timedelta


SCALARS: Final[dict[str, Any]] = (
    {"none": None, "true": True, "zero": 0, "long": 10**40, "float": 0.1, "minus zero": -0.0}
    | {"exact": Decimal("0.1"), "long decimal": Decimal("1.00000000000000000000000000000000000001"), "empty": ""}
    | {"quoted": '"\\\n\t\u0000\u2028', "unicode": "é😀\u202e", "bytes": b"\xfb\xff"}
    | {"moment": dt.datetime(2026, 1, 31, 12, 30, 1, 5, tzinfo=UTC)}
    | {"moment elsewhere": dt.datetime(2026, 1, 31, 12, tzinfo=BERLIN), "date": dt.date(2026, 1, 31)}
    | {"time": dt.time(1, 2, 3, 4), "span": dt.timedelta(-1, 2, 3), "uuid": UUID(int=7), "status": Status.DONE}
    | {"level": Level.HIGH, "half": Half.HALF, "path": PurePosixPath("a/../b"), "address": IPv4Address("127.0.0.1")}
    | {"fraction": Fraction(1, 3), "secret": SecretStr("hunter2"), "array": [1, "a", None]}
    | {"object": {"b": 1, "a": {"d": 2, "c": []}}}
)

CONTAINERS: Final[dict[str, Callable[[Any], object]]] = {
    "alone": lambda value: value,
    "in arrays": lambda value: [(value,), deque([value, value])],
    "in an object": lambda value: OrderedDict[str, Any](z=value, a=MappingProxyType({"10": value, "9": 0})),
    "in a dataclass": lambda value: Page([value], Page([Loose(value)])),
}

STRUCTURES: Final[dict[str, Any]] = {
    "plan": Plan("a", 3, (Step("t", Status.PENDING, 2), Step("u")), {"z": "1", "a": "é"}),
    "tree": Tree("a", (Tree("b", (Tree("c"),)), Tree("d"))),
    "drawing": Drawing(
        [Circle("circle", 1.5), Square("square", 2.0)], Square("square", 1.0), [1, 2], {2: "b", 10: "a"}
    ),
    "empty": Empty(),
    "page": Page([Step("a"), Step("b")], Page([])),
    "loose": Loose({"a": [1, True, None, 1.5]}, {"a": 1.0}, Decimal("2.50")),
    "traced": Traced("a", "left out"),
    "moments": Moments(
        dt.datetime(2026, 1, 31, 12, tzinfo=BERLIN), dt.date(2026, 1, 31), dt.time(1, tzinfo=UTC), dt.timedelta(1, 2, 3)
    ),
    "choice": Choice(),
    "choice of int": Choice(1, 2, Circle("circle", 1.0), True, 5, Decimal(1), "rows", Level.LOW, Path("a"), 1),
    "choice of str": Choice(
        "1", [2], Square("square", 1.0), 1, dt.datetime(2026, 1, 31, tzinfo=UTC), status=Status.DONE
    ),
    "numbers": {1, 2.0, Decimal(3)},
    "keys": {1: "a", False: "b"} | {dt.date(2026, 1, 1): 1, Status.DONE: 2, UUID(int=1): 3},
    "arguments": {"tool": "t", "origin": "o", "arguments": {"path": "a", "n": 1.0}, "written": None},
    "none in all": Page([None, [None], {"a": None}], None),
}


def values() -> Iterator[tuple[str, Any]]:
    """Every value, with its name."""
    for where, wrapped in CONTAINERS.items():
        for name, value in SCALARS.items():
            yield f"{name} {where}", wrapped(value)
    yield from STRUCTURES.items()


def digests_of(value: object) -> list[str]:
    """Its digest without a key, and with one."""
    return [digest(value), digest(value, key=STORE_KEY)]


def stored() -> dict[str, Any]:
    """The structures that a session stores: dataclasses in which no `Any` holds what JSON does not give back."""
    return {name: value for name, value in STRUCTURES.items() if is_dataclass(value) and name != "page"}


def stored_form_of(value: Any) -> str:
    """A dataclass as a session stores it."""
    kind: Any = value.__class__
    return stored_type(kind).dump((value,)).decode()


def effect_keys() -> dict[str, list[str]]:
    """The declared keys of calls, with the hash of all arguments."""
    found: dict[str, list[str]] = {}
    for name, value in stored().items():
        key = IdempotencyConfig().effect_key("t", value, session_id="s")
        found[name] = [] if key is None else list(key)
    return found


def pinned() -> dict[str, Any]:
    """All that is pinned, by the code as it is."""
    return {
        "digests": {name: digests_of(value) for name, value in values()},
        "stored": {name: stored_form_of(value) for name, value in stored().items()},
        "keys": effect_keys(),
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(pinned(), indent=0) + "\n")


PINNED: Final[dict[str, dict[str, Any]]] = json.loads(FILE.read_text())


def test_values_are_hashed_and_stored_as_before() -> None:
    """None of them holds a union whose members JSON cannot distinguish, so nothing about them changes."""
    assert pinned() == PINNED


@pytest.mark.parametrize("name", PINNED["stored"])
def test_what_was_stored_before_is_read(name: str) -> None:
    """Each as the value that it was."""
    value = stored()[name]
    kind: Any = value.__class__
    assert stored_type(kind).load(PINNED["stored"][name].encode(), 1) == [value]


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


def _endless() -> list[Any]:
    endless: list[Any] = []
    endless.append({"a": endless})
    return endless


def _deep(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


REFUSED: dict[str, tuple[Any, str]] = (
    {"NaN": (math.nan, "$"), "infinity": ({"a": [1, math.inf]}, "$.a[1]")}
    | {"decimal NaN": (Page([Decimal("sNaN")]), "$.items[0]"), "infinity in a set": ({"a": {math.inf}}, "$.a[0]")}
    | {"surrogate": ({"a": ["\ud800"]}, "$.a[0]")}
    | {"surrogate at last": ({"a": [1, "b"], "b": {"c": 1}, "d": "\ud800"}, "$.d")}
    | {"surrogate key": ({"a": {"\ud800": 1}}, "$.a"), "object": (Page([object()]), "$.items[0]")}
    | {"class": ([Step], "$[0]"), "long integer": ({"a": 10**4300}, "$.a")}
    | {"long in a set": ({"a": [{10**4300}]}, "$.a[0][0]"), "long decimal": ([Decimal("1E+5000")], "$[0]")}
    | {"clashing keys": ({"a": {1: "a", "1": "b"}}, "$.a"), "tuple key": ({(1, 2): 1}, "$")}
    | {"endless": (_endless(), "$"), "deep": (_deep(201), "$"), "year 0": (dt.datetime(1, 1, 1, tzinfo=BERLIN), "$")}
)


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
