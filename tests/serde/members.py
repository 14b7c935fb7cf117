"""Types of which JSON does not say which member of a union a value is of."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
from dataclasses import dataclass
from decimal import Decimal
from pathlib import PurePosixPath
from typing import Any, Literal
from uuid import UUID

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


PAIRS: list[tuple[Any, list[Any]]] = [
    (Approve | Reject, [Approve("a"), Reject("a")]),
    (Approve | dict[str, str], [Approve("a"), {"why": "a"}, {"$type": "Approve", "value": "a"}]),
    (dt.datetime | str, [NOON, "2026-01-31T12:00:00Z", "a"]),
    (dt.time | str, [dt.time(12), "12:00:00"]),
    (Decimal | str, [Decimal("1.50"), "1.50"]),
    (UUID | str, [UUID(int=1), str(UUID(int=1))]),
    (Word | str, [Word.A, "a"]),
    (Word | Other, [Word.A, Other.A, Other.B]),
    (Digit | int, [Digit.ONE, 1]),
    (tuple[int, ...] | list[int], [(1,), [1], (), []]),
    (set[int] | list[int] | frozenset[int], [{1}, [1], frozenset({1}), set(), []]),
    (list[Approve] | list[Reject], [[Approve("a")], [Reject("a")]]),
    (list[Approve | Reject], [[Reject("a"), Approve("a")]]),
    (list[Approve | int] | list[Reject | str], [[Approve("a")], [Reject("a")], [1], ["a"]]),
    (dict[int, str] | dict[str, str], [{1: "a"}, {"1": "a"}, {"a": "b"}]),
    (float | Literal[0] | None, [0, 0.0, 1.5, None]),
    (PurePosixPath | State, [PurePosixPath("done"), State.DONE]),
]
"""Types of fields with values that JSON alone does not tell apart."""


def held(kind: Any, **metadata: Any) -> Any:
    """A dataclass with a field of this type and metadata."""
    return dataclasses.make_dataclass("Held", [("x", kind, dataclasses.field(metadata=metadata))])
