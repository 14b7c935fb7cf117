"""Who may use the pages: requests of this machine's own browser, with the token of this start.

In this order, for each request; the first that fails answers it:

| check | why | else |
|---|---|---|
| `Host` is a name of this machine | a page of another site may have its name lead here (DNS rebinding) | 421 |
| the token, or the cookie that it was exchanged for | other users and programs reach the port, too | 403 |
| a `POST` comes from a page of this server | another site may have the browser send a form (CSRF) | 403 |

The token is in the address once: it is exchanged for a cookie, and the address is replaced by the same without it. A
page does that, and no redirect: after a click on a page of another site, a browser sends no such cookie where a
redirect leads. A cookie is not bound to a port, so its name has the port. Each answer has headers that let a page run
no script but its own, stand in no frame, and stay in no cache.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from hmac import compare_digest
from html import escape
from secrets import token_urlsafe
from typing import Any, Final
from urllib.parse import quote, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response

_HOSTS: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})
_HEADERS: Final[Mapping[str, str]] = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
        "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
_PARAMETER: Final = "token"
_ENTRANCE: Final = """\
<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Handrail</title><link rel="icon" href="/static/icon.svg">
<meta http-equiv="refresh" content="0;url={0}"></head><body><a href="{0}">Handrail</a></body></html>
"""

App = Callable[[Any, Any, Any], Awaitable[None]]
"""An ASGI application."""


class Guard:
    """An ASGI application that lets through what the table of this module allows.

    Attributes:
        token: lets a browser in, of this start.
    """

    def __init__(self, app: App, port: int) -> None:
        self.token: str = token_urlsafe(32)
        self._app = app
        self._cookie = f"handrail-{port}"

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401 - as ASGI has it
        """Answers a request, or has the application answer it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Any) -> None:  # noqa: ANN401 - as above
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        answer = self._refuse(Request(scope)) or self._app
        await answer(scope, receive, send_with_headers)

    def _refuse(self, request: Request) -> Response | None:
        if _host(request.headers) not in _HOSTS:
            return PlainTextResponse("This server answers to localhost alone.", 421)
        if (given := request.query_params.get(_PARAMETER)) is not None and self._is_token(given):
            answer = HTMLResponse(_ENTRANCE.format(escape(_without_token(request))))
            answer.set_cookie(self._cookie, self.token, httponly=True, samesite="strict", path="/")
            return answer
        if not self._is_token(request.cookies.get(self._cookie, "")):
            return PlainTextResponse("Open the address that handrail view has printed: it has the token.", 403)
        if request.method not in {"GET", "HEAD"} and not _is_own_form(request.headers):
            return PlainTextResponse("This was not sent by a page of this server.", 403)
        return None

    def _is_token(self, text: str) -> bool:
        return compare_digest(text.encode(errors="replace"), self.token.encode())


def _host(headers: Headers) -> str:
    name, colon, port = headers.get("host", "").rpartition(":")
    return (name if colon and port.isdigit() else headers.get("host", "")).lower()


def _without_token(request: Request) -> str:
    # One slash alone, because two would lead to the server that the path names.
    rest = [(name, value) for name, value in request.query_params.multi_items() if name != _PARAMETER]
    return f"/{quote(request.url.path.lstrip('/'))}{'?' if rest else ''}{urlencode(rest)}"


def _is_own_form(headers: Headers) -> bool:
    # A browser that hides referrers sends "null" as the origin of a form; the other header says where it is from.
    site = headers.get("sec-fetch-site")
    return headers.get("origin") == f"http://{headers.get('host')}" if site is None else site == "same-origin"
