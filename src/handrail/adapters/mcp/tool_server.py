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
from functools import partial
from typing import Any, Final, TypedDict, Unpack, cast
from uuid import uuid4

import mcp_types as t
from anyio import CancelScope
from mcp.server import ServerRequestContext
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.provider import principal_components
from mcp.server.lowlevel.server import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged
from mcp.shared.exceptions import MCPError
from typing_extensions import override  # pydantic brings it; `typing` has it from Python 3.12 on

from handrail import __version__
from handrail.adapters.loop import LoopOutcome
from handrail.adapters.mcp.connection import KEY
from handrail.adapters.mcp.content import OfferedTool, write_refusal, write_result
from handrail.adapters.mcp.questions import (
    CLIENT_CALL,
    ClientCall,
    ClientQuestion,
    ask_in_call,
    can_ask,
    is_modern,
    question_in,
    read_state,
    sealed,
)
from handrail.adapters.mcp.source import ExecutorSource, ToolSource
from handrail.adapters.mcp.stdio import standard_streams
from handrail.adapters.tool_executor import ToolExecutor
from handrail.errors import CallIdReusedError, HandrailError, RecordingError
from handrail.redaction import redacted_logger
from handrail.runtime import ToolCall, ToolMessage
from handrail.runtime.approval import calls_that_wait, has_pending
from handrail.runtime.execution import ASYNC
from handrail.runtime.failures import text_for_model
from handrail.serde import digest
from handrail.session import Session
from handrail.session.calls import CallRef
from handrail.session.open_calls import find_answer
from handrail.session.persistence.protocol import SessionStore
from handrail.store.protocol import LedgerStore

_CALL_ID: Final = "call"
_MOST_LISTENERS: Final = 1_000
_MAX_CALLS: Final = 64
_NO_META: Final[Mapping[str, Any]] = {}
_NO_KEYS: Final = (
    "the session of this server is its own, so that a key would not hold in the next one: start it by --session"
)

_log = redacted_logger("handrail.mcp")

FindSource = Callable[[str], ToolSource]
"""Finds the source of the tools of an identity; empty for a client without one."""


class ServerOptions(TypedDict, total=False):
    """The settings of a server.

    Attributes:
        name: its name for clients.
        instructions: what clients may show their model; by default the text of the prompt.
        max_calls: how many calls run at the same time; further ones are refused before they begin.
        call_seconds: how long a call may take, with the questions that it waits for.
        state_key: 32 random bytes that seal what clients carry; by default the key of the store.
        approve_hint: how a person answers a question elsewhere, for clients that cannot show it, with `{session}` and
            `{call}`.
        takes_keys: whether clients may name calls by keys in `_meta`: not in a session that no later process opens.
    """

    name: str
    instructions: str
    max_calls: int
    call_seconds: float | None
    state_key: bytes
    approve_hint: str
    takes_keys: bool


class _Protocol(Server[Any]):
    # The transports of the SDK ask without options.

    @override
    def create_initialization_options(self, *_: Any, **_options: Any) -> InitializationOptions:
        return super().create_initialization_options(NotificationOptions(tools_changed=True))


class ToolServer:
    """Answers the requests of clients; `protocol` is the server of the SDK, for its transports.

    Attributes:
        protocol: serves both eras of the protocol.
    """

    def __init__(self, source: ToolExecutor | ToolSource | FindSource, **options: Unpack[ServerOptions]) -> None:
        """Makes the server.

        Args:
            source: the executor of all calls, or another source of tools, or a function that finds that of an identity.
            **options: see `ServerOptions`.
        """
        only = ExecutorSource(source) if isinstance(source, ToolExecutor) else None if callable(source) else source
        self._find: FindSource = cast("FindSource", source) if only is None else lambda _: only
        self._free = options.get("max_calls", _MAX_CALLS)
        self._call_seconds = options.get("call_seconds")
        self._approve_hint = options.get("approve_hint", "")
        self._takes_keys = options.get("takes_keys", True)
        self._name = uuid4().hex[:12]  # distinguishes its calls from those of other servers, and of earlier ones
        self._calls = 0
        self._offered: Mapping[str, OfferedTool] = {}
        self._bus = InMemorySubscriptionBus()
        self._listeners: deque[Any] = deque(maxlen=_MOST_LISTENERS)
        self._notices: set[asyncio.Future[None]] = set()
        self._key = options.get("state_key") or _store_key(only)
        name = options.get("name", "handrail")
        instructions = options.get("instructions") or (source.text if isinstance(source, ToolExecutor) else "")
        if all(line.startswith("#") for line in instructions.splitlines()):
            instructions = ""  # headings alone
        self.protocol: Server[Any] = _Protocol(
            name,
            version=__version__,
            instructions=instructions or None,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            on_subscriptions_listen=ListenHandler(self._bus),
            get_tool_input_schema=None if only is None else self._input_schema,
        )
        self.protocol.middleware.append(sealed(self._key, name))

    def announce_change(self) -> None:
        """As `notify_changed`, in a task of the running loop."""
        notice = asyncio.ensure_future(self.notify_changed())
        self._notices.add(notice)
        notice.add_done_callback(self._notices.discard)

    async def notify_changed(self) -> None:
        """Notifies the clients that the tools have changed."""
        await self._bus.publish(ToolsListChanged())
        listeners, self._listeners = self._listeners, deque(maxlen=_MOST_LISTENERS)
        for session in listeners:  # a client that lists the tools again is notified of the next change
            with suppress(Exception):  # it may be gone
                await session.send_tool_list_changed()

    # ----------------------------------------------------------------------------------------------------------- lists

    async def _list_tools(self, context: Any, params: object) -> t.ListToolsResult:  # noqa: ANN401, ARG002 - the SDK's
        if not is_modern(context.protocol_version):
            self._listeners.append(context.session)
        tools = self._offered = await self._find(_principal()).tools()
        return t.ListToolsResult(tools=[offered.definition for offered in tools.values()])

    def _input_schema(self, name: str) -> Mapping[str, Any] | None:
        # For the check of headers, for which the SDK would list all tools in each call over HTTP.
        offered = self._offered.get(name)
        return None if offered is None else offered.definition.input_schema

    # ----------------------------------------------------------------------------------------------------------- calls

    async def _call_tool(self, context: ServerRequestContext[Any, Any], params: t.CallToolRequestParams) -> Any:  # noqa: ANN401 - a result as JSON
        name = params.name
        if self._free <= 0:
            return write_refusal(f"{name} was not run: too many calls run at the same time. Call it again later.")
        self._free -= 1
        try:
            if self._call_seconds is None:
                return await self._answer(context, params)
            async with asyncio.timeout(self._call_seconds):
                return await self._answer(context, params)
        except MCPError:
            raise
        except Exception as error:  # noqa: BLE001 - a client of an older version would read its text
            return write_refusal(self._explain(name, error))
        finally:
            self._free += 1

    def _explain(self, name: str, error: Exception) -> str:
        if isinstance(error, CallIdReusedError):
            return f"{name} was not run: its key in _meta is that of another call, or of other arguments."
        if isinstance(error, TimeoutError):
            return f"{name} was stopped after {self._call_seconds} seconds; what can be undone is undone."
        _log.error("a call of %s has ended with an error", name, exc_info=error)
        if isinstance(error, HandrailError):
            has_effect = isinstance(error, RecordingError) and error.effect != "none"
            note = f". It may have happened: do not repeat {name}." if has_effect else ""
            return f"{name} was stopped: {text_for_model(error)}{note}"
        return f"{name} was stopped by an error of the server, which has logged it. Do not repeat it."

    async def _answer(self, context: ServerRequestContext[Any, Any], params: t.CallToolRequestParams) -> Any:  # noqa: ANN401 - as above
        source = self._find(_principal())
        asks = can_ask(context.session.client_capabilities)
        call = ToolCall(_CALL_ID, params.name, params.arguments or {})
        client_call = await self._identify(source.session, call, context, params, is_asked=asks)
        before = self._offered = await source.tools()
        while True:
            outcome = await _run(source, call, client_call, context)
            if isinstance(outcome, ToolMessage):
                if (now := await source.tools()) is not before:
                    await self.notify_changed()
                return write_result(outcome, now.get(call.name))
            question = question_in(outcome)
            if isinstance(outcome.question, ClientQuestion) and not asks:
                why = "it asks the person, and this client does not show questions (elicitation)"
                return write_refusal(f"{call.name} has not run: {why}. Do not call it again from here.")
            if question is None or not asks:
                hint = self._approve_hint.replace("{session}", source.session.session_id)
                hint = hint.replace("{call}", str(client_call.ref))
                return write_refusal(" ".join(filter(None, (f"{call.name} has not run yet: {outcome}.", hint))))
            if question.id in client_call.answers:
                return write_refusal(f"{call.name} has not run yet: the question was closed without an answer.")
            if is_modern(context.protocol_version):
                request = t.ElicitRequest(params=question.params)
                return t.InputRequiredResult(input_requests={question.id: request}, request_state=client_call.state)
            client_call.answers[question.id] = await ask_in_call(context, question)

    async def _identify(
        self,
        session: Session,
        call: ToolCall,
        context: ServerRequestContext[Any, Any],
        params: t.CallToolRequestParams,
        *,
        is_asked: bool,
    ) -> ClientCall:
        # Which call of the session it is.
        if (state := read_state(params)) is not None:
            return ClientCall(CallRef(state[0], _CALL_ID), state[1])
        key: object = (context.meta or _NO_META).get(KEY, _NO_META)
        if isinstance(key, str) and key and self._takes_keys:
            return ClientCall(CallRef(f"key-{key}", _CALL_ID), {})
        if key is not _NO_META:
            why = "a key is a text that is not empty" if self._takes_keys else _NO_KEYS
            raise MCPError(t.INVALID_PARAMS, f"$._meta[{KEY!r}]: {why}; nothing was run")
        self._calls += 1
        own = f"{self._name}-{self._calls}"
        if session.store is None:
            return ClientCall(CallRef(f"mcp-{own}", _CALL_ID), {})
        # Equal calls have names that begin alike, so that one that waits is found when it is made again.
        prefix = f"mcp-{digest([call.name, call.arguments], key=self._key)[:12]}-"
        same = None
        if has_pending(session):
            same = await ASYNC.write_to(session.store, partial(_find_waiting, session, prefix, is_asked=is_asked))
        return ClientCall(same or CallRef(f"{prefix}{own}", _CALL_ID), {})


def _find_waiting(session: Session, prefix: str, *, is_asked: bool) -> CallRef | None:
    store = cast("SessionStore", session.store)
    for item in calls_that_wait(session):
        # A client that shows questions may have this one on its screen, unless another process has the answer.
        has_answer = not is_asked or find_answer(store, session.session_id, item.call) is not None
        if has_answer and (item.call.reply or "").startswith(prefix):
            return item.call
    return None


async def serve_stdio(tools: ToolServer) -> None:
    """Serves one client over standard input and output, until the input ends, or the output has no reader."""
    try:
        async with standard_streams() as (reader, writer):
            await tools.protocol.run(reader, writer, tools.protocol.create_initialization_options())
    except* ConnectionError:
        _log.info("the client has gone, and has left calls without an answer")


async def _run(source: ToolSource, call: ToolCall, client_call: ClientCall, context: Any) -> LoopOutcome:  # noqa: ANN401 - the SDK's
    """Runs a call as a task of its own, which a scope of AnyIO does not cancel again while it is rolled back."""
    reports: set[asyncio.Future[None]] = set()
    loop = asyncio.get_running_loop()

    def report(done: float, total: float | None, text: str | None) -> None:
        def send() -> None:
            reports.add(asyncio.ensure_future(context.session.report_progress(done, total, text)))

        loop.call_soon_threadsafe(send)

    client_call.report = report
    token = CLIENT_CALL.set(client_call)
    try:
        task = asyncio.ensure_future(source.run(call, client_call.ref.reply or ""))
    finally:
        CLIENT_CALL.reset(token)
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


def _store_key(source: ToolSource | None) -> bytes:
    store: object = None if source is None else source.session.store
    return store.hash_key() if isinstance(store, LedgerStore) else os.urandom(32)


def _principal() -> str:
    token = get_access_token()
    return "" if token is None else digest(list(principal_components(token)))[:16]
