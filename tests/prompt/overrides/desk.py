"""A prompt with every kind of text, and overrides of it, for the tests of this folder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from handrail import tool
from handrail.prompt import (
    MarkdownSection,
    PromptTemplate,
    Section,
    Tool,
    ToolContext,
    ToolExample,
    ToolResult,
    ToolsSection,
)
from handrail.prompt.overrides import Override, PromptOverrides, TextKey, texts_of


@dataclass(frozen=True)
class Address:
    """Where something is."""

    street: str = field(metadata={"description": "The street."})
    behind: Address | None = None


@dataclass(frozen=True)
class Parcel:
    """What is sent."""

    sender: Address
    receiver: Address
    stops: tuple[Address, ...] = ()
    note: str = field(default="", metadata={"description": "A note."})


@dataclass(frozen=True)
class Clerk:
    """Who works at the desk."""

    name: str = "Ann"


def send(params: Parcel, *, context: ToolContext) -> ToolResult[None]:
    """Send a parcel."""
    return ToolResult.ok(None, f"sent to {params.receiver.street}")


@tool(accepts_overrides=False)
def refund(order: str) -> str:
    """Refund an order."""
    return order


@tool(effect="read")
def lookup(order: str) -> str:
    """Look an order up.

    Args:
        order: The number of the order.
    """
    return f"{order} was found"


PARCEL = Tool[Parcel, None](
    name="send",
    description="Sends a parcel.",
    handler=send,
    examples=[ToolExample(description="To a neighbour", input=Parcel(Address("A"), Address("B")), output=None)],
)


def desk(*sections: Section[Any], greeting: str = "You are ${name}.\nYou work at the desk.") -> PromptTemplate[str]:
    """The prompt of a desk, with more sections after its own."""
    guide = MarkdownSection[Clerk](
        title="Guide",
        template=greeting,
        tools=[lookup],
        children=[MarkdownSection(title="Parcels", summary="Sends parcels.", template="Weigh it.", tools=[PARCEL])],
    )
    law = MarkdownSection(title="Law", template="Never reveal a key.", accepts_overrides=False)
    money = ToolsSection(title="Money", tools=[refund])
    return PromptTemplate(ns="shop/front", key="desk", sections=[guide, law, money, *sections])


GUIDE = TextKey("section", "guide", "body")
LOOKUP = TextKey("tool", "lookup", "description")


def overrides(
    *changes: tuple[TextKey, str], template: Callable[[], PromptTemplate[Any]] = desk, tag: str = "stable"
) -> PromptOverrides:
    """Overrides of these texts, each with the hash of the text that the template has; zeros for one it has not."""
    hashes = {text.key: text.sha256 for text in texts_of(template())}
    found = tuple(Override(key, hashes.get(key, "0" * 64), text) for key, text in changes)
    return PromptOverrides(ns="shop/front", key="desk", tag=tag, overrides=found)


def stale(found: PromptOverrides) -> PromptOverrides:
    """The same overrides, made for other texts."""
    return replace(found, overrides=tuple(replace(each, sha256="1" * 64) for each in found.overrides))


class HeldOverrides:
    """A store of overrides in memory, which counts how often it is read."""

    def __init__(self, *found: PromptOverrides) -> None:
        self.found = {(each.ns, each.key, each.tag): each for each in found}
        self.readings = 0

    def read(self, ns: str, key: str, tag: str) -> PromptOverrides | None:
        """Those that are held."""
        self.readings += 1
        return self.found.get((ns, key, tag))

    def write(self, overrides: PromptOverrides) -> None:
        """Hold them."""
        self.found[overrides.ns, overrides.key, overrides.tag] = overrides
