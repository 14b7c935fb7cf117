"""A prompt with what was bound to it."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from handrail.errors import PromptRenderError, PromptValidationError
from handrail.prompt import MarkdownSection, Prompt, PromptTemplate, Section
from handrail.resources import Binding, ResourceContext, ResourceRegistry
from tests.prompt.samples import Guidance, Lookup
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
    """The one that was there stays as it was."""
    unbound = prompt_of(MarkdownSection[Guidance](title="A", template=GUIDANCE))
    bound = unbound.bind(Guidance("lookup"))
    assert bound.render().text == wording
    with pytest.raises(PromptRenderError):
        unbound.render()
    assert (repr(bound), bound.name) == ("Prompt('tests/prompt')", "tests/prompt")


def test_the_later_binding_wins() -> None:
    """Type by type, for parameters and resources."""
    prompt = prompt_of(MarkdownSection[Guidance](title="A", template=GUIDANCE), Section[Lookup](title="B"))
    prompt = prompt.bind(Guidance("lookup"), Lookup("a"), resources={Config: Config("first"), int: 1})
    prompt = prompt.bind(Guidance("search"), resources={Config: Config("second")})
    assert "Prefer search" in prompt.render().text
    assert (prompt.resources.get(Config), prompt.resources.get(int)) == (Config("second"), 1)


def test_an_instance_of_a_subclass_stands_for_its_base() -> None:
    """Unless a section takes the subclass itself."""
    prompt = prompt_of(MarkdownSection[Guidance](title="A", template=GUIDANCE))
    assert "for experts" in prompt.bind(Expert("lookup")).render().text
    both = prompt_of(
        MarkdownSection[Guidance](title="A", template=GUIDANCE), MarkdownSection[Expert](title="B", template=GUIDANCE)
    )
    assert "for beginners" in both.bind(Expert("lookup"), Guidance("lookup")).render().text


def test_parameters_that_nobody_takes_are_refused(wording: Wording) -> None:
    """The error names those that sections take."""
    prompt = prompt_of(MarkdownSection[Guidance](title="A", template=GUIDANCE))
    told: list[str] = []
    for given in (Lookup("a"), Guidance, "lookup"):
        with pytest.raises(PromptValidationError) as caught:
            prompt.bind(given)
        told.append(str(caught.value))
    with pytest.raises(PromptValidationError) as caught:
        prompt_of().bind(Lookup("a"))
    assert [*told, str(caught.value)] == wording
    assert caught.value.dataclass is Lookup


def test_two_parameters_of_one_type_are_refused(wording: Wording) -> None:
    """It could not be said which is meant."""
    prompt = prompt_of(MarkdownSection[Guidance](title="A", template=GUIDANCE))
    with pytest.raises(PromptValidationError) as raised:
        prompt.bind(Guidance("a"), Expert("b"))
    assert str(raised.value) == wording


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
    found: list[ResourceContext] = []
    barrier = threading.Barrier(8)

    def ask() -> None:
        barrier.wait()
        found.append(prompt.resources)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(one) for one in found}) == 1
    assert prompt.bind().resources is not prompt.resources
