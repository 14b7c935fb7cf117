"""Types of fields, and values that fit or do not fit a JSON Schema."""

from __future__ import annotations

import datetime as dt
import enum
import re
from base64 import urlsafe_b64encode
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from ipaddress import IPv4Address, IPv4Network, IPv6Address
from itertools import product
from pathlib import PurePosixPath
from typing import Annotated, Any, Final, Literal, NewType, cast
from uuid import UUID

from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from pydantic import Field
from typing_extensions import TypeAliasType

from handrail.serde.json_schema import DECIMAL, FRACTION, KEY_FORMS, is_object, resolve_ref
from tests.serde import kit


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
    texts: list[str | kit.State]
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
    *(kit.Status, kit.Level, kit.Digit, kit.Word, kit.Other, Mixed),
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
ITEMS: Final[list[Any]] = [str, int, float, bytes, Decimal, dt.datetime, kit.Status]
COLLECTIONS: Final[list[Any]] = [
    *(_list[kind] for kind in (*ITEMS, Any, bool, kit.Inner, list[int], int | None)),
    *(_tuple[kind, ...] for kind in ITEMS),
    *(_set[kind] for kind in (str, int, dt.date, kit.Digit)),
    *(_frozenset[kind] for kind in (str, Decimal, kit.Status)),
    *(deque[int], Sequence[str], tuple[int, str], tuple[dt.date, Decimal, kit.Inner], tuple[()], list, dict, Names),
]
KEYS: Final[list[Any]] = [str, int, UUID, dt.date, kit.Status]
MAPPINGS: Final[list[Any]] = [
    *(_dict[key, value] for key, value in product(KEYS, (int, kit.Inner))),
    *(dict[Literal["a", "b"], int], dict[Any, int], dict[str, Any], dict[str, list[dt.date]]),
    *(Mapping[str, float], OrderedDict[int, str], defaultdict[str, int], Counter[str]),
]
UNIONS: Final[list[Any]] = [
    *(kind | None for kind in (str, int, bytes, dt.datetime, kit.Inner, list[int])),
    *(int | str, int | float, int | bool | str, Decimal | int, Decimal | float, dt.datetime | int, UUID | int),
    *(dt.datetime | str, str | dt.datetime, dt.date | str, Decimal | str, UUID | str, bytes | str, kit.Status | str),
    *(dt.date | dt.datetime, dt.time | dt.timedelta, kit.Digit | int, int | list[int], list[int] | dict[str, int]),
    *(PurePosixPath | kit.State, kit.State | str, float | Literal[0], Decimal | Literal[1, 2]),
    *(list[int | str] | dict[str, int], dict[int, str] | dict[str, str], dict[UUID, int] | dict[int, int]),
    *(Literal[0] | float | None, list[kit.Circle | kit.Square], dict[str, kit.Circle | int], SectionOrNotes),
    *(kit.Circle | kit.Square, kit.Inner | str, kit.Inner | list[kit.Inner], tuple[int, ...] | str),
    *(Literal["a"] | int, str | Mixed),
]
DATACLASSES: Final[list[Any]] = [
    *(Empty, kit.Inner, Node, kit.Tree, kit.Plan, kit.Drawing, kit.Circle),
    *(kit.Page[int], kit.Page[kit.Inner], kit.Page[kit.Page[str]]),
]

FIELD_TYPES: Final[list[Any]] = [*SCALARS, *CONSTRAINED, *DECLARED, *COLLECTIONS, *MAPPINGS, *UNIONS, *DATACLASSES]
"""More than a hundred types of fields."""


Schema = Mapping[str, Any]
Drawn = st.SearchStrategy[Any]

_DEEPEST: Final = 4
_text = st.text(max_size=6)
_offsets = st.none() | st.integers(-1439, 1439).map(lambda minutes: dt.timezone(dt.timedelta(minutes=minutes)))
_days = st.dates(dt.date(1000, 1, 1))
_least, _most = (dt.datetime.fromisoformat(day) for day in ("1000-01-02", "9999-12-30"))
_moments = st.datetimes(_least, _most, timezones=cast("Any", _offsets))
_spans = st.timedeltas(dt.timedelta(days=-1_000_000), dt.timedelta(days=1_000_000))
_decimals = st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**9), max_value=10**9)

FORMATS: Final[Mapping[str, st.SearchStrategy[str]]] = {
    "date-time": _moments.map(dt.datetime.isoformat) | _moments.map(lambda moment: f"{moment:%Y-%m-%dT%H:%M}Z"),
    "date": _days.map(dt.date.isoformat),
    "time": st.times().map(dt.time.isoformat),
    "duration": _spans.map(lambda span: f"{'-' * (span.days < 0)}P{abs(span).days}DT{abs(span).seconds}S"),
    "uuid": st.uuids().map(str),
    "base64url": st.binary(max_size=8).map(lambda data: urlsafe_b64encode(data).decode()),
    "path": st.text("abc./ ", min_size=1, max_size=8),
    "ipv4": st.ip_addresses(v=4).map(str),
    "ipv6": st.ip_addresses(v=6).map(str),
    "ipv4network": st.ip_addresses(v=4).map(lambda address: f"{address}/32"),
    "regex": st.sampled_from(["a+", "^[a-z]*$"]),
}
"""Well-formed texts of each format."""

PATTERNS: Final[Mapping[str, tuple[st.SearchStrategy[str], Callable[[str], object]]]] = {
    DECIMAL: (_decimals.map(str) | st.sampled_from(["1.", ".5", "+1e2"]), Decimal),
    FRACTION: (st.fractions().map(str) | st.sampled_from(["+1/3", "0.5"]), Fraction),
    KEY_FORMS["integer"]: (st.integers().map(str), int),
    KEY_FORMS["uuid"]: (st.uuids().map(str), UUID),
}
"""Texts of the patterns that Handrail publishes itself, and what each of them means."""

_MEANINGS: Final[Mapping[str, Callable[[str], object]]] = {
    "date-time": lambda text: (moment := dt.datetime.fromisoformat(text)).tzinfo is None or moment.timestamp(),
    "duration": lambda text: text.lstrip("-"),
    "uuid": UUID,
    "path": lambda text: text.strip("/. "),
}
"""What a key of a format means, where two texts may mean the same."""


def is_valid(schema: Schema, value: kit.Json) -> bool:
    """Whether a common validator of JSON Schema takes decoded JSON; formats are not checked."""
    validator: Any = Draft202012Validator(schema)  # its own types are only partly known
    return bool(validator.is_valid(value))


def taken_by(node: Schema, root: Schema, depth: int = 0) -> Drawn:
    """Decoded JSON that a schema takes; `root` holds its definitions."""
    node = resolve_ref(node, root)
    options = [*node.get("anyOf", ()), *node.get("oneOf", ())]
    if options:
        ending = [option for option in options if _ends(option, root, depth)]
        return st.one_of([taken_by(option, root, depth + 1) for option in ending or options])
    if "enum" in node or "const" in node:
        choices: list[kit.Json] = node.get("enum", [node.get("const")])
        return st.sampled_from([form for choice in choices for form in _forms(choice)])
    kinds: Mapping[str, Callable[[], Drawn]] = {
        "string": lambda: _strings(node),
        "integer": lambda: _numbers(node, whole=True),
        "number": lambda: _numbers(node, whole=False),
        "boolean": st.booleans,
        "null": st.none,
        "array": lambda: _arrays(node, root, depth),
        "object": lambda: _objects(node, root, depth),
    }
    return kinds[node["type"]]() if "type" in node else _anything


_anything: Final[Drawn] = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.floats(-1e20, 1e20) | _text,
    lambda some: st.lists(some, max_size=3) | st.dictionaries(_text, some, max_size=3),
    max_leaves=5,
)


def _ends(option: Schema, root: Schema, depth: int) -> bool:
    """Whether an option may be drawn: deep down, only what holds nothing else."""
    return depth < _DEEPEST or resolve_ref(option, root).get("type") not in {"array", "object"}


def _forms(choice: kit.Json) -> list[kit.Json]:
    """A choice as JSON may write it: a number with a fraction of zero, and without."""
    if isinstance(choice, bool) or not isinstance(choice, int | float):
        return [choice]
    return [choice, float(choice)] if float(choice).is_integer() else [choice]


def _strings(node: Schema) -> Drawn:
    pattern, form = str(node.get("pattern", "")), str(node.get("format", ""))
    least, most = node.get("minLength", 0), node.get("maxLength")
    if pattern in PATTERNS:
        return PATTERNS[pattern][0]
    if form in FORMATS:
        return FORMATS[form]
    if pattern:
        return st.from_regex(re.compile(pattern, re.ASCII)).filter(lambda text: not text.endswith("\n"))
    return st.text(min_size=least, max_size=6 if most is None else most)


def _numbers(node: Schema, *, whole: bool) -> Drawn:
    least, most = node.get("minimum", node.get("exclusiveMinimum")), node.get("maximum", node.get("exclusiveMaximum"))
    low, high = (-(10**20) if least is None else least), (10**20 if most is None else most)
    step = node.get("multipleOf", 1 if whole else None)
    if step is None:
        floats = st.floats(float(low), float(high), allow_subnormal=False).map(lambda number: float(f"{number:.15g}"))
        numbers: Drawn = st.integers(int(low), int(high)) | floats
    else:
        numbers = st.integers(int(low / step), int(high / step)).map(lambda times: times * step)
        numbers = numbers | numbers.filter(lambda number: abs(number) < 10**15).map(float)
    return numbers.filter(lambda number: number not in {node.get("exclusiveMinimum"), node.get("exclusiveMaximum")})


def _arrays(node: Schema, root: Schema, depth: int) -> Drawn:
    fixed = [taken_by(item, root, depth + 1) for item in node.get("prefixItems", ())]
    if fixed:
        return st.tuples(*fixed).map(list)
    items = node.get("items", {})
    if not is_object(items):
        return st.just([])
    least = node.get("minItems", 0)
    most = node.get("maxItems", least + (3 if depth < _DEEPEST else 0))
    held = taken_by(items, root, depth + 1) if most else st.nothing()
    return st.lists(held, min_size=least, max_size=most, unique_by=_sameness if node.get("uniqueItems") else None)


def _sameness(item: kit.Json) -> object:
    """What is equal for items that JSON Schema holds for equal."""
    return item if isinstance(item, int | float) and not isinstance(item, bool) else repr(item)


def _objects(node: Schema, root: Schema, depth: int) -> Drawn:
    properties: Schema = node.get("properties", {})
    if properties:
        required = {name: taken_by(properties[name], root, depth + 1) for name in node.get("required", ())}
        others = {name: part for name, part in properties.items() if name not in required}
        optional = {
            name: taken_by(part, root, depth + 1) for name, part in others.items() if _ends(part, root, depth + 1)
        }
        return st.fixed_dictionaries(required, optional=optional)
    items: object = node.get("additionalProperties", False)
    if items is False:
        return st.just({})
    held = taken_by(cast("Schema", items) if is_object(items) else {}, root, depth + 1)
    named: Schema = resolve_ref(node.get("propertyNames", {}), root)
    keys: Drawn = st.sampled_from(named["enum"]) if "enum" in named else _strings(named)
    least = node.get("minProperties", 0)
    most = node.get("maxProperties", least + (3 if depth < _DEEPEST else 0))
    meaning = _MEANINGS.get(named.get("format", ""), PATTERNS.get(named.get("pattern", ""), (None, str))[1])
    pairs = st.lists(st.tuples(keys, held), min_size=least, max_size=most, unique_by=lambda pair: meaning(pair[0]))
    return pairs.map(dict)
