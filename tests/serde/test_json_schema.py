"""What a model is shown."""

from __future__ import annotations

import enum
import json
import subprocess
import sys
from dataclasses import dataclass, field
from typing import Annotated, Any

import pytest
from inline_snapshot import snapshot
from pydantic import Field, TypeAdapter

from handrail.errors import SchemaError
from handrail.serde import codec, result_codec, schema
from handrail.serde.json_schema import holds_numbers, json_schema, leaves_untyped
from tests.serde.refused import Pydantic
from tests.serde.shapes import Circle, Drawing, Empty, Loose, Page, Plan, Status, Step, Tree
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
    assert schema(Plan) == snapshot(
        {
            "$defs": {
                "Status": {
                    "description": "Where a step stands.",
                    "enum": ["pending", "in_progress", "done"],
                    "type": "string",
                },
                "Step": {
                    "additionalProperties": False,
                    "description": "One step of a plan.",
                    "properties": {
                        "title": {
                            "description": "What is to be done.",
                            "maxLength": 40,
                            "minLength": 1,
                            "type": "string",
                        },
                        "status": {"$ref": "#/$defs/Status", "default": "pending"},
                        "weight": {"default": 1, "exclusiveMinimum": 0, "type": "integer"},
                    },
                    "required": ["title"],
                    "type": "object",
                },
            },
            "additionalProperties": False,
            "properties": {
                "objective": {"type": "string"},
                "limit": {"default": 10, "type": "integer"},
                "steps": {"default": [], "items": {"$ref": "#/$defs/Step"}, "type": "array"},
                "notes": {"additionalProperties": {"type": "string"}, "type": "object"},
            },
            "required": ["objective"],
            "type": "object",
        }
    )


def test_a_recursive_dataclass_stands_at_the_root_in_full() -> None:
    """Providers ask for an object at the root, so it is no bare reference."""
    assert schema(Tree) == snapshot(
        {
            "$defs": {
                "Tree": {
                    "additionalProperties": False,
                    "properties": {
                        "name": {"type": "string"},
                        "kids": {
                            "default": [],
                            "items": {"$ref": "#/$defs/Tree"},
                            "type": "array",
                        },
                    },
                    "required": ["name"],
                    "type": "object",
                }
            },
            "additionalProperties": False,
            "properties": {
                "name": {"type": "string"},
                "kids": {"default": [], "items": {"$ref": "#/$defs/Tree"}, "type": "array"},
            },
            "required": ["name"],
            "type": "object",
        }
    )


def test_a_generic_dataclass_shows_its_arguments() -> None:
    """`Page[Step]` says what its items are."""
    assert schema(Page[Step])["properties"] == snapshot(
        {
            "items": {"items": {"$ref": "#/$defs/Step"}, "type": "array"},
            "next": {
                "anyOf": [{"$ref": "#/$defs/Page_Step_"}, {"type": "null"}],
                "default": None,
            },
        }
    )


def test_a_dataclass_without_fields_takes_nothing() -> None:
    """It is closed like any other, and its docstring is its description."""
    assert schema(Empty) == snapshot(
        {
            "additionalProperties": False,
            "description": "Nothing to say.",
            "properties": {},
            "type": "object",
        }
    )


def test_a_result_is_described_as_it_is_dumped() -> None:
    """A `Decimal` may be given as a number, but is dumped as a string."""
    assert schema(Loose)["properties"]["exact"] == snapshot(
        {
            "anyOf": [
                {"type": "number"},
                {"pattern": "^[-+]?([0-9]+(\\.[0-9]*)?|\\.[0-9]+)([eE][-+]?[0-9]+)?$", "type": "string"},
            ],
            "default": "0",
        }
    )
    assert result_codec(Loose).schema["properties"]["exact"] == snapshot(
        {"default": "0", "pattern": "^[-+]?([0-9]+(\\.[0-9]*)?|\\.[0-9]+)([eE][-+]?[0-9]+)?$", "type": "string"}
    )


def test_the_schema_is_the_same_in_every_process() -> None:
    """Sets have no order of their own: their defaults are shown in the order of their JSON."""
    program = "import json; from handrail.serde import schema; from tests.serde.test_json_schema import Choices; "
    shown = {
        subprocess.run(
            [sys.executable, "-c", program + "print(json.dumps(schema(Choices)))"],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert [json.loads(each) for each in shown] == [schema(Choices)]
    assert schema(Choices) == snapshot(
        {
            "$defs": {
                "Shade": {
                    "description": "How dark it is.",
                    "enum": ["dark", "light"],
                    "type": "string",
                }
            },
            "additionalProperties": False,
            "properties": {
                "shades": {
                    "default": ["dark", "light"],
                    "items": {"$ref": "#/$defs/Shade"},
                    "type": "array",
                    "uniqueItems": True,
                },
                "words": {
                    "default": ["a", "b", "c"],
                    "items": {"type": "string"},
                    "type": "array",
                    "uniqueItems": True,
                },
                "titled": {"default": 1, "title": "A title of its own", "type": "integer"},
            },
            "type": "object",
        }
    )


def test_a_caller_cannot_corrupt_the_schema() -> None:
    """Each asker gets a schema of its own."""
    spoilt = schema(Plan)
    spoilt["properties"].clear()
    assert "objective" in schema(Plan)["properties"]
    assert "objective" in codec(Plan).schema["properties"]


def test_an_open_object_is_refused_wherever_it_comes_from(wording: Wording) -> None:
    """The last check, should a type slip through the first: it looks at the schema alone."""
    with pytest.raises(SchemaError) as raised:
        json_schema(TypeAdapter(list[Pydantic]), list[Pydantic], mode="validation")
    assert str(raised.value) == wording


@pytest.mark.parametrize(
    "kind, untyped, numbers",
    [
        (Step, False, False),
        (Circle, False, True),
        (Drawing, False, True),
        (Loose, True, True),
        (dict[str, Any], True, True),
        (list[object], True, True),
        (dict[str, int], False, False),
    ],
)
def test_it_is_known_what_no_type_guards(kind: object, *, untyped: bool, numbers: bool) -> None:
    """Where anything may stand, and where a number may: there NaN is looked for."""
    shown = result_codec(kind).schema
    assert (leaves_untyped(shown), holds_numbers(shown)) == (untyped, numbers)


@dataclass
class Described:
    status: Status = field(default=Status.DONE, metadata={"description": "How far it is.", "examples": ["done"]})


def test_a_reference_keeps_its_description() -> None:
    """An enum is defined once; the field says what it means there."""
    assert schema(Described)["properties"]["status"] == snapshot(
        {
            "$ref": "#/$defs/Status",
            "default": "done",
            "description": "How far it is.",
            "examples": ["done"],
        }
    )
