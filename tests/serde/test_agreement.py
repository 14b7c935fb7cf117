"""Parsing takes what the published JSON Schema says; unions that are stored, and those of parameters."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import json
from base64 import urlsafe_b64encode
from collections import Counter, OrderedDict
from collections.abc import Hashable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from itertools import count, permutations
from pathlib import Path
from time import process_time
from types import GenericAlias, NoneType
from typing import Annotated, Any, Final, Literal, cast
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from pydantic import AnyUrl, Field, StringConstraints

from handrail.errors import ParseError, SchemaError
from handrail.serde import canonical_json, codec, result_codec, stored_codec
from tests.extent import FULL, some
from tests.kit import refusal
from tests.serde.field_types import FIELD_TYPES, is_valid, taken_by
from tests.serde.kit import (
    ALIKE,
    ALIKE_CLASSES,
    APART,
    Approve,
    Decision,
    Digit,
    Disc,
    Inner,
    Reject,
    State,
    Tile,
    held,
)
from tests.wording import Wording


class Bit(enum.IntEnum):
    ZERO = 0
    ONE = 1


class Share(enum.Enum):
    HALF = 0.5
    WHOLE = 1.0


class Mixed(enum.Enum):
    WORD = "a"
    NUMBER = 2

    @classmethod
    def _missing_(cls, value: object) -> Mixed | None:
        return cls.NUMBER if value == "two" else None


class Folding(enum.StrEnum):
    """Takes capitals too, which the schema does not say."""

    LOW = "a"

    @classmethod
    def _missing_(cls, value: object) -> Folding | None:
        return cls.LOW if value == "A" else None


Positive = Annotated[dt.datetime, Field(gt=dt.datetime(2000, 1, 1, tzinfo=dt.UTC))]


def parsed(kind: Any, text: str) -> Any:
    """What a field of this type makes of the text."""
    cls: Any = dataclasses.make_dataclass("Held", [("x", kind)])
    return codec(cls).parse_json(f'{{"x":{text}}}').x


NOON = dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC)

TAKEN: list[tuple[Any, str, Any]] = [
    *((dt.datetime, f'"2026-01-31{text}"', NOON) for text in ("T12:00:00Z", " 13:00:00+01:00")),
    *((Positive, '"2026-01-31t12:00:00z"', NOON), (dt.date, '"2026-01-31"', NOON.date())),
    (dt.timedelta, '"PT1H30M"', dt.timedelta(minutes=90)),
    *((int, "5.0", 5), (int, "1e2", 100), (int | float, "5.0", 5.0), (Literal[1, 2], "2.0", 2)),
    *((Bit, "1.0", Bit.ONE), (Share, "1", Share.WHOLE), (Bit | int, "1", 1)),
    *((Decimal, "1.0", Decimal(1)), (Decimal, '"-1.50e3"', Decimal("-1.50e3"))),
    *((Decimal | int, "2", 2), (Decimal | int, '"2"', Decimal(2))),
    *((Fraction, '"-1/3"', Fraction(-1, 3)), (Fraction, "2e1", Fraction(20))),
    (Counter[int], '{"1": 2}', Counter({1: 2})),
    (dict[int, str], '{"1": "a", "-10": "b"}', {1: "a", -10: "b"}),
    (dict[UUID, int], '{"00000000-0000-0000-0000-000000000001": 1}', {UUID(int=1): 1}),
]


@pytest.mark.parametrize("kind, text, value", TAKEN, ids=count())
def test_what_the_schema_says_is_taken(kind: object, text: str, value: object) -> None:
    """With a value of the type, not of one that Python holds for equal."""
    found = parsed(kind, text)
    assert found == value
    assert type(found) is type(value)


REFUSED: list[tuple[Any, str]] = [
    *((dt.datetime, text) for text in ('"2024"', '"1.5"', '"-1"', '"2026-01-31"', '"2026-01-31_12:00"', "1", "true")),
    (dt.datetime, '"2026-02-30T12:00:00Z"'),
    (Positive, '"1999-01-01T00:00:00Z"'),
    *((dt.date, text) for text in ('"1704067200"', '"2026-01-31T00:00:00"', "1")),
    *((dt.timedelta, text) for text in ('"01:00"', '"1 day, 00:00:00"', '"1d"', "3", '"P"')),
    *((int, text) for text in ("5.5", '"5"', "true", "1e400", '"5.0"')),
    *((Literal[1], text) for text in ("true", '"1"', "2", "[1]")),
    *((Literal[True], text) for text in ("1", "1.0")),
    *((Bit, text) for text in ("true", "false", "2", '"1"', "{}")),
    *((Share, text) for text in ("true", '"0.5"')),
    *((Mixed, text) for text in ('"b"', "true", "2.5", '"two"')),
    *((kind, '"A"') for kind in (Folding, Folding | None, list[Folding], Folding | int)),
    (dict[Folding, int], '{"A": 1}'),
    *((Decimal, text) for text in ('" 1"', '"1_000"', '"\u0661"', '"NaN"', '"Infinity"', "true", '""', '"1,5"')),
    (Annotated[Decimal, Field(gt=1)], '"1"'),
    *((kind, '" 1"') for kind in (Decimal | None, Decimal | int, list[Decimal])),
    *((kind, text) for kind in (Decimal, Fraction) for text in ("0.5", "1e-2", "1.0000000000000000001")),
    *((Fraction, text) for text in ('" 1/3"', '"1/0"', '"1_0/3"', '"one"', "true")),
    *((dict[int, str], text) for text in ('{"01": ""}', '{" 1": ""}', '{"1.0": ""}', '{"+1": ""}', '{"1_0": ""}')),
    (dict[int, str], '{"-0": ""}'),
    (OrderedDict[int, str], '{"1.0": ""}'),
    (dict[Annotated[int, Field(gt=1)], str], '{"1": ""}'),
    (dict[dt.date, str], '{"1704067200": ""}'),
    *((dict[UUID, str], f'{{"{text}": ""}}') for text in (f"{UUID(int=10)}".upper(), UUID(int=10).hex)),
]


@pytest.mark.parametrize("kind, text", REFUSED, ids=count())
def test_what_the_schema_does_not_say_is_refused(kind: object, text: str) -> None:
    """Though pydantic's strict mode takes it."""
    refusal(ParseError, parsed, kind, text)


@pytest.mark.parametrize("text", [" 1", "1_0", "", "x", "1,5", "\u0661", "1/3", "--1"])
def test_a_decimal_in_another_form_is_told_what_the_form_is(text: str, wording: Wording) -> None:
    """In the words of the pattern, whatever pydantic says of it."""
    assert refusal(ParseError, parsed, Decimal, json.dumps(text)).faults[0][1] == wording


# Untyped, because type checkers want to see the types written out.
_annotated: Any = Annotated
_field: Any = Field
_dict: Any = dict


DECLARED_REFUSALS: dict[str, tuple[Any, str]] = {
    "type in the schema": (held(_annotated[str, _field(json_schema_extra={"type": "integer"})]), "$.x"),
    "Hashable": (held(Hashable), "$.x"),
    "length of keys in a dictionary": (held(_dict[_annotated[str, {"min_length": 1}], int]), "$.x.*"),
}


@pytest.mark.parametrize("cls, path", DECLARED_REFUSALS.values(), ids=DECLARED_REFUSALS)
def test_a_declaration_that_the_schema_would_misstate_is_refused(cls: Any, path: str, wording: Wording) -> None:
    """At its field, with what to write instead."""
    error = refusal(SchemaError, codec, cls)
    assert error.path == path
    assert str(error) == wording


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


EXAMPLES: Final = 15 if FULL else 8
_SLOW: Final = (HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large)
PROBES: Final = [
    *("null", "true", "false", "0", "1", "-1", "2", "5.0", "-0.0", "1.5", "0.5", "1e2", "100000000000000000000", "3"),
    *('""', '"a"', '"b"', '"ab"', '"abc"', '"1"', '"0"', '"1.0"', '"01"', '" 1"', '"1_0"', '"true"', '"yes"', '"NaN"'),
    *('"1/3"', '"1/0"', '"done"', '"in_progress"', '"-1.5e3"', "[]", "[1]", "[1.0]", '["a"]', '["a", "b"]', '["a", 1]'),
    *("[true]", "[null]", "[[1]]", '[1, "a"]', '["a", "b", "c"]', "{}", '{"a": 1}', '{"a": "b"}', '{"a": true}'),
    *('{"1": 1}', '{"01": 1}', '{"1.5": 1}', '{"-0": 1}', '{"true": 1}', '{"True": 1}', '{"done": 1}', '{"1": "a"}'),
    *('{"name": "a"}', '{"name": 1}', '{"name": "a", "more": 1}', '{"1": {"name": "a"}}', '{"a": [1]}', '{"a": null}'),
    *('{"kind": "circle", "radius": 1}', '{"kind": "square", "side": 1.5}', '{"kind": "circle"}', '{"items": []}'),
]
"""JSON of all kinds; no type takes all of it."""


def holder(kind: Any) -> Any:
    """A dataclass with a field of this type, and one that may be left out."""
    more = ("y", list[kind], dataclasses.field(default_factory=list[Any]))
    return dataclasses.make_dataclass("Held", [("x", kind), more])


def is_same(one: Any, other: Any) -> bool:
    """Whether two values are equal, and all that is in them is of equal types."""
    return type(one) is type(other) and bool(one == other) and all(map(is_same, iter_parts(one), iter_parts(other)))


def iter_parts(value: Any) -> list[Any]:
    """What a value holds, in an order that is the same for equal values of equal types."""
    if isinstance(value, dt.datetime | dt.time):
        return [value.utcoffset()]
    if dataclasses.is_dataclass(value):
        return [getattr(value, field.name) for field in dataclasses.fields(value)]
    if isinstance(value, Mapping):
        entries = cast("Mapping[object, object]", value)
        return [*entries, *entries.values()]
    if isinstance(value, AbstractSet):
        return sorted(cast("AbstractSet[object]", value), key=repr)
    is_sequence = isinstance(value, Sequence) and not isinstance(value, str | bytes)
    return list(cast("Sequence[Any]", value)) if is_sequence else []


@pytest.mark.parametrize("kind", FIELD_TYPES, ids=count())
def test_what_the_schema_takes_parses_and_comes_back(kind: Any) -> None:
    """With equal types, from the message and from the store, unless that refuses the type."""
    cls = holder(kind)
    parameters = codec(cls)
    try:
        stored = stored_codec(cls)
    except SchemaError:
        stored = parameters
    schema = parameters.schema

    @settings(max_examples=EXAMPLES, database=None, suppress_health_check=_SLOW)
    @given(taken_by(schema, schema))
    def holds(drawn: Any) -> None:
        assert is_valid(schema, drawn)
        value = parameters.parse(json.dumps(drawn))
        assert is_same(parameters.parse(parameters.dump(value)), value)
        assert is_same(stored.parse_json(stored.dump_json(value)), value)

    holds()


@pytest.mark.parametrize("kind", FIELD_TYPES, ids=count())
def test_parsing_and_the_schema_agree_on_what_is_taken(kind: Any) -> None:
    """On values of all kinds; where the schema names a format, parsing may take less."""
    parameters = codec(holder(kind))
    schema = parameters.schema
    has_formats = '"format"' in json.dumps(schema).replace('"format": "fraction"', "")
    for probe in PROBES:
        data = f'{{"x":{probe}}}'
        valid = is_valid(schema, json.loads(data))
        try:
            parameters.parse_json(data)
        except ParseError:
            assert has_formats or not valid, data
        else:
            assert valid, data


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


LEAVES: Final[dict[Any, Any]] = (
    {int: [1, 10**17], float: [1.0, 1.5, 1e17], Decimal: [Decimal(1)], bool: [True], str: ["1"], bytes: [b"1"]}
    | {Digit: [*Digit], Share: [*Share], State: [*State], Literal[1]: [1], NoneType: [None], UUID: [UUID(int=1)]}
    | {dt.date: [dt.date(2026, 1, 1)], dt.timedelta: [dt.timedelta(1)], tuple[int, int]: [(1, 2)]}
)


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
