"""`handrail.agents.registry`: two namespaces, and every collision with both origins."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic_ai import RunContext, Tool
from pydantic_ai.toolsets import FunctionToolset

from handrail.agents.registry import BUILT_IN, AgentReference, Entry, Kind, Origin, Registry, ToolsetFactory
from handrail.errors import DiscoveryError, RegistryError
from tests.wording import Wording


def ping(text: str) -> str:
    """Answer."""
    return text


def make(ctx: RunContext[Any]) -> FunctionToolset[Any]:
    """Make a toolset."""
    return FunctionToolset()


def entry(name: str, origin: Origin = BUILT_IN, kind: Kind = "toolset") -> Entry:
    """An entry with nothing much behind it."""
    return Entry(name, kind, AgentReference(name), origin)


@pytest.mark.requirement("A-12")
def test_a_name_that_is_taken_is_told_with_both_origins(wording: Wording) -> None:
    """All of them in one message, those of what is built in as well as those of files and agents."""
    with pytest.raises(RegistryError) as caught:
        Registry.of(
            [
                *(entry("files"), entry("files", Origin("module", "tools.py"))),
                *(entry("ping", Origin("module", f"tools/{name}.py"), "tool") for name in ("b", "a")),
                *(entry("desk", Origin("agent", "desk.agent")), entry("alone")),
                entry("desk", Origin("module", "tools.py")),
            ]
        )
    assert caught.value.names == ("desk", "files", "ping")
    assert str(caught.value) == wording


@pytest.mark.parametrize("name", ["", " ", "a b", "a/b", "é", "a\n", "a" * 65])
def test_a_name_that_nobody_can_write_is_refused(name: str, wording: Wording) -> None:
    """Names of entries are those that an agent file can say and a model can call."""
    with pytest.raises(RegistryError) as caught:
        Registry.of([entry(name)])
    assert str(caught.value) == wording
    assert caught.value.names == (name,)


@pytest.mark.requirement("A-18")
def test_a_program_registers_what_it_has_at_hand(wording: Wording) -> None:
    """Functions become tools; tools and toolsets stay the objects that they are."""
    tool, desk = Tool(ping, name="again"), FunctionToolset[Any](id="desk")
    registry = Registry.of_python(tools=[ping, tool], toolsets={"front": desk, "made": make})
    assert list(registry.tools) == ["ping", "again"]
    assert registry.tools["again"].value is tool
    assert registry.toolsets["front"].value is desk
    assert registry.toolsets["made"].value == ToolsetFactory(make)
    assert registry.tools["ping"].label == wording
    assert Registry.of_python().entries == ()


def test_all_that_a_program_cannot_register_is_told_at_once(wording: Wording) -> None:
    """Tools and toolsets in one error."""
    with pytest.raises(DiscoveryError) as caught:
        Registry.of_python(tools={"pong": ping}, toolsets=7)
    assert caught.value.offenders == ("pong", "toolsets")
    assert str(caught.value) == wording
