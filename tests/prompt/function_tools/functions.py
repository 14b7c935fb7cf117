"""Functions that the tests make tools of, in a module whose annotations are text."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from handrail.prompt import ToolContext, ToolResult, tool
from handrail.resources import Resource


class Client:
    """A class that is not data."""

    def __init__(self, name: str = "client") -> None:
        self.name = name


@dataclass(frozen=True, slots=True)
class Config:
    """A class that is data, and may be a resource."""

    region: str


@dataclass(frozen=True, slots=True)
class Receipt:
    order: str
    cents: int


class Item(BaseModel):
    sku: str
    count: int = 1


class Address(TypedDict):
    street: str


@tool(effect="external")
def charge(order: str, cents: Annotated[int, Field(gt=0)] = 100) -> Receipt:
    """Charge the card of an order.

    A second paragraph.

    Args:
        order: number of
            the order.
        cents: amount.

    Returns:
        the receipt.
    """
    return Receipt(order, cents)


@tool
async def later(item: Item, to: Address | None = None) -> Item:
    """Wait."""
    return item.model_copy(update={"sku": to["street"] if to else "nowhere"})


@tool(name="nothing", description="Does nothing.")
def without_arguments() -> None:
    """This is not read."""


@tool
def injected(  # noqa: PLR0913 - one for each way
    client: Client,
    context: ToolContext,
    config: Annotated[Config, Resource],
    word: str,
    *,
    missing: Client | None = None,
    own: Annotated[Receipt | None, Resource()] = Receipt("default", 0),
) -> list[str]:
    """Show what is injected, wherever it stands."""
    return [client.name, context.call_id, config.region, word, str(missing is client), str(own and own.order)]


@tool
def refusing(why: str) -> ToolResult[str]:
    """Refuse."""
    return ToolResult.error(why)


def give(word: str) -> dict[str, str]:
    """Return what is not declared."""
    return {"word": word}


del give.__annotations__["return"]  # checkers want the annotation
unannotated = tool(give)


@tool
def awaitable(word: str) -> Awaitable[str]:
    """Return what has to be awaited."""

    async def wait() -> str:
        return word

    return wait()


class Shop:
    """A class with methods."""

    def __init__(self, name: str) -> None:
        self.name = name

    def greet(self, who: str) -> str:
        """Greet."""
        return f"{self.name} greets {who}"

    async def greet_later(self: Shop, who: str, *, context: ToolContext) -> str:
        """Greet later."""
        return f"{self.name} greets {who} in {context.call_id}"


def plain(order: str, tags: list[str] = []) -> dict[str, Any]:  # noqa: B006 - it is the case
    """Not decorated."""
    return {"order": order, "tags": tags}
