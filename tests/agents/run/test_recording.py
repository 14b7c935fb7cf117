"""Every tool call of a run is recorded exactly once, and the model is answered what was recorded."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from itertools import cycle
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_ai import ApprovalRequired, ModelRetry, RunContext, Tool, ToolFailed
from pydantic_ai.toolsets import AbstractToolset, FunctionToolset

from handrail.agents import Answer, GatedCall, RunOptions, RunResult
from handrail.agents.approval.decisions import ApprovalMode
from handrail.prompt import MarkdownSection, ToolContext, ToolResult
from handrail.prompt import Tool as HandrailTool
from handrail.session import Session
from handrail.testing import Call, Reply, ScriptedModel
from tests.adapters.kit import Note
from tests.agents.kit import DONE, CallLog, desk, events, lines, returns, write_line


async def write(text: str) -> str:
    """Leave a line."""
    write_line(text)
    return f"wrote {text}"


async def fail(text: str) -> str:
    """Leave a line, and fail."""
    write_line(f"never {text}")
    raise OSError(text)


async def told(text: str) -> str:
    """Leave a line, and say what is wrong."""
    write_line(f"never {text}")
    raise ToolFailed(f"no {text}")


async def retry(text: str) -> str:
    """Leave a line, and want to be called again."""
    write_line(f"never {text}")
    raise ModelRetry(text)


async def approve(ctx: RunContext[Any], text: str) -> str:
    """Want approval in the middle."""
    write_line(text if ctx.tool_call_approved else f"never {text}")
    if not ctx.tool_call_approved:
        raise ApprovalRequired
    return text


def blocking(text: str) -> str:
    """Leave a line, in a thread."""
    write_line(text)
    return text


def own(params: Note, *, context: ToolContext) -> ToolResult[None]:
    """A tool of Handrail's, which fails at its will."""
    return ToolResult.error("empty") if not params.text else ToolResult.ok(None)


def make(ctx: RunContext[Any]) -> AbstractToolset[Any]:
    """A toolset that a factory makes."""
    return FunctionToolset([Tool(write, name="made")])


TOOLS = (
    Tool(write, name="state"),
    Tool(write, name="external", metadata={"effect": "external"}),
    Tool(write, name="concurrent", metadata={"concurrent": True, "effect": "read"}),
    Tool(write, name="sequential", sequential=True),
    Tool(blocking, name="blocking"),
    Tool(fail, name="fail"),
    Tool(told, name="told"),
    Tool(retry, name="retry", max_retries=1000),
    Tool(approve, name="approve"),
    Tool(write, name="flagged", requires_approval=True),
    HandrailTool[Note, None](name="own", description="Own.", handler=own),
)
SECTION = MarkdownSection(
    title="S", template="T.", tools=[HandrailTool[Note, None](name="placed", description="Placed.", handler=own)]
)
NAMES = (*(tool.name for tool in TOOLS), "placed", "made", "unknown", "desk")
ARGUMENTS: tuple[Any, ...] = ({"text": "a"}, {"text": ""}, {"text": 7}, {}, {"more": 1}, "{", "[]")

a_call = st.builds(Call, st.sampled_from(NAMES), st.sampled_from(ARGUMENTS))
a_script = st.lists(st.lists(a_call, min_size=1, max_size=5), min_size=1, max_size=3)

Run = Callable[[RunOptions], RunResult]
"""Runs an agent to its end."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Runs an agent with a tool of every kind; it calls itself, too."""
    toolsets = {"section": SECTION, "make": make}
    loaded = desk(tmp_path_factory.mktemp("project"), tools=TOOLS, toolsets=toolsets, also=["desk"])
    return lambda options: asyncio.run(loaded.run_async("Go.", options))


@given(
    script=a_script,
    mode=st.sampled_from(["ask", "approve-all", "deny-all"]),
    answers=st.lists(st.sampled_from(["yes", "no"]), min_size=1, max_size=4),
)
def test_each_call_is_recorded_once_as_the_model_was_answered(
    run: Run, script: Sequence[Sequence[Call]], mode: ApprovalMode, answers: Sequence[Literal["yes", "no"]]
) -> None:
    """Whatever its tool, its arguments and its approval; what fails leaves nothing in the session."""
    said = cycle(answers)

    def person(call: GatedCall) -> Answer:
        return Answer(next(said))

    session, heard = Session(), CallLog()
    replies = [*(Reply(calls=calls) for calls in script), DONE]
    options = RunOptions(
        model=ScriptedModel(replies), mode=mode, asker=person, session=session, max_depth=1, listener=heard
    )
    result = run(options)
    recorded = {event.call_id: event for event in events(session)}
    answered = returns(result.messages)
    assert len(recorded) == len(events(session)) == len(answered) == sum(map(len, script))
    for part in answered:
        event = recorded[part.tool_call_id]
        assert (part.outcome == "success") is event.success
        assert event.name == part.tool_name
        if part.outcome == "failed":
            assert part.content == event.result.render()
    assert [(ended.call_id, ended.success) for ended in heard.ended] == [
        (e.call_id, e.success) for e in events(session)
    ]
    assert set(heard.started) <= set(recorded)
    assert len(heard.started) == len(set(heard.started))
    assert not [line for line in lines(session) if line.startswith("never")]
    assert len(lines(session)) == sum(
        event.success and event.name not in {"own", "placed"} for event in events(session)
    )
