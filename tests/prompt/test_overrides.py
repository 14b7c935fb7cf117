"""Overrides: texts of a prompt that are replaced from a file."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import RunContext, RunUsage
from pydantic_ai.messages import InstructionPart
from pydantic_ai.models.test import TestModel

from handrail import tool
from handrail.adapters.pydantic_ai import HandrailToolset
from handrail.adapters.tool_executor import ToolExecutor
from handrail.contrib.tools import VfsToolsSection
from handrail.errors import InvalidArgumentError, OverridesError, ParseError
from handrail.prompt import (
    MarkdownSection,
    OverridesReport,
    Prompt,
    PromptTemplate,
    Section,
    Tool,
    ToolsSection,
    template_texts,
)
from handrail.runtime import Session, ToolCall
from tests.wording import Wording

BODY, LOOKUP = "sections.guide.body", "tools.lookup.description"
CONTEXT: RunContext[Any] = RunContext(deps=None, model=TestModel(), usage=RunUsage())


@dataclass(frozen=True)
class Clerk:
    """Who works at the desk."""

    name: str = "Ann"


@tool(effect="read")
def lookup(order: str) -> str:
    """Look an order up.

    Args:
        order: The number of the order.
    """
    return f"{order} was found"


@tool(accepts_overrides=False)
def refund(order: str) -> str:
    """Refund an order."""
    return order


def desk(*sections: Section[Any]) -> PromptTemplate[str]:
    """The prompt of a desk, with more sections after its own."""
    parcels = MarkdownSection(title="Parcels", summary="Sends parcels.", template="Weigh it.")
    guide = MarkdownSection[Clerk](title="Guide", template="You are ${name}.", tools=[lookup], children=[parcels])
    law = MarkdownSection(title="Law", template="Never reveal a key.", accepts_overrides=False)
    return PromptTemplate(
        ns="shop", key="desk", sections=[guide, law, ToolsSection(title="Money", tools=[refund]), *sections]
    )


@dataclass
class Tuned:
    """A file of overrides."""

    folder: Path
    template: PromptTemplate[str] = field(default_factory=desk)

    def write(self, texts: dict[str, Any], *, stale: bool = False) -> Path:
        """Write the file, with the hashes of the texts of the template."""
        hashes = {text.key: text.sha256 for text in template_texts(self.template)}
        entries = {
            key: {"sha256": "1" * 64 if stale else hashes.get(key, ""), "text": text} for key, text in texts.items()
        }
        file = self.folder / "desk.json"
        file.write_text(json.dumps(entries), encoding="utf-8")
        return file

    def prompt(self, texts: dict[str, Any], *, stale: bool = False) -> Prompt[str]:
        """The prompt, bound with the file."""
        return Prompt(self.template).bind(overrides=self.write(texts, stale=stale))


def report(prompt: Prompt[str]) -> OverridesReport:
    """The report of a prompt that was bound with a file."""
    assert prompt.overrides is not None
    return prompt.overrides


def test_every_text_is_replaced(tmp_path: Path, wording: Wording) -> None:
    """Bodies with their placeholders, summaries, and descriptions of tools and parameters."""
    keys = [text.key for text in template_texts(desk()) if text.accepts_overrides]
    tuned = Tuned(tmp_path).prompt({key: [f"New {key}", "of ${name}." if key == BODY else "."] for key in keys})
    assert list(report(tuned).applied) == keys
    looked = tuned.bind(Clerk("Bo")).render().tool("lookup")
    assert looked is not None
    shown = tuned.render().text, tuned.bind(Clerk("Bo")).render(open={"guide.parcels"}).text, looked.description
    assert "\n\n".join((*shown, str(looked.parameters_schema))) == wording


def test_a_tool_with_new_descriptions_runs_as_before(tmp_path: Path) -> None:
    """It has the validators and the handler that it had."""
    prompt = Tuned(tmp_path).prompt({LOOKUP: "Finds.", "tools.lookup.parameters.order": "Its number."})
    executor = ToolExecutor(prompt=prompt, session=Session())
    good = executor.execute(ToolCall("1", "lookup", {"order": "A-1"}))
    bad = executor.execute(ToolCall("2", "lookup", {"order": 1}))
    assert (good.success, good.content, bad.success) == (True, "A-1 was found", False)
    assert executor.tools[0].parameters_schema["properties"]["order"]["description"] == "Its number."


def found_order(arguments: dict[str, Any]) -> str:
    """A handler of data."""
    return str(arguments)


def test_a_tool_whose_schema_is_data_shows_another_one(tmp_path: Path) -> None:
    """Arguments are still held to the schema that it was made with."""
    schema = {"type": "object", "properties": {"order": {"type": "string"}}, "required": ["order"]}
    find = Tool.from_json_schema(name="find", description="Finds.", schema=schema, handler=found_order)
    template = desk(ToolsSection(title="Data", tools=[find]))
    tuned = Tuned(tmp_path, template).prompt({"tools.find.parameters.order": "Its number."}).render().tool("find")
    assert tuned is not None
    assert tuned.parameters_schema["properties"]["order"] == {"type": "string", "description": "Its number."}
    assert find.parameters_schema["properties"]["order"] == {"type": "string"}
    with pytest.raises(ParseError):
        tuned.parse({"order": 1})


@pytest.mark.parametrize("accepts", [True, False])
def test_the_tools_of_a_suite_accept_overrides_if_the_suite_says_so(accepts: bool) -> None:
    """The text of the suite comes from its class, and is never overridden."""
    suite = VfsToolsSection(accepts_overrides=accepts)
    assert {each.accepts_overrides for each in suite.tools} == {accepts}
    assert not any(f".{suite.key}." in text.key for text in template_texts(desk(suite)))


def test_what_is_not_applied_is_reported_with_its_hash(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, wording: Wording
) -> None:
    """Once, in the log; the texts of the code stay."""
    with caplog.at_level(logging.WARNING, "handrail.prompt"):
        tuned = Tuned(tmp_path).prompt({LOOKUP: "Finds.", "tools.lokup.description": "Finds."}, stale=True)
    current = {text.key: text.sha256 for text in template_texts(desk())}
    assert report(tuned).stale == {LOOKUP: current[LOOKUP]}
    assert report(tuned).unknown == ("tools.lokup.description",)
    assert not report(tuned).is_current
    assert tuned.render().text == Prompt(desk()).render().text
    assert "\n".join(caplog.messages).replace(str(tmp_path), "FOLDER") == wording


def test_all_faults_of_a_file_are_reported_together(tmp_path: Path, wording: Wording) -> None:
    """Texts that accept no overrides, that are empty, too long, or have unknown placeholders."""
    faults = {
        BODY: "You are ${nmae}.",
        "sections.law.body": "Reveal it.",
        "sections.guide.parcels.summary": " ",
        LOOKUP: "x" * 9_000,
        "tools.refund.description": "Refunds.",
    }
    with pytest.raises(OverridesError) as caught:
        Tuned(tmp_path).prompt(faults)
    assert str(caught.value).replace(str(tmp_path), "FOLDER") == wording


def test_a_prompt_that_is_bound_again_keeps_its_overrides(tmp_path: Path) -> None:
    """Their file is not read again."""
    prompt = Tuned(tmp_path).prompt({BODY: "Be kind, ${name}."})
    (tmp_path / "desk.json").unlink()
    again = prompt.bind(Clerk("Bo"))
    assert "Be kind, Bo." in again.render().text
    assert again.overrides is prompt.overrides


def test_overrides_are_a_path() -> None:
    """Not the texts themselves."""
    with pytest.raises(InvalidArgumentError):
        Prompt(desk()).bind(overrides={BODY: "Be kind."})  # type: ignore[arg-type] # the mistake


@pytest.mark.anyio
async def test_every_adapter_shows_the_replaced_texts(tmp_path: Path) -> None:
    """A loop of the program, and PydanticAI: instructions, descriptions and schemas."""
    texts = {BODY: "Be kind, ${name}.", LOOKUP: "Finds.", "tools.lookup.parameters.order": "A letter and digits."}
    executor = ToolExecutor(prompt=Tuned(tmp_path).prompt(texts), session=Session())
    assert "Be kind, Ann." in executor.text
    assert [each.description for each in executor.tools if each.name == "lookup"] == ["Finds."]
    toolset = HandrailToolset(executor)
    shown = (await toolset.get_tools(CONTEXT))["lookup"].tool_def
    described = {"type": "string", "description": "A letter and digits."}
    assert (shown.description, shown.parameters_json_schema["properties"]["order"]) == ("Finds.", described)
    instructions = await toolset.get_instructions(CONTEXT)
    assert isinstance(instructions, InstructionPart)
    assert "Be kind, Ann." in instructions.content
