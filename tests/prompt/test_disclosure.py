"""`handrail.prompt.prompt`: a rendering depends on the template, the parameters and the open sections alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from handrail.errors import PromptRenderError, PromptValidationError
from handrail.prompt import MarkdownSection, Prompt, PromptTemplate, Section, Tool, ToolContext, ToolResult
from handrail.prompt.prompt import SectionTools, free_name
from tests.wording import Wording


@dataclass(frozen=True, slots=True)
class Shop:
    """What the sections are about."""

    name: str = "Tea & Co"
    knows_money: bool = False


class Ledger:
    """A resource."""


def _charge(_params: None, *, context: ToolContext) -> ToolResult[None]:
    return ToolResult.ok(None)


def tool(name: str) -> Tool[None, None]:
    """A tool of that name."""
    return Tool[None, None](name=name, description="A tool.", handler=_charge)


def template(**billing: Any) -> PromptTemplate[str]:
    """A prompt of three sections; `billing` has a summary, and one below it."""
    refunds = MarkdownSection[Shop](
        title="Refunds", template="Refund for ${name}.", summary="Refunds.", tools=[tool("r")]
    )
    return PromptTemplate[str](
        ns="t",
        key="shop",
        sections=[
            MarkdownSection[Shop](title="Desk", template="You work for ${name}.", tools=[tool("look")]),
            MarkdownSection[Shop](
                title="Billing",
                template="All about the money of ${name}.",
                summary="Charges for ${name}, $${literally}.",
                tools=[tool("charge")],
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
    assert rendered.section_tools == SectionTools("open_sections", "close_sections", "read_section")


def test_an_open_section_is_rendered_as_one_without_a_summary(wording: Wording) -> None:
    """What is below it is open or closed for itself; below a closed one nothing is rendered."""
    prompt = Prompt(template())
    assert prompt.render(open={"billing"}).text == wording
    assert [each.name for each in prompt.render(open={"billing", "billing.refunds"}).tools] == ["look", "charge", "r"]
    assert prompt.render(open={"billing.refunds"}).text == prompt.render(open=frozenset()).text


def test_a_rendering_is_a_pure_function() -> None:
    """Rendered twice it is equal, byte for byte, whatever was rendered between."""
    prompt = Prompt(template())
    for paths in (None, frozenset[str](), {"billing"}, {"guide", "billing.refunds"}):
        first = prompt.render(open=paths)
        prompt.render(open={"guide"})
        assert prompt.render(open=paths).text.encode() == first.text.encode()
        assert prompt.render(open=paths).sections == first.sections


def test_the_resources_of_a_closed_section_stay_bound() -> None:
    """So that opening it changes no resource of a run."""
    assert isinstance(Prompt(template()).resources.get(Ledger), Ledger)


def test_the_text_of_one_section_is_that_of_the_open_prompt(wording: Wording) -> None:
    """With the numbers that it has there; what is below it is open or closed for itself."""
    prompt = Prompt(template())
    assert prompt.section_text("guide") == "## 3. Guide\n\nA long guide."
    assert prompt.section_text("billing") in prompt.render(open={"billing"}).text
    whole = {"billing", "billing.refunds"}
    assert prompt.section_text("billing", open=whole) in prompt.render(open=whole).text
    with pytest.raises(PromptRenderError) as raised:
        prompt.section_text("billing.fees")
    assert str(raised.value) == wording


def test_only_sections_with_a_summary_can_be_open(wording: Wording) -> None:
    """The message has the nearest one, and all others."""
    with pytest.raises(PromptRenderError) as caught:
        Prompt(template()).render(open={"biling"})
    assert str(caught.value) == wording
    plain = PromptTemplate[str](ns="t", key="k", sections=[Section(title="A")])
    with pytest.raises(PromptRenderError) as raised:
        Prompt(plain).render(open={"a"})
    assert str(raised.value) == wording
    # A disabled one may be in a set that was made before.
    disabled = PromptTemplate[str](ns="t", key="k", sections=[Section(title="A", summary="S", enabled=False)])
    assert not Prompt(disabled).render(open={"a"}).text


@pytest.mark.parametrize(
    "given",
    [
        {"summary": ""},
        {"summary": 7},
        {"summary": "of ${nobody}"},
        {"starts_open": True},
        {"summary": "S", "starts_open": "yes"},
        {"summary": "S", "starts_open": lambda: True},
    ],
    ids=["empty", "number", "placeholder", "without", "text", "signature"],
)
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
