"""Which unions are stored, and which a model may be asked for."""

from __future__ import annotations

import datetime as dt
import enum
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from itertools import count, permutations
from time import process_time
from types import GenericAlias, NoneType
from typing import Annotated, Any, Final, Literal
from uuid import UUID

import pytest
from pydantic import Field

from handrail.errors import ParseError, SchemaError
from handrail.serde import canonical_json, codec, result_codec, stored_codec
from tests.extent import some
from tests.kit import refusal
from tests.serde.kit import ALIKE, ALIKE_CLASSES, APART, Approve, Decision, Digit, Disc, Reject, State, Tile, held
from tests.wording import Wording


@pytest.mark.parametrize("kind, values", APART, ids=count())
def test_a_member_comes_back_as_what_it_was(kind: Any, values: list[Any]) -> None:
    """In a field and in a collection; what is stored has the form of what is shown."""
    cls = held(kind)
    for value in values:
        for stored, whole in ((stored_codec(cls), cls(value)), (stored_codec(list[kind]), [value])):
            data = stored.dump_json(whole)
            assert data == result_codec(stored.kind).dump_json(whole)
            back = stored.parse_json(data)
            assert back == whole
        assert type(stored_codec(cls).parse_json(stored_codec(cls).dump_json(cls(value))).x) in {type(value), float}


@pytest.mark.parametrize("kind", [*ALIKE_CLASSES, *ALIKE], ids=count())
def test_members_that_json_does_not_tell_apart_are_not_stored(kind: Any) -> None:
    """The error names the place. What is only shown may have them."""
    cls = held(list[kind])
    assert refusal(SchemaError, stored_codec, cls).path == "$.x[*]"
    assert result_codec(cls).kind is cls


@pytest.mark.parametrize("kind", [dt.datetime | str, Approve | Reject], ids=count())
def test_the_error_names_both_members_and_the_cure(kind: Any, wording: Wording) -> None:
    """For parameters and for what is stored."""
    for make in (stored_codec, codec) if kind == Approve | Reject else (stored_codec,):
        assert str(refusal(SchemaError, make, held(kind))) == wording


class Share(enum.Enum):
    """Numbers that equal those of other enums."""

    WHOLE = 1.0
    HALF = 0.5


LEAVES: Final[dict[Any, list[Any]]] = {
    int: [1, 10**17],
    float: [1.0, 1.5, 1e17],
    Decimal: [Decimal(1)],
    bool: [True],
    str: ["1"],
    bytes: [b"1"],
    Digit: [*Digit],
    Share: [*Share],
    State: [*State],
    Literal[1]: [1],
    NoneType: [None],
    UUID: [UUID(int=1)],
    dt.date: [dt.date(2026, 1, 1)],
    dt.timedelta: [dt.timedelta(1)],
    tuple[int, int]: [(1, 2)],
}


@pytest.mark.parametrize("kind, other", some([*permutations(LEAVES, 2)], 60), ids=count())
def test_each_stored_union_gives_back_members_as_they_were(kind: Any, other: Any) -> None:
    """Of scalars, and of classes that hold them, whichever comes first; all others are refused."""
    first, second = held(kind), held(other)
    of_classes = [cls(each) for cls, of in ((first, kind), (second, other)) for each in LEAVES[of]]
    for union, values in ((kind | other, [*LEAVES[kind], *LEAVES[other]]), (first | second, of_classes)):
        with suppress(SchemaError):
            stored = stored_codec(GenericAlias(list, (union,)))
            back = stored.parse_json(stored.dump_json(values))
            assert [(type(each), repr(each)) for each in back] == [(type(each), repr(each)) for each in values]


def test_equal_texts_have_one_canonical_json() -> None:
    """Two calls with the same arguments are one effect."""
    assert canonical_json(Decision(Approve("a"))) == canonical_json(Decision(Reject("a")))


@pytest.mark.parametrize("kind", [*ALIKE_CLASSES, Disc | Tile, Decision, list[Approve | Reject]], ids=count())
def test_parameters_whose_classes_a_model_cannot_tell_apart_are_refused(kind: Any) -> None:
    """It might leave out what has a default."""
    assert refusal(SchemaError, codec, held(kind)).path in {"$.x", "$.x.outcome", "$.x[*]"}


@pytest.mark.parametrize("kind", ALIKE, ids=count())
def test_parameters_may_have_any_other_union(kind: Any) -> None:
    """The model writes one text, and the member is read that fits best."""
    cls = held(kind)
    assert codec(cls).kind is cls


@dataclass(frozen=True)
class Leaf:
    """Ends an expression."""

    kind: Literal["leaf"]
    number: int


@dataclass(frozen=True)
class Sum:
    """Holds two expressions."""

    kind: Literal["sum"]
    sides: tuple[Expression, Expression]


@dataclass(frozen=True)
class Product:
    """Holds two expressions."""

    kind: Literal["product"]
    sides: tuple[Expression, Expression]


Expression = Annotated[Leaf | Sum | Product, Field(discriminator="kind")]

DEEPEST: Final = 12


def expression(leaf: object) -> dict[str, Any]:
    """A sum of a product of a sum, and so on, of two leaves."""
    made: dict[str, Any] = {"kind": "leaf", "number": leaf}
    for level in range(DEEPEST):
        made = {"kind": "sum" if level % 2 else "product", "sides": [made, {"kind": "leaf", "number": 0}]}
    return made


def test_a_wrong_leaf_of_a_recursive_union_is_found_in_linear_time() -> None:
    """A discriminator selects one member at each level."""
    began = process_time()
    error = refusal(ParseError, codec(Sum).parse, expression("x"))
    assert process_time() - began < 2
    ((path, _),) = error.faults
    assert path == f"$.{'sides[0].' * DEEPEST}number"


@dataclass(frozen=True)
class Folder:
    """Each of its entries may be a folder in two ways."""

    mark: int
    entries: dict[str, Folder] | Folder | None = None


@dataclass(frozen=True)
class Plus:
    """Marked, without a discriminator."""

    kind: Literal["plus"]
    sides: list[Plus | Minus]


@dataclass(frozen=True)
class Minus:
    """Marked, without a discriminator."""

    kind: Literal["minus"]
    sides: list[Plus | Minus]


@pytest.mark.parametrize("kind", [Folder, Plus])
def test_recursive_unions_need_a_discriminator(kind: type[Any], wording: Wording) -> None:
    """Else two members are tried at each level, and each of them tries two below."""
    for make in (codec, result_codec, stored_codec):
        assert str(refusal(SchemaError, make, kind)) == wording
