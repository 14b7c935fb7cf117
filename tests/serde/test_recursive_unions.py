"""A union that holds itself is read with work that grows with its values, or is refused."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated, Any, Final

import pytest
from pydantic import AfterValidator

from handrail.errors import ParseError
from handrail.serde import stored_codec
from tests.wording import Wording

LOOKED_AT: Final[list[int]] = []


def _note(value: int) -> int:
    LOOKED_AT.append(value)
    return value


Counted = Annotated[int, AfterValidator(_note)]


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


def chain(depth: int, *, leaf: object = 0) -> dict[str, Any]:
    """Objects without tags, one within the other."""
    inner: dict[str, Any] = {"mark": leaf}
    for level in range(depth):
        inner = {"mark": level, "entries": inner}
    return inner


@pytest.mark.parametrize("depth", [24, 60])
@pytest.mark.parametrize("leaf", [0, "x"])
def test_a_union_that_cannot_be_decided_is_bounded(depth: int, leaf: object, wording: Wording) -> None:
    """Where several members have to be tried at every level, the attempts are counted; the error says so."""
    data = json.dumps(chain(depth, leaf=leaf)).encode()
    stored = stored_codec(Folder)
    LOOKED_AT.clear()
    with pytest.raises(ParseError) as caught:
        stored.parse_json(data)
    assert len(LOOKED_AT) <= 100_000
    assert str(caught.value) == wording
    assert len(caught.value.faults) == 1


def test_a_union_that_cannot_be_decided_is_read_where_it_is_small() -> None:
    """The number of attempts that is left grows with the input."""
    stored = stored_codec(Folder)
    read = stored.parse(chain(4))
    assert stored.parse(stored.dump(read)) == read
    wide: dict[str, Any] = {"mark": 1, "entries": {str(number): {"mark": number} for number in range(20_000)}}
    assert stored.dump(stored.parse(wide))["entries"].keys() == wide["entries"].keys()
