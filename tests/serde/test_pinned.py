"""Canonical digests and stored forms stay as they were; `python -m tests.serde.test_pinned` prints them."""

from __future__ import annotations

import datetime as dt
import json
import sys
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, is_dataclass
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from ipaddress import IPv4Address
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Any, Final
from uuid import UUID

import pytest
from pydantic import SecretStr

from handrail.prompt import Tool, ToolContext, ToolResult
from handrail.prompt.idempotency import IdempotencyConfig
from handrail.serde import digest
from handrail.session.persistence.stored_types import stored_type
from tests.serde.kit import Circle, Drawing, Empty, Level, Loose, Page, Plan, Square, Status, Step, Tree

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


SCALARS: Final[dict[str, Any]] = {
    "none": None,
    "true": True,
    "zero": 0,
    "long": 10**40,
    "float": 0.1,
    "minus zero": -0.0,
    "exact": Decimal("0.1"),
    "long decimal": Decimal("1.00000000000000000000000000000000000001"),
    "empty": "",
    "quoted": '"\\\n\t\u0000\u2028',
    "unicode": "é😀\u202e",
    "bytes": b"\xfb\xff",
    "moment": dt.datetime(2026, 1, 31, 12, 30, 1, 5, tzinfo=UTC),
    "moment elsewhere": dt.datetime(2026, 1, 31, 12, tzinfo=BERLIN),
    "date": dt.date(2026, 1, 31),
    "time": dt.time(1, 2, 3, 4),
    "span": dt.timedelta(-1, 2, 3),
    "uuid": UUID(int=7),
    "status": Status.DONE,
    "level": Level.HIGH,
    "half": Half.HALF,
    "path": PurePosixPath("a/../b"),
    "address": IPv4Address("127.0.0.1"),
    "fraction": Fraction(1, 3),
    "secret": SecretStr("hunter2"),
    "array": [1, "a", None],
    "object": {"b": 1, "a": {"d": 2, "c": []}},
}

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


def kept_form_of(value: Any) -> str | None:
    """A dataclass as the ledger stores the value of a result."""

    def handler(params: None, *, context: ToolContext) -> ToolResult[Any]:
        del params, context
        return ToolResult.ok(value)

    kind: Any = value.__class__
    kept = Tool[None, kind](name="t", description="d", handler=handler).dump_value(value)
    return None if kept is None else kept.decode()


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
        "kept": {name: kept_form_of(value) for name, value in stored().items()},
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
