"""What Handrail needs of pydantic-core to build a validator of a changed core schema.

pydantic keeps a validator and a serializer for each model. pydantic-core uses them in place of what a core schema says
of the model, unless its third parameter, `_use_prebuilt`, is false. So it is in pydantic 2.14 with pydantic-core 2.50.
A version of pydantic with which these tests fail needs another `validator_of` and `serializer_of`, or none.
"""

from __future__ import annotations

import inspect
from typing import Any, cast

import pytest
from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import CoreConfig, CoreSchema, SchemaSerializer, SchemaValidator, core_schema

from handrail.serde.core_schemas import Core, make_serializer, make_validator, rebuilt
from tests.kit import refusal


class Order(BaseModel):
    """A model for which pydantic keeps a validator that ignores unknown fields, and a serializer."""

    number: str


def changed(part: Core, _was: Core, _made: bool) -> Core:
    """A model that refuses unknown fields, and whose texts are written in capitals."""
    if part["type"] == "model":
        return {**part, "config": {**part.get("config", {}), "extra_fields_behavior": "forbid"}}
    if part["type"] == "str":
        capitals = core_schema.plain_serializer_function_ser_schema(str.upper)
        return {**part, "serialization": capitals}
    return part


CORE = rebuilt(cast("Core", TypeAdapter(list[Order]).core_schema), changed)


@pytest.mark.parametrize("kind", [SchemaValidator, SchemaSerializer])
def test_the_parameter_is_the_third(kind: type[Any]) -> None:
    """It is given by its position."""
    assert list(inspect.signature(kind).parameters) == ["schema", "config", "_use_prebuilt"]


def test_a_changed_model_is_validated_as_changed() -> None:
    """And without the parameter it is not, which is why it is needed."""
    data = [{"number": "a", "more": 1}]
    assert SchemaValidator(cast("CoreSchema", CORE), CoreConfig()).validate_python(data) == [Order(number="a")]
    refusal(ValidationError, make_validator(CORE, CoreConfig()).validate_python, data)


def test_a_changed_model_is_written_as_changed() -> None:
    """As for the validator."""
    value = [Order(number="a")]
    assert SchemaSerializer(cast("CoreSchema", CORE), CoreConfig()).to_json(value) == b'[{"number":"a"}]'
    assert make_serializer(CORE, CoreConfig()).to_json(value) == b'[{"number":"A"}]'
