"""The ways in: each brings the run of a desk to its end from wherever it is, as a program over it does."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from datetime import timedelta
from inspect import iscoroutinefunction
from types import ModuleType
from typing import Any, NamedTuple, TypeAlias, cast

import mcp_types as t
from anthropic.types import Message
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import MessagesState  # pyright: ignore[reportMissingTypeStubs] - no py.typed
from langgraph.types import Command
from mcp import Client
from openai.types.chat import ChatCompletion
from openai.types.responses import Response
from pydantic_ai import (
    Agent,
    DeferredToolRequests,
    DeferredToolResults,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.messages import ModelRequest
from pydantic_ai.models.function import AgentInfo, FunctionModel

from handrail.adapters import anthropic, openai
from handrail.adapters.langgraph import HandrailNode
from handrail.adapters.mcp import McpServer, ToolServer, ToolSettings, server
from handrail.adapters.mcp.connection import KEY
from handrail.adapters.pydantic_ai import HandrailCapability, HandrailToolset, PydanticAIAdapter, StoredHistory
from handrail.adapters.settlement import PendingAnswers
from handrail.adapters.tool_executor import ToolExecutor
from handrail.agents import Answer as AskerAnswer
from handrail.agents import GatedCall, RunOptions
from handrail.errors import CallPostponed
from handrail.runtime import Session, ToolCall
from handrail.session.conversation import ConversationPart
from handrail.waiting import run_on_new_loop
from tests.adapters.langgraph.kit import connect
from tests.adapters.mcp.kit import on_port, proxied, text
from tests.agents.kit import desk as project
from tests.agents.kit import ruled
from tests.ways_in.desk import REASON, SESSION, Desk


class Answer(NamedTuple):
    """What the model reads of a call; `success` is `None` where the provider has no field for it."""

    call_id: str
    success: bool | None
    text: str


Way: TypeAlias = Callable[[Desk], list[Answer]] | Callable[[Desk], Coroutine[Any, Any, list[Answer]]]
"""Runs a desk; the answers that the model has read. One that is a coroutine function can be cancelled."""


# -------------------------------------------------------------------------------------------------- loops of one's own


def own_loop(desk: Desk) -> list[Answer]:
    """`ToolExecutor.answer`."""
    with desk.executor() as executor:
        while calls := _own_reply(desk, executor):
            if not _append_own(executor, calls, executor.answer()):
                break
        return _own_answers(executor)


async def own_loop_async(desk: Desk) -> list[Answer]:
    """`ToolExecutor.answer_async`."""
    with desk.executor() as executor:
        while calls := _own_reply(desk, executor):
            if not _append_own(executor, calls, await executor.answer_async()):
                break
        return _own_answers(executor)


def _own_reply(desk: Desk, executor: ToolExecutor) -> tuple[ToolCall, ...]:
    talk = executor.environment.session.conversation
    if not talk.calls:
        number = sum(message["role"] == "assistant" for message in talk.messages)
        calls = [ToolCall(*call) for call in desk.reply(number)]
        if calls:
            talk.append({"role": "assistant"}, calls=calls, reply=f"reply-{number}")
    return talk.calls


def _append_own(executor: ToolExecutor, calls: Sequence[ToolCall], answers: Any) -> bool:
    if isinstance(answers, PendingAnswers):
        return False
    assert [answer.call_id for answer in answers] == [call.id for call in calls]
    messages = [{"role": "tool", "id": one.call_id, "text": one.content, "ok": one.success} for one in answers]
    executor.environment.session.conversation.append(*messages)
    return True


def _own_answers(executor: ToolExecutor) -> list[Answer]:
    messages = executor.environment.session.conversation.messages
    return [Answer(one["id"], one["ok"], one["text"]) for one in messages if one["role"] == "tool"]


# --------------------------------------------------------------------------------------------------- OpenAI, Anthropic


async def openai_responses(desk: Desk) -> list[Answer]:
    """`handrail.adapters.openai`, Responses."""
    items = await _converse(desk, openai, _response)
    outputs = [item for item in items if item.get("type") == "function_call_output"]
    return [Answer(item["call_id"], None, item["output"]) for item in outputs]


async def openai_chat(desk: Desk) -> list[Answer]:
    """`handrail.adapters.openai`, Chat Completions."""
    messages = await _converse(desk, openai, _completion)
    return [Answer(one["tool_call_id"], None, one["content"]) for one in messages if one.get("role") == "tool"]


async def anthropic_messages(desk: Desk) -> list[Answer]:
    """`handrail.adapters.anthropic`."""
    messages = await _converse(desk, anthropic, _message)
    blocks = [block for one in messages if one["role"] == "user" for block in one["content"]]
    return [Answer(block["tool_use_id"], not block.get("is_error", False), block["content"]) for block in blocks]


async def _converse(desk: Desk, loop: ModuleType, response: Callable[[int, list[Any]], object]) -> list[dict[str, Any]]:
    with desk.executor() as executor:
        talk = executor.environment.session.conversation
        reply = await loop.answer_async(executor)
        while reply.continues:
            number = sum(bool(part.calls) for part in talk.parts)
            reply = await loop.answer_async(executor, response(number, desk.reply(number)))
        return talk.messages


def _response(number: int, calls: list[Any]) -> Response:
    output: list[Any] = [
        {
            "type": "function_call",
            "id": f"fc-{number}-{place}",
            "call_id": call_id,
            "name": name,
            "arguments": _text(args),
        }
        for place, (call_id, name, args) in enumerate(calls)
    ]
    said: dict[str, Any] = {"type": "output_text", "text": "Done.", "annotations": []}
    done: dict[str, Any] = {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": [said]}
    rest = {"created_at": 0, "model": "m", "object": "response", "parallel_tool_calls": True, "tool_choice": "auto"}
    body = {"id": f"reply-{number}", "status": "completed", "output": output or [done], "tools": [], **rest}
    return Response.model_validate(body)


def _text(arguments: Any) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments)


def _completion(number: int, calls: list[Any]) -> ChatCompletion:
    asked = [
        {"id": call_id, "type": "function", "function": {"name": name, "arguments": _text(args)}}
        for call_id, name, args in calls
    ]
    message = (
        {"role": "assistant", "content": None, "tool_calls": asked}
        if calls
        else {"role": "assistant", "content": "Done."}
    )
    choice = {"index": 0, "finish_reason": "tool_calls" if calls else "stop", "message": message}
    body = {"id": f"reply-{number}", "created": 0, "model": "m", "object": "chat.completion", "choices": [choice]}
    return ChatCompletion.model_validate(body)


def _message(number: int, calls: list[Any]) -> Message:
    asked = [{"type": "tool_use", "id": call_id, "name": name, "input": args} for call_id, name, args in calls]
    content: list[Any] = asked or [{"type": "text", "text": "Done."}]
    reason, usage = "tool_use" if calls else "end_turn", {"input_tokens": 1, "output_tokens": 1}
    body = {"id": f"reply-{number}", "type": "message", "role": "assistant", "model": "m", "usage": usage}
    return Message.model_validate({**body, "content": content, "stop_reason": reason})


# ---------------------------------------------------------------------------------------------------------- PydanticAI


async def toolset(desk: Desk) -> list[Answer]:
    """`HandrailToolset`; the program stores the messages itself."""
    file = desk.folder / "messages.json"
    history = ModelMessagesTypeAdapter.validate_json(file.read_bytes()) if file.exists() else []
    newest = history[-1] if history else None
    # Calls that the interrupted run has answered partly are made again as approved, the others by the run itself.
    answered = {part.tool_call_id for part in _returns(history)}
    asked = [call for message in history if isinstance(message, ModelResponse) for call in message.tool_calls]
    waiting = {call.tool_call_id: True for call in asked if call.tool_call_id not in answered}
    results = DeferredToolResults(approvals=dict(waiting)) if isinstance(newest, ModelRequest) else None

    def store(messages: list[ModelMessage]) -> None:
        file.write_bytes(ModelMessagesTypeAdapter.dump_json(messages))

    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        reply = _model_reply(desk, messages)
        store([*messages, reply])
        return reply

    with desk.executor() as executor:
        agent = _agent(FunctionModel(model), toolsets=[HandrailToolset(executor)])
        run = await agent.run(None if history else "Work.", message_history=history, deferred_tool_results=results)
    store(run.all_messages())
    return _returned(run.all_messages())


async def capability(desk: Desk) -> list[Answer]:
    """`HandrailCapability`, with a stored conversation."""
    with desk.executor() as executor:
        session = executor.environment.session
        stored = StoredHistory(session, "desk")
        agent = _agent(_model(desk), capabilities=[HandrailCapability(executor, conversation=stored)])
        given = None if stored.unfinished else "Work."
        history, results = stored.history or None, stored.deferred_results
        await agent.run(given, message_history=history, deferred_tool_results=results)
        return _stored(session)


async def adapter(desk: Desk) -> list[Answer]:
    """`PydanticAIAdapter`."""
    with desk.session() as session:
        evaluating = PydanticAIAdapter(_model(desk), approver=desk.approve)
        with suppress(CallPostponed):
            await evaluating.evaluate_async(desk.prompt, session=session, user_prompt="Work.")
        return _stored(session)


async def agent_file(desk: Desk) -> list[Answer]:
    """An agent file, whose gate asks."""

    async def asker(_: GatedCall) -> AskerAnswer:
        verdict = desk.answer()
        return AskerAnswer(verdict, reason="" if verdict == "yes" else REASON)

    rules = ruled("defaults: {read: allow, state: allow, external: allow}")
    toolsets = {section.key: section for section in desk.sections}
    (desk.folder / "project").mkdir(exist_ok=True)
    agent = project(desk.folder / "project", toolsets=toolsets)
    with desk.session() as session:
        options = RunOptions(session=session, model=_model(desk), asker=asker, rules=rules, resources=desk.resources)
        await agent.run_async(None if session[ConversationPart].all() else "Work.", options)
        return _stored(session)


def _agent(model: FunctionModel, **options: Any) -> Agent[None, Any]:
    output: Any = [str, DeferredToolRequests]
    return Agent(model, output_type=output, **options)


def _model(desk: Desk) -> FunctionModel:
    return FunctionModel(lambda messages, _: _model_reply(desk, messages))


def _model_reply(desk: Desk, messages: list[ModelMessage]) -> ModelResponse:
    number = sum(isinstance(message, ModelResponse) for message in messages)
    calls = [ToolCallPart(name, arguments, tool_call_id=call_id) for call_id, name, arguments in desk.reply(number)]
    return ModelResponse([*calls] or [TextPart("Done.")], provider_response_id=f"reply-{number}")


def _stored(session: Session) -> list[Answer]:
    parts = session[ConversationPart].all()
    return _returned(ModelMessagesTypeAdapter.validate_python([one for part in parts for one in part.messages]))


def _returned(messages: Sequence[ModelMessage]) -> list[Answer]:
    parts = _returns(messages)
    return [Answer(part.tool_call_id, part.outcome == "success", str(part.content)) for part in parts]


def _returns(messages: Sequence[ModelMessage]) -> list[ToolReturnPart]:
    return [part for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]


# ----------------------------------------------------------------------------------------------------------- LangGraph


def langgraph(desk: Desk) -> list[Answer]:
    """`HandrailNode`, by `invoke`."""
    with SqliteSaver.from_conn_string(str(desk.folder / "graph.db")) as saver:
        graph = _graph(desk, saver)
        graph.invoke(_entry(graph.get_state(_THREAD)), _THREAD, durability="sync")
        return _answers_in(graph.get_state(_THREAD))


async def langgraph_async(desk: Desk) -> list[Answer]:
    """`HandrailNode`, by `ainvoke`."""
    async with AsyncSqliteSaver.from_conn_string(str(desk.folder / "graph.db")) as saver:
        graph = _graph(desk, saver)
        await graph.ainvoke(_entry(await graph.aget_state(_THREAD)), _THREAD, durability="sync")
        return _answers_in(await graph.aget_state(_THREAD))


_THREAD: Any = {"configurable": {"thread_id": SESSION}}


def _graph(desk: Desk, saver: object) -> Any:
    node = HandrailNode(prompt=desk.prompt, store=desk.store, approver=desk.approve, on_open=desk.listen)

    def model(state: MessagesState) -> dict[str, list[Any]]:
        number = sum(isinstance(message, AIMessage) for message in state["messages"])
        calls: list[Any] = [{"id": call_id, "name": name, "args": args} for call_id, name, args in desk.reply(number)]
        asked = {"tool_calls": [call for call in calls if not isinstance(call["args"], str)]}
        asked["invalid_tool_calls"] = [{**call, "error": None} for call in calls if isinstance(call["args"], str)]
        return {"messages": [AIMessage("" if calls else "Done.", id=f"reply-{number}", **asked)]}

    return connect(model, node, saver)


def _entry(state: Any) -> Any:
    if state.interrupts:
        resume = {one.id: {question["id"]: True for question in one.value["questions"]} for one in state.interrupts}
        return Command(resume=resume)
    return None if state.next else {"messages": [HumanMessage("Work.")]}


def _answers_in(state: Any) -> list[Answer]:
    messages = [message for message in state.values["messages"] if isinstance(message, ToolMessage)]
    return [Answer(one.tool_call_id, one.status == "success", str(one.content)) for one in messages]


# ----------------------------------------------------------------------------------------------------------------- MCP


async def mcp_server(desk: Desk) -> list[Answer]:
    """`ToolServer`; the client names each call by a key."""
    with desk.executor() as executor:
        async with Client(ToolServer(executor).protocol) as client:
            return await _call_all(desk, client)


async def proxy(desk: Desk) -> list[Answer]:
    """`open_proxy` in front of a server that has the tools."""
    behind = desk.behind()
    brief = timedelta(seconds=1) if desk.case.is_slow else None
    settings = ToolSettings(
        state=("note", "spoil"), keys={"charge": ("order",)}, untrusted=desk.case.taints, timeout=brief
    )
    options: dict[str, Any] = {} if desk.verdict == "later" else {"elicitation_callback": _person(desk)}
    # Entered in this order, so that the server ends last.
    with ToolExecutor(prompt=behind.prompt, session=Session()) as executor, desk.session() as session:
        async with on_port(server(executor)) as url:
            upstream = McpServer(name="desk", url=url)
            async with proxied(upstream, settings=settings, session=session, policies=desk.judges, **options) as (
                client,
                _,
            ):
                try:
                    return await _call_all(desk, client)
                finally:
                    desk.release.set()


def _person(desk: Desk) -> Any:
    async def show(_context: object, _question: t.ElicitRequestParams) -> t.ElicitResult:
        return t.ElicitResult(action="accept", content={"approve": desk.verdict == "yes", "reason": REASON})

    return show


def _meta(key: str) -> Any:
    return {KEY: key}


async def _call_all(desk: Desk, client: Client) -> list[Answer]:
    answers: list[Answer] = []
    for number in range(len(desk.case.replies)):
        calls = desk.reply(number)
        requests = [client.call_tool(name, args, meta=_meta(call_id)) for call_id, name, args in calls]
        for (call_id, _, _), result in zip(calls, await asyncio.gather(*requests), strict=True):
            if " has not run yet: " not in text(result):
                answers.append(Answer(call_id, not result.is_error, text(result)))
        while number and "refunds" in str(desk.case.replies[number]):  # opened, and a proxy is notified of the tools
            if "refund" in {one.name for one in (await client.list_tools()).tools}:
                break
            await asyncio.sleep(0.01)
    return answers


# ----------------------------------------------------------------------------------------------------------- the table

WAYS: dict[str, Way] = {
    "own loop": own_loop,
    "own loop, async": own_loop_async,
    "toolset": toolset,
    "capability": capability,
    "adapter": adapter,
    "agent file": agent_file,
    "OpenAI responses": openai_responses,
    "OpenAI chat": openai_chat,
    "Anthropic": anthropic_messages,
    "LangGraph": langgraph,
    "LangGraph, async": langgraph_async,
    "MCP server": mcp_server,
    "proxy": proxy,
}
"""All ways in, by their names on the page."""

NO_FIELD = {"OpenAI responses", "OpenAI chat"}
"""The ways in whose API has no field for a failure: the text says it."""


def run(way: Way, desk: Desk) -> list[Answer]:
    """Runs a desk, on an event loop of its own if the way is asynchronous."""
    if not iscoroutinefunction(way):
        return cast("Callable[[Desk], list[Answer]]", way)(desk)
    return run_on_new_loop(_until_cancelled(way(desk), desk) if desk.case.is_cancelled else way(desk))


async def _until_cancelled(running: Coroutine[Any, Any, list[Answer]], desk: Desk) -> list[Answer]:
    task = asyncio.ensure_future(running)
    await asyncio.to_thread(desk.begun.wait, 20)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    assert task.cancelled()
    return []
