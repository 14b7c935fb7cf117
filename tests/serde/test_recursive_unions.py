"""A union that holds itself is read and written with work that grows with its values, not with the number of ways."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Annotated, Any, Final, Literal

import pytest
from pydantic import AfterValidator, PlainSerializer, TypeAdapter
from typing_extensions import TypeAliasType

from handrail.errors import DumpError, ParseError
from handrail.serde import canonical_json, codec, result_codec, stored_codec
from tests.wording import Wording

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


@dataclass(frozen=True)
class Nest:
    """Holds collections that JSON does not tell apart, and whose items are of one type."""

    mark: Counted
    below: list[Nest] | tuple[Nest, ...] | None = None


@dataclass(frozen=True)
class Odd:
    """Equal in all that JSON says of it to `Even`."""

    mark: Counted
    after: Odd | Even | None = None


@dataclass(frozen=True)
class Even:
    """Equal in all that JSON says of it to `Odd`."""

    mark: Counted
    after: Odd | Even | None = None


@dataclass(frozen=True)
class Folder:
    """Holds mappings that JSON tells apart from itself only by what they hold."""

    mark: Counted
    entries: dict[str, Folder] | dict[str, File] | Folder | None = None


@dataclass(frozen=True)
class File:
    """Has a field more than `Folder`."""

    mark: Counted
    text: str
    entries: dict[str, Folder] | dict[str, File] | Folder | None = None


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


def chain(name: str, depth: int, *, in_list: bool = False, leaf: object = 0) -> dict[str, Any]:
    """Objects without tags, one within the other."""
    inner: dict[str, Any] = {"mark": leaf}
    for level in range(depth):
        inner = {"mark": level, name: [inner] if in_list else inner}
    return inner


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
        # What cannot be read may have tags of a union that the type had before, so it is read once more.
        assert looks(stored.parse_json, wrong) <= 2 * (2 * depth + 1)
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


def test_the_faults_of_the_member_that_was_meant_are_told(wording: Wording) -> None:
    """Where no `Literal` field fits, the choices are told; where one fits, what is missing in its class."""
    cases: list[tuple[dict[str, Any], set[str]]] = [
        ({"op": "sum"}, {"$.root.mark"}),
        ({"op": "sums", "mark": 1}, {"$.root.op"}),
    ]
    for root, paths in cases:
        with pytest.raises(ParseError) as caught:
            codec(Formula).parse({"root": root})
        assert {path for path, _ in caught.value.faults} == paths
        assert sorted({text for _, text in caught.value.faults}) == wording


UNTAGGED: list[tuple[Any, Callable[[int, object], dict[str, Any]]]] = [
    (stored_codec(Nest), lambda depth, leaf: chain("below", depth, in_list=True, leaf=leaf)),
    (result_codec(Nest), lambda depth, leaf: chain("below", depth, in_list=True, leaf=leaf)),
    (codec(Nest), lambda depth, leaf: chain("below", depth, in_list=True, leaf=leaf)),
    (stored_codec(Odd), lambda depth, leaf: chain("after", depth, leaf=leaf)),
    (result_codec(Odd), lambda depth, leaf: chain("after", depth, leaf=leaf)),
]


@pytest.mark.parametrize("leaf", [0, "x"])
@pytest.mark.parametrize("given, made", UNTAGGED, ids=count())
def test_members_that_read_the_same_json_are_tried_once(given: Any, made: Any, leaf: object) -> None:
    """The first of them is as good as the others."""
    for depth in (5, 60):
        assert looks(given.parse, made(depth, leaf)) == depth + (leaf == 0)


@dataclass(frozen=True)
class Pairs:
    """The tuple comes first."""

    below: tuple[Pairs, ...] | list[Pairs] | None = None


Words = TypeAliasType("Words", "tuple[Words, ...] | list[Words] | str | int")


@dataclass(frozen=True)
class Text:
    """Holds a type that is recursive without a class."""

    words: Words


SAME_AS_BEFORE: list[tuple[Any, str]] = [
    (Nest, '{"mark": 1, "below": [{"mark": 2}]}'),
    (Nest, '{"mark": 1, "below": []}'),
    (Pairs, '{"below": [{"below": []}, {"below": null}, {}]}'),
    (Pairs, '{"below": []}'),
    (Odd, '{"mark": 1, "after": {"mark": 2}}'),
    (Text, '{"words": ["a", ["b", []]]}'),
    (Text, '{"words": [[], [1]]}'),
]


@pytest.mark.parametrize("kind, data", SAME_AS_BEFORE, ids=count())
def test_the_member_that_reads_the_same_json_is_that_of_before(kind: Any, data: str) -> None:
    """It is the one that pydantic takes after it has tried all."""
    assert result_codec(kind).parse_json(data) == TypeAdapter(kind).validate_json(data, strict=True)


def test_the_place_of_a_fault_in_such_a_member_is_its_path(wording: Wording) -> None:
    """The list and the tuple have one schema, so that no name of a branch stands in it."""
    with pytest.raises(ParseError) as caught:
        codec(Nest).parse_json('{"mark": 1, "below": [{"mark": "a"}]}')
    assert caught.value.faults == (("$.below[0].mark", wording),)


@pytest.mark.parametrize("depth", [24, 60])
@pytest.mark.parametrize("leaf", [0, "x"])
def test_a_union_that_cannot_be_decided_is_bounded(depth: int, leaf: object, wording: Wording) -> None:
    """Where several members have to be tried at every level, the attempts are counted; the error says so."""
    data = json.dumps(chain("entries", depth, leaf=leaf)).encode()
    stored = stored_codec(Folder)
    assert looks(stored.parse_json, data) <= 100_000
    with pytest.raises(ParseError) as caught:
        stored.parse_json(data)
    assert str(caught.value) == wording
    assert len(caught.value.faults) == 1


def test_a_union_that_cannot_be_decided_is_read_where_it_is_small() -> None:
    """The number of attempts that is left grows with the input."""
    stored = stored_codec(Folder)
    read = stored.parse(chain("entries", 4))
    assert stored.parse(stored.dump(read)) == read
    wide: dict[str, Any] = {"mark": 1, "entries": {str(number): {"mark": number} for number in range(20_000)}}
    assert stored.dump(stored.parse(wide))["entries"].keys() == wide["entries"].keys()
