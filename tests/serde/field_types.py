"""The types of fields for which parsing is held to the published JSON Schema."""

from __future__ import annotations

import datetime as dt
import enum
import re
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from ipaddress import IPv4Address, IPv4Network, IPv6Address
from itertools import product
from pathlib import PurePosixPath
from typing import Annotated, Any, Final, Literal, NewType
from uuid import UUID

from pydantic import Field
from typing_extensions import TypeAliasType

from tests.serde.members import Digit, Other, State, Word
from tests.serde.shapes import Circle, Drawing, Inner, Level, Page, Plan, Square, Status, Tree


class Mixed(enum.Enum):
    """Values of several types."""

    WORD = "a"
    NUMBER = 2
    HALF = 0.5


class Folding(enum.StrEnum):
    """Takes other values too, where a store holds them."""

    LOW = "a"

    @classmethod
    def _missing_(cls, value: object) -> Folding | None:
        return cls.LOW if value == "A" else None


@dataclass(frozen=True)
class Pair:
    """Has a hash."""

    name: str
    number: int = 0


@dataclass(frozen=True)
class Bounded:
    """Constraints beside defaults, in every place."""

    name: Annotated[str, Field(min_length=1, max_length=3)]
    count: Annotated[int, Field(ge=0, le=9)] = 0
    parts: Annotated[tuple[int, ...], Field(max_length=2)] = ()
    share: float | None = field(default=None, metadata={"gt": 0, "lt": 1})


@dataclass(frozen=True)
class Empty:
    """No fields."""


@dataclass(frozen=True)
class Node:
    """Holds itself, in three ways."""

    name: str
    parent: Node | None = None
    children: tuple[Node, ...] = ()
    by_name: Mapping[str, Node] | None = None


@dataclass(frozen=True)
class Section:
    """Holds itself, and what a discriminator distinguishes from it."""

    kind: Literal["section"]
    title: str
    inside: list[SectionOrNotes] = field(default_factory=list["SectionOrNotes"])


@dataclass(frozen=True)
class Notes:
    """Holds sections too."""

    kind: Literal["notes"]
    texts: list[str | State]
    more: Section | None = None


SectionOrNotes = Annotated[Section | Notes, Field(discriminator="kind")]


# Untyped, because type checkers want to know what stands in brackets before the program runs.
_annotated: Any = Annotated
_field: Any = Field
_list: Any = list
_tuple: Any = tuple
_set: Any = set
_frozenset: Any = frozenset
_dict: Any = dict

UserId = NewType("UserId", int)
Number = TypeAliasType("Number", int)
Key = TypeAliasType("Key", Annotated[int, Field()])
_new: Any = NewType
_alias: Any = TypeAliasType
Counted: Any = _new("Counted", Annotated[int, Field(ge=0)])
Marked: Any = _alias("Marked", Annotated[str, Field(pattern="^[a-z]$")])
Names = TypeAliasType("Names", list[str])

SCALARS: Final[list[Any]] = [
    *(str, int, float, bool, None, bytes, Decimal, Fraction, UUID, dt.datetime, dt.date, dt.time, dt.timedelta),
    *(PurePosixPath, IPv4Address, IPv6Address, IPv4Network, re.Pattern[str], Any, object, UserId),
    *(Status, Level, Digit, Word, Other, Mixed),
    *(Literal["a", "b"], Literal[1, 2], Literal[True], Literal[0, False, "0"] | None, Literal["a", 1]),
]
CONSTRAINED: Final[list[Any]] = [
    *(_annotated[int, _field(**words)] for words in ({"ge": 0}, {"gt": 0, "lt": 10}, {"le": -1}, {"multiple_of": 3})),
    *(_annotated[float, _field(**words)] for words in ({"ge": 0}, {"gt": 0, "lt": 1}, {"multiple_of": 0.5})),
    *(_annotated[str, _field(**words)] for words in ({"min_length": 1}, {"max_length": 2}, {"pattern": "^[a-z]{2}$"})),
    *(_annotated[list[int], _field(**words)] for words in ({"min_length": 1}, {"max_length": 2})),
    Annotated[dict[str, int], Field(min_length=1)],
    Annotated[set[str], Field(min_length=1, max_length=2)],
    list[Annotated[int, Field(ge=0)]],
]
DECLARED: Final[list[Any]] = [
    *(Folding, Folding | None, list[Folding], dict[Folding, int], Counted, Marked, list[Counted | None], Bounded),
    *(dict[Number, int], dict[Key, int], dict[Number, Marked], Mapping[Marked, list[Counted]], dict[Folding, Bounded]),
    *(set[tuple[int, str]], frozenset[tuple[int, ...]], set[int | str], set[Pair], frozenset[Literal["a", 1]]),
    *(_annotated[tuple[int, ...], _field(**words)] for words in ({"min_length": 1}, {"max_length": 2})),
    *(_annotated[deque[int], _field(max_length=2)], _annotated[Sequence[str], _field(min_length=1, max_length=3)]),
    *(_annotated[Mapping[str, Counted], _field(max_length=1)], _list[_annotated[str, _field(max_length=2)] | None]),
    *(_annotated[int | None, _field(ge=0)], _annotated[list[Marked] | None, _field(max_length=2)]),
    *(_annotated[int, _field(ge=2, le=2)], _annotated[_annotated[int, _field(ge=0)], _field(lt=4)]),
    *(_tuple[_annotated[float, _field(gt=0)], Marked], Bounded | int, list[Bounded], dict[str, Bounded | None]),
]
"""Types whose constraints stand in a `NewType`, an alias, a collection or a dataclass."""
ITEMS: Final[list[Any]] = [str, int, float, bytes, Decimal, dt.datetime, Status]
COLLECTIONS: Final[list[Any]] = [
    *(_list[kind] for kind in (*ITEMS, Any, bool, Inner, list[int], int | None)),
    *(_tuple[kind, ...] for kind in ITEMS),
    *(_set[kind] for kind in (str, int, dt.date, Digit)),
    *(_frozenset[kind] for kind in (str, Decimal, Status)),
    *(deque[int], Sequence[str], tuple[int, str], tuple[dt.date, Decimal, Inner], tuple[()], list, dict, Names),
]
KEYS: Final[list[Any]] = [str, int, UUID, dt.date, Status]
MAPPINGS: Final[list[Any]] = [
    *(_dict[key, value] for key, value in product(KEYS, (int, Inner))),
    *(dict[Literal["a", "b"], int], dict[Any, int], dict[str, Any], dict[str, list[dt.date]]),
    *(Mapping[str, float], OrderedDict[int, str], defaultdict[str, int], Counter[str]),
]
UNIONS: Final[list[Any]] = [
    *(kind | None for kind in (str, int, bytes, dt.datetime, Inner, list[int])),
    *(int | str, int | float, int | bool | str, Decimal | int, Decimal | float, dt.datetime | int, UUID | int),
    *(dt.datetime | str, str | dt.datetime, dt.date | str, Decimal | str, UUID | str, bytes | str, Status | str),
    *(dt.date | dt.datetime, dt.time | dt.timedelta, Digit | int, int | list[int], list[int] | dict[str, int]),
    *(PurePosixPath | State, State | str, float | Literal[0], Decimal | Literal[1, 2], Literal[0] | float | None),
    *(list[int | str] | dict[str, int], dict[int, str] | dict[str, str], dict[UUID, int] | dict[int, int]),
    *(list[Circle | Square], dict[str, Circle | int], SectionOrNotes),
    *(Circle | Square, Inner | str, Inner | list[Inner], tuple[int, ...] | str, Literal["a"] | int, str | Mixed),
]
DATACLASSES: Final[list[Any]] = [
    Empty,
    Inner,
    Node,
    Tree,
    Plan,
    Drawing,
    Circle,
    Page[int],
    Page[Inner],
    Page[Page[str]],
]

FIELD_TYPES: Final[list[Any]] = [*SCALARS, *CONSTRAINED, *DECLARED, *COLLECTIONS, *MAPPINGS, *UNIONS, *DATACLASSES]
"""More than a hundred types of fields."""
