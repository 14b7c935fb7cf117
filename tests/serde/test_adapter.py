"""The one place where pydantic is bent."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from pydantic import BaseModel, ConfigDict, PydanticUserError, TypeAdapter, ValidationError

from handrail.serde.adapter import closed_adapter
from tests.kit import refusal
from tests.serde.shapes import Page, Plan, Step, Tree


class Model(BaseModel):
    name: str


@dataclass
class WithModel:
    model: Model


def test_pydantic_takes_no_configuration_for_a_plain_dataclass() -> None:
    """This is why the alias is needed; should pydantic take one some day, the alias can go."""
    refusal(PydanticUserError, TypeAdapter, Step, config=ConfigDict(extra="forbid"))


@pytest.mark.parametrize(
    "kind, data",
    [
        (Step, '{"title": "a", "more": 1}'),
        (Plan, '{"objective": "a", "steps": [{"title": "b", "more": 1}]}'),
        (Tree, '{"name": "a", "kids": [{"name": "b", "kids": [{"name": "c", "more": 1}]}]}'),
        (Page[Step], '{"items": [], "next": {"items": [{"title": "a", "more": 1}]}}'),
        (dict[str, Step], '{"a": {"title": "a", "more": 1}}'),
    ],
)
def test_a_plain_dataclass_is_closed_wherever_it_stands(kind: object, data: str) -> None:
    """Frozen and slotted, nested, recursive, generic, or in a container: one unknown field is one fault."""
    error = refusal(ValidationError, closed_adapter(kind).validator.validate_json, data, strict=True)
    assert [line["type"] for line in error.errors()] == ["unexpected_keyword_argument"]


def test_the_class_itself_is_not_changed() -> None:
    """Whoever else uses pydantic on the class finds it as it was."""
    closed_adapter(Step)
    assert not hasattr(Step, "__pydantic_config__")
    assert TypeAdapter(Step).validate_json('{"title": "a", "more": 1}') == Step("a")


def test_a_model_is_closed_too_and_stays_as_it_is() -> None:
    """Though pydantic hands no configuration down to it."""
    text = '{"model": {"name": "a", "more": 1}}'
    refusal(ValidationError, closed_adapter(WithModel).validator.validate_json, text, strict=True)
    assert TypeAdapter(WithModel).validate_json(text) == WithModel(Model(name="a"))
