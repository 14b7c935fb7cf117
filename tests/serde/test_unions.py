"""What is stored comes back as the member of its union that it was."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
from itertools import count
from typing import Any, Literal

import pytest

from handrail.errors import DumpError, ParseError, SchemaError
from handrail.serde import canonical_json, codec, result_codec, schema, stored_codec
from handrail.session.persistence.stored_types import stored_as
from tests.serde.members import NOON, PAIRS, Approve, Decision, Defer, Reject, Renamed, When
from tests.serde.shapes import Circle, Page, Square
from tests.wording import Wording


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


def test_the_tag_names_the_member() -> None:
    """By the name of its class or type, or by the name that `stored_as` gave it."""
    cases = ((Approve | Reject, Approve("a"), "Approve"), (dt.datetime | str, NOON, "datetime"))
    for kind, value, name in (*cases, (Approve | Renamed, Renamed("a"), "tests.renamed")):
        cls = held(kind)
        assert json.loads(stored_codec(cls).dump_json(cls(value)))["x"]["$type"] == name


def test_message_and_schema_have_no_tags() -> None:
    """A model reads and writes the value alone."""
    assert result_codec(Decision).dump(Decision(Reject("a"))) == {"outcome": {"why": "a"}, "others": []}
    assert "$type" not in json.dumps(result_codec(Decision).schema)
    assert stored_codec(Decision).schema == result_codec(Decision).schema
    assert "$type" not in json.dumps(schema(When))
    with pytest.raises(ParseError):
        codec(When).parse('{"at": {"$type": "str", "value": "a"}}')


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
    (held(list[dict[str, Approve | Reject]]), "$.x[*].*"),
    (held(tuple[int, Approve | Reject]), "$.x[1]"),
    (held(list[Approve] | list[Reject]), "$.x"),
    (held(tuple[int, Approve] | tuple[int, Reject]), "$.x"),
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


def test_members_of_one_name_are_refused_when_the_type_is_built(wording: Wording) -> None:
    """A store could not say which it was; `stored_as` gives one of them another name."""
    one, other = (dataclasses.make_dataclass("Twin", [("why", str)], frozen=True) for _ in range(2))
    kind: Any = one | other
    with pytest.raises(SchemaError) as caught:
        result_codec(held(kind))
    assert str(caught.value) == wording
    assert caught.value.path == "$.x"
    stored_as("tests.twin")(other)
    named = held(kind)
    stored = stored_codec(named)
    assert type(stored.parse_json(stored.dump_json(named(other("a")))).x) is other
