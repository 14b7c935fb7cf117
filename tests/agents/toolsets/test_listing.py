"""Which tools a toolset is known to have before it is asked, and what their arguments may be called."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic_ai import RunContext, Tool
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import AbstractToolset, CombinedToolset, DynamicToolset, FunctionToolset, WrapperToolset

from handrail.agents import shared
from handrail.agents.registry import Entry
from handrail.agents.toolsets.builtin import built_ins
from handrail.agents.unmatched_rules import Listing, list_entry, list_tools
from handrail.contrib.tools import VfsToolsSection
from tests.agents.toolsets.traced import made


def ping(text: str) -> str:
    """Ping."""
    return text


def pong(text: str) -> str:
    """Pong."""
    return text


def named(listing: Listing) -> tuple[list[str], bool]:
    """The names of a listing, and whether it has all of them."""
    return [each.name for each in listing.tools], listing.complete


def never(ctx: RunContext[Any], definition: ToolDefinition) -> bool:
    """Hide every tool."""
    return False


async def unchanged(ctx: RunContext[Any], definitions: list[ToolDefinition]) -> list[ToolDefinition]:
    """Hand the tools on."""
    return definitions


def make(ctx: RunContext[Any]) -> AbstractToolset[Any]:
    """Make a toolset."""
    return FunctionToolset([ping])


class OfTheProgram(FunctionToolset[Any]):
    """A class of the program, which may list others."""


BOTH = FunctionToolset[Any]([ping, pong])


@pytest.mark.parametrize(
    "toolset, names, complete",
    [
        (BOTH, ["ping", "pong"], True),
        (BOTH.prefixed("my"), ["my_ping", "my_pong"], True),
        (BOTH.renamed({"peng": "ping"}), ["peng", "pong"], True),
        (BOTH.filtered(never), ["ping", "pong"], True),
        (BOTH.prepared(unchanged), ["ping", "pong"], True),
        (BOTH.approval_required(), ["ping", "pong"], True),
        (BOTH.with_metadata(effect="read"), ["ping", "pong"], True),
        (CombinedToolset([BOTH, FunctionToolset([Tool(ping, name="more")])]), ["ping", "pong", "more"], True),
        (shared(BOTH), ["ping", "pong"], True),
        (OfTheProgram([ping]), ["ping"], False),
        (OfTheProgram([ping]).prefixed("my"), ["my_ping"], False),
        (WrapperToolset(BOTH), ["ping", "pong"], False),
        (DynamicToolset(make), [], False),
        (made(make), [], False),
        (CombinedToolset([BOTH, DynamicToolset(make)]), ["ping", "pong"], False),
    ],
)
def test_the_tools_of_a_toolset_are_known_as_far_as_its_class_is(
    toolset: AbstractToolset[Any], names: list[str], complete: bool
) -> None:
    """Also those that are hidden at present; a class of the program may have others."""
    assert named(list_tools(toolset)) == (names, complete)


READING = [f"a_{each.name}" for each in VfsToolsSection(read_only=True).tools]


@pytest.mark.parametrize("entry", built_ins(), ids=lambda entry: entry.name)
def test_the_tools_of_what_is_built_in_are_known_with_their_arguments(entry: Entry) -> None:
    """So a rule about one is checked in a project whose agents do not have it."""
    listing = list_entry(entry)
    assert listing.complete
    assert listing.tools
    for each in listing.tools:
        assert each.schema is not None
        schema = each.schema()
        assert each.arguments() in (frozenset(schema["properties"]), None)


def test_a_tool_that_is_prepared_may_have_other_arguments() -> None:
    """What its function makes of the schema is known only at each step."""

    async def prepare(ctx: RunContext[Any], definition: ToolDefinition) -> ToolDefinition:
        """Hand it on."""
        return definition

    for toolset in (
        FunctionToolset[Any]([Tool(ping, prepare=prepare)]),
        FunctionToolset[Any]([ping]).prepared(unchanged),
    ):
        (known,) = list_tools(toolset).tools
        assert known.arguments() is None
