"""Declarations of which the schema said what parsing does not do: each is refused, or published as it is read."""

from __future__ import annotations

import dataclasses
import json
from base64 import urlsafe_b64encode
from collections.abc import Hashable, Mapping
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import AnyUrl, Field, IPvAnyAddress, JsonValue, StringConstraints

from handrail.errors import ParseError, SchemaError
from handrail.serde import codec
from tests.kit import refusal
from tests.serde.members import Digit, Word, held
from tests.serde.schema_values import is_valid
from tests.serde.shapes import Inner, Status
from tests.wording import Wording

# Untyped, because type checkers want to see the types written out.
_annotated: Any = Annotated
_field: Any = Field
_dict: Any = dict


@dataclasses.dataclass
class Mutable:
    """Cannot be an item of a set."""

    name: str


REFUSED: dict[str, tuple[Any, str]] = {
    "set of lists": (held(set[list[int]]), "$.x[*]"),
    "set of dicts": (held(frozenset[dict[str, int]]), "$.x[*]"),
    "set of mappings": (held(set[Mapping[str, int]]), "$.x[*]"),
    "set of dataclasses": (held(set[Mutable]), "$.x[*]"),
    "bound of an enum": (held(_annotated[Digit, _field(gt=0)]), "$.x"),
    "pattern of an enum": (held(_annotated[Word, _field(pattern="a")]), "$.x"),
    "length of a Literal": (held(_annotated[Literal["a", "bb"], _field(max_length=1)]), "$.x"),
    "type in the schema": (held(_annotated[str, _field(json_schema_extra={"type": "integer"})]), "$.x"),
    "Hashable": (held(Hashable), "$.x"),
    "length of a tuple": (held(_annotated[tuple[int, str], _field(min_length=1)]), "$.x"),
    "pattern of a URL": (held(_annotated[AnyUrl, _field(pattern="a")]), "$.x"),
    "length of any JSON": (held(_annotated[JsonValue, _field(max_length=1)]), "$.x"),
    "length of an address": (held(_annotated[IPvAnyAddress, _field(min_length=1)]), "$.x"),
    "pattern of keys of an enum": (held(_dict[_annotated[Status, _field(pattern="b")], int]), "$.x.*"),
    "length of keys in a dictionary": (held(_dict[_annotated[str, {"min_length": 1}], int]), "$.x.*"),
}


@pytest.mark.parametrize("cls, path", REFUSED.values(), ids=REFUSED)
def test_a_declaration_that_the_schema_would_misstate_is_refused(cls: Any, path: str, wording: Wording) -> None:
    """At its field, with what to write instead."""
    with pytest.raises(SchemaError) as caught:
        codec(cls)
    assert caught.value.path == path
    assert str(caught.value) == wording


@pytest.mark.parametrize(
    "kind",
    [
        *(set[tuple[int, str]], set[frozenset[int]], set[Path], set[Digit], set[Inner | None], set[Any]),
        *(_annotated[AnyUrl, _field(max_length=9)], _annotated[tuple[int, ...], _field(min_length=1)]),
        *(_annotated[Decimal, _field(json_schema_extra={"format": "x"})], frozenset[Literal["a", 1]]),
    ],
    ids=count(),
)
def test_what_the_schema_states_is_taken(kind: Any) -> None:
    """As before."""
    assert codec(held(kind)).schema["properties"]["x"]


@pytest.mark.parametrize("least, most", [(0, 0), (1, 3), (2, 2), (3, 4), (4, 6)])
def test_the_length_of_bytes_is_published_as_that_of_the_text(least: int, most: int) -> None:
    """In characters of base64, of which three bytes take four; what has another length is refused by parsing."""
    parameters = codec(held(_annotated[bytes, _field(min_length=least, max_length=most)]))
    for size in range(8):
        padded = urlsafe_b64encode(bytes(size)).decode()
        for text in {padded, padded.rstrip("=")}:
            data = json.dumps({"x": text})
            try:
                value = parameters.parse_json(data)
            except ParseError:
                assert not least <= size <= most or "=" in padded != "=" in text
            else:
                assert least <= size <= most
                assert is_valid(parameters.schema, json.loads(data))
                assert is_valid(parameters.schema, parameters.dump(value))


def test_whitespace_is_stripped_before_a_length_counts() -> None:
    """Which JSON Schema cannot say; the page lists it."""
    parameters = codec(held(_annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]))
    assert parameters.parse_json('{"x": " a "}').x == "a"
    refusal(ParseError, parameters.parse_json, '{"x": " "}')
