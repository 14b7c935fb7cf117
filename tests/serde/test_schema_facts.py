"""What is known of a JSON Schema, from the schema and before it is made."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field, make_dataclass
from datetime import date
from types import GenericAlias
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import Field, field_validator

from handrail.serde.adapter import closed_adapter
from handrail.serde.json_schema import SchemaFacts, facts_of, is_surely_simple, json_schema, simple_facts


class Shade(enum.Enum):
    """A shade."""

    DARK = "dark"


@dataclass
class Inner:
    """A dataclass to nest."""

    text: str


SCALARS = st.sampled_from(
    [
        str,
        int,
        float,
        bool,
        type(None),
        Annotated[int, Field(gt=0, le=9)],
        Annotated[str, Field(min_length=1, max_length=9, description="A text.")],
        Annotated[float, Field(ge=0)],
    ]
)
TYPES = st.recursive(
    SCALARS,
    lambda inner: inner.map(lambda kind: GenericAlias(list, kind)) | inner.map(lambda kind: kind | None),
)
DEFAULTS = st.sampled_from([{}, {"default": None}, {"default_factory": list}, {"metadata": {"description": "A text."}}])


def simple(kind: Any) -> SchemaFacts | None:
    """What is known of a type before its schema is made."""
    adapter = closed_adapter(kind, published=True)
    return simple_facts(adapter.core, adapter.kinds)


@given(st.lists(st.tuples(TYPES, DEFAULTS), max_size=4))
@settings(max_examples=25)
def test_what_is_known_before_a_schema_is_made_is_what_it_says(declared: list[tuple[Any, Any]]) -> None:
    """Of a simple type nothing is known beforehand that the schema, made later, does not say; and it can be made."""
    fields = [
        (f"field{number}", kind | None if "default" in default else kind, field(**default))
        for number, (kind, default) in enumerate(declared)
    ]
    kind = make_dataclass("Simple", fields, kw_only=True)
    assert is_surely_simple(kind, {name: hint for name, hint, _ in fields})
    known = simple(kind)
    assert known is not None
    assert known == facts_of(json_schema(closed_adapter(kind).made, kind, mode="validation"))


@pytest.mark.parametrize(
    "hint, default",
    [
        (Any, field()),
        (object, field()),
        (dict[str, int], field()),
        (tuple[int, str], field()),
        (set[str], field()),
        (int | str, field()),
        (Literal["a"], field()),
        (Shade, field()),
        (Inner, field()),
        (date, field()),
        (bytes, field()),
        (float, field(default=float("inf"))),
        (Annotated[float, Field(lt=0.5)], field()),
        (Annotated[str, Field(pattern="a")], field()),
        (Annotated[list[int] | int, Field(gt=0)], field()),
        (Annotated[str, Field(title="A title")], field()),
        (Annotated[str, Field(json_schema_extra={"type": "integer"})], field()),
        (str, field(metadata={"description": 5})),
        (str, field(metadata={"alias": "other"})),
    ],
)
def test_the_schema_of_a_type_that_may_be_at_fault_is_made_at_once(hint: Any, default: Any) -> None:
    """Only the schema shows whether such a type can be shown to a model, so nothing is known of it beforehand."""
    kind = make_dataclass("Holder", [("it", hint, default)])
    assert simple(kind) is None
    assert not is_surely_simple(kind, {"it": hint})


class Hooked:
    """A base with a method that pydantic calls."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        """Refuse to be built."""
        raise NotImplementedError


class Checked:
    """A base with a method that pydantic may call."""

    @field_validator("missing", check_fields=False)
    @classmethod
    def check(cls, value: Any) -> Any:
        """Check a field that is not there."""
        raise NotImplementedError


@pytest.mark.parametrize(
    "declared, bases, resolved",
    [
        (("it", int), (Hooked,), int),
        (("it", int), (Checked,), int),
        (("it", "int"), (), int),
        (("_it", int), (), int),
        (("it", Annotated[int, "a note"]), (), Annotated[int, "a note"]),
        (("it", Annotated[int, Field(gt=True)]), (), Annotated[int, Field(gt=True)]),
        (("it", Annotated[str, Field(gt=1)]), (), Annotated[str, Field(gt=1)]),
        (("it", Annotated[int | None, Field(gt=1)]), (), Annotated[int | None, Field(gt=1)]),
    ],
)
def test_a_type_that_only_pydantic_can_judge_is_built_at_once(
    declared: tuple[str, Any], bases: tuple[type, ...], resolved: Any
) -> None:
    """Its own methods, text that pydantic resolves, and options with another meaning may all be at fault."""
    kind = make_dataclass("Holder", [declared], bases=bases)
    assert not is_surely_simple(kind, {declared[0]: resolved})


def test_a_type_that_is_no_dataclass_is_not_simple() -> None:
    """A result may be of any type, and only the arguments of a tool are known to be an object."""
    assert simple(list[int]) is None
    assert not is_surely_simple(list, {})
