"""Classes of paths, and collections that differ in the class of what they hold, are told apart in a union."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict, deque
from itertools import count
from pathlib import Path, PosixPath, PurePath, PurePosixPath, PureWindowsPath
from typing import Any

import pytest

from handrail.errors import SchemaError
from handrail.serde import canonical_json, codec, result_codec, stored_codec
from tests.serde.test_schema_agreement import held, is_same
from tests.wording import Wording

HERE, PURE, WINDOWS = Path("a"), PurePosixPath("a"), PureWindowsPath("a")

# Untyped, because type checkers want to know what stands in brackets before the program runs.
_dict: Any = dict

PATHS: list[tuple[Any, list[Any]]] = [
    (PurePosixPath | Path, [HERE, PURE]),
    (Path | PurePosixPath, [HERE, PURE]),
    (PurePath | Path, [HERE, PURE]),
    (PurePath | Path | None, [HERE, PURE]),
    (PureWindowsPath | PurePath, [PURE, WINDOWS]),
    (PurePosixPath | PureWindowsPath | Path, [HERE, PURE, WINDOWS]),
    (list[PurePosixPath] | list[Path], [[HERE], [PURE]]),
    (list[PurePath] | tuple[Path, ...], [(HERE,), [PURE]]),
    (set[PurePath] | set[Path], [{HERE}, {PURE}]),
    (dict[str, Path] | dict[str, PurePosixPath], [{"a": HERE}, {"a": PURE}]),
    (dict[str, PurePosixPath] | dict[str, Path], [{"a": HERE}, {"a": PURE}]),
    (list[PurePath | str] | list[Path | int], [[HERE, 1], [PURE, "a"]]),
]
"""Unions of paths, each with values that differ in their class alone."""

HOLDING: list[tuple[Any, list[Any]]] = [
    (dict[str, tuple[int, ...]] | dict[str, list[int]], [{"a": (1,)}, {"a": [1]}]),
    (dict[str, deque[int]] | dict[str, list[int]], [{"a": deque([1])}, {"a": [1]}]),
    (dict[str, set[int]] | dict[str, frozenset[int]], [{"a": {1}}, {"a": frozenset({1})}]),
    (dict[str, list[list[int]]] | dict[str, list[tuple[int, ...]]], [{"a": [[1]]}, {"a": [(1,)]}]),
    (
        dict[str, dict[str, int]] | dict[str, OrderedDict[str, int]],
        [{"a": {"a": 1}}, {"a": OrderedDict(a=1)}, {"a": OrderedDict[str, int]()}],
    ),
]
"""Unions of mappings, each with values that differ in the class of what the mapping holds."""


@pytest.mark.parametrize("kind, values", PATHS + HOLDING, ids=count())
def test_a_value_comes_back_with_its_class(kind: Any, values: list[Any]) -> None:
    """From a field, and from a collection; and two values of different classes have different canonical texts."""
    cls = held(kind)
    stored = stored_codec(cls)
    for value in values:
        whole = cls(value, [value])
        assert is_same(stored.parse_json(stored.dump_json(whole)), whole)
    assert len({canonical_json(cls(value)) for value in values}) == len(values)


def test_a_dataclass_of_one_name_in_a_mapping_is_told_from_its_twin() -> None:
    """The name of the class is not all that the two types have."""
    one: Any = dataclasses.make_dataclass("Twin", [("why", str)], frozen=True)
    other: Any = dataclasses.make_dataclass("Twin", [("why", str)], frozen=True)
    other.__module__ = "elsewhere"
    cls = held(_dict[str, one] | _dict[str, other])
    stored = stored_codec(cls)
    for twin in (one, other):
        back = stored.parse_json(stored.dump_json(cls({"a": twin("b")})))
        assert type(back.x["a"]) is twin


@pytest.mark.parametrize("kind", [*(kind for kind, _ in PATHS), Path | PosixPath], ids=count())
def test_parameters_whose_members_are_paths_are_refused(kind: Any, wording: Wording) -> None:
    """One text is a path of every class; the error names two of them, and the cure."""
    with pytest.raises(SchemaError) as caught:
        codec(held(kind))
    assert caught.value.path == "$.x"
    assert "Path" in str(caught.value)
    assert str(caught.value) == wording
    assert result_codec(held(kind)).kind is not None


@pytest.mark.parametrize("kind", [Path | None, Path | int, Path | list[PurePath], Path | str], ids=count())
def test_a_path_beside_what_is_no_path_is_taken(kind: Any) -> None:
    """A model writes one text or a value of another kind."""
    assert codec(held(kind)).schema["properties"]["x"]
