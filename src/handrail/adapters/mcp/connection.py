"""The connection to one MCP server: started, followed, and started again.

| the server | a call of it |
|---|---|
| is started for the first time, or again | waits for it |
| cannot be started | fails; nothing was sent |
| answers with a result | has that result, as JSON |
| answers with an error that proves that nothing was done | fails |
| answers with another error, ends, or loses the connection | has no answer: it may have acted |

A connection lives on one event loop: that on which it was opened, or one of its own, on a thread. Calls come from any
loop. A server that ended is started again after a pause, which doubles from half a second up to half a minute; it
starts anew when a server has run for that long. A process gets the variables of the environment that are listed, beside
the few that every program needs, as the SDK lists them. Requests of a server for sampling and
roots are refused, and its questions are not answered: these capabilities are not declared.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, cast
from weakref import WeakMethod

import httpx2
import mcp_types as t
from anyio import CancelScope, ClosedResourceError, EndOfStream
from anyio.abc import ObjectReceiveStream
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import SubscriptionLost
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import TypeAdapter, ValidationError
from typing_extensions import override  # pydantic brings it; `typing` has it from Python 3.12 on

from handrail.adapters.mcp_hints import proves_nothing_done
from handrail.errors import EffectNotApplied, EffectUncertain, HandrailError
from handrail.redaction import redacted_logger
from handrail.waiting import check_blocking, run_in_thread, run_on_new_loop

_FIRST_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 30.0
_MOST_PAGES: Final = 1_000
_SESSION_ENDED: Final = ("Connection closed", "Session terminated")  # as the SDK says it, over HTTP
_HTTP_TIMEOUT: Final = httpx2.Timeout(30, read=None)
_RAW_RESULT: Final[Any] = TypeAdapter(dict[str, Any])  # the SDK has checked it by the schema of its version

KEY: Final = "dev.handrail/key"
"""The entry of `_meta` that identifies an effect: two calls with one key are one effect."""

_log = redacted_logger("handrail.mcp")

OnProgress = Callable[[float, float | None, str | None], object]
"""Called with the progress of a call: so much of a total, if that is known, and a text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class McpServer:
    """How an MCP server is reached: a command that is run, or a URL.

    Attributes:
        name: the name in messages, and of its section.
        command: the program with its arguments, which speaks MCP over its standard input and output.
        url: the address of a streamable HTTP endpoint.
        env: variables of the environment of the program, beside `HOME`, `PATH` and the like.
        cwd: the folder in which the program runs.
        headers: headers of each request to the URL.
        start_timeout: how long a call, or the opening of the connection, waits for the server to be ready.
    """

    name: str
    command: Sequence[str] = ()
    url: str = ""
    env: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    cwd: Path | str | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    start_timeout: timedelta = timedelta(seconds=30)

    def __post_init__(self) -> None:
        if bool(self.command) == bool(self.url):
            raise McpServerError(self.name, "it needs a command or a URL, and not both")


class McpServerError(HandrailError):
    """An MCP server cannot be used.

    Attributes:
        server: its name.
    """

    server: str

    def __init__(self, server: str, why: str) -> None:
        super().__init__(f"the MCP server {server}: {why}")
        self.server = server


class McpConnection:
    """The connection to one server; `async with` opens it on the running loop, `with` on a loop of its own.

    Attributes:
        server: how it is reached.
        tools: what the server offers, as it was last listed.
        instructions: what it says about its tools.
    """

    def __init__(self, server: McpServer) -> None:
        self.server = server
        self.tools: tuple[t.Tool, ...] = ()
        self.instructions: str = ""
        self._followers: list[WeakMethod[Callable[[], object]]] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake = asyncio.Event()
        self._is_lost = False
        self._thread: Future[None] | None = None

    async def __aenter__(self) -> Self:
        """Starts the server, and reads its tools.

        Raises:
            McpServerError: it cannot be started, or did not answer in time.
        """
        self._loop = asyncio.get_running_loop()
        self._attempt: asyncio.Future[Client] = self._loop.create_future()
        # A scope of AnyIO, because the SDK shields the end of a process from its cancellation, and from no other.
        self._scope = CancelScope()
        self._life = self._loop.create_task(self._live())
        try:
            await self._client()
        except BaseException:
            await self.__aexit__(None, None, None)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Ends the server: its input is closed, and what is left of it two seconds later is stopped."""
        self._loop = None
        self._scope.cancel()
        await asyncio.wait((self._life,))

    def __enter__(self) -> Self:
        """As `__aenter__`, on a loop of its own; blocks until the server is ready."""
        check_blocking("McpConnection.__enter__", "an MCP server")
        opened: Future[None] = Future()
        self._thread = run_in_thread(lambda: run_on_new_loop(self._live_on_own_loop(opened)))
        opened.result()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """As `__aexit__`."""
        if (loop := self._loop) is not None and self._thread is not None:
            loop.call_soon_threadsafe(self._end_thread.set)
            self._thread.result()

    def follow(self, act: Callable[[], object]) -> None:
        """Has a method called on the loop of the connection when the tools are others, as long as its object lives."""
        self._followers.append(WeakMethod(act))

    async def _live_on_own_loop(self, opened: Future[None]) -> None:
        self._end_thread = asyncio.Event()
        try:
            async with self:
                opened.set_result(None)
                await self._end_thread.wait()
        except BaseException as error:
            if opened.done():
                raise
            opened.set_exception(error)

    async def call(
        self, tool: str, arguments: Mapping[str, Any], *, key: str | None = None, on_progress: OnProgress | None = None
    ) -> dict[str, Any]:
        """Calls a tool, from any loop; returns the result of the server as JSON.

        Args:
            tool: its name on the server.
            arguments: its arguments.
            key: identifies the effect; sent as `_meta["dev.handrail/key"]`, so that a server of Handrail's has it once.
            on_progress: called on the loop of the connection.

        Raises:
            EffectNotApplied: nothing was sent, or the server has refused it.
            EffectUncertain: there is no answer: the tool may have acted.
        """
        if self._loop is None:
            raise EffectNotApplied(f"{tool} was not called: the connection to {self.server.name} is not open")
        act = self._call(tool, arguments, {} if key is None else {KEY: key}, on_progress)
        if self._loop is asyncio.get_running_loop():
            return await act
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(act, self._loop))

    async def _call(
        self, tool: str, arguments: Mapping[str, Any], meta: dict[str, Any], on_progress: OnProgress | None
    ) -> dict[str, Any]:
        async def report(progress: float, total: float | None, message: str | None) -> None:
            if on_progress is not None:
                on_progress(progress, total, message)

        try:
            client = await self._client()
        except McpServerError as error:
            raise EffectNotApplied(f"{tool} was not called: {error}") from error
        params = t.CallToolRequestParams(name=tool, arguments=dict(arguments), _meta=cast("Any", meta) or None)
        callback = None if on_progress is None else report
        try:
            # Not `call_tool`, which raises for a result that does not fit the schema of the tool, after the effect.
            request = t.CallToolRequest(params=params)
            answer: Any = await client.session.send_request(request, _RAW_RESULT, progress_callback=callback)
            return cast("dict[str, Any]", answer)
        except MCPError as error:
            if proves_nothing_done(error.code, error.message):
                raise EffectNotApplied(f"{self.server.name} refused {tool}: {error.message}") from error
            if error.message in _SESSION_ENDED and client is self._current:
                self._lose()
            raise EffectUncertain(f"{self.server.name} did not answer {tool}: {error.message}") from error
        except ValidationError as error:
            raise EffectUncertain(f"what {self.server.name} answered to {tool} is not a result of MCP") from error

    async def _client(self) -> Client:
        # Of a server that is started; also the next one, if it has ended.
        seconds = self.server.start_timeout.total_seconds()
        try:
            async with asyncio.timeout(seconds):
                return await asyncio.shield(self._attempt)
        except TimeoutError as error:
            raise McpServerError(self.server.name, f"it was not ready within {seconds:g} seconds") from error

    # ------------------------------------------------------------------------------------------------- its life

    async def _live(self) -> None:
        with self._scope:
            await self._start_again_and_again()

    async def _start_again_and_again(self) -> None:
        pause, loop = _FIRST_PAUSE, asyncio.get_running_loop()
        while True:
            began, is_ready, why = time.monotonic(), False, "it has ended"
            self._is_lost = False
            self._wake.clear()
            try:
                async with Client(self._transport(), cache=None, message_handler=self._receive) as client:
                    await self._list(client)
                    self._current, self.instructions = client, client.instructions or ""
                    self._attempt.set_result(client)
                    is_ready = True
                    await self._follow(client)
            except Exception as error:  # noqa: BLE001 - of the SDK, the program, or the network; logged
                why = _reason(error)
            if is_ready:
                self._lose()
            else:
                self._attempt.set_exception(McpServerError(self.server.name, f"it cannot be used: {why}"))
                self._attempt.exception()  # which need not be asked for
            pause = _FIRST_PAUSE if time.monotonic() - began > _LONGEST_PAUSE else min(2 * pause, _LONGEST_PAUSE)
            _log.warning("the MCP server %s: %s; it is started again in %g s", self.server.name, why, pause)
            if self._attempt.done():
                self._attempt = loop.create_future()
            await asyncio.sleep(pause)

    @asynccontextmanager
    async def _transport(self) -> AsyncGenerator[Any]:
        server = self.server
        if server.url:
            async with (
                httpx2.AsyncClient(headers=dict(server.headers), timeout=_HTTP_TIMEOUT) as http,
                streamable_http_client(server.url, http_client=http) as (reader, writer),
            ):
                yield reader, writer
            return
        command, *arguments = server.command
        # Without it the SDK would read nothing after a line that is not UTF-8.
        parameters = StdioServerParameters(
            command=command,
            args=arguments,
            env=dict(server.env),
            cwd=server.cwd,
            encoding_error_handler="replace",
        )
        # Its default is what `sys.stderr` was at the import, which a program may have replaced and closed since.
        async with stdio_client(parameters, sys.__stderr__ or sys.stderr) as (reader, writer):
            yield WatchedStream(reader, self._lose), writer

    async def _follow(self, client: Client) -> None:
        # Until the connection is lost.
        tools = client.server_capabilities.tools
        is_modern = client.protocol_version in MODERN_PROTOCOL_VERSIONS
        listening = asyncio.ensure_future(self._listen(client)) if is_modern and tools and tools.list_changed else None
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                if self._is_lost:
                    return
                await self._list(client)
        finally:
            if listening is not None:
                listening.cancel()
                await asyncio.wait((listening,))

    async def _listen(self, client: Client) -> None:
        while True:
            with suppress(SubscriptionLost):
                async with client.listen(tools_list_changed=True) as changes:
                    async for _ in changes:
                        self._wake.set()
            await asyncio.sleep(_LONGEST_PAUSE)
            self._wake.set()  # what has changed meanwhile was not reported

    async def _receive(self, message: object) -> None:
        if isinstance(message, t.ToolListChangedNotification):
            self._wake.set()

    def _lose(self) -> None:
        self._is_lost = True
        self._wake.set()
        if self._attempt.done() and self._loop is not None:
            self._attempt = self._loop.create_future()  # from now on calls wait for the next server

    async def _list(self, client: Client) -> None:
        tools: list[t.Tool] = []
        cursor: str | None = None
        for _ in range(_MOST_PAGES):
            page = await client.session.list_tools(params=t.PaginatedRequestParams(cursor=cursor))
            tools += page.tools
            if (cursor := page.next_cursor) is None:
                break
        before, self.tools = self.tools, tuple(tools)
        if before != self.tools and self._attempt.done():
            self._followers = [follower for follower in self._followers if follower() is not None]
            for act in filter(None, [follower() for follower in self._followers]):
                act()


class WatchedStream(ObjectReceiveStream[Any]):
    """The messages of a server; calls `ended` when there are no more, which the SDK keeps to itself."""

    def __init__(self, stream: Any, ended: Callable[[], None]) -> None:  # noqa: ANN401 - whose protocol the SDK keeps private
        self._stream = stream
        self._ended = ended

    @override
    async def receive(self) -> Any:
        """The next message."""
        try:
            return await self._stream.receive()
        except (EndOfStream, ClosedResourceError):
            self._ended()
            raise

    @override
    async def aclose(self) -> None:
        """Closes the stream."""
        await self._stream.aclose()


def _reason(error: BaseException) -> str:
    # What the SDK raises is a group of groups with one member.
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseException", error.exceptions[0])
    return f"{error}" if isinstance(error, MCPError | OSError) else f"{type(error).__name__}: {error}"
