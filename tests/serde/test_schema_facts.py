"""What is known of a JSON Schema, from the schema and before it is made."""

from __future__ import annotations

from dataclasses import field, make_dataclass
from types import GenericAlias
from typing import Annotated, Any

from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import Field

from handrail.serde.adapter import closed_adapter
from handrail.serde.json_schema import SchemaFacts, facts_of, is_surely_simple, json_schema, simple_facts

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


def simple(kind: Any) -> SchemaFacts | None:
    """What is known of a type before its schema is made."""
    adapter = closed_adapter(kind, published=True)
    return simple_facts(adapter.core, adapter.kinds)


@given(st.lists(st.tuples(TYPES, DEFAULTS), max_size=4))
@settings(max_examples=25)
def test_what_is_known_before_a_schema_is_made_is_what_it_says(declared: list[tuple[Any, Any]]) -> None:
    """Of a simple type nothing is known beforehand that the schema, made later, does not say; and it can be made."""
    fields = [
        (f"field{number}", kind | None if "default" in default else kind, field(**default))
        for number, (kind, default) in enumerate(declared)
    ]
    kind = make_dataclass("Simple", fields, kw_only=True)
    assert is_surely_simple(kind, {name: hint for name, hint, _ in fields})
    known = simple(kind)
    assert known is not None
    assert known == facts_of(json_schema(closed_adapter(kind).core, kind, mode="validation"))
