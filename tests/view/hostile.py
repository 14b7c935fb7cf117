"""Text that would be more than text on a page that does not escape it, in every field that others write."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

from handrail import store as stores
from handrail.adapters.tool_executor import PendingAnswers, ToolExecutor
from handrail.errors import EffectUncertain
from handrail.filesystem import Filesystem, InMemoryFilesystem
from handrail.operations.effects import make_finding, settle_effect
from handrail.prompt import (
    Approval,
    IdempotencyConfig,
    PolicyDecision,
    Prompt,
    PromptTemplate,
    Tool,
    ToolContext,
    ToolResult,
    ToolsSection,
)
from handrail.runtime import Session, ToolCall
from handrail.session import stored_as
from tests.kit import Decides

HOSTILE = (
    "</script></pre><script>document.title='run'</script><img src=x onerror=\"document.title='run'\">"
    "<a href=\"javascript:document.title='run'\">a</a>'\"><b>{{ 7 * 7 }}</b>&lt;\u202eabc\u2066\x1b[31m\x07\x85\u2028"
)
"""The text."""

OTHER = f"other{HOSTILE}"
"""Another session."""

MARK = "document.title='run'"
"""A part of it that stands on each page, because it is text."""

CONTROLS = "\u202e\u2066\x1b\x07\x85\u2028"
"""The characters of it that no page has."""


@stored_as("tests.hostile_note")
@dataclass(frozen=True)
class HostileNote:
    """A value of the session."""

    text: str


@dataclass(frozen=True)
class Text:
    """The arguments of each tool."""

    text: str

    def render(self) -> str:
        """What the model reads."""
        return self.text


def _write(params: Text, *, context: ToolContext) -> ToolResult[Text]:
    context.session[HostileNote].append(HostileNote(params.text))
    context.resources.get(Filesystem).write_text("<img src=x onerror=alert(1)>\u202e.txt", params.text)
    return ToolResult.ok(params)


def _fail(params: Text, *, context: ToolContext) -> ToolResult[Text]:
    _write(params, context=context)
    raise ValueError(params.text)


def _doubt(params: Text, *, context: ToolContext) -> ToolResult[Text]:
    raise EffectUncertain(params.text)


def _judge(tool: Tool[Any, Any], params: Text) -> PolicyDecision:
    if tool.name == "refuse":
        return PolicyDecision.deny(params.text)
    return PolicyDecision.ask(params.text) if tool.name == "ask" else PolicyDecision.allow()


def _keyed(tool: str) -> IdempotencyConfig:
    return IdempotencyConfig(strategy="custom", key_fn=lambda params: f"{tool} {params.text}")


def fill(url: str, session_id: str = HOSTILE) -> None:
    """Fill a store with a session whose every field has the text."""
    rows: tuple[tuple[str, Any, dict[str, Any]], ...] = (
        ("write", _write, {}),
        ("fail", _fail, {}),
        ("refuse", _write, {}),
        ("doubt", _doubt, {"effect": "external", "idempotency": _keyed("doubt")}),
        ("settle", _doubt, {"effect": "external", "idempotency": _keyed("settle")}),
        ("ask", _write, {"effect": "external"}),
    )
    tools: list[Tool[Any, Any]] = [
        Tool[Text, Text](name=name, description="Does it.", handler=handler, **options)
        for name, handler, options in rows
    ]
    section = ToolsSection(title="Desk", tools=tools, policies=[Decides(_judge, "judges")])
    tags = {HOSTILE: HOSTILE}
    with stores.open(url) as store, Session.open(store, session_id, tags=tags) as session:
        executor = ToolExecutor(
            prompt=Prompt(PromptTemplate(ns="tests", key="hostile", sections=[section])),
            session=session,
            resources={Filesystem: InMemoryFilesystem({})},
            approver=lambda _: Approval.later(HOSTILE),
        )
        session.conversation.append({"role": "user", "content": HOSTILE}, {"role": HOSTILE, "content": HOSTILE})
        names = ["settle", *(tool.name for tool in tools if tool.name != "settle"), HOSTILE]
        calls = [ToolCall(f"{number}{HOSTILE}", name, {"text": HOSTILE}) for number, name in enumerate(names)]
        session.conversation.append({"role": "assistant", "content": HOSTILE}, calls=calls, reply=HOSTILE)
        assert isinstance(executor.answer(), PendingAnswers)
        for row in store.rows():
            if (row.tool, row.status) == ("settle", "unknown"):
                settle_effect(store, row, make_finding(row, "not happened", why=HOSTILE))


if __name__ == "__main__":
    fill(sys.argv[1])
