"""Of a simple type the annotations show that it can be built."""

from __future__ import annotations

from dataclasses import field, make_dataclass
from types import GenericAlias
from typing import Annotated, Any

from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import Field

from handrail.serde import codec
from handrail.serde.adapter import closed_adapter
from handrail.serde.build import is_surely_simple
from handrail.serde.json_schema import json_schema

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


@given(st.lists(st.tuples(TYPES, DEFAULTS), max_size=4))
@settings(max_examples=25)
def test_a_type_that_is_surely_simple_can_be_built(declared: list[tuple[Any, Any]]) -> None:
    """Its validator and its JSON Schema are made when they are first used, and nothing is at fault then."""
    fields = [
        (f"field{number}", kind | None if "default" in default else kind, field(**default))
        for number, (kind, default) in enumerate(declared)
    ]
    kind = make_dataclass("Simple", fields, kw_only=True)
    assert is_surely_simple(kind, {name: hint for name, hint, _ in fields})
    assert codec(kind).schema == json_schema(closed_adapter(kind).core, mode="validation")
