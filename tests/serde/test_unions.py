"""What is stored comes back as the member of its union that it was."""

from __future__ import annotations

import dataclasses
import datetime as dt
import itertools
import json
from collections.abc import Iterator
from ipaddress import IPv4Address
from itertools import count
from pathlib import PurePosixPath
from typing import Annotated, Any, Generic, Literal, TypeVar, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, model_validator
from typing_extensions import TypeAliasType, TypedDict

from handrail.errors import DumpError, ParseError, SchemaError
from handrail.serde import canonical_json, codec, result_codec, schema, stored_codec
from handrail.serde.adapter import closed_adapter
from handrail.serde.stored_values import stored_adapter
from handrail.serde.tagging import taggers_of
from handrail.session.persistence.stored_types import stored_as
from tests.serde.members import NOON, PAIRS, Approve, Clear, Decision, Defer, Digit, Reject, Renamed, State, When
from tests.serde.shapes import Circle, Drawing, Everything, Loose, Page, Plan, Square
from tests.wording import Wording

T = TypeVar("T")

# Untyped, because type checkers want to know what stands in brackets before the program runs.
_list: Any = list


def held(kind: Any) -> Any:
    """A dataclass with a field of this type."""
    return dataclasses.make_dataclass("Held", [("x", kind)])


@pytest.mark.parametrize("kind, values", PAIRS, ids=count())
def test_a_member_comes_back_as_what_it_was(kind: Any, values: list[Any]) -> None:
    """In a field, in a collection, and as the whole of a value; the types of what it holds too."""
    cls = held(kind)
    for value in values:
        for stored, whole in ((stored_codec(cls), cls(value)), (stored_codec(list[kind]), [value])):
            back = stored.parse_json(stored.dump_json(whole))
            assert back == whole
            assert repr(back).replace("TzInfo(0)", "datetime.timezone.utc") == repr(whole)


@pytest.mark.parametrize("kind, values", PAIRS, ids=count())
def test_the_canonical_texts_of_members_differ(kind: Any, values: list[Any]) -> None:
    """Two calls whose arguments differ in the member alone are two effects."""
    cls = held(kind)
    assert len({canonical_json(cls(value)) for value in values}) == len(values)


@pytest.mark.parametrize("kind, values", PAIRS, ids=count())
def test_what_was_stored_without_a_tag_is_read_as_before(kind: Any, values: list[Any]) -> None:
    """As the codec reads it that writes no tags."""
    cls = held(kind)
    shown = result_codec(cls)
    for value in values:
        data = shown.dump_json(cls(value))
        if b"$type" not in data:
            assert stored_codec(cls).parse_json(data) == shown.parse_json(data)


def test_the_tag_names_the_member() -> None:
    """By the name of its class or type, or by the name that `stored_as` gave it."""
    some = [(held(kind), values[0]) for kind, values in PAIRS[:20]]
    tags = [json.loads(stored_codec(cls).dump_json(cls(value)))["x"] for cls, value in some]
    assert [tag["$type"] for tag in tags] == [
        *("Approve", "Approve", "Approve", "Approve", "datetime", "datetime", "date", "time", "timedelta", "Decimal"),
        *("Decimal", "UUID", "PurePosixPath", "bytes", "bytes", "Fraction", "Word", "Word", "Word", "Digit"),
    ]
    renamed = held(Approve | Renamed)
    assert stored_codec(renamed).dump_json(renamed(Renamed("a"))) == (
        b'{"x":{"$type":"tests.renamed","value":{"why":"a"}}}'
    )
    assert stored_codec(renamed).parse_json('{"x":{"$type":"Renamed","value":{"why":"a"}}}').x == Renamed("a")
    lists = held(list[Approve] | list[Reject])
    assert (
        stored_codec(lists).dump_json(lists([Reject("a")])) == b'{"x":{"$type":"list[Reject]","value":[{"why":"a"}]}}'
    )


@pytest.mark.parametrize("listed", [False, True], ids=["alone", "in a list"])
def test_a_class_that_was_renamed_reads_and_writes_the_tags_of_the_old_class(listed: bool) -> None:
    """`stored_as("module:Class")` is what the store advises for a class that was renamed or moved."""
    old: Any = dataclasses.make_dataclass("Refuse", [("why", str)], frozen=True)
    old.__module__ = "desk.answers"
    new: Any = dataclasses.make_dataclass("Decline", [("why", str)], frozen=True)
    new = stored_as("desk.answers:Refuse")(new)
    many: Any = list
    before = held(many[Approve] | many[old] if listed else Approve | old)
    after = held(many[Approve] | many[new] if listed else Approve | new)
    value = [new("a")] if listed else new("a")
    data = stored_codec(before).dump_json(before([old("a")] if listed else old("a")))
    assert stored_codec(after).parse_json(data).x == value
    assert stored_codec(after).dump_json(after(value)) == data


TreeReject = TypeAliasType("TreeReject", "list[TreeReject] | Reject")


@pytest.mark.parametrize("value", [Approve("a"), Reject("a"), [Reject("a")], [[Reject("a")]]])
def test_the_members_of_an_alias_are_members_of_the_union(value: Any) -> None:
    """Also of one that holds itself."""
    cls = held(Approve | TreeReject)
    stored = stored_codec(cls)
    assert stored.parse_json(stored.dump_json(cls(value))).x == value


def test_members_of_one_name_are_told_apart_by_their_module() -> None:
    """Two classes may be called the same."""
    twin: Any = dataclasses.make_dataclass("Approve", [("why", str)], frozen=True)
    twin.__module__ = "elsewhere"
    kind = held(Approve | twin)
    stored = stored_codec(kind)
    assert [json.loads(stored.dump_json(kind(value)))["x"]["$type"] for value in (Approve("a"), twin("a"))] == [
        "tests.serde.members:Approve",
        "elsewhere:Approve",
    ]
    assert [stored.parse_json(stored.dump_json(kind(value))).x for value in (Approve("a"), twin("a"))] == [
        Approve("a"),
        twin("a"),
    ]


@dataclasses.dataclass(frozen=True)
class Box(Generic[T]):
    item: T


def test_generic_dataclasses_are_told_apart_by_what_they_hold() -> None:
    """Of one class, and yet of two types."""
    kind: Any = held(Box[Approve] | Box[Reject])
    stored = stored_codec(kind)
    for value in (Box(Approve("a")), Box(Reject("a"))):
        assert stored.parse_json(stored.dump_json(kind(value))).x == value
    unlike: Any = held(Box[list[int]] | Box[list[str]])
    value = unlike(Box([1]))
    assert stored_codec(unlike).dump_json(value) == result_codec(unlike).dump_json(value)


@pytest.mark.parametrize("kind", [Clear, Drawing, Everything, Plan, list[Circle | Square], Decision, Loose])
def test_a_tag_stands_only_where_a_type_is_ambiguous(kind: Any) -> None:
    """Anything else is stored as it is shown, and has the same schema."""
    assert (stored_adapter(closed_adapter(kind)) is None) == (kind not in {Decision, Loose})


def test_members_that_json_tells_apart_carry_no_tag() -> None:
    """Though others of their union do."""
    kind = held(dt.datetime | str | int | None)
    assert [stored_codec(kind).dump_json(kind(value)) for value in (1, None)] == [b'{"x":1}', b'{"x":null}']
    stored = stored_codec(Decision)
    assert stored.dump_json(Decision(None)) == b'{"outcome":null,"others":[]}'
    assert taggers_of(Decision)
    assert not taggers_of(Clear)
    assert canonical_json(Clear(1, NOON)) == canonical_json(
        {"number": 1, "moment": NOON, "exact": None, "rows": None, "tables": None}
    )


def test_message_and_schema_have_no_tags() -> None:
    """A model reads and writes the value alone."""
    assert result_codec(Decision).dump(Decision(Reject("a"))) == {"outcome": {"why": "a"}, "others": []}
    assert "$type" not in json.dumps(result_codec(Decision).schema)
    assert stored_codec(Decision).schema == result_codec(Decision).schema
    assert "$type" not in json.dumps(schema(When))
    with pytest.raises(ParseError):
        codec(When).parse('{"at": {"$type": "str", "value": "a"}}')


@pytest.mark.parametrize(
    "text",
    [
        '{"outcome":{"$type":"Gone","value":{"why":"a"}}}',
        '{"outcome":{"$type":"Approve","value":{"why":1}}}',
        '{"outcome":{"$type":"Approve"}}',
        '{"outcome":{"$type":"Approve","value":{"why":"a"},"more":1}}',
    ],
)
def test_a_tag_that_does_not_fit_is_a_fault_at_its_place(text: str) -> None:
    """As any other data that does not fit."""
    with pytest.raises(ParseError) as caught:
        stored_codec(Decision).parse_json(text)
    assert all(path.startswith("$.outcome") for path, _ in caught.value.faults)


@pytest.mark.parametrize("value", [Defer, 5, "a", [Approve("a")]])
def test_what_is_of_no_member_is_not_stored(value: Any) -> None:
    """The error names its place."""
    with pytest.raises(DumpError, match=r"^\$\.outcome"):
        stored_codec(Decision).dump_json(Decision(value))


@dataclasses.dataclass(frozen=True)
class Kinded:
    kind: Literal["kinded"]
    why: str


@dataclasses.dataclass(frozen=True)
class Disc:
    """Marked by a field that may be left out."""

    why: str = ""
    kind: Literal["disc"] = "disc"


@dataclasses.dataclass(frozen=True)
class Tile:
    """Marked likewise."""

    why: str = ""
    kind: Literal["tile"] = "tile"


SAME_SHAPES: list[tuple[Any, str]] = [
    (held(Approve | Reject), "$.x"),
    (held(Approve | Defer | None), "$.x"),
    (held(list[dict[str, Approve | Reject]]), "$.x[*].*"),
    (held(tuple[int, Approve | Reject]), "$.x[1]"),
    (held(Box[Approve] | Box[Reject]), "$.x"),
    (held(list[Approve] | list[Reject]), "$.x"),
    (held(list[Approve] | tuple[Reject, ...]), "$.x"),
    (held(list[Approve | int] | list[Reject | str] | None), "$.x"),
    (held(dict[str, list[Approve]] | dict[str, list[Reject | None]]), "$.x"),
    (held(tuple[int, Approve] | tuple[int, Reject]), "$.x"),
    (held(list[list[Approve] | list[Reject]]), "$.x[*]"),
    (Decision, "$.outcome"),
]


@pytest.mark.parametrize("kind, path", SAME_SHAPES, ids=count())
def test_parameters_whose_members_have_one_shape_are_refused(kind: Any, path: str) -> None:
    """A model could not say which it means; the error names both, and the cure."""
    with pytest.raises(SchemaError) as caught:
        codec(kind)
    assert caught.value.path == path
    assert "Literal[" in str(caught.value)
    assert result_codec(kind).kind is kind


@pytest.mark.parametrize(
    "kind",
    [
        *(held(Approve | Kinded), held(Circle | Square), held(Approve | dict[str, str]), When),
        *(held(Page[int] | Page[str]), held(list[Circle] | list[Square]), held(Approve | list[Reject])),
        *(held(list[Approve] | dict[str, Reject]), held(tuple[int, Approve] | tuple[str, Reject])),
        *(held(list[Approve] | tuple[Approve, ...]), held(dict[bool, Approve] | dict[int, Reject])),
        held(Disc | Kinded),
    ],
    ids=count(),
)
def test_parameters_that_a_model_can_tell_apart_are_taken(kind: Any) -> None:
    """By a field that marks them, or because one of them is not a dataclass."""
    assert codec(kind).kind is kind


@pytest.mark.parametrize("kind", [Disc | Tile, list[Disc] | list[Tile]], ids=count())
def test_a_mark_that_may_be_left_out_is_named(kind: Any, wording: Wording) -> None:
    """Both take an object without it; the error says which default to remove."""
    with pytest.raises(SchemaError) as raised:
        codec(held(kind))
    assert str(raised.value) == wording
    cls = held(kind)
    for value in (Disc(), Tile()):
        whole = cls(value if kind == Disc | Tile else [value])
        assert stored_codec(cls).parse_json(stored_codec(cls).dump_json(whole)) == whole


def test_equal_values_of_one_member_have_one_canonical_text() -> None:
    """Also within collections, where each value carries its tag."""
    kind = held(dict[str, list[dt.datetime | str]] | None)
    elsewhere = NOON.astimezone(dt.timezone(dt.timedelta(hours=1)))
    assert (
        canonical_json(kind({"a": [NOON, "b"]}))
        == canonical_json(kind({"a": [elsewhere, "b"]}))
        == (b'{"x":{"a":[{"$type":"datetime","value":"2026-01-31T12:00:00+00:00"},{"$type":"str","value":"b"}]}}')
    )
    sets = held(frozenset[Digit | int])
    assert canonical_json(sets(frozenset({2, 1}))) == canonical_json(sets(frozenset({1, 2})))


def test_a_value_that_is_of_no_member_has_a_canonical_text_all_the_same() -> None:
    """Canonical JSON is of what is there."""
    kind = held(dt.datetime | str)
    assert canonical_json(kind([1])) == b'{"x":[1]}'
    assert canonical_json(held(list[Approve | Reject])(5)) == b'{"x":5}'
    pair = held(tuple[Approve | Reject, int])
    assert canonical_json(pair((Approve("a"),))) == b'{"x":[{"why":"a"}]}'
    assert canonical_json(pair((Approve("a"), 1))) == b'{"x":[{"$type":"Approve","value":{"why":"a"}},1]}'


class Chosen(TypedDict):
    """Its values do not name it, so that they have no tags."""

    x: Approve | Reject


Nested = TypeAliasType("Nested", "Approve | Reject | list[Nested]")


@pytest.mark.parametrize(
    "kind, ambiguous", [(Chosen, False), (held(Iterator[int]), False), (held(Nested), True)], ids=count()
)
def test_only_what_a_store_tags_is_ambiguous(kind: Any, *, ambiguous: bool) -> None:
    """Not a type that serde refuses, whose canonical JSON is that of what is in it."""
    assert bool(taggers_of(kind)) is ambiguous


class Judged(BaseModel):
    """Its fields are behind a validator."""

    model_config = ConfigDict(extra="forbid")

    x: Approve | Reject

    @model_validator(mode="before")
    @classmethod
    def check(cls, given: object) -> object:
        """Take it as it is."""
        return given


def test_a_validator_around_a_model_hides_no_union() -> None:
    """Its fields are tagged as those of a dataclass."""
    assert canonical_json(Judged(x=Reject("a"))) == b'{"x":{"$type":"Reject","value":{"why":"a"}}}'


def test_the_text_of_an_alias_hides_no_union() -> None:
    """Two calls whose arguments differ in the member alone are two effects there too."""
    kind = held(Nested)
    assert len({canonical_json(kind(value)) for value in (Approve("a"), Reject("a"), [Approve("a")])}) == 3


def nested() -> st.SearchStrategy[Any]:
    """Values of `Nested`, with few texts, so that two of them often differ in a member alone."""
    leaves = st.builds(Approve, st.sampled_from("ab")) | st.builds(Reject, st.sampled_from("ab"))
    return st.recursive(leaves, lambda some: st.lists(some, max_size=3), max_leaves=8)


def members_in(value: Any) -> Iterator[type[Any]]:
    """The members of the leaves of a value, in their order."""
    if isinstance(value, list):
        yield from itertools.chain.from_iterable(map(members_in, cast("list[object]", value)))
    else:
        yield type(value)


def with_members(value: Any, members: Iterator[type[Any]]) -> Any:
    """The value with other members at its leaves."""
    if isinstance(value, list):
        return [with_members(item, members) for item in cast("list[object]", value)]
    return next(members)(value.why)


@given(nested(), st.data())
def test_members_at_every_level_of_an_alias_that_holds_itself_are_distinguished(
    value: Any, data: st.DataObject
) -> None:
    """The canonical texts of two values that differ in members alone are equal only if the members are."""
    kind = held(Nested)
    before = list(members_in(value))
    after = data.draw(st.lists(st.sampled_from([Approve, Reject]), min_size=len(before), max_size=len(before)))
    other = with_members(value, iter(after))
    assert (canonical_json(kind(value)) == canonical_json(kind(other))) is (before == after)


def test_the_deepest_value_of_an_alias_that_holds_itself_has_a_canonical_text() -> None:
    """Its levels are those of any list, though each is looked into."""
    kind = held(Nested)
    value: Any = Reject("a")
    for _ in range(198):
        value = [value]
    assert canonical_json(kind(value)).count(b'"$type"') == 1


@pytest.mark.parametrize("kind", [PurePosixPath | State, IPv4Address | State, State | PurePosixPath], ids=count())
def test_a_string_enum_beside_a_path_is_written_by_its_value(kind: Any) -> None:
    """In the message too: `str()` of it is the name of the member."""
    cls = held(kind)
    assert result_codec(cls).dump(cls(State.DONE)) == {"x": "done"}
    stored = stored_codec(cls)
    assert stored.parse_json(stored.dump_json(cls(State.DONE))).x is State.DONE


def test_tags_name_all_that_tells_members_apart(wording: Wording) -> None:
    """However deep it stands."""
    kind = held(list[Approve | int] | list[Reject | str])
    tags = [json.loads(stored_codec(kind).dump_json(kind(value)))["x"]["$type"] for value in ([1], ["a"])]
    assert tags == ["list[Approve | int]", wording]
    nested = held(list[list[Approve]] | list[list[Reject]])
    assert json.loads(stored_codec(nested).dump_json(nested([])))["x"]["$type"] == "list[list[Approve]]"


def test_a_tag_that_was_written_before_is_read_as_it_was() -> None:
    """Where it names several members, the first that fits."""
    kind = held(list[Approve | int] | list[Reject | str])
    for name in ("list[union]", "list[Approve | int]"):
        data = f'{{"x":{{"$type":"{name}","value":[{{"why":"a"}}]}}}}'
        assert stored_codec(kind).parse_json(data).x == [Approve("a")]


def twins() -> tuple[Any, Any]:
    """Two classes of one name, in one module."""
    one, other = (dataclasses.make_dataclass("Twin", [("why", str)], frozen=True) for _ in range(2))
    one.__module__ = other.__module__ = "tests"
    return one, other


def test_members_of_one_name_are_refused_when_the_type_is_built(wording: Wording) -> None:
    """A store could not say which it was; `stored_as` gives one of them another name."""
    one, other = twins()
    lists: Any = _list[one] | _list[other]
    kinds: list[Any] = [one | other, lists, _list[lists]]
    for kind in kinds:
        with pytest.raises(SchemaError) as caught:
            result_codec(held(kind))
        assert str(caught.value) == wording
        assert caught.value.path.startswith("$.x")
    stored_as("tests.twin")(other)
    named = held(_list[one] | _list[other])
    stored = stored_codec(named)
    assert type(stored.parse_json(stored.dump_json(named([other("a")]))).x[0]) is other
    limited: Any = held(list[Annotated[int, Field(ge=0)]] | list[Annotated[int, Field(lt=0)]])
    assert [stored_codec(limited).parse_json(stored_codec(limited).dump_json(limited([n]))).x for n in (1, -1)] == [
        [1],
        [-1],
    ]
