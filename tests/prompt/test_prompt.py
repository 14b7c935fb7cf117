"""A prompt with what was bound to it, as the model gets it, with open and closed sections."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from handrail.errors import PromptRenderError, PromptValidationError
from handrail.prompt import (
    MarkdownSection,
    Prompt,
    PromptTemplate,
    ReadBeforeWritePolicy,
    RenderedPrompt,
    Section,
    ToolPolicy,
)
from handrail.prompt.prompt import free_name
from handrail.resources import Binding, ResourceContext, ResourceRegistry
from tests.kit import raises, refusal
from tests.prompt.samples import Guidance, Lookup, named_tool
from tests.wording import Wording


@dataclass(frozen=True)
class Expert(Guidance):
    """Parameters of a narrower type."""

    audience: str = "experts"


@dataclass(frozen=True)
class Switch:
    on: bool


@dataclass
class Config:
    source: str


def prompt_of(*sections: Section[Any], resources: Mapping[type[Any], object] | None = None) -> Prompt[str]:
    """A prompt of these sections."""
    return Prompt(PromptTemplate(ns="tests", key="prompt", sections=sections, resources=resources))


GUIDANCE = "Prefer ${tool} for ${audience}."


def test_binding_makes_another_prompt(wording: Wording) -> None:
    """The one that was there stays as it was; the later binding wins, type by type, for parameters and resources."""
    unbound = prompt_of(MarkdownSection[Guidance](title="A", template=GUIDANCE), Section[Lookup](title="B"))
    bound = unbound.bind(Guidance("lookup"), Lookup("a"), resources={Config: Config("first"), int: 1})
    assert bound.render().text == wording
    with pytest.raises(PromptRenderError):
        unbound.render()
    prompt = bound.bind(Guidance("search"), resources={Config: Config("second")})
    assert "Prefer search" in prompt.render().text
    assert (prompt.resources.get(Config), prompt.resources.get(int)) == (Config("second"), 1)


def test_parameters_that_nobody_takes_are_refused(wording: Wording) -> None:
    """The error names those that sections take."""
    prompt = prompt_of(MarkdownSection[Guidance](title="A", template=GUIDANCE))
    wrong = [refusal(PromptValidationError, prompt.bind, value) for value in (Lookup("a"), Guidance, "lookup")]
    wrong.append(refusal(PromptValidationError, prompt_of().bind, Lookup("a")))
    assert [str(error) for error in wrong] == wording


def test_two_parameters_of_one_type_are_refused(wording: Wording) -> None:
    """It could not be said which is meant."""
    prompt = prompt_of(MarkdownSection[Guidance](title="A", template=GUIDANCE))
    with raises(PromptValidationError, wording):
        prompt.bind(Guidance("a"), Expert("b"))


def test_resources_give_way_from_the_template_to_the_binding() -> None:
    """Template, then sections depth first, then `bind`."""
    inner = Section(title="Inner", resources={str: "inner"})
    outer = Section(title="Outer", resources={str: "outer", int: 2, float: 2.0}, children=[inner])
    prompt = prompt_of(outer, resources={str: "template", int: 1, bytes: b"template"})
    assert prompt.resources.get(str) == "inner"
    bound = prompt.bind(resources=ResourceRegistry.build({int: 3}))
    found = [bound.resources.get(kind) for kind in (str, int, float, bytes)]
    assert found == ["inner", 3, 2.0, b"template"]


def test_a_disabled_section_takes_its_resources_along() -> None:
    """And those of all sections below it."""
    below = Section(title="Below", resources={int: 1})
    switched = Section[Switch](
        title="Switched", resources={str: "a"}, children=[below], enabled=lambda switch: switch.on
    )
    prompt = prompt_of(switched)
    on, off = prompt.bind(Switch(on=True)), prompt.bind(Switch(on=False))
    assert (on.resources.get(str, None), on.resources.get(int, None)) == ("a", 1)
    assert (off.resources.get(str, None), off.resources.get(int, None)) == (None, None)
    with pytest.raises(PromptRenderError):
        _ = prompt.resources


def test_a_prompt_has_one_set_of_resources() -> None:
    """Whoever asks, from whatever thread, gets the same; another prompt has its own."""
    prompt = prompt_of().bind(resources={Config: Binding(Config, lambda _: Config("made"))})
    barrier = threading.Barrier(8)

    def ask(_: int) -> ResourceContext:
        barrier.wait()
        return prompt.resources

    with ThreadPoolExecutor(8) as threads:
        assert len({id(one) for one in threads.map(ask, range(8))}) == 1
    assert prompt.bind().resources is not prompt.resources


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


def test_parameters_with_defaults_need_not_be_bound(wording: Wording) -> None:
    """The dataclass with all its defaults stands in."""
    section = MarkdownSection[Defaults](title="Tone", template="Be ${tone}.", enabled=lambda params: params.tone != "")
    assert rendered(section).text == wording
    assert rendered(section, params=(Defaults("brief"),)).text == wording


def test_missing_parameters_are_named(wording: Wording) -> None:
    """The error says which section, which dataclass, and what to write."""
    inner = MarkdownSection[Guidance](title="Inner", template="${tool}")
    with raises(PromptRenderError, wording) as caught:
        rendered(Section(title="Outer", children=[inner]))
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
    with raises(PromptRenderError, wording) as caught:
        rendered(Failing(title="Failing"))
    assert isinstance(caught.value.__cause__, LookupError)
    with raises(PromptRenderError, wording):
        rendered(Section(title="A", enabled=lambda params: 1 / 0 > 1))
    with raises(PromptRenderError, wording):
        rendered(Section(title="A", enabled=unsure))


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


@dataclass(frozen=True, slots=True)
class Shop:
    """What the sections are about."""

    name: str = "Tea & Co"
    knows_money: bool = False


class Ledger:
    """A resource."""


def template(**billing: Any) -> PromptTemplate[str]:
    """A prompt of three sections; `billing` has a summary, and one below it."""
    refunds = MarkdownSection[Shop](
        title="Refunds", template="Refund for ${name}.", summary="Refunds.", tools=[named_tool("r")]
    )
    return PromptTemplate[str](
        ns="t",
        key="shop",
        sections=[
            MarkdownSection[Shop](title="Desk", template="You work for ${name}.", tools=[named_tool("look")]),
            MarkdownSection[Shop](
                title="Billing",
                template="All about the money of ${name}.",
                summary="Charges for ${name}, $${literally}.",
                tools=[named_tool("charge")],
                children=[refunds],
                resources={Ledger: Ledger()},
                **billing,
            ),
            MarkdownSection[Shop](title="Guide", template="A long guide.", summary="A guide."),
        ],
    )


def test_a_section_with_a_summary_starts_closed(wording: Wording) -> None:
    """Its heading, its summary with the parameters, and how it is opened; the numbers of the others stay."""
    rendered = Prompt(template()).render()
    assert rendered.text == wording
    assert [each.name for each in rendered.tools] == ["look"]
    assert "charge" not in rendered.policies
    assert [(each.path, each.is_open, each.tools) for each in rendered.sections] == [
        ("billing", False, ("charge", "r")),
        ("billing.refunds", False, ("r",)),
        ("guide", False, ()),
    ]
    assert rendered.opener == "open_sections"
    assert isinstance(Prompt(template()).resources.get(Ledger), Ledger)  # opening changes no resource of a run


def test_an_open_section_is_rendered_as_one_without_a_summary(wording: Wording) -> None:
    """What is below it is open or closed for itself; below a closed one nothing is rendered."""
    prompt = Prompt(template())
    assert prompt.render(open={"billing"}).text == wording
    assert [each.name for each in prompt.render(open={"billing", "billing.refunds"}).tools] == ["look", "charge", "r"]
    assert prompt.render(open={"billing.refunds"}).text == prompt.render(open=frozenset()).text


def test_a_rendering_is_a_pure_function() -> None:
    """Rendered twice it is equal, byte for byte, whatever was rendered between."""
    prompt = Prompt(template())
    for paths in (frozenset[str](), {"billing"}, {"guide", "billing.refunds"}):
        first = prompt.render(open=paths)
        prompt.render(open={"guide"})
        assert prompt.render(open=paths).text.encode() == first.text.encode()
        assert prompt.render(open=paths).sections == first.sections


def test_only_sections_with_a_summary_can_be_open(wording: Wording) -> None:
    """The message has the nearest one, and all others."""
    with raises(PromptRenderError, wording):
        Prompt(template()).render(open={"biling"})
    plain = PromptTemplate[str](ns="t", key="k", sections=[Section(title="A")])
    with raises(PromptRenderError, wording):
        Prompt(plain).render(open={"a"})
    # A disabled one may be in a set that was made before.
    disabled = PromptTemplate[str](ns="t", key="k", sections=[Section(title="A", summary="S", enabled=False)])
    assert not Prompt(disabled).render(open={"a"}).text


WRONG: list[dict[str, Any]] = [
    *({"summary": ""}, {"summary": 7}, {"summary": "of ${nobody}"}),
]


@pytest.mark.parametrize("given", WRONG, ids=range(len(WRONG)))
def test_a_wrong_summary_is_refused_when_the_section_is_made(given: dict[str, Any], wording: Wording) -> None:
    """With the section and what would be right."""
    with pytest.raises(PromptValidationError) as caught:
        MarkdownSection[Shop](title="Guide", template="T", **given)
    assert caught.value.section_path == ("guide",)
    assert str(caught.value) == wording


def test_a_name_gives_way_to_those_that_are_taken() -> None:
    """By a number."""
    assert free_name("read", ()) == "read"
    assert free_name("read", {"read", "read_2"}) == "read_3"
