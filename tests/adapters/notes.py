"""A small prompt that the tests of the doors share: notes in a session, a fee, and tools that misbehave."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from handrail.errors import VisibilityExpansionRequired
from handrail.prompt import (
    MarkdownSection,
    PolicyDecision,
    Prompt,
    PromptTemplate,
    Tool,
    ToolContext,
    ToolExample,
    ToolPolicy,
    ToolResult,
)
from handrail.runtime import IdempotencyConfig, Session


@dataclass(frozen=True, slots=True)
class Note:
    """A note; what a successful `add_note` leaves in the session."""

    text: str

    def render(self) -> str:
        """What the model reads."""
        return f"noted: {self.text}"


@dataclass(frozen=True, slots=True)
class Notes:
    """All notes."""

    texts: tuple[str, ...]

    def render(self) -> str:
        """What the model reads."""
        return ", ".join(self.texts) or "no notes"


@dataclass(slots=True)
class World:
    """What the tools do outside of the session."""

    charged: list[str] = field(default_factory=list[str])


def add_note(params: Note, *, context: ToolContext) -> ToolResult[Note]:
    """Keep a note."""
    return ToolResult.ok(params)


def read_notes(params: None, *, context: ToolContext) -> ToolResult[Notes]:
    """Say all notes."""
    return ToolResult.ok(Notes(tuple(note.text for note in context.session[Note].all())))


def half_note(params: Note, *, context: ToolContext) -> ToolResult[Note]:
    """Write, and fail after."""
    context.session[Note].append(params)
    return ToolResult.error("the pen broke")


def charge(params: Note, *, context: ToolContext) -> ToolResult[Note]:
    """Charge a fee outside."""
    context.resources.get(World).charged.append(params.text)
    return ToolResult.ok(params, message=f"charged {params.text}")


def expand(params: None, *, context: ToolContext) -> ToolResult[None]:
    """Ask for a section to be opened."""
    raise VisibilityExpansionRequired("open the guide", section_keys=["guide"])


@dataclass(frozen=True)
class NoSecrets:
    """Denies notes of secrets."""

    name: str = "no-secrets"

    def check(self, tool: Tool[Any, Any], params: object, *, context: ToolContext) -> PolicyDecision:
        """Say no to a secret."""
        if isinstance(params, Note) and params.text == "secret":
            return PolicyDecision.deny("secrets are not noted")
        return PolicyDecision.allow()

    def on_result(self, tool: Tool[Any, Any], params: object, result: ToolResult[Any], *, context: ToolContext) -> None:
        """Remember nothing."""


ADD_NOTE = Tool[Note, Note](
    name="add_note",
    description="Keep a note.",
    handler=add_note,
    examples=[ToolExample(description="a reminder", input=Note("buy milk"), output=Note("buy milk"))],
)
READ_NOTES = Tool[None, Notes](name="read_notes", description="Say all notes.", handler=read_notes, effect="read")
HALF_NOTE = Tool[Note, Note](name="half_note", description="Write, and fail.", handler=half_note)
CHARGE = Tool[Note, Note](
    name="charge", description="Charge a fee.", handler=charge, effect="external", idempotency=IdempotencyConfig()
)
EXPAND = Tool[None, None](name="expand", description="Open a section.", handler=expand)

TOOLS = (ADD_NOTE, READ_NOTES, HALF_NOTE, CHARGE, EXPAND)


def notes_prompt(
    world: World | None = None, *, tools: tuple[Tool[Any, Any], ...] = TOOLS, policies: tuple[ToolPolicy, ...] = ()
) -> Prompt[str]:
    """A prompt with these tools, bound to a world."""
    section = MarkdownSection(title="Desk", template="Keep notes.", tools=tools, policies=[NoSecrets(), *policies])
    template = PromptTemplate[str](ns="tests", key="notes", sections=[section])
    return Prompt(template).bind(resources={World: world or World()})


def noted(session: Session) -> list[str]:
    """The notes that were kept."""
    return [note.text for note in session[Note].all()]
