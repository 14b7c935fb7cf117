"""A server of tools over streamable HTTP, as an ASGI application.

Who may reach it is checked before a request is read: the headers Host and Origin (by default those of this machine, so
that a web page that a browser shows cannot call tools by a name that leads here), and with `auth` the bearer token, as
an OAuth resource server. There is no provider of tokens here.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, Unpack

from mcp.server.auth.provider import TokenVerifier
from mcp.server.auth.settings import AuthSettings
from mcp.server.transport_security import TransportSecuritySettings
from starlette.applications import Starlette

from handrail.adapters.mcp.tool_server import FindSource, ServerOptions, ToolServer
from handrail.adapters.tool_executor import ToolExecutor

_OWN_HOSTS: Final = ("127.0.0.1", "localhost", "[::1]")


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSettings:
    """Who may reach a server, and how much of it.

    Attributes:
        hosts: the names by which it is reached, each with a port or `:*`; by default those of this machine.
        origins: the origins of web pages that may call it; by default pages of this machine.
        auth: the issuer of tokens, and the address of this resource; with a `verifier`.
        verifier: checks a bearer token; its subject is the identity of the client.
        max_body: the most bytes of a request.
        max_sessions: the most sessions of clients of older versions.
        idle_seconds: after which such a session ends.
    """

    hosts: tuple[str, ...] = tuple(f"{host}:*" for host in _OWN_HOSTS)
    origins: tuple[str, ...] = tuple(f"http://{host}:*" for host in _OWN_HOSTS)
    auth: AuthSettings | None = None
    verifier: TokenVerifier | None = None
    max_body: int = 4 * 1024 * 1024
    max_sessions: int = 1_000
    idle_seconds: float = 1_800


def server(
    source: ToolExecutor | FindSource, *, http: HttpSettings = HttpSettings(), **options: Unpack[ServerOptions]
) -> Starlette:
    """The tools of an executor as an ASGI application, with the endpoint `/mcp`: `uvicorn.run(server(executor))`.

    Its resources are entered when it starts, and left when it ends. Instead of an executor, a function may find the
    source of an identity; see `ToolServer`. `options` are those of `ToolServer`.
    """
    return http_app(ToolServer(source, **options), http, source if isinstance(source, ToolExecutor) else None)


def http_app(tools: ToolServer, http: HttpSettings, executor: ToolExecutor | None = None) -> Starlette:
    """A server as an ASGI application; the resources of `executor` are entered with it."""
    app = tools.protocol.streamable_http_app(
        auth=http.auth,
        token_verifier=http.verifier,
        max_request_body_size=http.max_body,
        max_sessions=http.max_sessions,
        session_idle_timeout=http.idle_seconds,
        transport_security=TransportSecuritySettings(
            enable_dns_rebinding_protection=True, allowed_hosts=list(http.hosts), allowed_origins=list(http.origins)
        ),
    )
    protocol_lifespan = app.router.lifespan_context

    @asynccontextmanager
    async def lifespan(of: Any) -> AsyncGenerator[Any]:  # noqa: ANN401 - the application
        with ExitStack() as stack:
            if executor is not None:
                stack.enter_context(executor)
            async with protocol_lifespan(of) as state:
                yield state

    app.router.lifespan_context = lifespan
    return app
