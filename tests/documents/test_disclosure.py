"""The cases of weakincentives' tests of progressive disclosure, in the words of Handrail.

The cases are those of `test_progressive_disclosure.py`, `test_text_section_visibility.py`,
`test_visibility_helpers.py` and `test_visibility_overrides.py` in `tests/prompts`, and of
`tests/runtime/agent_loop/test_visibility.py`. Those that `tests/runtime/test_disclosure.py` has are there alone.

What is different here, on purpose:

| there | here | why |
|---|---|---|
| `visibility=SectionVisibility.SUMMARY`, `FULL` by default | `summary=` closes | one fact |
| summary visibility needs a summary | cannot be said | the same |
| a selector decides | two sections, of which `enabled` takes one | a rendering is a pure function |
| to open what is open is an error | it is answered that it is open | a repeat must not fail |
| a key opens that section alone | it opens the sections above it, too | else nothing would be seen of it |
| the summary names the sections below | it names the tools | the model decides by what it can do |
| `read_section` reads a section that stays closed | `open_sections` opens it | one tool |
| events set, clear and clear all overrides | `Session.reset` closes all | what is open stays open |
| the loop evaluates anew with one budget | the run goes on | nothing is evaluated anew |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from handrail import tool
from handrail.adapters.pydantic_ai import PydanticAIAdapter
from handrail.adapters.tool_executor import ToolExecutor
from handrail.errors import VisibilityExpansionRequired
from handrail.limits import Budget, TokenUsage
from handrail.prompt import MarkdownSection, Prompt, PromptTemplate, Section
from handrail.runtime import Session, ToolCall
from handrail.testing import Call, Expect, Reply, ScriptedModel
from tests.kit import raises
from tests.wording import Wording


@dataclass(frozen=True, slots=True)
class Reader:
    """Who reads the prompt."""

    name: str = "Ann"


@tool(effect="read")
def lookup() -> str:
    """Look something up."""
    return "found"


@tool(effect="read")
def search() -> str:
    """Search for something."""
    return "found, too"


def section(title: str, *children: Section[Any], tools: Any = (), **options: Any) -> MarkdownSection[Reader]:
    """A section with a text for its reader, and a summary unless it has another."""
    options = {"summary": f"{title}, in short.", **options}
    return MarkdownSection[Reader](
        title=title, template=f"{title} for ${{name}}.", tools=tools, children=children, **options
    )


def executor(*sections: Section[Any], session: Session | None = None) -> ToolExecutor:
    """An executor of a prompt with these sections."""
    template = PromptTemplate[str](ns="t", key="k", sections=sections)
    return ToolExecutor(prompt=Prompt(template), session=Session() if session is None else session)


def names(run: ToolExecutor) -> list[str]:
    """The names of the tools of the next request."""
    return [each.name for each in run.tools]


def opens(*paths: str) -> ToolCall:
    """A call that opens sections."""
    return ToolCall("1", "open_sections", {"paths": list(paths), "reason": "to know more"})


def test_the_sentence_below_a_summary_says_which_tool_opens_the_section(wording: Wording) -> None:
    """With its path, and the tools in the section and below it."""
    text = executor(section("A", tools=[lookup]), section("B"), section("C", section("D", tools=[search]))).text
    assert [line for line in text.splitlines() if "open_sections" in line] == wording


def test_the_tool_that_opens_is_there_where_it_is_needed() -> None:
    """Not without a summary; also for a section without tools."""
    assert names(executor(section("A", tools=[lookup], summary=None))) == ["lookup"]
    assert names(executor(section("A", tools=[lookup]))) == ["open_sections"]
    assert names(executor(section("A"))) == ["open_sections"]


def test_to_open_raises_with_what_was_asked_and_why(wording: Wording) -> None:
    """The exception has the keys, the reason, and what they are opened to."""
    run = executor(section("A", tools=[lookup]))
    with raises(VisibilityExpansionRequired, wording) as caught:
        run.execute(opens("a"))
    assert caught.value.section_keys == ("a",)
    assert caught.value.reason == "to know more"
    assert caught.value.requested_overrides == {"a": "open"}


def test_to_open_what_is_open_says_so_and_a_mixed_request_opens_the_rest(wording: Wording) -> None:
    """The first of the differences that a model notices."""
    run = executor(section("A", tools=[lookup]), section("B", tools=[search]))
    run.execute_all([opens("a")])
    assert run.execute(opens("a")).content == wording
    run.execute_all([opens("a", "b")])
    assert names(run)[:2] == ["lookup", "search"]


def test_a_disabled_section_below_is_not_opened() -> None:
    """It is not rendered either."""
    run = executor(section("Guide", section("Hidden", enabled=False), section("Shown")))
    run.execute_all([opens("guide")])
    assert "Hidden" not in run.text
    assert "Shown, in short." in run.text


def test_one_evaluation_goes_on_with_one_budget() -> None:
    """Opening spends no attempt of anything; a budget counts all requests of the run."""
    prompt = executor(section("A", tools=[lookup])).environment.prompt
    usage = TokenUsage(10, 10)
    replies = [
        Reply(calls=[Call("open_sections", {"paths": ["a"], "reason": ""})], usage=usage),
        Reply(calls=[Call("lookup", {})], usage=usage, expect=Expect(tools=["lookup"])),
        Reply(text="Done.", usage=usage),
    ]
    with ScriptedModel(replies) as model:
        budget = Budget(max_total_tokens=60)
        response = PydanticAIAdapter(model).evaluate(prompt, session=Session(), budget=budget)
    assert response.output == "Done."
    assert response.usage == TokenUsage(30, 30)
