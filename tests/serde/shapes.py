"""Dataclasses that the tests of serde share, and strategies that make values of them."""

from __future__ import annotations

import datetime as dt
import enum
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Annotated, Any, Generic, Literal, TypeVar
from uuid import UUID

from hypothesis import strategies as st
from pydantic import Field

T = TypeVar("T")

Json = Any
"""Decoded JSON, or anything else that a test hands in."""


class Status(enum.Enum):
    """Where a step stands."""

    PENDING = "pending"
    IN_PROGRESS = "in_progress"
    DONE = "done"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


@dataclass(frozen=True)
class Base:
    name: str


@dataclass(frozen=True)
class Card(Base):
    number: int = 0


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a plan."""

    title: str = field(metadata={"description": "What is to be done.", "min_length": 1, "max_length": 40})
    status: Status = Status.PENDING
    weight: int = field(default=1, metadata={"gt": 0})


@dataclass(frozen=True, slots=True)
class Plan:
    objective: str
    limit: int = 10
    steps: tuple[Step, ...] = ()
    notes: dict[str, str] = field(default_factory=dict[str, str])


@dataclass
class Page(Generic[T]):
    items: list[T]
    next: Page[T] | None = None


@dataclass
class Tree:
    name: str
    kids: tuple[Tree, ...] = ()


@dataclass(frozen=True, slots=True)
class Circle:
    kind: Literal["circle"]
    radius: float


@dataclass(frozen=True, slots=True)
class Square:
    kind: Literal["square"]
    side: float


@dataclass(frozen=True, slots=True)
class Drawing:
    shapes: list[Circle | Square] = field(default_factory=list[Circle | Square])
    marked: Annotated[Circle | Square, Field(discriminator="kind")] | None = None
    size: int | list[int] | None = None
    names: dict[int, str] = field(default_factory=dict[int, str])


@dataclass(frozen=True, slots=True)
class Empty:
    """Nothing to say."""


@dataclass(frozen=True, slots=True)
class Loose:
    """Takes anything in one place, and numbers in others."""

    anything: Any = None
    numbers: dict[str, float] = field(default_factory=dict[str, float])
    exact: Decimal = Decimal(0)


@dataclass(frozen=True, slots=True)
class Inner:
    name: str
    score: float | None = None
    parts: tuple[Inner, ...] = ()


@dataclass(frozen=True, slots=True)
class Everything:
    """A field of every type that must survive a round trip."""

    text: str
    whole: int
    real: float
    flag: bool
    moment: dt.datetime
    day: dt.date
    hour: dt.time
    span: dt.timedelta
    key: UUID
    status: Status
    level: Level
    choice: Literal["a", "b", 3, True] | None
    exact: Decimal
    raw: bytes
    pair: tuple[int, str]
    many: tuple[float, ...]
    tags: frozenset[str]
    moods: set[Status]
    rows: list[Inner]
    counts: dict[str, int]
    by_day: dict[dt.date, list[bytes]]
    by_number: dict[int, Inner]
    by_status: dict[Status, bool]
    inner: Inner
    maybe: Inner | None
    either: int | str | list[str] | None
    page: Page[Inner]
    nothing: None = None
    default: int = 7


def _offsets() -> st.SearchStrategy[dt.timezone]:
    return st.integers(-23 * 60, 23 * 60).map(lambda each: dt.timezone(dt.timedelta(minutes=each)))


def _moments() -> st.SearchStrategy[dt.datetime]:
    naive = st.datetimes(dt.datetime(2, 1, 1), dt.datetime(9998, 12, 31))  # noqa: DTZ001 - naive is meant
    return naive | st.builds(_in_zone, naive, _offsets())


def _in_zone(moment: dt.datetime, zone: dt.timezone) -> dt.datetime:
    return moment.replace(tzinfo=zone)


def _hours() -> st.SearchStrategy[dt.time]:
    return st.times() | st.builds(_hour_in_zone, st.times(), _offsets())


def _hour_in_zone(hour: dt.time, zone: dt.timezone) -> dt.time:
    return hour.replace(tzinfo=zone)


def inners() -> st.SearchStrategy[Inner]:
    """Values that hold values of their own type."""
    scores = st.none() | st.floats(allow_nan=False, allow_infinity=False)
    leaves = st.builds(Inner, st.text(), scores)
    return st.recursive(leaves, lambda some: st.builds(Inner, st.text(), scores, st.lists(some, max_size=3).map(tuple)))


def everything() -> st.SearchStrategy[Everything]:
    """Values of every type at once."""
    finite = st.floats(allow_nan=False, allow_infinity=False)
    pages = st.builds(_page_of, st.lists(inners(), max_size=2))
    return st.builds(
        Everything,
        text=st.text(),
        whole=st.integers(),
        real=finite,
        flag=st.booleans(),
        moment=_moments(),
        day=st.dates(),
        hour=_hours(),
        span=st.timedeltas(),
        key=st.uuids(),
        status=st.sampled_from(Status),
        level=st.sampled_from(Level),
        choice=st.sampled_from(["a", "b", 3, True, None]),
        exact=st.decimals(allow_nan=False, allow_infinity=False),
        raw=st.binary(),
        pair=st.tuples(st.integers(), st.text()),
        many=st.lists(finite).map(tuple),
        tags=st.frozensets(st.text()),
        moods=st.sets(st.sampled_from(Status)),
        rows=st.lists(inners(), max_size=3),
        counts=st.dictionaries(st.text(), st.integers()),
        by_day=st.dictionaries(st.dates(), st.lists(st.binary())),
        by_number=st.dictionaries(st.integers(), inners(), max_size=3),
        by_status=st.dictionaries(st.sampled_from(Status), st.booleans()),
        inner=inners(),
        maybe=st.none() | inners(),
        either=st.none() | st.integers() | st.text() | st.lists(st.text()),
        page=pages,
        default=st.integers(),
    )


def _page_of(items: list[Inner]) -> Page[Inner]:
    return Page(items, Page([], None))
