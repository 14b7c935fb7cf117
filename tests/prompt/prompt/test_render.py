"""A prompt as the model gets it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from inline_snapshot import snapshot

from handrail.errors import PromptRenderError
from handrail.prompt import (
    MarkdownSection,
    Prompt,
    PromptTemplate,
    ReadBeforeWritePolicy,
    RenderedPrompt,
    Section,
    ToolPolicy,
    ToolsSection,
)
from tests.prompt.samples import Guidance, lookup_tool, named_tool
from tests.wording import Wording


@dataclass(frozen=True)
class Defaults:
    """Parameters that need not be bound."""

    tone: str = "calm"


def rendered(
    *sections: Section[Any], params: tuple[object, ...] = (), policies: tuple[ToolPolicy, ...] = ()
) -> RenderedPrompt[str]:
    """A prompt of these sections, rendered."""
    template = PromptTemplate(ns="tests", key="render", sections=sections, policies=policies)
    return Prompt(template).bind(*params).render()


def test_sections_are_numbered_below_each_other() -> None:
    """Headings carry the number of the section and go one level down with each generation."""
    guidance = MarkdownSection[Guidance](
        title="Guidance",
        template="""
        Prefer ${tool}.

        It costs $5 a call.
        """,
        children=[
            ToolsSection(title="Available Tools", tools=[lookup_tool()], description="Look before you answer."),
            Section(title="Bare"),
        ],
    )
    closing = MarkdownSection(title="Closing", template="Answer in one sentence.")
    assert rendered(guidance, closing, params=(Guidance("lookup"),)).text == snapshot("""\
## 1. Guidance

Prefer lookup.

It costs $5 a call.

### 1.1. Available Tools

Look before you answer.

### 1.2. Bare

## 2. Closing

Answer in one sentence.\
""")


def test_headings_stop_at_the_sixth_level() -> None:
    """Markdown knows no deeper one; the number still tells."""
    section = Section(title="Deepest")
    for depth in range(6, 0, -1):
        section = Section(title=f"Level {depth}", children=[section])
    levels = ["###### 1.1.1.1.1. Level 5", "", "###### 1.1.1.1.1.1. Level 6", "", "###### 1.1.1.1.1.1.1. Deepest"]
    assert rendered(section).text.splitlines()[-5:] == levels


@pytest.mark.parametrize("audience, shown", [("experts", True), ("beginners", False)])
def test_a_section_may_depend_on_its_parameters(audience: str, shown: bool) -> None:
    """`enabled` is asked with the bound parameters."""
    section = Section[Guidance](title="Details", enabled=lambda params: params.audience == "experts")
    assert ("Details" in rendered(section, params=(Guidance("lookup", audience),)).text) is shown


def test_parameters_with_defaults_need_not_be_bound(wording: Wording) -> None:
    """The dataclass with all its defaults stands in."""
    section = MarkdownSection[Defaults](title="Tone", template="Be ${tone}.", enabled=lambda params: params.tone != "")
    assert rendered(section).text == wording
    assert rendered(section, params=(Defaults("brief"),)).text == wording


def test_missing_parameters_are_named(wording: Wording) -> None:
    """The error says which section, which dataclass, and what to write."""
    inner = MarkdownSection[Guidance](title="Inner", template="${tool}")
    with pytest.raises(PromptRenderError) as caught:
        rendered(Section(title="Outer", children=[inner]))
    assert str(caught.value) == wording
    assert (caught.value.section_path, caught.value.dataclass) == (("outer", "inner"), Guidance)
    with pytest.raises(PromptRenderError) as caught:
        rendered(Section[Guidance](title="Outer", enabled=lambda params: True))
    assert caught.value.dataclass is Guidance


class Failing(Section[None]):
    """A section whose body fails."""

    def render_body(self, params: None) -> str:
        raise LookupError("nothing there")


def unsure(params: None) -> bool:
    """A condition that does not say yes or no, whatever its annotation says."""
    return cast("bool", "perhaps")


def test_a_section_that_fails_is_named(wording: Wording) -> None:
    """What its functions raise is chained, with the path."""
    with pytest.raises(PromptRenderError) as caught:
        rendered(Failing(title="Failing"))
    assert str(caught.value) == wording
    assert isinstance(caught.value.__cause__, LookupError)
    with pytest.raises(PromptRenderError) as caught:
        rendered(Section(title="A", enabled=lambda params: 1 / 0 > 1))
    assert str(caught.value) == wording
    with pytest.raises(PromptRenderError) as caught:
        rendered(Section(title="A", enabled=unsure))
    assert str(caught.value) == wording


def test_tools_are_found_by_name_with_their_policies() -> None:
    """Policies of the prompt first, then of the outermost section, and so on to the tool's own."""
    of_prompt, outer, inner = (ReadBeforeWritePolicy(name=name) for name in ("prompt", "outer", "inner"))
    deep, shallow = named_tool("deep"), named_tool("shallow")
    section = Section(
        title="Outer",
        policies=[outer],
        tools=[shallow],
        children=[Section(title="Inner", policies=[inner], tools=[deep])],
    )
    prompt = rendered(section, policies=(of_prompt,))
    assert (prompt.tool("deep"), prompt.tool("shallow"), prompt.tool("other")) == (deep, shallow, None)
    assert prompt.policies_for("deep") == (of_prompt, outer, inner)
    assert prompt.policies_for("shallow") == (of_prompt, outer)
    with pytest.raises(KeyError):
        prompt.policies_for("other")


@dataclass(frozen=True)
class Node:
    """A section of a random tree: enabled or not, with that many tools."""

    enabled: bool
    tools: int
    children: tuple[Node, ...]


TREES = st.lists(
    st.recursive(
        st.builds(Node, st.booleans(), st.integers(0, 2), st.just(())),
        lambda below: st.builds(Node, st.booleans(), st.integers(0, 2), st.lists(below, max_size=3).map(tuple)),
        max_leaves=12,
    ),
    max_size=4,
)


def section_of(node: Node, path: str) -> Section[Any]:
    """The section that a node stands for; all names come from its path."""
    return MarkdownSection(
        title=f"S{path}",
        template=f"Text of {path}.",
        enabled=node.enabled,
        tools=[named_tool(f"tool{path}_{number}") for number in range(node.tools)],
        policies=[ReadBeforeWritePolicy(name=f"policy{path}")],
        children=[section_of(child, f"{path}_{number}") for number, child in enumerate(node.children)],
    )


def enabled_paths(nodes: tuple[Node, ...], path: str = "") -> Iterator[tuple[str, Node]]:
    """The nodes that are enabled with all above them, depth first."""
    for number, node in enumerate(nodes):
        if node.enabled:
            yield f"{path}_{number}", node
            yield from enabled_paths(node.children, f"{path}_{number}")


@given(TREES)
@settings(max_examples=50)
def test_any_tree_renders_its_enabled_part_in_order(nodes: list[Node]) -> None:
    """Texts and tools in declaration order, disabled subtrees gone, policies those of the ancestors."""
    prompt = rendered(*(section_of(node, f"_{number}") for number, node in enumerate(nodes)))
    enabled = list(enabled_paths(tuple(nodes)))
    assert re.findall(r"^Text of (.*)\.$", prompt.text, re.MULTILINE) == [path for path, _ in enabled]
    expected = [f"tool{path}_{number}" for path, node in enabled for number in range(node.tools)]
    assert [tool.name for tool in prompt.tools] == expected
    for name in expected:
        path = name.removeprefix("tool").rpartition("_")[0]
        steps = path.split("_")[1:]
        above = [f"policy_{'_'.join(steps[: depth + 1])}" for depth in range(len(steps))]
        assert [policy.name for policy in prompt.policies_for(name)] == above


@given(TREES)
@settings(max_examples=50)
def test_numbers_of_any_tree_are_consecutive(nodes: list[Node]) -> None:
    """Each heading follows the one before: the next neighbour, the first child, or a neighbour of an ancestor."""
    text = rendered(*(section_of(node, f"_{number}") for number, node in enumerate(nodes))).text
    before: tuple[int, ...] = ()
    for level, number in re.findall(r"^(#+) ([\d.]+)\. S", text, re.MULTILINE):
        now = tuple(map(int, number.split(".")))
        assert len(level) == min(len(now) + 1, 6)
        assert now == (*before, 1) or now == (*before[: len(now) - 1], before[len(now) - 1] + 1)
        before = now
