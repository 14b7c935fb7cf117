"""`dataclasses.replace` keeps what a declaration knows: its types, and all that was said of a tool's effect."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from datetime import timedelta
from typing import Any, cast

import pytest

from handrail.errors import PromptValidationError
from handrail.prompt import (
    External,
    IdempotencyConfig,
    MarkdownSection,
    PromptTemplate,
    Section,
    Tool,
    ToolExample,
    ToolResult,
    ToolsSection,
)
from tests.prompt.samples import Found, Lookup, lookup_tool
from tests.wording import Wording


def ask(params: Lookup, key: str) -> ToolResult[Found] | None:
    """Find out."""
    return None


def ask_again(params: Lookup, key: str) -> ToolResult[Found] | None:
    """Find out elsewhere."""
    return None


EFFECTS: dict[str, dict[str, Any]] = {
    "nothing said": {},
    "read": {"effect": "read"},
    "state": {"effect": "state"},
    "external": {"effect": "external"},
    "External": {
        "effect": External(
            not_applied_on=(ConnectionRefusedError,), on_orphan="reconcile", reconcile=ask, lease=timedelta(minutes=9)
        )
    },
    "External and a key": {"effect": External(accept_late_result=True), "idempotency": IdempotencyConfig()},
    "short forms": {
        "effect": "external",
        "reconcile": ask,
        "idempotency": IdempotencyConfig(on_orphan="reconcile", lease=timedelta(minutes=7)),
    },
    "a key, and nothing said": {"idempotency": IdempotencyConfig()},
    "concurrent": {"effect": "read", "concurrent": True, "timeout": timedelta(seconds=3)},
}


def tool(**options: Any) -> Tool[Lookup, Found]:
    """A tool."""
    example = ToolExample(description="One.", input=Lookup("1"), output=Found("1"))
    return lookup_tool(examples=(example,), **options)


def shown(made: Tool[Any, Any]) -> dict[str, object]:
    """Every attribute of a tool."""
    names = [each.name for each in fields(made)]
    return {name: getattr(made, name) for name in names if name not in {"type_arguments", "masking"}}


@pytest.mark.parametrize("options", EFFECTS.values(), ids=EFFECTS)
def test_a_copy_of_a_tool_has_every_attribute_of_it(options: dict[str, Any], wording: Wording) -> None:
    """Also a copy of a copy; and what is replaced is checked as anew."""
    made = tool(**options)
    assert shown(replace(replace(made))) == shown(made)
    changed = replace(made, name="settle")
    assert shown(changed) | {"name": "lookup"} == shown(made)
    with pytest.raises(PromptValidationError) as raised:
        replace(made, name="Not a name")
    assert str(raised.value) == wording


def test_a_field_of_the_effect_that_is_replaced_is_said_anew() -> None:
    """The others stay as they were said."""
    made = tool(**EFFECTS["External"])
    assert replace(made, effect=cast("Any", External())).external == External()
    assert replace(made, effect="external").external == made.external
    assert replace(made, effect="state").external is None
    assert replace(made, effect="state").reconcile is None
    other = replace(tool(**EFFECTS["short forms"]), reconcile=ask_again)
    assert other.external is not None
    assert (other.external.reconcile, other.on_orphan, other.external.lease) == (
        ask_again,
        "reconcile",
        timedelta(minutes=7),
    )
    assert replace(made, idempotency=IdempotencyConfig()).external == made.external


def test_a_copy_of_a_template_keeps_the_type_of_its_answer() -> None:
    """It became `str` silently."""
    template = PromptTemplate[Found](ns="tests", key="copy", sections=[])
    assert replace(template, key="other").output_type is Found
    assert replace(PromptTemplate[None](ns="tests", key="copy", sections=[]), name="n").output_type is None
    assert replace(PromptTemplate(ns="tests", key="copy", sections=[]), name="n").output_type is str


@dataclass(frozen=True, kw_only=True, eq=False)
class Greeting(Section[Lookup]):
    """A section of the program's own with a field of its own."""

    word: str = "hello"

    def render_body(self, params: Lookup) -> str:
        return f"{self.word} {params.entity_id}"


def test_a_copy_of_a_section_keeps_its_parameters() -> None:
    """Of each kind; a template's placeholders are checked against them."""
    markdown = MarkdownSection[Lookup](title="Desk", template="Order ${entity_id}.")
    assert replace(markdown, template="The order is ${entity_id}.").params_type is Lookup
    with pytest.raises(PromptValidationError, match="colour"):
        replace(markdown, template="${colour}")
    tools = ToolsSection[Lookup](title="Desk", description="For ${entity_id}.", tools=[tool()])
    assert (replace(tools, title="Till").params_type, replace(tools, title="Till").tools) == (Lookup, tools.tools)
    assert replace(Greeting(title="Hello"), word="good day").render_body(Lookup("7")) == "good day 7"
    assert replace(MarkdownSection(title="Plain", template="Text."), title="Other").params_type is None
