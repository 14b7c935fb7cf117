"""Agents that call agents: how deep, on whose budget, with whose model, and what becomes of their failures."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import ModelHTTPError, ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from handrail.agents import AgentFile, RunEnded, RunOptions, RunResult
from handrail.agents.toolsets.labelled_toolset import AgentToolset
from handrail.errors import PromptEvaluationError
from handrail.limits import Deadline, Heartbeat, RunContext, TokenUsage
from handrail.prompt import Tool, ToolContext, ToolResult
from handrail.runtime import ToolCall
from handrail.session import Session
from handrail.testing import Call, FakeClock, Outcome, Reply
from tests.agents.kit import (
    CallLog,
    Heard,
    agent,
    called,
    desk,
    inside,
    lines,
    outcomes,
    play,
    refusal,
    returns,
    write_line,
)
from tests.kit import executor
from tests.wording import Wording

pytestmark = pytest.mark.anyio

_MINUTE = timedelta(minutes=1)
GO = {"input": "Go."}
CHILD = {"child.agent": agent("child")}


@pytest.mark.requirement("A-37")
async def test_an_agent_that_would_be_too_deep_is_a_failed_call_of_its_caller(tmp_path: Path, wording: Wording) -> None:
    """The model reads depth, limit, chain and the agent that was not started; the run goes on."""
    session, log = Session(), CallLog()
    first, last = called(Call("desk", GO), c1=Outcome.ok("Done."))
    inner, inner_last = inside("c1", called(Call("desk", GO, id="n1"), n1=Outcome.failed()))
    loaded = desk(tmp_path, also=["desk"])
    await play(loaded, [first, inner, inner_last, last], max_depth=2, session=session, listener=log)
    assert log.told["n1"] == wording
    assert outcomes(session) == [("c1", True)]
    await play(loaded, called(Call("desk", GO, id="d1"), d1=Outcome.failed()), max_depth=1, listener=log)
    assert log.told["d1"] == wording


async def test_what_a_model_asks_of_an_agent_is_held_to_its_schema(tmp_path: Path, wording: Wording) -> None:
    """Missing, blank and further arguments are told, recorded, and start no agent."""
    session, heard = Session(), Heard()
    loaded = desk(tmp_path, also=["child"], others=CHILD)
    wrong: dict[str, dict[str, Any]] = {"none": {}, "empty": {"input": ""}, "number": {"input": 7}}
    wrong |= {"more": {"input": "x", "more": 1}, "blank": {"input": " "}}
    calls = [Call("child", arguments, id=id_) for id_, arguments in wrong.items()]
    came = {call.id: Outcome.failed("input" if call.id != "more" else "more") for call in calls}
    await play(loaded, called(*calls, **came), session=session, listener=heard)
    assert outcomes(session) == [(call.id, False) for call in calls]
    assert heard.story == wording


def split_model(
    of_child: Callable[[], ModelResponse], *, requests: list[str] | None = None
) -> Callable[[list[ModelMessage], AgentInfo], ModelResponse]:
    """A model that calls the agent `child` and answers with what came of it; `of_child` plays that agent."""
    noted = [] if requests is None else requests

    def reply(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if not info.function_tools:
            noted.append("child")
            return of_child()
        noted.append("desk")
        if len(messages) == 1:
            return ModelResponse([ToolCallPart("child", GO, "c1")])
        (part,) = messages[-1].parts
        return ModelResponse([TextPart(str(getattr(part, "content", "")))])

    return reply


async def run_split(
    tmp_path: Path, of_child: Callable[[], ModelResponse], requests: list[str], session: Session, limit: int = 50
) -> RunResult:
    """What comes of an agent that calls another one."""
    loaded = desk(tmp_path, also=["child"], others=CHILD)
    model = FunctionModel(split_model(of_child, requests=requests))
    options = RunOptions(model=model, mode="approve-all", session=session, request_limit=limit)
    return await loaded.run_async("Go.", options)


def overloaded() -> ModelResponse:
    """Fail as a provider does."""
    raise ModelHTTPError(503, "gone", "overloaded")


@pytest.mark.parametrize(
    "reply, asked", [(overloaded, 1), (lambda: ModelResponse([]), 2)], ids=["failed request", "reply of no use"]
)
async def test_a_model_that_fails_in_a_nested_agent_is_a_failed_call_of_its_caller(
    tmp_path: Path, reply: Callable[[], ModelResponse], asked: int, wording: Wording
) -> None:
    """The caller's model reads what went wrong, and the run goes on."""
    session, requests = Session(), list[str]()
    result = await run_split(tmp_path, reply, requests, session)
    assert result.output == wording
    assert outcomes(session) == [("c1", False)]
    assert requests == ["desk", *["child"] * asked, "desk"]


async def test_requests_of_nested_agents_count_and_the_limit_ends_the_whole_run(
    tmp_path: Path, wording: Wording
) -> None:
    """It is no failed call: nobody is left to make another request."""
    session, requests = Session(), list[str]()
    with pytest.raises(PromptEvaluationError) as caught:
        await run_split(tmp_path, lambda: ModelResponse([TextPart("found")]), requests, session, limit=1)
    assert caught.value.phase == "budget"
    assert requests == ["desk"]
    assert outcomes(session) == [("c1", False)]
    result = await run_split(tmp_path, lambda: ModelResponse([TextPart("found")]), requests, Session(), limit=3)
    assert result.output == "found"
    with refusal(PromptEvaluationError, wording):
        await run_split(tmp_path, lambda: ModelResponse([TextPart("found")]), requests, Session(), limit=2)


async def test_the_deadline_holds_in_nested_agents(tmp_path: Path, wording: Wording) -> None:
    """It ends the whole run."""
    clock = FakeClock()
    deadline = Deadline.after(_MINUTE, clock=clock)

    def late() -> ModelResponse:
        clock.advance(2 * _MINUTE)
        return ModelResponse([TextPart("late")])

    loaded = desk(tmp_path, also=["child"], others=CHILD)
    options = RunOptions(model=FunctionModel(split_model(late)), mode="approve-all", deadline=deadline)
    with refusal(PromptEvaluationError, wording):
        await loaded.run_async("Go.", options)


async def test_heartbeat_and_ids_of_the_run_reach_the_tools_of_nested_agents(tmp_path: Path) -> None:
    """In place of the ids of each agent."""
    heart, ids, seen = Heartbeat(), RunContext(run_id="run-1"), list[object]()

    def look(_: None, *, context: ToolContext) -> ToolResult[None]:
        seen.extend((context.heartbeat, context.run_context))
        return ToolResult.ok(None)

    tool = Tool[None, None](name="look", description="Look.", handler=look, effect="read")
    loaded = desk(tmp_path, tools=[tool], also=["child"], others={"child.agent": agent("child", tools="[look]")})
    first, last = called(Call("child", GO))
    await play(loaded, [first, *inside("c1", called(Call("look", id="n1"))), last], heartbeat=heart, run_context=ids)
    assert seen == [heart, ids]


def test_an_agent_is_described_by_its_instructions_as_far_as_providers_take_them() -> None:
    """Where it has no description."""
    toolset = AgentToolset(AgentFile(name="long", instructions="word " * 400))
    assert len(toolset.definition.description or "") == 1000


async def test_usage_is_told_of_each_run_by_itself_and_of_those_that_it_called(tmp_path: Path) -> None:
    """A nested run is not charged with what its caller has used before it."""
    heard = Heard()
    first, last = called(Call("child", GO), c1=Outcome.ok("found"))
    usages = [TokenUsage(100, 10, 5), TokenUsage(20, 2, 1), TokenUsage(7, 3, 0)]
    script = [
        Reply(calls=first.calls, usage=usages[0]),
        Reply(text="found", within="c1", usage=usages[1]),
        Reply(text="Done.", expect=last.expect, usage=usages[2]),
    ]
    loaded = desk(tmp_path, also=["child"], others=CHILD)
    result = await play(loaded, script)
    assert result.usage == usages[0] + usages[1] + usages[2]
    await play(loaded, script, listener=heard)
    child, outer = (event.usage for event in heard.events if isinstance(event, RunEnded))
    assert child.input < outer.input
    assert child.output < outer.output / 2  # estimated: what is streamed reports no usage


@pytest.mark.requirement("M-03j")
async def test_a_run_on_the_session_of_a_handler_is_of_its_call(tmp_path: Path, wording: Wording) -> None:
    """Its calls are nested in that call: undone with it, and refused once it has ended, in whatever thread they run."""
    session, ended = Session(), threading.Event()
    late: list[Future[RunResult]] = []
    loaded = desk(tmp_path, tools=[write_line])
    written = Call("write_line", {"text": "written"})

    async def start(_: None, *, context: ToolContext) -> ToolResult[None]:
        on_session = context.session
        await play(loaded, called(written, c1=Outcome.ok()), session=on_session)
        assert lines(session) == ["written"]

        def run_late() -> RunResult:
            ended.wait()
            refused = called(Call("write_line", {"text": "late"}, id="late"), late=Outcome.failed())
            return asyncio.run(play(loaded, refused, input="Late.", session=on_session))

        late.append(pool.submit(run_late))
        raise ValueError("it fails")

    with ThreadPoolExecutor(1) as pool:
        door = executor(Tool[None, None](name="start", description="Starts an agent.", handler=start), session=session)
        message = await door.execute_async(ToolCall("call-1", "start", {}))
        assert (message.success, lines(session)) == (False, [])
        ended.set()
    assert (late[0].result().status, lines(session)) == ("done", [])
    assert [part.content for part in returns(late[0].result().messages) if part.tool_call_id == "late"] == wording
