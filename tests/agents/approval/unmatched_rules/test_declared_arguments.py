"""Which places in arguments a JSON Schema declares."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, TypeAdapter

from handrail.agents.approval.matching import argument_path
from handrail.agents.approval.unmatched_rules import declared_places, declares


class Step(BaseModel):
    """A step, which may have others below it."""

    title: str
    below: list[Step] = []


class Options(BaseModel):
    """Options of a call."""

    force: bool = False
    labels: dict[str, int] = {}


class Arguments(BaseModel):
    """The arguments of a call."""

    path: str
    options: Options | None = None
    steps: list[Step] = []
    pair: tuple[Options, str] = (Options(), "")
    anything: Any = None
    mixed: list[Options] | str = ""


SCHEMA = TypeAdapter(Arguments).json_schema()


@pytest.mark.parametrize(
    "place, declared",
    [
        ("path", True),
        ("*", True),
        ("pth", False),
        ("path.name", False),
        ("options", True),
        ("options.force", True),
        ("options.fource", False),
        ("options.*", True),
        ("options.labels.red", True),
        ("options.labels.red.deep", False),
        ("options[0]", False),
        ("steps[*].title", True),
        ("steps[3].title", True),
        ("steps[*].below[*].below[0].title", True),
        ("steps[*].titel", False),
        ("steps.title", False),
        ("pair[0].force", True),
        ("pair[1].force", False),
        ("mixed[*].force", True),
        ("anything.at.all[3]", None),
    ],
)
def test_a_place_is_found_where_the_schema_has_it(place: str, declared: bool | None) -> None:
    """Through references, choices, lists and mappings; `None` where anything goes."""
    assert declares(SCHEMA, argument_path(place)) is declared


SCHEMAS: list[tuple[dict[str, Any], bool | None]] = [
    ({"type": "object"}, None),
    ({"type": "object", "additionalProperties": True, "properties": {"a": {}}}, None),
    ({"type": "object", "additionalProperties": False}, False),
    ({"type": "object", "properties": {"a": {"type": "string"}}}, False),
    ({"type": "object", "properties": {"a": {}}, "patternProperties": {"^x": {}}}, None),
    ({"type": "object", "additionalProperties": {"type": "string"}}, True),
    ({}, None),
    ({"$ref": "#/nowhere"}, None),
    ({"$ref": "#"}, False),
    ({"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}, False),
    ({"anyOf": [{"type": "string"}, {"type": "object", "properties": {"path": {}}}]}, True),
    ({"allOf": [{"type": "object", "properties": {"path": {}}}], "properties": {"other": {}}}, True),
    ({"type": ["object", "null"], "properties": {"path": True}}, True),
    ({"enum": ["a"]}, False),
    ({"properties": {"params": {"type": "object", "properties": {"path": {}}}}}, True),
]


@pytest.mark.parametrize("schema, declared", SCHEMAS)
def test_schemas_of_servers_are_read_as_they_are_meant(schema: dict[str, Any], declared: bool | None) -> None:
    """Those that let other keys through, those that lead in a circle, and those whose arguments stand within one."""
    assert declares(schema, ("path",)) is declared


def test_the_places_of_a_schema_are_listed_as_rules_write_them() -> None:
    """To propose the nearest; a type that holds itself is listed to some depth."""
    places = declared_places(SCHEMA)
    assert {"path", "options.force", "options.labels", "steps[*].title", "steps[*].below", "mixed[*].force"} <= {
        *places
    }
    assert all(declares(SCHEMA, argument_path(place)) is not False for place in places)
    wide: dict[str, Any] = {"properties": {f"a{number}": {} for number in range(10_000)}}
    assert len(declared_places(wide)) == 500


def test_a_schema_that_is_made_to_take_long_does_not() -> None:
    """A server may send one whose references double at each step, or that is nested without end."""
    doubling: dict[str, Any] = {
        f"d{number}": {"anyOf": [{"$ref": f"#/$defs/d{number + 1}"}, {"$ref": f"#/$defs/d{number + 1}"}]}
        for number in range(40)
    }
    schema = {"$defs": {**doubling, "d40": {"type": "string"}}, "$ref": "#/$defs/d0"}
    assert declares(schema, ("path", "below")) is False
    assert declared_places(schema) == ()
    nested: dict[str, Any] = {"type": "object", "properties": {"path": {}}}
    for _ in range(5_000):
        nested = {"anyOf": [nested]}
    assert declares(nested, ("path",)) is None
    assert declared_places(nested) == ()
