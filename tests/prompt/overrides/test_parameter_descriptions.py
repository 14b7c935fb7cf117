"""The descriptions of parameters, by path."""

from __future__ import annotations

from dataclasses import dataclass, field

from handrail.prompt.overrides.parameter_descriptions import parameter_descriptions, with_descriptions
from handrail.serde import schema
from tests.prompt.overrides.desk import Parcel


@dataclass(frozen=True)
class Circle:
    """A shape."""

    radius: int


@dataclass(frozen=True)
class Square:
    """Another one."""

    side: int


@dataclass(frozen=True)
class Drawing:
    """Shapes."""

    shape: Circle | Square
    names: dict[str, str] = field(default_factory=dict[str, str])


def test_a_path_leads_through_objects_lists_and_what_may_be_null() -> None:
    """And once into a type that holds itself."""
    found = parameter_descriptions(schema(Parcel))
    assert found == {
        "$.sender": "",
        "$.sender.street": "The street.",
        "$.sender.behind": "",
        "$.receiver": "",
        "$.receiver.street": "The street.",
        "$.receiver.behind": "",
        "$.stops": "",
        "$.stops[].street": "The street.",
        "$.stops[].behind": "",
        "$.note": "A note.",
    }


def test_a_path_ends_at_a_union_of_types() -> None:
    """Two members may have one path."""
    assert list(parameter_descriptions(schema(Drawing))) == ["$.shape", "$.names"]


def test_a_name_that_is_not_an_identifier_is_quoted() -> None:
    """So that no two parameters have one path."""
    nested = {"type": "object", "properties": {"b": {"type": "string"}}}
    both = {"type": "object", "properties": {"a.b": {"type": "string"}, "a": nested}}
    assert list(parameter_descriptions(both)) == ['$["a.b"]', "$.a", "$.a.b"]
    assert with_descriptions(both, {'$["a.b"]': "A"})["properties"]["a.b"] == {"type": "string", "description": "A"}


def test_the_schema_that_was_given_is_unchanged() -> None:
    """All of the texts stand in the new one."""
    given = schema(Parcel)
    texts = {path: f"New {path}" for path in parameter_descriptions(given)}
    changed = with_descriptions(given, texts)
    assert given == schema(Parcel)
    assert {path: text for path, text in parameter_descriptions(changed).items() if path in texts} == texts
