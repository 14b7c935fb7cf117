"""Types of which JSON does not say which member of a union a value is of."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from ipaddress import IPv4Address
from pathlib import PurePosixPath
from typing import Any, Literal
from uuid import UUID

from typing_extensions import TypeAliasType

from handrail.session.persistence.stored_types import stored_as


@dataclass(frozen=True)
class Approve:
    """Equal in its fields to `Reject`."""

    why: str

    def render(self) -> str:
        """What the model reads."""
        return f"approved: {self.why}"


@dataclass(frozen=True)
class Reject:
    """Equal in its fields to `Approve`."""

    why: str

    def render(self) -> str:
        """What the model reads."""
        return f"rejected: {self.why}"


@dataclass(frozen=True)
class Defer:
    """Takes what the other two take, and more."""

    why: str = ""
    days: int = 1


@stored_as("tests.renamed")
@dataclass(frozen=True)
class Renamed:
    """Has another name in stores."""

    why: str


class Word(enum.Enum):
    """Texts."""

    A = "a"
    DAY = "2026-01-31"


class Other(enum.StrEnum):
    """Texts that `Word` has too, and others."""

    A = "a"
    B = "b"


class State(str, enum.Enum):  # noqa: UP042 - not a StrEnum: its `str()` is the name of the member
    """Texts whose members are strings."""

    DONE = "done"


class Grade(enum.Enum):
    """Numbers of which one is written as an integer too."""

    HALF = 0.5
    FULL = 1.0


class Digit(enum.IntEnum):
    """Numbers."""

    ONE = 1


@dataclass(frozen=True)
class Decision:
    """A union of dataclasses, alone and in collections."""

    outcome: Approve | Reject | Defer | None
    others: tuple[Approve | Reject, ...] = ()


@dataclass(frozen=True)
class When:
    """A parameter that a model writes as a string, whichever it means."""

    at: dt.datetime | str
    note: str = ""


@dataclass(frozen=True)
class Clear:
    """Unions whose members JSON tells apart."""

    number: int | float | bool | str | None = None
    moment: dt.datetime | dt.date | dt.time | dt.timedelta | UUID | int | None = None
    exact: Decimal | int | float | None = None
    rows: list[int] | list[str] | dict[str, int] | str | None = None
    tables: dict[bool, int] | dict[int, int] | dict[dt.date, int] | dict[Literal["a"], int] | None = None


NOON = dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC)

ManyApprove = TypeAliasType("ManyApprove", Approve | list[Approve])
ManyReject = TypeAliasType("ManyReject", Reject | list[Reject])
Whole = TypeAliasType("Whole", int | list[int])

PAIRS: list[tuple[Any, list[Any]]] = [
    (Approve | Reject, [Approve("a"), Reject("a")]),
    (Approve | Reject | Defer, [Approve("a"), Reject("a"), Defer("a", 2), Defer()]),
    (Approve | Renamed, [Approve("a"), Renamed("a")]),
    (Approve | dict[str, str], [Approve("a"), {"why": "a"}, {"$type": "Approve", "value": "a"}]),
    (dt.datetime | str, [NOON, "2026-01-31T12:00:00Z", "a"]),
    (str | dt.datetime, [NOON, "2026-01-31T12:00:00Z", "a"]),
    (dt.date | str | int, [NOON.date(), "2026-01-31", 1]),
    (dt.time | str, [dt.time(12), "12:00:00"]),
    (dt.timedelta | str, [dt.timedelta(1), "P1D"]),
    (Decimal | str, [Decimal("1.50"), "1.50"]),
    (Decimal | str | int | None, [Decimal(1), "1", 1, None]),
    (UUID | str, [UUID(int=1), str(UUID(int=1))]),
    (PurePosixPath | str, [PurePosixPath("a"), "a"]),
    (bytes | str, [b"abc", "YWJj"]),
    (bytes | UUID, [b"abc", UUID(int=1)]),
    (UUID | Fraction, [Fraction(12345678123456781234567812345678), UUID(int=1)]),
    (Word | str, [Word.A, "a"]),
    (Word | Other, [Word.A, Other.A, Other.B]),
    (Word | dt.date, [Word.DAY, dt.date(2026, 1, 31)]),
    (Digit | int, [Digit.ONE, 1]),
    (Digit | float, [Digit.ONE, 1.0]),
    (Grade | Digit, [Grade.HALF, Grade.FULL, Digit.ONE]),
    (tuple[int, ...] | list[int], [(1,), [1], (), []]),
    (set[int] | list[int] | frozenset[int], [{1}, [1], frozenset({1}), set(), []]),
    (list[Approve] | list[Reject], [[Approve("a")], [Reject("a")]]),
    (dict[str, Approve] | dict[str, Reject], [{"a": Approve("a")}, {"a": Reject("a")}]),
    (list[Approve | Reject], [[Reject("a"), Approve("a")]]),
    (tuple[Approve | Reject, int], [(Reject("a"), 1)]),
    (dict[str, dt.date | str], [{"a": NOON.date(), "b": "2026-01-31"}]),
    (list[tuple[int, ...] | list[int]] | str, [[(1,), [1]], "a"]),
    (list[Approve | int] | list[Reject | str], [[Approve("a")], [Reject("a")], [1], ["a"]]),
    (dict[str, Approve | int] | dict[str, Reject | int], [{"k": Approve("a")}, {"k": Reject("a")}, {"k": 1}]),
    (dict[int, str] | dict[str, str], [{1: "a"}, {"1": "a"}, {"a": "b"}]),
    (dict[str, int] | dict[UUID, int] | None, [{UUID(int=1): 1}, {str(UUID(int=1)): 1}, {}, None]),
    (dict[Decimal, int] | dict[float, int], [{Decimal("1.50"): 1}, {1.5: 1}]),
    (list[dict[int, str] | dict[str, str]], [[{1: "a"}, {"1": "a"}]]),
    (float | Literal[0] | None, [0, 0.0, 1.5, None]),
    (Literal[0] | float, [0, 0.0]),
    (Decimal | Literal["1"], [Decimal(1), "1"]),
    (Literal[1, True] | dt.date | str, [1, True, NOON.date(), "2026-01-31"]),
    (Literal["2026-01-31"] | dt.date, ["2026-01-31", NOON.date()]),
    (list[list[Approve]] | list[list[Reject]], [[[Approve("a")]], [[Reject("a")]], []]),
    (tuple[Approve, ...] | tuple[Reject | None, ...] | str, [(Approve("a"),), (Reject("a"),), "a"]),
    (PurePosixPath | State, [PurePosixPath("done"), State.DONE]),
    (State | PurePosixPath | str, [State.DONE, PurePosixPath("done"), "done"]),
    (IPv4Address | State | None, [IPv4Address("10.0.0.1"), State.DONE, None]),
    (list[Literal[0, True]] | list[int], [[1], [True], [0]]),
    (tuple[Literal[True, 0], str] | tuple[int, str], [(1, "a"), (True, "a")]),
    (dict[str, Literal[True]] | dict[str, int], [{"a": 1}, {"a": True}]),
    (list[Literal[True, 0]] | list[Digit], [[Digit.ONE], [True], [0]]),
    (list[Literal[1]] | list[Decimal], [[Decimal(1)], [1]]),
    (ManyApprove | ManyReject, [Approve("a"), Reject("a"), [Approve("a")], [Reject("a")], []]),
    (Fraction | Whole, [1, Fraction(1), [1]]),
]
"""Types of fields with values that JSON alone does not tell apart."""


def held(kind: Any, **metadata: Any) -> Any:
    """A dataclass with a field of this type and metadata."""
    return dataclasses.make_dataclass("Held", [("x", kind, dataclasses.field(metadata=metadata))])
