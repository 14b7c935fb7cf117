"""What the tests of replies are built on: models that count calls from 0 in each reply, and mails that are sent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from pydantic_ai import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from handrail.prompt import MarkdownSection, Prompt, PromptTemplate, Section, Tool, ToolContext, ToolResult
from handrail.prompt.signature import Effect
from handrail.session.conversation import REPLY_KEY
from tests.adapters.notes import Note


class GoneError(BaseException):
    """Ends the run, as the end of the process does."""


@dataclass
class Outbox:
    """The mails that were sent; the text `fail` ends the run instead, once."""

    sent: list[str] = field(default_factory=list[str])
    fails: bool = False

    def send(self, params: Note, *, context: ToolContext) -> ToolResult[Note]:
        """Send a mail."""
        if params.text == "fail" and not self.fails:
            self.fails = True
            raise GoneError
        self.sent.append(params.text)
        return ToolResult.ok(params)

    async def send_foreign(self, text: str) -> str:
        """Send a mail, as a plain function."""
        self.send(Note(text), context=ToolContext.of())
        return f"sent {text}"

    def prompt(self, effect: Effect = "external") -> Prompt[str]:
        """A prompt with the mail for a tool."""
        return Prompt(PromptTemplate[str](ns="tests", key="mails", sections=[self.section(effect)]))

    def section(self, effect: Effect) -> Section[Any]:
        """A section with the mail for a tool."""
        tool = Tool[Note, Note](name="send", description="Send.", handler=self.send, effect=effect)
        return MarkdownSection(title="Desk", template="Send mails.", tools=(tool,))


def asks(*texts: str, tool: str = "send", reply_id: str | None = None) -> ModelResponse:
    """A reply that asks for these mails, by ids that are counted from 0."""
    calls = [ToolCallPart(tool, {"text": text}, f"call_{number}") for number, text in enumerate(texts)]
    return ModelResponse(calls, provider_response_id=reply_id)


def model(*replies: ModelResponse | str) -> FunctionModel:
    """A model that gives these replies, each as a new object, and text for the last ones."""
    rest = list(replies)

    def reply(messages: list[ModelMessage], _info: AgentInfo) -> ModelResponse:
        given = rest.pop(0) if rest else "Done."
        if isinstance(given, ModelResponse):
            return replace(given, parts=list(given.parts), timestamp=datetime.now(UTC))
        return ModelResponse([TextPart(str(given))])

    return FunctionModel(reply)


def names(messages: Sequence[ModelMessage]) -> list[str | None]:
    """The names that the responses have been given."""
    return [(message.metadata or {}).get(REPLY_KEY) for message in messages if isinstance(message, ModelResponse)]
