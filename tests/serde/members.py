"""Unions: those whose members JSON distinguishes, and others."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
from copy import copy
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import BeforeValidator, Discriminator
from typing_extensions import TypedDict

from tests.serde.shapes import Circle, Page, Square


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


@dataclass(frozen=True)
class Disc:
    """Marked by a field that a model may leave out."""

    why: str = ""
    kind: Literal["disc"] = "disc"


@dataclass(frozen=True)
class Tile:
    """Marked likewise."""

    why: str = ""
    kind: Literal["tile"] = "tile"


@dataclass(frozen=True)
class Count:
    """Has a field of the name that `Name` has, of another type."""

    of: int


@dataclass(frozen=True)
class Name:
    """Has a field of the name that `Count` has, of another type."""

    of: str


@dataclass(frozen=True)
class MaybeCount:
    """As `Count`, or nothing."""

    of: int | None


@dataclass(frozen=True)
class MaybeName:
    """As `Name`, or nothing."""

    of: str | None


class Row(TypedDict, total=False):
    """Fields that may be missing in what is written."""

    of: int


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


NOON = dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC)

_MOMENTS: Any = dt.datetime | dt.date | dt.time | dt.timedelta | UUID | int

APART: list[tuple[Any, list[Any]]] = [
    (int | float | bool | str | None, [1, 1.0, True, "1", None]),
    (_MOMENTS, [NOON, NOON.date(), dt.time(12), dt.timedelta(1), UUID(int=1), 1]),
    (Decimal | int | float, [Decimal("1.5"), 1, 1.5]),
    (Decimal | dt.date, [Decimal("1.5"), NOON.date()]),
    (list[int | str] | dict[str, int] | str, [[1], ["a"], [], {"a": 1}, "a"]),
    (Literal["a", "b"] | int, ["a", "b", 1]),
    (Word | Digit | State, [Word.A, Digit.ONE, State.DONE]),
    (float | Literal[0], [0.5, 0]),
    (Circle | Square, [Circle("circle", 1.0), Square("square", 1.0)]),
    (Disc | Tile, [Disc("a"), Tile("a")]),
    (Count | Name, [Count(1), Name("a")]),
    (list[Disc | Tile], [[Disc()], [Tile()]]),
    (Page[int | str], [Page([1]), Page(["a"], Page([]))]),
    (Approve | list[Reject], [Approve("a"), [Reject("a")]]),
    (PurePosixPath | int, [PurePosixPath("a"), 1]),
    (Annotated[str, BeforeValidator(copy)] | int, ["a", 1]),
    (Annotated[Circle | Square, Discriminator("kind")] | int, [Square("square", 1.0), 1]),
]
"""Types with values of each member."""

ALIKE_CLASSES: list[Any] = [
    *(Approve | Reject, Approve | Defer, Approve | Disc, MaybeCount | MaybeName, list[Approve] | list[Reject]),
    *(Page[Approve] | Page[Reject], tuple[int, Approve] | tuple[int, Reject], Page[int] | Page[str]),
]
"""Types that hold two classes that JSON does not distinguish."""

ALIKE: list[Any] = [
    *(Approve | dict[str, str], Count | Row, tuple[int, ...] | list[int], set[int] | frozenset[int]),
    *(
        list[int] | list[str],
        dt.datetime | str,
        Decimal | str,
        UUID | str,
        bytes | str,
        Word | str,
        Word | Other,
        Digit | int,
    ),
    *(dict[int, str] | dict[str, str], PurePosixPath | Path, Any | dt.date),
]
"""Other types whose members JSON does not distinguish."""


@dataclass(frozen=True)
class When:
    """A parameter that a model writes as a string, whichever it means."""

    at: dt.datetime | str
    note: str = ""


@dataclass(frozen=True)
class Decision:
    """A union of dataclasses, alone and in collections."""

    outcome: Approve | Reject | Defer | None
    others: tuple[Approve | Reject, ...] = ()


def held(kind: Any, **metadata: Any) -> Any:
    """A dataclass with a field of this type and metadata."""
    own = {"__module__": __name__}  # Python 3.11 names another one than later versions
    return dataclasses.make_dataclass("Held", [("x", kind, dataclasses.field(metadata=metadata))], namespace=own)
