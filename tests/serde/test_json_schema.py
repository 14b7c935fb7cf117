"""What a model is shown."""

from __future__ import annotations

import enum
import json
import subprocess
import sys
from dataclasses import dataclass, field
from typing import Annotated, Any

from inline_snapshot import snapshot
from pydantic import Field

from handrail.serde import codec, result_codec, schema
from tests.serde.shapes import Loose, Plan, Status, Tree


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
    node: dict[str, Any] = {
        "additionalProperties": False,
        "properties": {
            "name": {"type": "string"},
            "kids": {"default": [], "items": {"$ref": "#/$defs/Tree"}, "type": "array"},
        },
        "required": ["name"],
        "type": "object",
    }
    assert schema(Tree) == {"$defs": {"Tree": node}, **node}


def test_a_result_is_described_as_it_is_dumped() -> None:
    """A `Decimal` may be given as an integer, but is dumped as a string."""
    assert schema(Loose)["properties"]["exact"] == snapshot(
        {
            "anyOf": [
                {"type": "integer"},
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
    assert schema(Described)["properties"]["status"] == snapshot(
        {
            "$ref": "#/$defs/Status",
            "default": "done",
            "description": "How far it is.",
            "examples": ["done"],
        }
    )
