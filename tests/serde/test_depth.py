"""The depth that the documents promise is written, read and compared; beyond it an error names the limit."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import pytest

from handrail.errors import DumpError, ParseError
from handrail.serde import canonical_json, codec, dump, result_codec, stored_codec
from handrail.serde.json_values import MAX_JSON_DEPTH, MOST_LEVELS, MOST_WRITTEN
from tests.kit import refusal
from tests.wording import Wording

LONGEST: Final = 2_000
"""So many characters the text of an error of serde has at most."""


@dataclass
class Link:
    """Holds itself alone."""

    next: Link | None = None


@dataclass
class Folder:
    """Holds itself in a list."""

    name: str
    inside: list[Folder] = field(default_factory=list["Folder"])


@dataclass
class Loose:
    """Takes anything."""

    value: Any = None


def links(levels: int) -> Link:
    """So many levels of JSON."""
    made = Link()
    for _ in range(levels - 1):
        made = Link(made)
    return made


def folders(levels: int) -> Folder:
    """The last one holds an empty list, which is a level."""
    made = Folder("a")
    for _ in range(levels // 2 - 1):
        made = Folder("a", [made])
    return made


def nested(levels: int) -> Loose:
    """A list in a list."""
    made: list[Any] = []
    for _ in range(levels - 2):
        made = [made]
    return Loose(made)


DEEP: Final[dict[str, tuple[type[Any], Callable[[int], Any]]]] = {
    "links": (Link, links),
    "folders": (Folder, folders),
    "lists": (Loose, nested),
}
LIMITS: Final = {MAX_JSON_DEPTH, MOST_LEVELS, MOST_WRITTEN}
"""The depths that an error may name."""


def levels_of(data: bytes) -> int:
    """How deep JSON without brackets in its texts nests."""
    deepest = level = 0
    for found in re.findall(rb"[\[{}\]]", data):
        level += 1 if found in b"[{" else -1
        deepest = max(deepest, level)
    return deepest


@pytest.mark.parametrize("kind, made", DEEP.values(), ids=DEEP)
def test_the_deepest_value_is_stored_and_one_level_more_is_refused(
    kind: type[Any], made: Callable[[int], Any], wording: Wording
) -> None:
    """Levels are those of the JSON."""
    stored = stored_codec(kind)
    for levels in range(MOST_LEVELS - 3, MOST_LEVELS + 1):
        value = made(levels)
        data = stored.dump_json(value)
        assert levels_of(data) <= MOST_LEVELS
        assert stored.parse_json(data) == value
        assert canonical_json(value)
    deepest = max(levels_of(stored.dump_json(made(levels))) for levels in range(MOST_LEVELS - 3, MOST_LEVELS + 1))
    assert deepest > MOST_LEVELS - 3
    error = refusal(DumpError, stored.dump_json, made(MOST_LEVELS + 3))
    ((_, text),) = error.faults
    assert str(MOST_LEVELS) in text
    assert text == wording


def dump_fault(way: Callable[[Any], object], value: object) -> DumpError | None:
    """The error that a value raises; None if it is written."""
    try:
        way(value)
    except DumpError as error:
        return error
    return None


@pytest.mark.parametrize("levels", [220, 300, 450, 3_000, 100_000])
@pytest.mark.parametrize("kind, made", DEEP.values(), ids=DEEP)
def test_values_that_nest_too_deeply_are_refused_with_the_limit_in_few_words(
    kind: type[Any], made: Callable[[int], Any], levels: int
) -> None:
    """Wherever they are written."""
    value = made(levels)
    ways: list[Callable[[Any], object]] = [stored_codec(kind).dump_json, result_codec(kind).dump, dump, canonical_json]
    errors = [dump_fault(way, value) for way in ways]
    assert all(errors) if levels >= 450 else errors[0]
    for error in filter(None, errors):
        ((_, text),) = error.faults
        (limit,) = re.findall(r"\d+", text)
        assert int(limit) in LIMITS
        assert len(str(error)) <= LONGEST


def in_itself(kind: type[Any]) -> Any:
    """A value in a cycle."""
    value: Any = Folder("a") if kind is Folder else kind()
    if kind is Link:
        value.next = value
    elif kind is Loose:
        inner: list[Any] = []
        value.value = [inner]
        inner.append(value.value)
    else:
        value.inside.append(value)
    return value


@pytest.mark.parametrize("kind", [Link, Folder, Loose])
def test_a_cycle_is_named_with_its_place(kind: type[Any], wording: Wording) -> None:
    """The first place that holds what it stands in."""
    value = in_itself(kind)
    places = {Link: "$.next", Loose: "$.value[0][0]"}
    for way in (stored_codec(kind).dump_json, result_codec(kind).dump, dump):
        assert refusal(DumpError, way, value).faults == ((places.get(kind, "$.inside[0]"), wording),)
    assert str(refusal(DumpError, canonical_json, value)) == wording


def test_text_that_nests_too_deeply_is_refused_with_the_limit(wording: Wording) -> None:
    """The parser takes two hundred levels below the first."""
    for levels in (201, 100_000):
        error = refusal(ParseError, codec(Loose).parse_json, '{"value":' + "[" * levels + "]" * levels + "}")
        assert str(error) == wording


def test_the_text_of_an_error_is_bounded(wording: Wording) -> None:
    """By the paths, by the lines, and by their number."""
    many: dict[str, Any] = {"name": 1, "inside": [{"name": 1, "inside": []}] * 500}
    with pytest.raises(ParseError) as caught:
        codec(Folder).parse(many)
    assert len(str(caught.value)) <= LONGEST
    assert len(caught.value.faults) == 101
    last = str(caught.value).splitlines()
    assert last[-1] == wording
    deep: dict[str, Any] = {"name": 1, "inside": []}
    for _ in range(90):
        deep = {"name": "a", "inside": [deep]}
    error = refusal(ParseError, codec(Folder).parse, deep)
    ((path, _),) = error.faults
    assert path.startswith("$.inside[0].inside[0]")
    assert "…" in path
    assert path.endswith(".inside[0].name")
    assert len(path) <= 121


def test_a_range_is_no_array_and_none_of_it_is_looked_at() -> None:
    """It may have more items than are ever counted."""
    assert [path for path, _ in refusal(DumpError, dump, {"a": range(10**15)}).faults] == ["$.a"]
