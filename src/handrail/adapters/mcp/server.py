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
from typing import Any, Final, NamedTuple, TypedDict, Unpack
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
from handrail.adapters.loop import LoopOutcome, find_outcome, tool_description
from handrail.adapters.mcp.connection import KEY
from handrail.adapters.mcp.hints import effect_hints
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
from handrail.errors import CallIdReusedError, DumpError, HandrailError, ToolValidationError
from handrail.prompt import Tool
from handrail.prompt.tool_result import BinaryPart, ContentPart, TextPart, shown_schema
from handrail.redaction import redacted_logger
from handrail.runtime import ToolCall, ToolMessage
from handrail.runtime.approval import calls_that_wait, has_pending
from handrail.runtime.environment import Environment
from handrail.runtime.execution import ASYNC
from handrail.runtime.failures import text_for_model
from handrail.serde import digest, dump
from handrail.serde.json_schema import is_object
from handrail.session.calls import CallRef

_CALL_ID: Final = "call"
_MOST_LISTENERS: Final = 1_000
_MAX_CALLS: Final = 64

_log = redacted_logger("handrail.mcp")

FindExecutor = Callable[[str], ToolExecutor]
"""Finds the executor of an identity; empty for a client without one."""


class OfferedTool(NamedTuple):
    """A tool as clients see it; `wraps` is true if its value is the field `result` of the structured content."""

    listed: t.Tool
    wraps: bool = False


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
        self._environments: dict[int, tuple[ToolExecutor, Environment]] = {}
        self._bus = InMemorySubscriptionBus()
        self._listeners: deque[Any] = deque(maxlen=_MOST_LISTENERS)
        name, own_key = options.get("name", "handrail"), options.get("state_key")
        if own_key is None and only is not None:
            own_key = only.environment.find_ledger().store.hash_key()
        self.protocol: Server[Any] = _Protocol(
            name,
            version=__version__,
            instructions=options.get("instructions") or ("" if only is None else only.text) or None,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            on_subscriptions_listen=ListenHandler(self._bus),
        )
        self.protocol.middleware.append(sealed(own_key or os.urandom(32), name))

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
        listed = self.describe(tool).listed
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

    async def _call_tool(
        self, context: ServerRequestContext[Any, Any], params: t.CallToolRequestParams
    ) -> t.CallToolResult | t.InputRequiredResult:
        name = params.name
        if self._free <= 0:
            return _refusal(f"{name} was not run: too many calls run at the same time. Call it again later.")
        self._free -= 1
        try:
            async with asyncio.timeout(self._call_seconds):
                return await self._answer(context, params)
        except MCPError:
            raise
        except TimeoutError:
            return _refusal(f"{name} was stopped after {self._call_seconds:g} seconds; what can be undone is undone.")
        except CallIdReusedError:
            return _refusal(f"{name} was not run: its key in _meta is that of another call, or of other arguments.")
        except HandrailError as error:
            _log.exception("a call of %s ended the run", name)
            return _refusal(f"{name} was stopped: {text_for_model(error)}")
        except Exception:  # noqa: BLE001 - a client of an older version would read its text
            _log.exception("a call of %s failed in the server", name)
            return _refusal(f"{name} was stopped by an error of the server, which has logged it. Do not repeat it.")
        finally:
            self._free += 1

    async def _answer(
        self, context: ServerRequestContext[Any, Any], params: t.CallToolRequestParams
    ) -> t.CallToolResult | t.InputRequiredResult:
        arguments, identity = dict(params.arguments or {}), _principal()
        if self._session_argument:
            identity = "/".join(filter(None, (identity, _pop_session(arguments, self._session_argument))))
        environment = self._environment(self._find(identity))
        asks = can_ask(context.session.client_capabilities)
        call = ToolCall(_CALL_ID, params.name, arguments)
        client_call = await self._identify(environment, call, context, params, is_asked=asks)
        names = [tool.name for tool in environment.tools]
        while True:
            outcome = await _run(environment, call, client_call, context)
            if isinstance(outcome, ToolMessage):
                if names != [tool.name for tool in environment.tools]:
                    await self.notify_changed()
                return self._result(outcome, environment.tool(call.name, client_call.ref.reply))
            question = question_in(outcome)
            if question is None or not asks:
                hint = self._approve_hint.format(session=environment.session.session_id, call=client_call.ref)
                return _refusal(" ".join(filter(None, (f"{call.name} has not run yet: {outcome}.", hint))))
            if question.id in client_call.answers:
                return _refusal(f"{call.name} has not run yet: the question was closed without an answer.")
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
        meta: Mapping[str, Any] = context.meta or {}
        key: object = meta.get(KEY)
        if isinstance(key, str) and key:
            return ClientCall(CallRef(f"key-{key}", _CALL_ID), {})
        if is_asked:
            return ClientCall(CallRef(f"mcp-{uuid4().hex[:16]}", _CALL_ID), {})
        # Equal calls have names that begin alike, so that one that waits is found when it is made again.
        session, key = environment.session, environment.find_ledger().store.hash_key()
        prefix = f"mcp-{digest([call.name, call.arguments], key=key)[:16]}-"
        same = None
        if has_pending(session):
            waiting = await ASYNC.write_to(session.store, lambda: [item.call for item in calls_that_wait(session)])
            same = next((ref for ref in waiting if (ref.reply or "").startswith(prefix)), None)
        return ClientCall(same or CallRef(f"{prefix}{uuid4().hex[:16]}", _CALL_ID), {})

    def _result(self, message: ToolMessage, tool: Tool[Any, Any] | None) -> t.CallToolResult:
        content = [*map(_content_block, message.parts or (TextPart(message.content),))]
        if not message.success or tool is None:
            return t.CallToolResult(content=content, is_error=not message.success)
        listed, wraps = self.describe(tool)
        value = message.result.value
        if listed.output_schema is None:
            return t.CallToolResult(
                content=content, structured_content=value if is_object(value) and not message.is_cut else None
            )
        try:
            structured = dump(value)
        except DumpError:
            structured = None
        if wraps:
            structured = {"result": structured}
        # A client checks the content of a success by the schema, and would take what does not fit for a failure.
        return t.CallToolResult(content=content, structured_content=structured, is_error=structured is None)


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


def _refusal(text: str) -> t.CallToolResult:
    return t.CallToolResult(content=[t.TextContent(text=text)], is_error=True)


def _content_block(part: ContentPart) -> t.ContentBlock:
    if not isinstance(part, BinaryPart):
        return t.TextContent(text=part.text)
    kind = part.media_type.partition("/")[0]
    if kind == "image":
        return t.ImageContent(data=part.base64, mime_type=part.media_type)
    if kind == "audio":
        return t.AudioContent(data=part.base64, mime_type=part.media_type)
    blob = t.BlobResourceContents(uri="handrail:file", blob=part.base64, mime_type=part.media_type)
    return t.EmbeddedResource(resource=blob)


def describe_tool(tool: Tool[Any, Any]) -> OfferedTool:
    """A tool as it is declared: its effect as hints, the schema of its result as output schema."""
    idempotent = tool.idempotency is not None and tool.idempotency.has_key
    hints = effect_hints(tool.effect) | ({"idempotentHint": True} if idempotent else {})
    schema, wraps = _output_schema(tool)
    listed = t.Tool(
        name=tool.name,
        description=tool_description(tool),
        input_schema=tool.parameters_schema,
        output_schema=schema,
        annotations=t.ToolAnnotations.model_validate(hints),
    )
    return OfferedTool(listed, wraps)


def _output_schema(tool: Tool[Any, Any]) -> tuple[dict[str, Any] | None, bool]:
    # An object as it is; another value as the field `result` of one. Text, and what is shown as text, has none.
    schema = shown_schema(tool.result_type)
    if schema is None or schema.get("type") == "string":
        return None, False
    if schema.get("type") == "object":
        return schema, False
    inner = {name: node for name, node in schema.items() if name != "$defs"}
    outer = {"type": "object", "properties": {"result": inner}, "required": ["result"]}
    return outer | ({"$defs": schema["$defs"]} if "$defs" in schema else {}), True
