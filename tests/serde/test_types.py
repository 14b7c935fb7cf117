"""Types that are taken, types that are refused, and what pydantic makes of them."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import inspect
from collections.abc import Callable, Iterator
from dataclasses import InitVar, dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Generic, Literal, NamedTuple, NewType, TypeVar, cast
from uuid import UUID

import pydantic
import pytest
from pydantic import BaseModel, Field, RootModel, TypeAdapter, ValidationError, computed_field
from pydantic_core import CoreConfig, SchemaSerializer, SchemaValidator, core_schema
from typing_extensions import TypeAliasType, TypedDict

from handrail.errors import SchemaError
from handrail.serde import codec, result_codec
from handrail.serde.adapter import closed_adapter
from handrail.serde.annotations import accept_type, strip_annotated
from handrail.serde.core_schemas import Core, make_serializer, make_validator, rebuilt
from tests.kit import refusal
from tests.serde.kit import OpenModel, Status, Step
from tests.wording import Wording

if TYPE_CHECKING:
    from fractions import Fraction

T = TypeVar("T")
Name = NewType("Name", str)
Rows = TypeAliasType("Rows", list[T], type_params=(T,))
Json = TypeAliasType("Json", "dict[str, Json] | list[Json] | str | None")


class Items(RootModel[list[int]]):
    pass


class Computing(BaseModel):
    name: str

    @computed_field
    def upper(self) -> str:
        return self.name.upper()


class Renaming(BaseModel):
    name: str = Field(alias="Name")


class Unresolved(BaseModel):
    ratio: Fraction


class Dictionary(TypedDict):
    ratio: Fraction


class Named(NamedTuple):
    name: str


@pydantic.dataclasses.dataclass
class Pydantic:
    name: str


class Colours(enum.Flag):
    RED = 1


class Corner(enum.Enum):
    ORIGIN = (0, 0)


class Mark(enum.Enum):
    ONE = 1


class Nothing(enum.Enum):
    """No members."""


class Unknown:
    """A class that pydantic knows nothing of."""


@dataclass
class HasUnknown:
    plain: int
    thing: Unknown


@dataclass
class Endless(Generic[T]):
    item: T
    rest: Endless[list[T]] | None = None


@dataclass
class Wrapped:
    rows: Rows[Step]
    fixed: Final[int]
    noted: Annotated[int, "a note", Field(gt=0)]
    keys: dict[Status, dict[dt.date, dict[UUID, dict[int, dict[Any, int]]]]]
    shared: ClassVar[OpenModel]


@dataclass
class Held(Generic[T]):
    held: T


def declared(kind: Any, **options: Any) -> Any:
    """A dataclass with a field `x` of this type."""
    own = {"__module__": __name__}  # Python 3.11 names another one than later versions
    return dataclasses.make_dataclass("Declared", [("x", kind, field(**options))], namespace=own)


DECLARATION_FAULTS: Final[dict[str, tuple[Any, str]]] = {
    "open model": (declared(list[OpenModel]), "$.x[*]"),
    "root model": (declared(Items), "$.x"),
    "computed field": (declared(Computing), "$.x.upper"),
    "alias in a model": (declared(Renaming), "$.x.name"),
    "unresolved in a model": (declared(Unresolved), "$.x"),
    "unresolved in a TypedDict": (declared(dict[str, Dictionary]), "$.x.*"),
    "NamedTuple": (declared(tuple[int, Named]), "$.x[1]"),
    "pydantic dataclass": (declared(Pydantic | None), "$.x"),
    "flag": (declared(Colours), "$.x"),
    "enum of tuples": (declared(Corner), "$.x"),
    "literal of a member": (declared(Literal[Mark.ONE]), "$.x"),
    "iterator": (declared(Iterator[int]), "$.x"),
    "class": (declared(type[int]), "$.x"),
    "tuple keys": (declared(dict[tuple[int, int], str]), "$.x"),
    "keys of an enum of numbers": (declared(dict[Mark, str]), "$.x"),
    "unknown class": (HasUnknown, "$.thing"),
    "function": (declared(Callable[[int], int]), "$.x"),
    "forward reference": (declared("Fraction"), "$.x"),
    "InitVar": (declared(InitVar[int]), "$.x"),
    "computed": (declared(int, init=False, default=0), "$.x"),
    "alias": (declared(str, default="", metadata={"alias": "from"}), "$.x"),
    "default of pydantic": (declared(int, default=Field(gt=0)), "$.x"),
    "enum without members": (declared(Nothing), "$.x"),
    "bad pattern": (declared(str, metadata={"pattern": "["}), "$.x"),
    "deep": (declared(dict[str, list[HasUnknown]]), "$.x.*[*].thing"),
}
"""Types that are refused, with the path of the fault."""


@pytest.mark.parametrize("name", DECLARATION_FAULTS)
def test_a_type_that_is_not_taken_is_refused_at_its_field(name: str, wording: Wording) -> None:
    """Wherever the fault stands, the error has its path, and names what is wrong and what to write."""
    kind, path = DECLARATION_FAULTS[name]
    errors = [refusal(SchemaError, build, kind) for build in (codec, result_codec)]
    assert [error.path for error in errors] == [path] * 2
    (text,) = {str(error) for error in errors}
    assert text.startswith(f"{path}: ")
    assert text == wording


def test_types_that_nest_without_end_are_refused(wording: Wording) -> None:
    """A generic class that refers to itself with ever larger arguments has no schema."""
    assert str(refusal(SchemaError, codec, Endless[int])) == wording


@pytest.mark.parametrize("kind", [int, "Plan", None, dict[str, int], Step | None, Any, T])
def test_parameters_must_have_named_fields(kind: type[object], wording: Wording) -> None:
    """Anything else has no named fields for the model to fill."""
    assert str(refusal(SchemaError, codec, kind)) == wording


@pytest.mark.parametrize("kind", [T, "Plan"])
def test_a_result_must_be_a_type(kind: object, wording: Wording) -> None:
    """The name of a type, or what stands for one, says nothing of the values."""
    assert str(refusal(SchemaError, result_codec, kind)) == wording


@pytest.mark.parametrize("kind", [OpenModel, list[Named], dict[str, Dictionary], tuple[Unknown, ...]])
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


# Untyped, because type checkers want to see aliases as statements.
_alias: Any = TypeAliasType
_new: Any = NewType


def test_an_alias_that_is_written_as_text_is_what_the_text_means() -> None:
    """Inside of what stands around it: other aliases, annotations and new types."""
    quoted = _alias("Quoted", "list[int]")
    assert strip_annotated(_new("Named", Annotated[_alias("Around", quoted), "a note"])) == list[int]
    assert strip_annotated(_alias("Plain", int)) is int
    assert strip_annotated(_alias("Unknown", "Nowhere")) == "Nowhere"


def test_the_class_itself_is_not_changed() -> None:
    """Whoever else uses pydantic on the class finds it as it was."""
    closed_adapter(Step)
    assert not hasattr(Step, "__pydantic_config__")
    assert TypeAdapter(Step).validate_json('{"title": "a", "more": 1}') == Step("a")


class Order(BaseModel):
    """A model for which pydantic keeps a validator that ignores unknown fields, and a serializer."""

    number: str


def changed(part: Core, _was: Core, _made: bool) -> Core:
    """A model that refuses unknown fields, and whose texts are written in capitals."""
    if part["type"] == "model":
        return {**part, "config": {**part.get("config", {}), "extra_fields_behavior": "forbid"}}
    capitals = core_schema.plain_serializer_function_ser_schema(str.upper)
    return {**part, "serialization": capitals} if part["type"] == "str" else part


def test_a_changed_model_is_read_and_written_as_changed() -> None:
    """Without the third parameter it is not, which is why it is given, by its position."""
    for kind in (SchemaValidator, SchemaSerializer):
        assert list(inspect.signature(kind).parameters) == ["schema", "config", "_use_prebuilt"]
    core: Any = rebuilt(cast("Core", TypeAdapter(list[Order]).core_schema), changed)
    data, value = [{"number": "a", "more": 1}], [Order(number="a")]
    assert SchemaValidator(core, CoreConfig()).validate_python(data) == value
    refusal(ValidationError, make_validator(core, CoreConfig()).validate_python, data)
    assert SchemaSerializer(core, CoreConfig()).to_json(value) == b'[{"number":"a"}]'
    assert make_serializer(core, CoreConfig()).to_json(value) == b'[{"number":"A"}]'
