"""`handrail.agents.registry`: each name is looked up in the namespace of its field."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
from pydantic_ai.toolsets import FunctionToolset

from handrail.agents.agent_file import AgentFile
from handrail.agents.registry import Entry, FactoryFunction, Origin, PackageExport, Registry, ToolsetFactory, resolve
from handrail.errors import DiscoveryError, ResolutionError
from tests.wording import Wording


def search(text: str) -> str:
    """Find."""
    return text


def lookup(text: str) -> str:
    """Look up."""
    return text


REGISTRY = Registry.of_python(
    tools=[search, lookup], toolsets={"search": FunctionToolset(), "files": FunctionToolset()}
)


def agent(*, tools: tuple[str, ...] = (), toolsets: tuple[str, ...] = (), path: Path | None = None) -> AgentFile:
    """An agent that names these."""
    return AgentFile(name="desk", instructions="Work.", tools=tools, toolsets=toolsets, path=path)


def refused(file: AgentFile, registry: Registry = REGISTRY) -> ResolutionError:
    """Why an agent cannot be resolved."""
    with pytest.raises(ResolutionError) as caught:
        resolve(file, registry)
    assert caught.value.agent == "desk"
    return caught.value


@pytest.mark.requirement("A-16")
def test_a_name_of_both_kinds_is_looked_up_by_its_field() -> None:
    """One agent uses the tool, one the toolset, and one both; each gets the right one, in its order."""
    tool, toolset = REGISTRY.tools["search"], REGISTRY.toolsets["search"]
    assert resolve(agent(tools=("search",)), REGISTRY).tools == (tool,)
    assert resolve(agent(toolsets=("search",)), REGISTRY).toolsets == (toolset,)
    both = resolve(agent(tools=("lookup", "search"), toolsets=("files", "search")), REGISTRY)
    assert [entry.name for entry in both.tools] == ["lookup", "search"]
    assert both.tools[1] is tool
    assert [entry.name for entry in both.toolsets] == ["files", "search"]
    assert both.toolsets[1] is toolset
    assert resolve(agent(), REGISTRY).tools == ()


@pytest.mark.requirement("A-17")
def test_a_toolset_under_tools_is_told_to_move(wording: Wording) -> None:
    """The error names agent, file, field and name, the nearest, and all that there are."""
    error = refused(agent(tools=("files",), path=Path("agents/desk.agent")))
    assert error.names == ("files",)
    assert str(error) == wording


@pytest.mark.requirement("A-17")
def test_a_tool_under_toolsets_is_told_to_move(wording: Wording) -> None:
    """And the other way round."""
    error = refused(agent(toolsets=("lookup",)))
    assert str(error) == wording


@pytest.mark.requirement("A-17")
def test_all_names_are_told_at_once_with_the_nearest(wording: Wording) -> None:
    """Of both fields."""
    error = refused(agent(tools=("serch", "lookup", "zzz"), toolsets=("file",)))
    assert error.names == ("serch", "zzz", "file")
    assert str(error) == wording


@pytest.mark.requirement("A-23")
def test_a_factory_without_parameters_is_refused_before_any_run(wording: Wording) -> None:
    """However it came into the registry; the message shows how a factory is written."""

    def make() -> FunctionToolset[Any]:
        return FunctionToolset()

    factory = ToolsetFactory(cast("FactoryFunction", make))  # wrong on purpose
    registry = Registry.of([Entry("made", "toolset", factory, Origin("module", "tools.py"))])
    told = str(refused(agent(toolsets=("made",)), registry))
    assert told == wording


def test_a_package_that_cannot_be_loaded_is_told_along_with_the_others(wording: Wording) -> None:
    """Its own error is the cause."""

    def load() -> Entry:
        raise DiscoveryError("it is broken", module="shop")

    registry = Registry.of([], offers=[PackageExport("shop", "toolset", Origin("package", "shop"), load)])
    error = refused(agent(tools=("x",), toolsets=("shop",)), registry)
    assert error.names == ("x", "shop")
    assert str(error) == wording
    assert isinstance(error.__cause__, DiscoveryError)
