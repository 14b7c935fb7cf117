"""What rendering a prompt of 1,000 tools costs with 200 overrides, beside rendering it without."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from benchmarks.timing import Bound
from handrail.prompt import MarkdownSection, Prompt, PromptTemplate, Tool
from handrail.prompt.overrides import Override, PromptOverrides, TextKey, text_hash

TOOLS, SECTIONS, OVERRIDDEN = 1_000, 20, 200

PLAIN = "rendering 1,000 tools, and their schemas"
OVERRIDES = "the same with 200 overrides"

BOUNDS = (Bound(OVERRIDES, PLAIN, 1.2),)


@dataclass(frozen=True, slots=True)
class Order:
    """The arguments of a tool."""

    number: str = field(metadata={"description": "The number of the order."})
    amount: int = 1


@dataclass(frozen=True, slots=True)
class HeldOverrides:
    """A store with one prompt's overrides."""

    found: PromptOverrides

    def read(self, ns: str, key: str, tag: str) -> PromptOverrides | None:  # noqa: ARG002 - the protocol
        """Those."""
        return self.found

    def write(self, overrides: PromptOverrides) -> None:
        """Not needed."""


def cases() -> dict[str, Callable[[], object]]:
    """Renderings of one template, as an adapter shows them."""
    template = PromptTemplate(ns="bench", key="tools", sections=[_section(number) for number in range(SECTIONS)])
    half = OVERRIDDEN // 2
    found = PromptOverrides(
        ns="bench",
        key="tools",
        tag="stable",
        overrides=(
            *(_override(number, "description", "", f"Tool {number}.") for number in range(half)),
            *(_override(number, "parameter", "$.number", "The number of the order.") for number in range(half)),
        ),
    )
    tuned = Prompt(template, overrides=HeldOverrides(found))
    return {PLAIN: _rendering(Prompt(template)), OVERRIDES: _rendering(tuned)}


def _rendering(prompt: Prompt[str]) -> Callable[[], object]:
    return lambda: [tool.parameters_schema for tool in prompt.render().tools]


def _section(number: int) -> MarkdownSection[None]:
    each = TOOLS // SECTIONS
    tools = [
        Tool[Order, None](name=f"tool_{index}", description=f"Tool {index}.")
        for index in range(number * each, (number + 1) * each)
    ]
    return MarkdownSection(title=f"Section {number}", template="Use these tools.", tools=tools)


def _override(number: int, part: str, place: str, original: str) -> Override:
    key = TextKey("tool", f"tool_{number}", "parameter" if part == "parameter" else "description", place)
    return Override(key, text_hash(original), f"Another text of tool {number}.")
