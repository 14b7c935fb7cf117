"""One field for each thing that may be wrong with arguments, and arguments that are wrong in it."""

from __future__ import annotations

import datetime as dt
import enum
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal
from uuid import UUID

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag

from handrail.serde.json_schema import is_object
from tests.serde.shapes import Circle, Empty, Json, Page, Square, Status, Step


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


SLIPS: dict[str, Json] = {
    "whole": ["7", 7.5, 1e-2, True, None, [], {}],
    "real": ["1.5", False],
    "text": [1],
    "flag": ["true", 1],
    "bounded": [0, 11],
    "floor": [0],
    "third": [4],
    "short": ["", "123456"],
    "long": ["a"],
    "exact": ["a"],
    "code": ["A"],
    "room": ["atic", "garden", 5],
    "status": ["In_Progress", 3],
    "letter": ["AB"],
    "moment": ["2026-13-01T00:00:00Z", "tomorrow", 0],
    "day": ["2026-02-30"],
    "hour": ["25:00"],
    "span": ["long", 3],
    "key": ["1234"],
    "raw": ["é"],
    "price": ["much", True],
    "late": ["2025-01-01"],
    "pair": [[1], [1, "a", 2], ["a", 1]],
    "few": [[1, 2, 3], ["a"], "[1, 2"],
    "some": [[]],
    "rows": [[{"titel": "a"}], [{"title": "a", "weight": 0}], '[{"title": "a"'],
    "counts": [{}, {"a b": "x", "c": 1.5}],
    "numbered": [{"one": "a"}],
    "inner": [{"low": 2, "high": 1}, {"low": "2"}],
    "nothing": [0],
    "listed": ["1,2"],
    "empty": [{"a": 1}, []],
    "even": [3],
    "either": [1.5, ["a", 1], {"a": "b"}],
    "listed_or_one": ["a"],
    "path": [5],
    "limited": [1, "abc", None],
    "ranged": [{"low": 2, "high": 1}, 5],
    "lists": [[[1, "a"]]],
    "pages": [{"items": [None]}],
    "tagged": [{"kind": "x"}, {"kind": "c", "radius": 1}],
}
