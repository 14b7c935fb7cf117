"""The class of the arguments of a function, and what describes its fields."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from typing_extensions import Doc

from handrail.prompt import tool


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
