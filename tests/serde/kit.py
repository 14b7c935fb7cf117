"""Dataclasses, unions, slips of models and the faults that they get, for the tests of serde."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import json
import subprocess
import sys
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Generic, Literal, TypeVar
from uuid import UUID

import pytest
from hypothesis import strategies as st
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, Tag
from typing_extensions import TypedDict

from handrail.errors import ParseError
from handrail.serde import parse
from handrail.serde.json_schema import is_object

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


def told(kind: type[object], data: Json) -> list[str]:
    """The faults of `data` for the model, one a line."""
    with pytest.raises(ParseError) as caught:
        parse(kind, json.dumps(data))
    lines = [f"{path}: {text}" for path, text in caught.value.faults]
    assert str(caught.value) == "\n".join(lines)
    return lines


class Letter(enum.Enum):
    """More letters than one reads."""

    LA, LB, LC, LD, LE, LF, LG, LH, LI, LJ, LK, LL = "ABCDEFGHIJKL"
    LM, LN, LO, LP, LQ, LR, LS, LT, LU, LV, LW, LX = "MNOPQRSTUVWX"


@dataclass(frozen=True, slots=True)
class Range:
    low: int
    high: int

    def __post_init__(self) -> None:
        """Refuses what no type can."""
        if self.low > self.high:
            raise ValueError("low must not be above high")


def _kind_of(value: Json) -> str:
    return str(value.get("kind", "")) if is_object(value) else ""


def _split(value: Json) -> Json:
    return value.split(",") if isinstance(value, str) else value


def _even(value: int) -> int:
    if value % 2:
        raise AssertionError("must be even")
    return value


Rooms = Literal["hall", "attic", "cellar"]


@dataclass
class Wide:
    """One field for each thing that may be wrong."""

    whole: int = 1
    real: float = 1.0
    text: str = ""
    flag: bool = False
    bounded: Annotated[int, Field(gt=0, le=10)] = 1
    floor: Annotated[int, Field(ge=1, lt=9)] = 1
    third: Annotated[int, Field(multiple_of=3)] = 3
    short: Annotated[str, Field(min_length=1, max_length=5)] = "a"
    long: Annotated[str, Field(min_length=2)] = "aa"
    exact: Annotated[str, Field(min_length=2, max_length=2)] = "aa"
    code: Annotated[str, Field(pattern="^[a-z]+$")] = "a"
    room: Rooms = "hall"
    status: Status = Status.DONE
    letter: Letter = Letter.LA
    moment: dt.datetime | None = None
    day: dt.date = dt.date(2026, 1, 31)
    hour: dt.time = dt.time(12)
    span: dt.timedelta = dt.timedelta(1)
    key: UUID | None = None
    raw: bytes = b""
    price: Decimal = Decimal(1)
    late: Annotated[dt.date, Field(gt=dt.date(2026, 1, 1))] = dt.date(2026, 1, 31)
    pair: tuple[int, str] = (1, "a")
    few: Annotated[list[int], Field(max_length=2)] = field(default_factory=list[int])
    some: Annotated[frozenset[int], Field(min_length=1)] = frozenset({1})
    rows: list[Step] = field(default_factory=list[Step])
    counts: Annotated[dict[str, int], Field(min_length=1)] = field(default_factory=dict[str, int])
    numbered: dict[int, str] = field(default_factory=dict[int, str])
    inner: Range | None = None
    nothing: None = None
    listed: Annotated[list[int], BeforeValidator(_split)] = field(default_factory=list[int])
    empty: Empty | None = None
    even: Annotated[int, AfterValidator(_even)] = 2
    either: int | list[str] | dict[str, int] | None = None
    listed_or_one: Sequence[int] | int = 1
    path: PurePosixPath | Path = Path()
    limited: Annotated[int, Field(gt=5)] | Annotated[str, Field(max_length=2)] = "a"
    ranged: Range | str = ""
    lists: list[list[int] | list[str]] = field(default_factory=list[list[int] | list[str]])
    pages: Page[int | str] | None = None
    tagged: Annotated[Annotated[Circle, Tag("c")] | Annotated[Square, Tag("s")], Discriminator(_kind_of)] | None = None


_SLIPS: list[dict[str, Json]] = [
    {"whole": ["7", 7.5, 1e-2, True, None, [], {}], "real": ["1.5", False], "text": [1], "flag": ["true", 1]},
    {"bounded": [0, 11], "floor": [0], "third": [4], "short": ["", "123456"], "long": ["a"], "exact": ["a"]},
    {"code": ["A"], "room": ["atic", "garden", 5], "status": ["In_Progress", 3], "letter": ["AB"]},
    {"moment": ["2026-13-01T00:00:00Z", "tomorrow", 0], "day": ["2026-02-30"], "hour": ["25:00"], "span": ["long", 3]},
    {"key": ["1234"], "raw": ["é"], "price": ["much", True], "late": ["2025-01-01"]},
    {"pair": [[1], [1, "a", 2], ["a", 1]], "few": [[1, 2, 3], ["a"], "[1, 2"], "some": [[]]},
    {"rows": [[{"titel": "a"}], [{"title": "a", "weight": 0}], '[{"title": "a"']},
    {"counts": [{}, {"a b": "x", "c": 1.5}], "numbered": [{"one": "a"}]},
    {"inner": [{"low": 2, "high": 1}, {"low": "2"}], "nothing": [0], "listed": ["1,2"], "empty": [{"a": 1}, []]},
    {"even": [3], "either": [1.5, ["a", 1], {"a": "b"}], "listed_or_one": ["a"], "path": [5]},
    {"limited": [1, "abc", None], "ranged": [{"low": 2, "high": 1}, 5], "lists": [[[1, "a"]]]},
    {"pages": [{"items": [None]}], "tagged": [{"kind": "x"}, {"kind": "c", "radius": 1}]},
]
SLIPS = {name: slips for some in _SLIPS for name, slips in some.items()}


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
    *(list[int] | list[str], dt.datetime | str, Decimal | str, UUID | str, bytes | str, Word | str),
    *(Word | Other, Digit | int, dict[int, str] | dict[str, str], PurePosixPath | Path, Any | dt.date),
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


def outputs(program: str) -> set[str]:
    """What a program prints in processes whose sets have other orders."""
    environment = {"PYTHONPATH": ":".join(sys.path)}
    command = [sys.executable, "-c", program]
    environments = [{"PYTHONHASHSEED": seed, **environment} for seed in "123"]
    runs = [subprocess.run(command, env=env, capture_output=True, check=True, text=True) for env in environments]
    return {run.stdout.strip() for run in runs}


class OpenModel(BaseModel):
    """Takes unknown fields."""

    model_config = ConfigDict(extra="allow")
    name: str
