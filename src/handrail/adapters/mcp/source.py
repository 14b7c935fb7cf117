"""Where the tools of a server come from, and its calls run: an executor, or another way in that has tools."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Protocol

from handrail.adapters.loop import LoopOutcome, find_outcome
from handrail.adapters.mcp.content import OfferedTool, describe_tool
from handrail.adapters.mcp.questions import CLIENT_CALL, Report, client_approval, has_request_span, leave_open
from handrail.adapters.tool_executor import ToolExecutor
from handrail.prompt import RenderedPrompt, Tool
from handrail.runtime import ToolCall
from handrail.runtime.environment import Environment
from handrail.runtime.execution import ASYNC
from handrail.session import Session
from handrail.session.calls import CallRef

DescribeTool = Callable[[Tool[Any, Any]], OfferedTool]
"""How a tool is listed."""


class ToolSource(Protocol):
    """What a server offers."""

    @property
    def session(self) -> Session:
        """The session that records the calls."""
        ...

    async def tools(self) -> Mapping[str, OfferedTool]:
        """The tools by name; the same object as long as they do not change."""
        ...

    async def run(self, call: ToolCall, reply: str) -> LoopOutcome:
        """Runs a call through the pipeline; raises as `find_outcome`."""
        ...


class CallReports:
    """Sends the progress of calls to their clients; a report may come from a thread or task that is not the call's."""

    def __init__(self) -> None:
        self._reports: dict[CallRef, Report] = {}

    @contextmanager
    def of_call(self, ref: CallRef) -> Generator[None]:
        """A block in which a call runs that a client has made."""
        if (call := CLIENT_CALL.get()) is not None and call.report is not None:
            self._reports[ref] = call.report
        try:
            yield
        finally:
            self._reports.pop(ref, None)

    def send(self, ref: CallRef, done: float, total: float | None, text: str | None) -> None:
        """Sends the progress of a call, or of one that is nested in it."""
        if (report := self._reports.get(ref.outermost)) is not None:
            report(done, total, text)


class ExecutorSource:
    """The tools of an executor, whose open questions are put to the person at the client."""

    def __init__(self, executor: ToolExecutor, describe: DescribeTool = describe_tool) -> None:
        own = executor.environment
        self.session: Session = own.session
        self._describe = describe
        self._reports = CallReports()
        self._environment: Environment = replace(
            own,
            caller_answer=client_approval,
            has_span=has_request_span,
            on_progress=self._reports.send,
            approver=own.approver or leave_open,
        )
        self._prompt: RenderedPrompt[Any] | None = None
        self._added = 0
        self._tools: Mapping[str, OfferedTool] = {}

    async def tools(self) -> Mapping[str, OfferedTool]:
        """The tools of the prompt as it is rendered now, and those that the session adds."""
        environment = self._environment
        prompt, added = environment.rendered_prompt, len(environment.added_tools)
        if prompt is not self._prompt or added != self._added:
            self._prompt, self._added = prompt, added
            self._tools = {tool.name: self._describe(tool) for tool in environment.tools}
        return self._tools

    async def run(self, call: ToolCall, reply: str) -> LoopOutcome:
        """Runs a call."""
        with self._reports.of_call(CallRef(reply, call.id)):
            return await find_outcome(call, reply, self._environment, ASYNC)
