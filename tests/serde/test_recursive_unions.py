"""A union that holds itself is read and written with work that grows with its values, not with the number of ways."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Annotated, Any, Final, Literal

import pytest
from pydantic import AfterValidator, PlainSerializer

from handrail.errors import DumpError, ParseError
from handrail.serde import canonical_json, codec, result_codec, stored_codec
from handrail.serde.attempts import FOR_A_BYTE, LEAST

LOOKED_AT: Final[list[int]] = []


def _seen(value: int) -> int:
    LOOKED_AT.append(value)
    return value


Counted = Annotated[int, AfterValidator(_seen), PlainSerializer(_seen)]


@dataclass(frozen=True)
class Sum:
    """Marked by a `Literal`."""

    op: Literal["sum"]
    mark: Counted
    parts: tuple[Sum | Product | int, ...] = ()


@dataclass(frozen=True)
class Product:
    """Marked by another."""

    op: Literal["product"]
    mark: Counted
    parts: tuple[Sum | Product | int, ...] = ()


@dataclass(frozen=True)
class Formula:
    """A parameter."""

    root: Sum | Product


@dataclass(frozen=True)
class Branch:
    """Differs from `Fork` in the names of its fields."""

    mark: Counted
    children: list[Branch | Fork | Leaf]


@dataclass(frozen=True)
class Fork:
    """Has a field more."""

    mark: Counted
    children: list[Branch | Fork | Leaf]
    why: str


@dataclass(frozen=True)
class Leaf:
    """Holds a number."""

    value: int


@dataclass(frozen=True)
class Tree:
    """A parameter."""

    root: Branch | Fork


@dataclass(frozen=True)
class Yes:
    """Equal in its fields to `No`."""

    mark: Counted
    then: tuple[Yes | No | int, ...] = ()


@dataclass(frozen=True)
class No:
    """Equal in its fields to `Yes`."""

    mark: Counted
    then: tuple[Yes | No | int, ...] = ()


@dataclass(frozen=True)
class Left:
    """Holds lists that JSON does not tell apart."""

    mark: Counted
    below: list[Left] | list[Right] = field(default_factory=list["Left"])


@dataclass(frozen=True)
class Right:
    """Equal in its fields to `Left`."""

    mark: Counted
    below: list[Left] | list[Right] = field(default_factory=list["Left"])


def formula(depth: int, leaf: object, ops: tuple[str, str] = ("sum", "product")) -> dict[str, Any]:
    """Sums and products in turn, one within the other."""
    inner: dict[str, Any] = {"op": ops[0], "mark": 0, "parts": [leaf]}
    for level in range(depth):
        inner = {"op": ops[level % 2], "mark": level, "parts": [inner, 2]}
    return {"root": inner}


def tree(depth: int, leaf: object) -> dict[str, Any]:
    """Branches and forks in turn."""
    inner: dict[str, Any] = {"mark": 0, "children": [{"value": leaf}]}
    for level in range(depth):
        inner = {"mark": level, "children": [inner], **({"why": "so"} if level % 2 else {})}
    return {"root": inner}


def answers(depth: int, leaf: Any = 1) -> Yes:
    """Both in turn, one within the other."""
    inner: Any = leaf
    for level in range(2 * depth):
        inner = (Yes if level % 2 else No)(level, (inner,))
    return Yes(0, (inner,))


def sides(depth: int) -> Left:
    """Lists of both in turn."""
    inner: Any = Left(0)
    for level in range(2 * depth):
        inner = (Left if level % 2 else Right)(level, [inner])
    return Left(0, [inner])


def looks(work: Callable[[Any], object], given: Any) -> int:
    """How often a number was validated or written."""
    LOOKED_AT.clear()
    with suppress(ParseError, DumpError):
        work(given)
    return len(LOOKED_AT)


PARSED: list[tuple[type[Any], Callable[[int], dict[str, Any]]]] = [
    (Formula, lambda depth: formula(depth, 1)),
    (Formula, lambda depth: formula(depth, 1.0)),
    (Formula, lambda depth: formula(depth, "x")),
    (Formula, lambda depth: formula(depth, 1, ("sum", "difference"))),
    (Formula, lambda depth: json.loads(json.dumps(formula(depth, 1)).replace('"op"', '"kind"'))),
    (Tree, lambda depth: tree(depth, 1)),
    (Tree, lambda depth: tree(depth, 1.0)),
    (Tree, lambda depth: tree(depth, "x")),
]


@pytest.mark.parametrize("kind, made", PARSED, ids=count())
def test_parsing_tries_each_value_once(kind: type[Any], made: Callable[[int], dict[str, Any]]) -> None:
    """Three times at most, where a number has to be made an integer."""
    data = {depth: made(depth) for depth in (5, 40)}
    for depth, given in data.items():
        assert looks(codec(kind).parse, given) <= 3 * (depth + 1)


STORED: list[tuple[type[Any], Callable[[int], Any]]] = [
    (Yes, answers),
    (Formula, lambda depth: codec(Formula).parse(formula(2 * depth, 1))),
    (Tree, lambda depth: codec(Tree).parse(tree(2 * depth, 1))),
]


@pytest.mark.parametrize("kind, made", STORED, ids=count())
def test_what_is_stored_is_written_and_read_once(kind: type[Any], made: Callable[[int], Any]) -> None:
    """Each value once, at every depth; what is written is read back once, because the types have a validator."""
    stored = stored_codec(kind)
    for depth in (5, 30):
        value = made(depth)
        data = stored.dump_json(value)
        assert stored.parse_json(data) == value
        assert looks(stored.dump_json, value) <= 2 * (2 * depth + 1)
        assert looks(stored.parse_json, data) <= 2 * depth + 1
        wrong = data[::-1].replace(b"1", b'"x"', 1)[::-1]
        assert looks(stored.parse_json, wrong) <= 2 * depth + 1
        assert looks(canonical_json, value) == 0


def test_lists_of_one_class_are_looked_into_once_for_each_level_above() -> None:
    """Their class does not say of which member they are."""
    stored = stored_codec(Left)
    for depth in (4, 16):
        value = sides(depth)
        data = stored.dump_json(value)
        assert stored.parse_json(data) == value
        size = 2 * depth + 2
        assert looks(stored.dump_json, value) <= 2 * size**2
        assert looks(stored.parse_json, data) <= size
        assert looks(canonical_json, value) <= 2 * size**2


@pytest.mark.parametrize("kind", [stored_codec, result_codec])
def test_a_value_that_is_of_no_member_is_refused_as_fast(kind: Any) -> None:
    """Its place is deep within."""
    few, many = (looks(kind(Yes).dump_json, answers(depth, "x")) for depth in (3, 12))
    assert many <= 5 * few


def test_the_faults_of_the_member_that_was_meant_are_told() -> None:
    """Where no `Literal` field fits, the choices are told; where one fits, what is missing in its class."""
    cases: list[tuple[dict[str, Any], set[tuple[str, str]]]] = [
        ({"op": "sum"}, {("$.root.mark", "missing field mark; expected an integer")}),
        (
            {"op": "sums", "mark": 1},
            {
                ("$.root.op", 'expected "sum", got another string; did you mean "sum"? (if meant as Sum)'),
                ("$.root.op", 'expected "product", got another string (if meant as Product)'),
            },
        ),
    ]
    for root, faults in cases:
        with pytest.raises(ParseError) as caught:
            codec(Formula).parse({"root": root})
        assert set(caught.value.faults) == faults


@dataclass(frozen=True)
class Nested:
    """Holds itself in collections whose JSON is one."""

    mark: Counted
    below: list[Nested] | tuple[Nested, ...] | None = None


@dataclass(frozen=True)
class Turned:
    """The same in the other order."""

    mark: Counted
    below: tuple[Turned, ...] | list[Turned] | None = None


@dataclass(frozen=True)
class Gathered:
    """With a set."""

    mark: Counted
    below: frozenset[Gathered] | tuple[Gathered, ...] | list[Gathered] | None = None


@dataclass(frozen=True)
class Numbered:
    """Differs from `Worded` in the type of a field."""

    mark: Counted
    value: int
    below: Numbered | Worded | None = None


@dataclass(frozen=True)
class Worded:
    """Has a text where `Numbered` has a number."""

    mark: Counted
    value: str
    below: Numbered | Worded | None = None


@dataclass(frozen=True)
class Ally:
    """Marked; in lists of one class."""

    mark: Counted
    side: Literal["ally"]
    below: list[Ally] | list[Enemy] | None = None


@dataclass(frozen=True)
class Enemy:
    """Marked otherwise."""

    mark: Counted
    side: Literal["enemy"]
    below: list[Ally] | list[Enemy] | None = None


def nest(depth: int, leaf: object, fields: tuple[dict[str, Any], ...] = ({},), *, lists: bool = True) -> dict[str, Any]:
    """An object in an object, or in a list of one."""
    inner: dict[str, Any] = {"mark": leaf, **fields[0]}
    for level in range(depth):
        inner = {"mark": level, **fields[level % len(fields)], "below": [inner] if lists else inner}
    return inner


WORDS: Final[tuple[dict[str, Any], ...]] = ({"value": "a"}, {"value": 1})
SIDES: Final[tuple[dict[str, Any], ...]] = ({"side": "enemy"}, {"side": "ally"})
ONE_SHAPE: Final[list[tuple[type[Any], Callable[[int, object], dict[str, Any]]]]] = [
    (Nested, nest),
    (Turned, nest),
    (Gathered, nest),
    (Worded, lambda depth, leaf: nest(depth, leaf, WORDS, lists=False)),
    (Ally, lambda depth, leaf: nest(depth, leaf, SIDES)),
]


@pytest.mark.parametrize("leaf", [1, 1.0, "x"])
@pytest.mark.parametrize("kind, made", ONE_SHAPE, ids=count())
def test_one_member_is_tried_where_several_have_one_shape(
    kind: type[Any], made: Callable[[int, object], dict[str, Any]], leaf: object
) -> None:
    """As a parameter, and stored without tags."""
    for depth in (6, 40):
        data = made(depth, leaf)
        assert looks(codec(kind).parse, data) <= 3 * (depth + 1)
        assert looks(stored_codec(kind).parse_json, json.dumps(data)) <= 3 * (depth + 1)


@pytest.mark.parametrize("kind", [Nested, Turned, Gathered])
def test_an_array_is_read_as_a_list_where_one_is_declared(kind: type[Any]) -> None:
    """As pydantic reads it where nothing is nested."""
    value: Any = codec(kind).parse(nest(3, 1))
    below: Any = value.below
    assert [type(each) for each in (below, below[0].below)] == [list, list]


@pytest.mark.parametrize("depth", [5, 30])
def test_values_stored_before_there_were_tags_are_read_with_work_that_grows_with_them(depth: int) -> None:
    """The first of two members that read the same."""
    data = json.dumps(nest(depth, 1)).replace("below", "then")
    assert looks(stored_codec(Yes).parse_json, data) == depth + 1
    assert type(stored_codec(Yes).parse_json(data).then[0]) is Yes


@dataclass(frozen=True)
class Even:
    """Whether it is meant is said at the end of the chain alone."""

    mark: Counted
    below: Even | Odd | Literal["even"]


@dataclass(frozen=True)
class Odd:
    """As `Even`, with another end."""

    mark: Counted
    below: Even | Odd | Literal["odd"]


def test_a_text_with_too_many_ways_to_read_it_is_refused() -> None:
    """Nothing outside of the objects says which they are. A text with few levels is read."""
    stored = stored_codec(Even)

    def chain(depth: int) -> str:
        return '{"mark": 1, "below": ' * depth + '"odd"' + "}" * depth

    assert type(stored.parse_json(chain(5))) is Even
    for depth in (40, 80):
        with pytest.raises(ParseError, match="too many ways to read it") as caught:
            stored.parse_json(chain(depth))
        assert [path for path, _ in caught.value.faults] == ["$"]
    assert looks(stored.parse_json, chain(80)) <= 2 * (LEAST + FOR_A_BYTE * len(chain(80)))
