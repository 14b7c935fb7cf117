"""`handrail.agents.toolsets.listing`: the conflicts that are certain before anything runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pydantic_ai import RunContext, Tool, ToolDefinition
from pydantic_ai.toolsets import CombinedToolset, DynamicToolset, FunctionToolset

from handrail.agents.agent_file import AgentFile
from handrail.agents.registry import BUILT_IN, AgentReference, Entry, Origin, ResolvedAgent, ToolsetDef, ToolsetFactory
from handrail.agents.toolsets.lifetimes import shared
from handrail.agents.toolsets.listing import static_conflicts, static_names
from handrail.prompt import MarkdownSection, Section
from tests.adapters.kit import ADD_NOTE, READ_NOTES
from tests.agents.toolsets.traced import TOOLS_FILE, Traced, named
from tests.wording import Wording


def as_it_is(ctx: RunContext[Any], definition: ToolDefinition) -> ToolDefinition:
    """Change nothing; but it might."""
    return definition


def anything(ctx: RunContext[Any], definition: ToolDefinition) -> bool:
    """Hide nothing; but it might."""
    return True


def ping() -> FunctionToolset[Any]:
    """A toolset of one tool."""
    return FunctionToolset([named("ping")])


def section(*children: Section[Any], enabled: bool | Callable[[None], bool] = True) -> Section[Any]:
    """A section of one tool."""
    return MarkdownSection(title="Desk", template="", tools=[ADD_NOTE], children=children, enabled=enabled)


def toolset(value: ToolsetDef, name: str = "desk", origin: Origin = TOOLS_FILE) -> Entry:
    """An entry for a toolset."""
    return Entry(name, "toolset", value, origin)


def desk(*toolsets: Entry, tools: tuple[Entry, ...] = ()) -> ResolvedAgent:
    """An agent with these entries."""
    return ResolvedAgent(AgentFile(name="desk", instructions="Help."), tools, toolsets)


CERTAIN = [
    pytest.param(Tool(named("ping")), ("ping",), id="tool"),
    pytest.param(Tool(named("ping"), prepare=as_it_is), (), id="prepared tool"),
    pytest.param(ADD_NOTE, ("add_note",), id="tool of ours"),
    pytest.param(AgentReference("research"), ("research",), id="agent"),
    pytest.param(ToolsetFactory(lambda _: None), (), id="factory"),
    pytest.param(section(), ("add_note",), id="section"),
    pytest.param(section(enabled=False), (), id="disabled section"),
    pytest.param(section(enabled=lambda _: True), (), id="section that decides later"),
    pytest.param(
        section(MarkdownSection(title="Archive", template="", tools=[READ_NOTES])),
        ("add_note", "read_notes"),
        id="section with a child",
    ),
    pytest.param(FunctionToolset([named("b"), named("a")]), ("b", "a"), id="functions"),
    pytest.param(FunctionToolset([Tool(named("a"), prepare=as_it_is), named("b")]), ("b",), id="one prepared"),
    pytest.param(ping().prefixed("my"), ("my_ping",), id="prefixed"),
    pytest.param(shared(ping()), ("ping",), id="shared"),
    pytest.param(CombinedToolset([ping(), ping()]), ("ping",), id="combined"),
    pytest.param(Traced("ping"), (), id="subclass"),
    pytest.param(ping().filtered(anything), (), id="filtered"),
    pytest.param(ping().renamed({"pong": "ping"}), ("pong",), id="renamed"),
    pytest.param(DynamicToolset(lambda _: ping()), (), id="dynamic"),
    pytest.param(FunctionToolset[Any](), (), id="empty"),
]


@pytest.mark.parametrize("value, names", CERTAIN)
def test_only_names_that_nothing_can_hide_or_change_are_certain(value: Any, names: tuple[str, ...]) -> None:
    """A hook, a factory, an unknown subclass or wrapper may have others when it runs."""
    assert static_names(Entry("x", "toolset", value, TOOLS_FILE)) == names


@pytest.mark.requirement("A-34")
def test_conflicts_are_told_before_a_run_with_each_origin(wording: Wording) -> None:
    """All of them, among the entries of an agent."""
    entries = [
        toolset(ping(), origin=BUILT_IN),
        toolset(AgentReference("ping"), "ping", Origin("agent", "ping.agent")),
        toolset(section(), "notes"),
        toolset(section(), "more"),
    ]
    error = static_conflicts(desk(*entries, tools=(Entry("ping", "tool", Tool(named("ping")), TOOLS_FILE),)))
    assert error is not None
    assert error.tools == ("ping", "add_note")
    assert str(error) == wording


@pytest.mark.requirement("A-34")
def test_what_need_not_conflict_is_left_to_the_run() -> None:
    """Two tools of one name, of which one may hide, are no error yet."""
    hidden = FunctionToolset([Tool(named("ping"), prepare=as_it_is)])
    assert static_conflicts(desk(toolset(ping()), toolset(hidden, "other"))) is None
    assert static_conflicts(desk()) is None
