"""A run over one suite: a session, the section's prompt, and calls that go through the whole pipeline."""

from __future__ import annotations

from typing import Any

from handrail.adapters.tool_executor import ToolExecutor
from handrail.prompt import Prompt, PromptTemplate, Section
from handrail.runtime import Session, ToolCall, ToolMessage


class SuiteRun:
    """Calls tools of one section by name.

    Attributes:
        session: the session of the calls.
        executor: what carries them out.
    """

    def __init__(
        self, section: Section[Any], *, session: Session | None = None, resources: dict[type[Any], object] | None = None
    ) -> None:
        self.session = Session() if session is None else session
        template = PromptTemplate(ns="tests", key="suite", sections=[section])
        self.executor = ToolExecutor(prompt=Prompt(template).bind(resources=resources), session=self.session)
        self._calls = 0

    def call(self, tool: str, /, **arguments: object) -> ToolMessage:
        """The message that answers a call."""
        self._calls += 1
        return self.executor.execute(ToolCall(f"call-{self._calls}", tool, arguments))

    def told(self, tool: str, /, **arguments: object) -> str:
        """What the model reads after a call that must succeed."""
        message = self.call(tool, **arguments)
        assert message.success, message.content
        return message.content

    def refused(self, tool: str, /, **arguments: object) -> str:
        """What the model reads after a call that must fail."""
        message = self.call(tool, **arguments)
        assert not message.success, message.content
        return message.content


def rendered(section: Section[Any]) -> str:
    """What the model is told by a section."""
    return Prompt(PromptTemplate(ns="tests", key="suite", sections=[section])).render().text
