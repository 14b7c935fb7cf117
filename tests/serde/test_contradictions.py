"""Constraints that no value meets, or that are none, are refused when a type is built."""

from __future__ import annotations

import dataclasses
import datetime as dt
import re
from decimal import Decimal
from itertools import count
from typing import Annotated, Any, NewType

import annotated_types
import pytest
from pydantic import Field, StringConstraints
from typing_extensions import TypeAliasType

from handrail.errors import PromptValidationError, SchemaError
from handrail.prompt import Tool, ToolContext, ToolResult
from handrail.serde import codec, result_codec, stored_codec
from tests.serde.members import held
from tests.wording import Wording

# Untyped, because type checkers want to see the types written out.
_annotated: Any = Annotated
_field: Any = Field
_list: Any = list
_tuple: Any = tuple
_named: Any = NewType
_alias: Any = TypeAliasType
Low: Any = _named("Low", _annotated[int, _field(lt=2)])
Short: Any = _alias("Short", _annotated[str, _field(max_length=2)])
Misspelled: Any = _named("Misspelled", _annotated[int, {"minimum": 1}])


NOON = dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC)

CONTRADICTORY: dict[str, tuple[Any, str]] = {
    "length in Field": (held(_annotated[str, _field(min_length=5, max_length=2)]), "$.x"),
    "length in metadata": (held(str, min_length=5, max_length=2), "$.x"),
    "length in both": (held(_annotated[str, _field(min_length=5)], max_length=2), "$.x"),
    "length in StringConstraints": (held(_annotated[str, StringConstraints(min_length=5, max_length=2)]), "$.x"),
    "length of an item": (held(_list[_annotated[bytes, _field(min_length=5, max_length=2)]]), "$.x[*]"),
    "length of an alias": (held(_annotated[Short, _field(min_length=5)]), "$.x"),
    "gt and lt": (held(_annotated[int, _field(gt=5, lt=2)]), "$.x"),
    "gt and lt of one value": (held(_annotated[float, _field(gt=2, lt=2)]), "$.x"),
    "ge and le": (held(_annotated[int, _field(ge=3, le=2)]), "$.x"),
    "no integer between": (held(_annotated[int, _field(gt=1, lt=2)]), "$.x"),
    "bounds one after another": (held(_annotated[int, annotated_types.Gt(1), annotated_types.Gt(7)], lt=5), "$.x"),
    "bound of a NewType": (held(_annotated[Low, _field(gt=5)]), "$.x"),
    "bound of a union": (held(_annotated[int, _field(lt=2)] | None, gt=5), "$.x"),
    "bounds of a Decimal": (held(_tuple[int, _annotated[Decimal, _field(gt=Decimal(5), lt=2)]]), "$.x[1]"),
    "bounds of a moment": (held(_annotated[dt.datetime, _field(gt=NOON, lt=NOON)]), "$.x"),
}


@pytest.mark.parametrize("cls, path", CONTRADICTORY.values(), ids=CONTRADICTORY)
def test_constraints_that_no_value_meets_are_refused(cls: Any, path: str, wording: Wording) -> None:
    """At their field, with both words and their values; for parameters, results and what is stored."""
    told: set[str] = set()
    for make in (codec, result_codec, stored_codec):
        with pytest.raises(SchemaError) as caught:
            make(cls)
        assert caught.value.path == path
        told.add(str(caught.value))
    (text,) = told
    assert text == wording


WRONG: dict[str, tuple[Any, str]] = {
    "negative min_length": (held(_annotated[str, _field(min_length=-1)]), "$.x"),
    "fractional min_length": (held(_annotated[str, _field(min_length=1.5)]), "$.x"),
    "max_length of text": (held(str, max_length="2"), "$.x"),
    "no digits": (held(_annotated[Decimal, _field(max_digits=0)]), "$.x"),
    "multiple of zero": (held(_annotated[int, _field(multiple_of=0)]), "$.x"),
    "multiple of zero in an item": (held(_list[_annotated[Decimal, _field(multiple_of=Decimal(0))]]), "$.x[*]"),
    "ge of NaN": (held(_annotated[float, _field(ge=float("nan"))]), "$.x"),
    "pattern that does not compile": (held(_annotated[str, _field(pattern="(")]), "$.x"),
    "look-around": (held(_list[_annotated[str, _field(pattern="(?=a)a")]]), "$.x[*]"),
    "backreferences": (held(str, pattern=r"(a)\1"), "$.x"),
    "flags": (held(_annotated[str, _field(pattern=re.compile("a", re.IGNORECASE))]), "$.x"),
    "minimum": (held(Misspelled), "$.x"),
}


@pytest.mark.parametrize("cls, path", WRONG.values(), ids=WRONG)
def test_a_constraint_that_is_none_is_refused(cls: Any, path: str, wording: Wording) -> None:
    """At its field, with the word and its value."""
    with pytest.raises(SchemaError) as caught:
        codec(cls)
    assert caught.value.path == path
    assert str(caught.value) == wording
    assert "FieldInfo" not in str(caught.value)


@pytest.mark.parametrize(
    "cls",
    [
        held(_annotated[str, _field(min_length=2, max_length=2)]),
        held(_annotated[int, _field(ge=2, le=2)]),
        held(_annotated[float, _field(gt=1, lt=2)]),
        held(_annotated[int, _field(gt=1, le=2)]),
        held(_annotated[str, _field(max_length=0)]),
        held(_annotated[_list[_annotated[str, _field(max_length=2)]], _field(min_length=5)]),
        held(_annotated[int, _field(multiple_of=3)]),
        held(_annotated[Decimal, _field(max_digits=2, decimal_places=3)]),
        held(_annotated[int | str, _field(description="either")], min_length=None),
        held(_annotated[str, _field(pattern=re.compile("^a$"))]),
    ],
    ids=count(),
)
def test_constraints_that_a_value_meets_are_taken(cls: Any) -> None:
    """Bounds may be equal where both are included."""
    assert codec(cls).schema["properties"]["x"]


@dataclasses.dataclass(frozen=True)
class Order:
    """Parameters that nothing fits."""

    cents: Annotated[int, Field(gt=5, lt=2)]


def test_a_tool_is_refused_when_it_is_made(wording: Wording) -> None:
    """With the error of the type as the cause."""

    def handler(params: Order, *, context: ToolContext) -> ToolResult[Order]:
        del context
        return ToolResult.ok(params)

    with pytest.raises(PromptValidationError) as caught:
        Tool[Order, Order](name="charge", description="Charges.", handler=handler)
    assert str(caught.value) == wording
    assert isinstance(caught.value.__cause__, SchemaError)
