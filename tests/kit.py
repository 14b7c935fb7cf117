"""What tests are built on: an executor over tools, calls, policies and files, and the two entries."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import sys
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from importlib.machinery import ModuleSpec
from typing import Any, TypeVar

import pytest

from handrail.adapters.tool_executor import ToolExecutor
from handrail.filesystem import Filesystem, InMemoryFilesystem
from handrail.limits import Deadline
from handrail.prompt import (
    MarkdownSection,
    PolicyDecision,
    Prompt,
    PromptTemplate,
    Tool,
    ToolContext,
    ToolPolicy,
    ToolResult,
)
from handrail.runtime import Session, ToolCall, ToolInvoked, ToolMessage
from handrail.testing import FakeClock
from tests.wording import Wording

E = TypeVar("E", bound=BaseException)


@dataclass(frozen=True, slots=True)
class Note:
    """Parameters and result of most tools here."""

    text: str

    def render(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Kept:
    """What handlers write to the session themselves."""

    text: str


Handler = Callable[..., ToolResult[Note] | Awaitable[ToolResult[Note]]]


def echo(params: Note, *, context: ToolContext) -> ToolResult[Note]:
    """Give the parameters back."""
    return ToolResult.ok(params)


def scribble(params: Note, *, context: ToolContext) -> ToolResult[Note]:
    """Write to the session and to the files, then succeed."""
    context.session[Kept].append(Kept(params.text))
    context.resources.get(Filesystem).write_text("note.txt", params.text)
    return ToolResult.ok(params)


@dataclass(frozen=True, slots=True)
class Decides:
    """A policy that decides each call with a function of the tool and its parameters, and notes nothing."""

    decide: Callable[[Tool[Any, Any], Any], PolicyDecision]
    name: str = "decides"

    def check(self, tool: Tool[Any, Any], params: Any, *, context: ToolContext) -> PolicyDecision:
        return self.decide(tool, params)

    def on_result(self, tool: Tool[Any, Any], params: Any, result: ToolResult[Any], *, context: ToolContext) -> None:
        """Nothing to note."""


ASKS = Decides(lambda _tool, _params: PolicyDecision.ask("sure?"))
"""A policy that has every call approved."""


def tool(name: str, handler: Handler | None = echo, **options: Any) -> Tool[Note, Note]:
    """A tool over `Note`."""
    options.setdefault("description", f"Does {name}.")
    return Tool[Note, Note](name=name, handler=handler, **options)


def prompt(
    *tools: Tool[Any, Any], policies: Sequence[ToolPolicy] = (), resources: Mapping[type[Any], object] | None = None
) -> Prompt[Any]:
    """A prompt of one section with these tools."""
    section = MarkdownSection(title="Tools", key="tools", template="Use them.", tools=tools, policies=policies)
    return Prompt(PromptTemplate(ns="tests", key="runtime", sections=[section])).bind(resources=resources or {})


def executor(
    *tools: Tool[Any, Any],
    policies: Sequence[ToolPolicy] = (),
    resources: Mapping[type[Any], object] | None = None,
    session: Session | None = None,
    **options: Any,
) -> ToolExecutor:
    """An executor of a prompt with these tools."""
    bound = prompt(*tools, policies=policies, resources=resources)
    return ToolExecutor(prompt=bound, session=session or Session(session_id="s"), **options)


def call(name: str, text: str = "hello", *, id: str = "call-1") -> ToolCall:
    """A call of a tool over `Note`."""
    return ToolCall(id, name, json.dumps({"text": text}))


def files(**contents: str) -> InMemoryFilesystem:
    """A filesystem with `name.txt` for each name."""
    return InMemoryFilesystem({f"{name}.txt": content for name, content in contents.items()})


def soon(span: timedelta = timedelta(milliseconds=30)) -> Deadline:
    """A deadline that cuts off the first wait that lasts for the span, and never passes before that wait.

    Its clock stands still, so what a slow machine does before the wait takes no time.
    """
    return Deadline.after(span, clock=FakeClock())


def events(door: ToolExecutor) -> tuple[ToolInvoked, ...]:
    """What was recorded."""
    return door.environment.session[ToolInvoked].all()


def sync(door: ToolExecutor, request: ToolCall) -> ToolMessage:
    """Carry a call out on this thread."""
    return door.execute(request)


def on_loop(door: ToolExecutor, request: ToolCall) -> ToolMessage:
    """Carry a call out on an event loop of its own."""
    return asyncio.run(door.execute_async(request))


BOTH_WAYS = (sync, on_loop)
"""The two entries; what holds for one must hold for the other."""

Run = Callable[[Any, ToolCall], ToolMessage]
"""One of the entries: makes a call through an executor."""

both_ways = pytest.mark.parametrize("way", BOTH_WAYS, ids=lambda way: way.__name__)
"""A test that takes `way` runs with each entry."""


@contextmanager
def raises(error: type[E], wording: Wording) -> Generator[pytest.ExceptionInfo[E]]:
    """The block raises the error, whose text is the next of `tests/wording.txt`."""
    with pytest.raises(error) as raised:
        yield raised
    assert str(raised.value) == wording, "\n".join(wording.explained())


def refusal(error: type[E], act: Callable[..., object], *args: Any, **options: Any) -> E:
    """The error that `act` raises for these arguments."""
    with pytest.raises(error) as raised:
        act(*args, **options)
    return raised.value


def hide_agents(monkeypatch: pytest.MonkeyPatch) -> None:
    """The extra `agents` is not installed."""
    packages = "handrail.agents", "handrail.cli.agents"
    for name in [name for name in sys.modules if name in packages or name.startswith(packages)]:
        monkeypatch.delitem(sys.modules, name)
    find = importlib.util.find_spec

    def find_others(name: str) -> ModuleSpec | None:
        return None if name in {"pydantic_ai", "ruamel"} else find(name)

    monkeypatch.setattr(importlib.util, "find_spec", find_others)
