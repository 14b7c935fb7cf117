"""How long it takes to make tools of a thousand functions, beside what pydantic needs for their types alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import make_dataclass
from types import FunctionType
from typing import Annotated, Any

from pydantic import Field, TypeAdapter

from benchmarks.timing import Limit
from handrail.prompt import ToolContext, tool

MANY = 1_000

CONVERTED = f"{MANY:,} functions made tools"
BARE = f"{MANY:,} dataclasses, an adapter and a schema of pydantic"
LIMITS = (Limit(CONVERTED, 1_000.0, "ms"), Limit(BARE, None, "ms"))


def charge(  # noqa: D417 - the model does not fill `context`
    order: str, cents: Annotated[int, Field(gt=0)], tags: list[str] | None = None, *, context: ToolContext
) -> str:
    """Charge the card of an order.

    Args:
        order: number of the order.
        cents: amount.
        tags: labels of the receipt.
    """
    raise NotImplementedError


def _copy(number: int) -> Any:  # noqa: ANN401 - a function, which pydantic and Handrail inspect
    copied = FunctionType(charge.__code__, charge.__globals__, f"charge_{number}", charge.__defaults__)
    copied.__kwdefaults__, copied.__annotations__ = charge.__kwdefaults__, dict(charge.__annotations__)
    copied.__doc__ = charge.__doc__
    return copied


def _convert() -> None:
    convert: Any = tool
    for number in range(MANY):
        made = convert(_copy(number))
        assert made.name == f"charge_{number}"


def _describe() -> None:
    kinds: list[tuple[str, Any]] = [("order", str), ("cents", Annotated[int, Field(gt=0)]), ("tags", list[str] | None)]
    for number in range(MANY):
        adapter = TypeAdapter[Any](make_dataclass(f"Charge{number}", kinds))
        assert adapter.json_schema()


def cases() -> dict[str, Callable[[], object]]:
    """What is measured, by name."""
    return {CONVERTED: _convert, BARE: _describe}
