"""`handrail.agents.exports.registry`: two namespaces, and every collision with both origins."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_ai import RunContext, Tool
from pydantic_ai.toolsets import FunctionToolset

from handrail.agents.exports.entries import BUILT_IN, AgentReference, Entry, Kind, Origin, ToolsetFactory
from handrail.agents.exports.registry import PackageExport, Registry
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


def offer(name: str, loads: list[str]) -> PackageExport:
    """An offer that says when it is loaded; the one called `broken` cannot be."""

    def load() -> Entry:
        loads.append(name)
        if name == "broken":
            raise DiscoveryError("broken is broken", module="shop")
        return entry(name, Origin("package", "shop"))

    return PackageExport(name, "toolset", Origin("package", "shop"), load)


@pytest.mark.requirement("A-16")
def test_a_tool_and_a_toolset_may_have_one_name(wording: Wording) -> None:
    """Each is found in the namespace of its kind, and in no other."""
    tool, toolset = entry("x", kind="tool"), entry("x")
    registry = Registry.of([tool, toolset])
    assert registry.tools["x"] is tool
    assert registry.toolsets["x"] is toolset
    assert registry.entries == (tool, toolset)
    assert "y" not in registry.tools
    assert registry.toolsets.get("y") is None
    assert repr(registry) == wording


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
    assert str(caught.value).splitlines() == [
        wording,
        wording,
        wording,
        wording,
    ]


@pytest.mark.parametrize("name", ["", " ", "a b", "a/b", "é", "a\n", "a" * 65])
def test_a_name_that_nobody_can_write_is_refused(name: str, wording: Wording) -> None:
    """Names of entries are those that an agent file can say and a model can call."""
    with pytest.raises(RegistryError) as caught:
        Registry.of([entry(name)])
    assert str(caught.value) == wording
    assert caught.value.names == (name,)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["tool", "toolset"]), st.integers(0, 3)), max_size=6))
def test_entries_in_any_order_have_the_same_collisions(items: list[tuple[str, Kind, int]]) -> None:
    """The message does not depend on what was registered first."""
    entries = [entry(name, Origin("module", f"{place}.py"), kind) for name, kind, place in items]
    told: set[str] = set()
    for ordered in itertools.islice(itertools.permutations(entries), 30):
        try:
            told.add(repr(Registry.of(ordered)))
        except RegistryError as error:
            told.add(str(error))
    assert len(told) == 1


def test_registries_are_merged_without_doubling_what_is_in_both(wording: Wording) -> None:
    """The very same entry is no collision; both registries stay as they are."""
    shared, one, other = entry("shared"), entry("one"), entry("other")
    first, second = Registry.of([shared, one]), Registry.of([other, shared])
    assert first.merged(second).entries == (shared, one, other)
    assert first.entries == (shared, one)
    with pytest.raises(RegistryError) as raised:
        first.merged(Registry.of([entry("one", Origin("module", "tools.py"))]))
    assert str(raised.value) == wording


def test_what_is_built_in_or_of_the_project_wins_over_every_offer_of_its_name() -> None:
    """Whoever installs a package need not fear for a project, in whichever order things are registered."""
    loads: list[str] = []
    mine, theirs = entry("desk", Origin("agent", "desk.agent")), offer("desk", loads)
    for registry in (
        Registry.of([mine], offers=[theirs, offer("desk", loads)]),
        Registry.of([], offers=[theirs]).merged(Registry.of([mine])),
    ):
        assert registry.toolsets["desk"] is mine
        assert list(registry.toolsets) == ["desk"]
    assert loads == []


def test_a_name_that_several_packages_offer_is_at_fault_when_it_is_looked_up(wording: Wording) -> None:
    """Both packages are named, none is imported, and the other names are sound."""
    loads: list[str] = []
    others = PackageExport("desk", "toolset", Origin("package", "other"), offer("desk", loads).load)
    registry = Registry.of([entry("alone")], offers=[offer("desk", loads), others])
    assert registry.toolsets["alone"].name == "alone"
    assert "desk" in registry.toolsets
    with pytest.raises(DiscoveryError) as caught:
        registry.toolsets["desk"]
    assert str(caught.value) == wording
    assert caught.value.offenders == ("desk",)
    assert loads == []


def test_an_offer_is_refused_for_a_name_that_nobody_can_write(wording: Wording) -> None:
    """The same as an entry."""
    with pytest.raises(RegistryError) as raised:
        Registry.of([], offers=[offer("a b", []), offer("a b", [])])
    assert str(raised.value) == wording


def test_an_offer_is_loaded_when_it_is_looked_up_and_not_before(wording: Wording) -> None:
    """Its name is known all the time, and a broken one harms nobody who does not look it up."""
    loads: list[str] = []
    registry = Registry.of([entry("desk")], offers=[offer("shop", loads), offer("broken", loads)])
    assert sorted(registry.toolsets) == ["broken", "desk", "shop"]
    assert len(registry.toolsets) == 3
    assert "shop" in registry.toolsets
    assert registry.entries == (registry.toolsets["desk"],)
    assert [offer.label for offer in registry.offers] == wording
    assert loads == []
    assert registry.toolsets["shop"].label == wording
    with pytest.raises(DiscoveryError) as raised:
        registry.toolsets["broken"]
    assert str(raised.value) == "broken is broken"
    assert loads == ["shop", "broken"]


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
