"""Random input for codecs: a value or faults, never a crash."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Literal

from hypothesis import example, given
from hypothesis import strategies as st

from handrail.errors import ParseError
from handrail.serde import Codec, codec, dump
from handrail.serde.formatting import DataPath
from handrail.serde.json_schema import is_array, is_object
from tests.serde.kit import Drawing, Everything, Json, Loose, Page, Plan, Tree, everything

CODECS: list[Codec[Any]] = [codec(kind) for kind in (Drawing, Everything, Loose, Page[Tree], Plan, Tree)]

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.just("9" * 400) | st.just(10**400)
trees = st.recursive(scalars, lambda some: st.lists(some) | st.dictionaries(st.text(), some), max_leaves=20)


def outcome(parser: Codec[Any], data: Json) -> Literal["value", "fault"]:
    """What becomes of the data; anything else that is raised fails the test."""
    try:
        value = parser.parse(data)
    except ParseError as error:
        faults, message = error.faults, str(error)
    else:
        assert isinstance(value, parser.kind if isinstance(parser.kind, type) else Page)
        return "value"
    assert faults
    assert all(path.startswith("$") and text for path, text in faults)
    assert len(message) < 200_000
    return "fault"


@given(st.text() | st.binary())
@example("")
@example("{}")
@example('{"kids": [')
@example(b"\xff")
def test_arbitrary_text_gives_a_value_or_a_fault(data: str | bytes) -> None:
    """Be it JSON or not."""
    for parser in CODECS:
        outcome(parser, data)


@given(trees)
def test_arbitrary_json_gives_a_value_or_a_fault(data: Json) -> None:
    """NaN and Infinity among it; the same as text, as bytes, and as Python."""
    text = json.dumps(data)
    for parser in CODECS:
        outcomes = {outcome(parser, text), outcome(parser, text.encode()), outcome(parser, data)}
        assert len(outcomes) == 1 or isinstance(data, str)


def children(value: Json) -> list[tuple[str | int, Json]]:
    """What stands directly inside a JSON value."""
    if is_object(value):
        return list(value.items())
    return list(enumerate(value)) if is_array(value) else []


def places(value: Json, path: DataPath = ()) -> list[DataPath]:
    """Every place inside a JSON value."""
    return [path, *(place for key, child in children(value) for place in places(child, (*path, key)))]


def mutated(value: Json, path: DataPath, change: Callable[[Json], Json]) -> Json:
    """A copy in which `change` has been made to what stands at `path`."""
    if not path:
        return change(value)
    copied = dict(children(value))
    copied[path[0]] = mutated(copied[path[0]], path[1:], change)
    return list(copied.values()) if is_array(value) else copied


def renamed(value: Json) -> Json:
    """An object with other keys; anything else as it is."""
    return {f"{key}_": child for key, child in value.items()} if is_object(value) else value


def shortened(value: Json) -> Json:
    """Without its first part, if it has any."""
    inside = children(value)[1:]
    return [child for _, child in inside] if is_array(value) else dict(inside)


def wrapped(value: Json) -> Json:
    """In an array of its own."""
    return [value]


def replaced(new: Json) -> Callable[[Json], Json]:
    """Something else altogether."""

    def change(old: Json) -> Json:
        return new

    return change


CHANGES: st.SearchStrategy[Callable[[Json], Json]] = st.sampled_from([renamed, shortened, wrapped]) | trees.map(
    replaced
)


@given(everything(), st.data())
def test_a_spoilt_value_gives_a_value_or_a_fault(value: Everything, data: st.DataObject) -> None:
    """One place of a good value is replaced, renamed, shortened or wrapped: as Python and as text alike."""
    good = dump(value)
    spoilt = mutated(good, data.draw(st.sampled_from(places(good))), data.draw(CHANGES))
    for parser in CODECS:
        assert outcome(parser, spoilt) == outcome(parser, json.dumps(spoilt)) or isinstance(spoilt, str)
