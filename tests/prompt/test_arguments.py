"""The class of the arguments of a function, and what describes its fields."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, cast

import pytest
from pydantic import BaseModel, Field
from typing_extensions import Doc

from handrail.errors import SchemaError
from handrail.prompt import tool
from handrail.serde import codec
from tests.wording import Wording


def test_text_beside_a_type_describes_the_parameter() -> None:
    """Plain, or in a `Doc`; it counts before the docstring, and a `Field` with a description before it."""

    @tool
    def ship(  # noqa: D417 - the others are described beside their types
        to: Annotated[str, " the town "],
        by: Annotated[str | None, Doc("the carrier")] = None,
        price: Annotated[int, "no text", Field(gt=0, description="in cents")] = 5,
        weight: Annotated[int, ""] = 1,
    ) -> None:
        """Ship.

        Args:
            to: where to.
            weight: in grams.
        """
        raise NotImplementedError

    properties = ship.parameters_schema["properties"]
    described = {name: schema["description"] for name, schema in properties.items()}
    assert described == {"to": "the town", "by": "the carrier", "price": "in cents", "weight": "in grams."}


@dataclass(eq=False)
class Options:
    """Has the hash of its identity."""

    words: list[str] = field(default_factory=list[str])


@dataclass(frozen=True)
class Holder:
    """Has a hash, and holds what can be changed."""

    options: Options


OPTIONS, SEVERAL, HOLDER = Options(), (Options(),), Holder(Options())


def test_a_default_with_the_hash_of_its_identity_is_not_shared() -> None:
    """By itself, in a tuple and in a frozen dataclass."""

    @tool
    def mark(
        word: str, one: Options = OPTIONS, several: tuple[Options, ...] = SEVERAL, holder: Holder = HOLDER
    ) -> list[str]:
        every = [one, *several, holder.options]
        for each in every:
            each.words.append(word)
        return [text for each in every for text in each.words]

    for word in ("a", "b"):
        params = mark.parse({"word": word})
        assert mark.handler is not None
        result: Any = mark.handler(params, context=cast("Any", None))
        assert result.value == [word] * 3


def test_a_default_of_a_field_that_all_values_would_share_is_refused(wording: Wording) -> None:
    """Of a dataclass and of a model; pydantic copies what has no hash."""

    @dataclass
    class Form:
        one: Holder = HOLDER

    class Model(BaseModel):
        lists: tuple[list[Options], ...] = ([OPTIONS],)
        several: tuple[Options, ...] = SEVERAL

    for kind in (Form, Model):
        with pytest.raises(SchemaError) as refused:
            codec(kind)
        assert str(refused.value) == wording
