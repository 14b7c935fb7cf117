"""The cases of weakincentives' tests of prompt overrides, in the words of Handrail.

The cases are those of `tests/prompts/overrides` and `tests/prompt/overrides`.
Those that `tests/prompt/test_overrides.py` has are there alone.

What is different here, on purpose:

| there | here | why |
|---|---|---|
| `expected_hash` of a section, `expected_contract_hash` of a tool | a hash of each text | one change makes one stale |
| the hash of a tool has its schemas | that of its description alone | a type is not what is replaced |
| stale and unknown entries are left out when a file is read | they are reported and logged | else it goes unseen |
| an entry of what accepts none is left out | it is an error | the same |
| a file may set the visibility | it cannot | it decides which tools there are |
| examples are changed, added and removed | they are not replaced | calls are checked with the code |
| a store has namespaces and tags, and writes | a program names a file | a file is what people review |
| rendering asks the store | binding reads the file | rendering is a pure function |
| `null` stands for no description, or for no parameters | it is an error; the key is left out | one way to say it |
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from handrail import tool
from handrail.errors import OverridesError
from handrail.prompt import MarkdownSection, Prompt, PromptTemplate, Section, template_texts

BODY = "sections.intro.body"
TOOL = "tools.lookup.description"


class Drawn(Section[None]):
    """A section whose class makes its text."""

    def render_body(self, params: None) -> str:
        """Always the same."""
        return "Drawn."


@tool(effect="read")
def lookup(order: str) -> str:
    """Look an order up.

    Args:
        order: The number of the order.
    """
    return order


@tool(accepts_overrides=False)
def refund(order: str) -> str:
    """Refund an order."""
    return order


def template() -> PromptTemplate[str]:
    """A prompt of three sections and two tools."""
    intro = MarkdownSection(title="Intro", template="Hello.", summary="Short.", tools=[lookup, refund])
    closed = MarkdownSection(title="Fixed", template="Fixed.", accepts_overrides=False)
    return PromptTemplate(ns="demo", key="welcome", sections=[intro, closed, Drawn(title="Drawn")])


HASHES = {text.key: text.sha256 for text in template_texts(template())}


def made(folder: Path, texts: dict[str, str], hashes: dict[str, str] = HASHES) -> Prompt[str]:
    """The prompt with these overrides, made for the texts of the prompt."""
    return bound(folder, {key: {"sha256": hashes.get(key, ""), "text": text} for key, text in texts.items()})


def bound(folder: Path, content: Any) -> Prompt[str]:
    """The prompt with a file of this content."""
    file = folder / "welcome.json"
    file.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return Prompt(template()).bind(overrides=file)


def test_the_texts_of_a_prompt_have_hashes() -> None:
    """Of sections with a template, of tools and their parameters; not of a section whose class makes its text."""
    assert list(HASHES)[:4] == [BODY, "sections.intro.summary", TOOL, "tools.lookup.parameters.order"]
    assert not any("drawn" in key for key in HASHES)


def test_texts_say_whether_they_accept_overrides() -> None:
    """A tool and a section with `accepts_overrides=False` do not."""
    refusing = {text.key for text in template_texts(template()) if not text.accepts_overrides}
    assert refusing == {"sections.fixed.body", "tools.refund.description", "tools.refund.parameters.order"}


def test_a_missing_file_changes_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """And is no error; here it is logged, because its path may be misspelled."""
    bound = Prompt(template()).bind(overrides=tmp_path / "missing.json")
    assert bound.render().text == Prompt(template()).render().text
    assert bound.overrides is not None
    assert (bound.overrides.is_missing, len(caplog.messages)) == (True, 1)


@pytest.mark.parametrize(
    "content",
    [
        "not JSON",
        [],
        {TOOL: 1},
        {TOOL: None},
        {TOOL: {"text": "A"}},
        {BODY: {"sha256": HASHES[BODY], "text": 1}},
        {BODY: {"sha256": HASHES[BODY], "text": "A", "enabled": False}},
        f'{{"{TOOL}": {{"sha256": "", "text": "A"}}, "{TOOL}": {{"sha256": "", "text": "B"}}}}',
    ],
)
def test_a_file_that_is_not_one_of_overrides_is_an_error(tmp_path: Path, content: Any) -> None:
    """Of its JSON, and each of its parts."""
    with pytest.raises(OverridesError) as caught:
        bound(tmp_path, content)
    assert caught.value.file == str(tmp_path / "welcome.json")


def test_a_file_with_the_texts_of_the_prompt_changes_nothing(tmp_path: Path) -> None:
    """Those that accept overrides, with their hashes."""
    texts = {text.key: text.text for text in template_texts(template()) if text.accepts_overrides}
    prompt = made(tmp_path, texts)
    assert prompt.render().text == Prompt(template()).render().text
    assert prompt.overrides is not None
    assert prompt.overrides.is_current
