"""The JSON Schema that a model sees, and its constraints."""

from __future__ import annotations

import dataclasses
import enum
import json
import re
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import count
from typing import Annotated, Any, NewType

import annotated_types
import pytest
from pydantic import BaseModel, Field, StringConstraints

from handrail.errors import PromptValidationError, SchemaError
from handrail.prompt import Tool, ToolContext, ToolResult
from handrail.serde import codec, result_codec, schema
from tests.kit import refusal
from tests.serde.kit import Loose, Plan, Status, Tree, held, outputs
from tests.wording import Wording


class Shade(enum.Enum):
    """How dark it is."""

    DARK = "dark"
    LIGHT = "light"


@dataclass(frozen=True, slots=True)
class Choices:
    shades: frozenset[Shade] = frozenset(Shade)
    words: frozenset[str] = frozenset({"c", "a", "b"})
    titled: Annotated[int, Field(title="A title of its own")] = 1


def test_a_model_sees_closed_objects_with_descriptions_and_without_noise() -> None:
    """Descriptions and constraints come from the fields' metadata; titles that repeat a name are left out."""
    step = {
        "title": {"description": "What is to be done.", "maxLength": 40, "minLength": 1, "type": "string"},
        "status": {"$ref": "#/$defs/Status", "default": "pending"},
        "weight": {"default": 1, "exclusiveMinimum": 0, "type": "integer"},
    }
    plan: dict[str, Any] = {
        "objective": {"type": "string"},
        "limit": {"default": 10, "type": "integer"},
        "steps": {"default": [], "items": {"$ref": "#/$defs/Step"}, "type": "array"},
        "notes": {"additionalProperties": {"type": "string"}, "type": "object"},
    }
    status = {"description": "Where a step stands.", "enum": ["pending", "in_progress", "done"], "type": "string"}
    closed: dict[str, Any] = {"additionalProperties": False, "type": "object"}
    described = {"description": "One step of a plan.", "properties": step, "required": ["title"], **closed}
    assert schema(Plan) == {
        "$defs": {"Status": status, "Step": described},
        "properties": plan,
        "required": ["objective"],
        **closed,
    }


def test_a_recursive_dataclass_stands_at_the_root_in_full() -> None:
    """Providers ask for an object at the root, so it is no bare reference."""
    kids: dict[str, Any] = {"default": [], "items": {"$ref": "#/$defs/Tree"}, "type": "array"}
    properties = {"name": {"type": "string"}, "kids": kids}
    node = {"additionalProperties": False, "properties": properties, "required": ["name"], "type": "object"}
    assert schema(Tree) == {"$defs": {"Tree": node}, **node}


def test_a_result_is_described_as_it_is_dumped() -> None:
    """A `Decimal` may be given as an integer, but is dumped as a string."""
    pattern = r"^[-+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?$"
    text = {"pattern": pattern, "type": "string"}
    assert schema(Loose)["properties"]["exact"] == {"anyOf": [{"type": "integer"}, text], "default": "0"}
    assert result_codec(Loose).schema["properties"]["exact"] == {"default": "0", **text}


def test_the_schema_is_the_same_in_every_process() -> None:
    """Sets have no order of their own: their defaults are shown in the order of their JSON."""
    program = "import json; from handrail.serde import schema; from tests.serde.test_json_schema import Choices; "
    shown = outputs(program + "print(json.dumps(schema(Choices)))")
    assert [json.loads(each) for each in shown] == [schema(Choices)]
    defaults = [part["default"] for part in schema(Choices)["properties"].values()]
    assert defaults == [["dark", "light"], ["a", "b", "c"], 1]
    assert schema(Choices)["properties"]["titled"]["title"] == "A title of its own"


def test_a_caller_cannot_corrupt_the_schema() -> None:
    """Each asker gets a schema of its own."""
    spoilt = schema(Plan)
    spoilt["properties"].clear()
    assert "objective" in schema(Plan)["properties"]
    assert "objective" in codec(Plan).schema["properties"]


@dataclass
class Described:
    status: Status = field(default=Status.DONE, metadata={"description": "How far it is.", "examples": ["done"]})


def test_a_reference_keeps_its_description() -> None:
    """An enum is defined once; the field says what it means there."""
    said = {"default": "done", "description": "How far it is.", "examples": ["done"]}
    assert schema(Described)["properties"]["status"] == {"$ref": "#/$defs/Status", **said}


class Meta:
    """A constraint of another library."""

    def __init__(self, **words: object) -> None:
        """Hold the words as attributes."""
        self.__dict__.update(words)


# Untyped, because type checkers want to see the type written out.
_named: Any = NewType
_field: Any = Field
Misspelled: Any = _named("Misspelled", Annotated[int, {"minimum": 1}])


class Limited(BaseModel):
    """Its schema would say what no check enforces."""

    cents: int = Field(json_schema_extra={"minimum": 1})


WITHOUT_EFFECT: dict[str, Any] = {
    "min_length in a dictionary": held(Annotated[str, {"min_length": 1}]),
    "minimum of an item": held(list[Annotated[int, {"minimum": 1}]]),
    "minimum": held(int, minimum=1),
    "maxItems": held(list[int], maxItems=1),
    "regex": held(str, regex="a"),
    "enum": held(int, enum=[1, 2]),
    "strip_whitespace": held(str, strip_whitespace=True),
    "minimum of the schema": held(int, json_schema_extra={"minimum": 1}),
    "pattern of an integer": held(int, pattern="a"),
    "gt of a text": held(str, gt=1),
    "format": held(str, format="email"),
    "length": held(str, length=3),
    "choices": held(str, choices=["a"]),
    "ge of text or None": held(float | None, ge="1"),
    "multiple_of of a complex number": held(Annotated[float, _field(multiple_of=1j)]),
    "le that is not comparable": held(Annotated[Decimal, Field(ge=1, le="x")]),
    "negative min_length": held(Annotated[str, Field(min_length=-1)]),
    "fractional min_length": held(Annotated[str, _field(min_length=1.5)]),
    "max_length of text": held(str, max_length="2"),
    "multiple of zero": held(Annotated[int, Field(multiple_of=0)]),
    "multiple of zero in an item": held(list[Annotated[Decimal, Field(multiple_of=0)]]),
    "pattern that does not compile": held(Annotated[str, Field(pattern="(")]),
    "look-around": held(list[Annotated[str, Field(pattern="(?=a)a")]]),
    "backreferences": held(str, pattern=r"(a)\1"),
    "minimum of a NewType": held(Misspelled),
    "minimum of a field of a model": held(Limited),
}


@pytest.mark.parametrize("cls", WITHOUT_EFFECT.values(), ids=WITHOUT_EFFECT)
def test_a_word_that_would_not_act_is_refused(cls: Any, wording: Wording) -> None:
    """At its field, with what to write instead."""
    error = refusal(SchemaError, codec, cls)
    assert error.path
    assert error.path.startswith("$.x")
    assert str(error) == wording
    assert "FieldInfo" not in str(error)


COMPILED: Any = Field(pattern=re.compile("^a$"))


@pytest.mark.parametrize(
    "cls",
    [
        held(int, unit="m", widget={"minimum": 1}, secret=True, minimum=None),
        held(Annotated[int, "a note", 7, {"unit": "m"}, Meta(unit="m"), Meta(min_length=None)]),
        held(Annotated[int, dataclasses.field(metadata={"unit": "m"})]),
        held(Annotated[str, annotated_types.Len(1, 2), StringConstraints(to_lower=True)]),
        held(Annotated[int, annotated_types.Interval(gt=0)]),
        held(int, json_schema_extra={"examples": [1]}, title="A title"),
        *(held(str | None, pattern="^a"), held(str, title="A title", examples=["x"], deprecated=True)),
        *(held(Annotated[int, Field(gt=1)], **{word: 5}) for word in ("gt", "le")),
        *(held(Annotated[str, field]) for field in (Field(json_schema_extra={"format": "email"}), COMPILED)),
        held(Annotated[Decimal, Field(gt=Decimal(1))]),
        held(Annotated[int, annotated_types.Unit("m"), Meta(length=3, format="x", choices=[1])]),
    ],
    ids=count(),
)
def test_other_metadata_is_left_alone(cls: Any) -> None:
    """It is the program's own."""
    assert codec(cls).schema["properties"]["x"]


@pytest.mark.parametrize("word, value", [("default", 5), ("repr", False), ("union_mode", "smart"), ("strict", "a")])
def test_metadata_that_pydantic_cannot_take_is_told_as_such(word: str, value: object, wording: Wording) -> None:
    """With the field and the words, whatever pydantic raises."""
    assert re.sub(r"\(.*\);", "(<reason>);", str(refusal(SchemaError, codec, held(int, **{word: value})))) == wording


@dataclasses.dataclass(frozen=True)
class Order:
    """Parameters whose schema would say what nothing enforces."""

    cents: Annotated[int, {"maximum": 500}]


def test_a_tool_is_refused_when_it_is_made(wording: Wording) -> None:
    """With the error of the type as the cause."""

    def handler(params: Order, *, context: ToolContext) -> ToolResult[Order]:
        del context
        return ToolResult.ok(params)

    with pytest.raises(PromptValidationError) as caught:
        Tool[Order, Order](name="charge", description="Charges.", handler=handler)
    assert str(caught.value) == wording
    assert isinstance(caught.value.__cause__, SchemaError)
