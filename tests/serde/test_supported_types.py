"""Which types are taken, and what is said of those that are not."""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final, Generic, NewType, TypeVar
from uuid import UUID

import pydantic
import pytest
from pydantic import Field
from typing_extensions import TypeAliasType

from handrail.errors import SchemaError
from handrail.serde import codec, result_codec
from handrail.serde.annotations import accept_type, strip_annotated
from tests.kit import refusal
from tests.serde import refused
from tests.serde.shapes import Status, Step
from tests.wording import Wording

T = TypeVar("T")
Name = NewType("Name", str)
Rows = TypeAliasType("Rows", list[T], type_params=(T,))
Json = TypeAliasType("Json", "dict[str, Json] | list[Json] | str | None")


@dataclass
class Wrapped:
    name: Name
    rows: Rows[Step]
    more: Rows[Step]
    fixed: Final[int]
    noted: Annotated[int, "a note", Field(gt=0)]
    steps: Sequence[Step]
    named: Mapping[Name, Step]
    counted: Counter[str]
    queue: deque[Step]
    bare_list: list  # type: ignore[type-arg]
    bare_dict: dict  # type: ignore[type-arg]
    keys: dict[Status, dict[dt.date, dict[UUID, dict[int, dict[Any, int]]]]]
    shared: ClassVar[refused.OpenModel]


@dataclass
class Held(Generic[T]):
    held: T


REFUSALS = {
    refused.HasOpenModel: "$.rows[*]",
    refused.HasRootModel: "$.items",
    refused.HasComputing: "$.inner.upper",
    refused.HasRenaming: "$.inner.name",
    refused.HasUnresolved: "$.inner",
    refused.HasDictionary: "$.by_name.*",
    refused.HasNamed: "$.pair[1]",
    refused.HasPydantic: "$.maybe",
    refused.HasFlag: "$.colours",
    refused.HasCorner: "$.corner",
    refused.HasMemberLiteral: "$.choice",
    refused.HasIterator: "$.rows",
    refused.HasClass: "$.kind",
    refused.HasTupleKeys: "$.cells",
    refused.HasNumberEnumKeys: "$.marks",
    refused.HasUnknown: "$.thing",
    refused.HasCallable: "$.function",
    refused.HasForwardReference: "$.ratio",
    refused.HasInitVar: "$.seed",
    refused.HasComputed: "$.total",
    refused.HasAlias: "$.source",
    refused.HasPydanticDefault: "$.count",
    refused.HasNoneForInt: "$.limit",
    refused.HasMisplacedPattern: "$.limit",
    refused.HasSurrogate: "$.code",
    refused.HasNothing: "$.nothing",
    refused.HasBadPattern: "$.code",
    refused.HasStrayBound: "$.name",
    refused.Deep: "$.many.*[*].thing",
}


@pytest.mark.parametrize("kind, path", REFUSALS.items(), ids=[kind.__name__ for kind in REFUSALS])
def test_a_type_that_is_not_taken_is_refused_at_its_field(kind: type[object], path: str, wording: Wording) -> None:
    """Wherever the fault stands, the error has its path, and names what is wrong and what to write."""
    told: set[str] = set()
    for build in (codec, result_codec):
        with pytest.raises(SchemaError) as caught:
            build(kind)
        assert caught.value.path == path
        told.add(str(caught.value))
    (text,) = told
    assert text.startswith(f"{path}: ")
    assert text == wording


def test_types_that_nest_without_end_are_refused(wording: Wording) -> None:
    """A generic class that refers to itself with ever larger arguments has no schema."""
    assert str(refusal(SchemaError, codec, refused.Endless[int])) == wording


@pytest.mark.parametrize("kind", [int, "Plan", None, dict[str, int], Step | None, Any, T])
def test_parameters_must_have_named_fields(kind: type[object], wording: Wording) -> None:
    """Anything else has no named fields for the model to fill."""
    assert str(refusal(SchemaError, codec, kind)) == wording


@pytest.mark.parametrize("kind", [T, "Plan"])
def test_a_result_must_be_a_type(kind: object, wording: Wording) -> None:
    """The name of a type, or what stands for one, says nothing of the values."""
    assert str(refusal(SchemaError, result_codec, kind)) == wording


@pytest.mark.parametrize(
    "kind", [refused.OpenModel, list[refused.Named], dict[str, refused.Dictionary], tuple[refused.Unknown, ...]]
)
def test_a_result_may_not_be_open_either(kind: object) -> None:
    """What a result holds is read back, so it is held to the same rules."""
    refusal(SchemaError, result_codec, kind)


@pytest.mark.parametrize("kind", [pydantic.Json, pydantic.Json[int], list[pydantic.Json[int]]])
@pytest.mark.parametrize("make", [codec, result_codec])
def test_a_text_that_holds_json_is_refused(make: Any, kind: Any, wording: Wording) -> None:
    """What it is read from is not what it is written as, and the schema takes any text."""
    assert str(refusal(SchemaError, make, dataclasses.make_dataclass("Held", [("x", kind)]))) == wording


def test_a_value_in_place_of_a_type_is_told_so(wording: Wording) -> None:
    """A common slip gets an answer of its own."""
    with pytest.raises(SchemaError) as raised:
        codec(Step("a"))  # type: ignore[arg-type]
    assert str(raised.value) == wording


def test_names_and_decorations_are_looked_through() -> None:
    """`NewType`, type aliases, `Final`, `Annotated`, abstract containers and class variables are no obstacle."""
    assert [found.cls for found in accept_type(Wrapped)] == [Wrapped, Step]
    assert codec(Wrapped).schema["properties"]["noted"] == {"exclusiveMinimum": 0, "type": "integer"}
    assert strip_annotated(Annotated[Name, 1]) is str
    assert strip_annotated(Rows[int]) == list[int]
