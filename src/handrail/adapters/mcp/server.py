"""The tools of executors as an MCP server: each `tools/call` is a call of the pipeline.

| a call | is |
|---|---|
| with the key `_meta["dev.handrail/key"]` that another call of its session had | that call, answered from its record |
| that a client makes again with the answer to a question | the same call |
| of a client without elicitation, equal to one that waits for an approval | the same call |
| any other | a call of its own |

The session is that of the executor: one for a process, for each authenticated principal, or for each value of an
argument that names it. A cancelled call is rolled back. No exception leaves a handler: clients of older versions would
read its text.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, Final, TypedDict, Unpack
from uuid import uuid4

import mcp_types as t
from anyio import CancelScope
from mcp.server import ServerRequestContext
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.provider import principal_components
from mcp.server.lowlevel.server import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged
from mcp.shared.exceptions import MCPError
from typing_extensions import override  # pydantic brings it; `typing` has it from Python 3.12 on

from handrail import __version__
from handrail.adapters.loop import LoopOutcome, find_outcome
from handrail.adapters.mcp.connection import KEY
from handrail.adapters.mcp.content import OfferedTool, describe_tool, refusal, write_result
from handrail.adapters.mcp.questions import (
    CLIENT_CALL,
    ClientCall,
    ask_in_call,
    can_ask,
    client_approval,
    is_modern,
    leave_open,
    question_in,
    read_state,
    sealed,
)
from handrail.adapters.tool_executor import ToolExecutor
from handrail.errors import CallIdReusedError, HandrailError, ToolValidationError
from handrail.prompt import Tool
from handrail.redaction import redacted_logger
from handrail.runtime import ToolCall, ToolMessage
from handrail.runtime.approval import calls_that_wait, has_pending
from handrail.runtime.environment import Environment
from handrail.runtime.execution import ASYNC
from handrail.runtime.failures import text_for_model
from handrail.serde import digest
from handrail.session.calls import CallRef

_CALL_ID: Final = "call"
_MOST_LISTENERS: Final = 1_000
_MAX_CALLS: Final = 64
_NO_META: Final[Mapping[str, Any]] = {}

_log = redacted_logger("handrail.mcp")

FindExecutor = Callable[[str], ToolExecutor]
"""Finds the executor of an identity; empty for a client without one."""


class ServerOptions(TypedDict, total=False):
    """The settings of a server.

    Attributes:
        name: its name for clients.
        instructions: what clients may tell their model; by default the text of the prompt.
        describe: how a tool is listed; by default as it is declared.
        session_argument: the name of an argument of every tool whose value names the session; empty for none.
        max_calls: how many calls run at the same time; further ones are refused before they begin.
        call_seconds: how long a call may take, with the questions that it waits for.
        state_key: 32 random bytes that seal what clients carry; by default the key of the store.
        approve_hint: how a person answers a question elsewhere, for clients that cannot show it, with `{session}` and
            `{call}`.
    """

    name: str
    instructions: str
    describe: Callable[[Tool[Any, Any]], OfferedTool]
    session_argument: str
    max_calls: int
    call_seconds: float | None
    state_key: bytes
    approve_hint: str


class _Protocol(Server[Any]):
    # The transports of the SDK ask without options.

    @override
    def create_initialization_options(self, *_: Any, **_options: Any) -> InitializationOptions:
        return super().create_initialization_options(NotificationOptions(tools_changed=True))


class ToolServer:
    """Answers the requests of clients; `protocol` is the server of the SDK, for its transports.

    Attributes:
        protocol: serves both eras of the protocol.
        describe: how a tool is listed.
    """

    def __init__(self, executors: ToolExecutor | FindExecutor, **options: Unpack[ServerOptions]) -> None:
        """Makes the server.

        Args:
            executors: the executor of all calls, or a function that finds that of an identity.
            **options: see `ServerOptions`.
        """
        only = executors if isinstance(executors, ToolExecutor) else None
        self._find: FindExecutor = executors if not isinstance(executors, ToolExecutor) else lambda _: executors
        self.describe: Callable[[Tool[Any, Any]], OfferedTool] = options.get("describe", describe_tool)
        self._session_argument = options.get("session_argument", "")
        self._free = options.get("max_calls", _MAX_CALLS)
        self._call_seconds = options.get("call_seconds")
        self._approve_hint = options.get("approve_hint", "")
        self._name = uuid4().hex[
            :12
        ]  # distinguishes the calls of this server from those of others, and of earlier ones
        self._calls = 0
        self._offered: dict[str, tuple[Tool[Any, Any], OfferedTool]] = {}
        self._environments: dict[int, tuple[ToolExecutor, Environment]] = {}
        self._bus = InMemorySubscriptionBus()
        self._listeners: deque[Any] = deque(maxlen=_MOST_LISTENERS)
        name, key = options.get("name", "handrail"), options.get("state_key")
        if key is None and only is not None:
            key = only.environment.find_ledger().store.hash_key()
        self._key = key or os.urandom(32)
        self.protocol: Server[Any] = _Protocol(
            name,
            version=__version__,
            instructions=options.get("instructions") or ("" if only is None else only.text) or None,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            on_subscriptions_listen=ListenHandler(self._bus),
        )
        self.protocol.middleware.append(sealed(self._key, name))

    async def notify_changed(self) -> None:
        """Tells the clients that the tools are others now."""
        await self._bus.publish(ToolsListChanged())
        listeners, self._listeners = self._listeners, deque(maxlen=_MOST_LISTENERS)
        for session in listeners:  # a client that lists the tools again is told of the next change
            with suppress(Exception):  # it may be gone
                await session.send_tool_list_changed()

    # ----------------------------------------------------------------------------------------------------------- lists

    async def _list_tools(self, context: Any, params: object) -> t.ListToolsResult:  # noqa: ANN401, ARG002 - the SDK's
        if not is_modern(context.protocol_version):
            self._listeners.append(context.session)
        environment = self._environment(self._find(_principal()))
        tools = await ASYNC.write_to(environment.session.store, lambda: environment.tools)
        return t.ListToolsResult(tools=[self._listed(tool) for tool in tools])

    def _listed(self, tool: Tool[Any, Any]) -> t.Tool:
        listed = self._offer(tool).listed
        if not (name := self._session_argument):
            return listed
        about = {"type": "string", "description": "Names your session: a word that you choose, the same in each call."}
        schema = listed.input_schema
        properties = {name: about, **schema.get("properties", {})}
        required = [name, *schema.get("required", ())]
        return listed.model_copy(update={"input_schema": {**schema, "properties": properties, "required": required}})

    def _environment(self, executor: ToolExecutor) -> Environment:
        # The run of an executor as clients make calls of it.
        executor_, environment = self._environments.get(id(executor), (None, None))
        if executor_ is not executor or environment is None:
            own = executor.environment
            approver = own.approver or leave_open
            environment = replace(own, caller_answer=client_approval, on_progress=_report, approver=approver)
            self._environments[id(executor)] = executor, environment
        return environment

    # ----------------------------------------------------------------------------------------------------------- calls

    async def _call_tool(self, context: ServerRequestContext[Any, Any], params: t.CallToolRequestParams) -> Any:  # noqa: ANN401 - a result as JSON
        name = params.name
        if self._free <= 0:
            return refusal(f"{name} was not run: too many calls run at the same time. Call it again later.")
        self._free -= 1
        try:
            if self._call_seconds is None:
                return await self._answer(context, params)
            async with asyncio.timeout(self._call_seconds):
                return await self._answer(context, params)
        except MCPError:
            raise
        except Exception as error:  # noqa: BLE001 - a client of an older version would read its text
            return refusal(self._explain(name, error))
        finally:
            self._free += 1

    def _explain(self, name: str, error: Exception) -> str:
        if isinstance(error, CallIdReusedError):
            return f"{name} was not run: its key in _meta is that of another call, or of other arguments."
        if isinstance(error, TimeoutError):
            return f"{name} was stopped after {self._call_seconds} seconds; what can be undone is undone."
        _log.error("a call of %s has ended with an error", name, exc_info=error)
        if isinstance(error, HandrailError):
            return f"{name} was stopped: {text_for_model(error)}"
        return f"{name} was stopped by an error of the server, which has logged it. Do not repeat it."

    async def _answer(self, context: ServerRequestContext[Any, Any], params: t.CallToolRequestParams) -> Any:  # noqa: ANN401 - as above
        arguments, identity = params.arguments or {}, _principal()
        if self._session_argument:
            arguments = dict(arguments)
            identity = "/".join(filter(None, (identity, _pop_session(arguments, self._session_argument))))
        environment = self._environment(self._find(identity))
        asks = can_ask(context.session.client_capabilities)
        call = ToolCall(_CALL_ID, params.name, arguments)
        client_call = await self._identify(environment, call, context, params, is_asked=asks)
        prompt, added = environment.rendered_prompt, len(environment.added_tools)
        while True:
            outcome = await _run(environment, call, client_call, context)
            if isinstance(outcome, ToolMessage):
                if prompt is not environment.rendered_prompt or added != len(environment.added_tools):
                    await self.notify_changed()
                tool = environment.tool(call.name, client_call.ref.reply)
                return write_result(outcome, None if tool is None else self._offer(tool))
            question = question_in(outcome)
            if question is None or not asks:
                hint = self._approve_hint.format(session=environment.session.session_id, call=client_call.ref)
                return refusal(" ".join(filter(None, (f"{call.name} has not run yet: {outcome}.", hint))))
            if question.id in client_call.answers:
                return refusal(f"{call.name} has not run yet: the question was closed without an answer.")
            if is_modern(context.protocol_version):
                request = t.ElicitRequest(params=question.params)
                return t.InputRequiredResult(input_requests={question.id: request}, request_state=client_call.state)
            client_call.answers[question.id] = await ask_in_call(context, question)

    async def _identify(
        self,
        environment: Environment,
        call: ToolCall,
        context: ServerRequestContext[Any, Any],
        params: t.CallToolRequestParams,
        *,
        is_asked: bool,
    ) -> ClientCall:
        # Which call of the session it is.
        if (state := read_state(params)) is not None:
            return ClientCall(CallRef(state[0], _CALL_ID), state[1])
        key: object = (context.meta or _NO_META).get(KEY)
        if isinstance(key, str) and key:
            return ClientCall(CallRef(f"key-{key}", _CALL_ID), {})
        self._calls += 1
        own, session = f"{self._name}-{self._calls}", environment.session
        if is_asked or session.store is None:
            return ClientCall(CallRef(f"mcp-{own}", _CALL_ID), {})
        # Equal calls have names that begin alike, so that one that waits is found when it is made again.
        prefix = f"mcp-{digest([call.name, call.arguments], key=self._key)[:12]}-"
        same = None
        if has_pending(session):
            waiting = await ASYNC.write_to(session.store, lambda: [item.call for item in calls_that_wait(session)])
            same = next((ref for ref in waiting if (ref.reply or "").startswith(prefix)), None)
        return ClientCall(same or CallRef(f"{prefix}{own}", _CALL_ID), {})

    def _offer(self, tool: Tool[Any, Any]) -> OfferedTool:
        known = self._offered.get(tool.name)
        if known is None or known[0] is not tool:
            self._offered[tool.name] = known = (tool, self.describe(tool))
        return known[1]


async def serve_stdio(tools: ToolServer) -> None:
    """Serves one client over standard input and output, until the input ends."""
    async with stdio_server() as (reader, writer):
        await tools.protocol.run(reader, writer, tools.protocol.create_initialization_options())


async def _run(environment: Environment, call: ToolCall, client_call: ClientCall, context: Any) -> LoopOutcome:  # noqa: ANN401 - the SDK's
    """Runs a call as a task of its own, which a scope of AnyIO does not cancel again while it is rolled back."""
    reports: set[asyncio.Future[None]] = set()
    loop = asyncio.get_running_loop()

    def report(done: float, total: float | None, text: str | None) -> None:
        def send() -> None:
            reports.add(asyncio.ensure_future(context.session.report_progress(done, total, text)))

        loop.call_soon_threadsafe(send)

    tokens = CLIENT_CALL.set(client_call), _REPORT.set(report)
    try:
        task = asyncio.ensure_future(find_outcome(call, client_call.ref.reply, environment, ASYNC))
    finally:
        CLIENT_CALL.reset(tokens[0])
        _REPORT.reset(tokens[1])
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        task.cancel()
        with CancelScope(shield=True):
            await asyncio.wait((task,))
        raise
    finally:
        if reports:
            with CancelScope(shield=True):
                await asyncio.wait(reports)


_Report = Callable[[float, float | None, str | None], None]

_REPORT: Final[ContextVar[_Report | None]] = ContextVar("handrail_mcp_progress", default=None)


def _report(done: float, total: float | None, text: str | None) -> None:
    if (report := _REPORT.get()) is not None:
        report(done, total, text)


def _principal() -> str:
    token = get_access_token()
    return "" if token is None else digest(list(principal_components(token)))[:16]


def _pop_session(arguments: dict[str, Any], name: str) -> str:
    value: object = arguments.pop(name, None)
    if not isinstance(value, str) or not value.strip():
        raise ToolValidationError(f"$.{name}: it is missing; give a word that names your session")
    return value
