"""The pages of a store, served to a browser of this machine.

| address | shows |
|---|---|
| `/` | the sessions |
| `/run?session=` | a session; `/events?session=` what comes to it, as server-sent events |
| `/call?session=&call=` | a call |
| `/effects`, `/questions` | see `handrail.view.lists` |
| `/compare?session=&with=` | two sessions beside each other |
| `POST /answer`, `POST /settle` | nothing: they record what a form says, where that is allowed |

Templates and reading run on threads, so that a slow store stops no other page. An event has the place after its parts
as its id (see `handrail.view.live`), so that a browser that was cut off continues there.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Mapping
from itertools import count
from typing import Any, Final
from urllib.parse import urlencode

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from handrail import __version__
from handrail.errors import HandrailError, LedgerError, SessionError, SessionNotFoundError
from handrail.operations.sessions import find_session
from handrail.redaction import redacted
from handrail.store import Store
from handrail.view.actions import FORMS, FormFields, PageActions, read_form
from handrail.view.compare import compare_sessions
from handrail.view.export import asset
from handrail.view.guard import Guard
from handrail.view.lists import (
    EFFECT_STATES,
    SESSION_STATES,
    InvalidListError,
    ListPage,
    read_effect_page,
    read_question_page,
    read_session_page,
)
from handrail.view.live import LiveRun, LiveRuns, RunUpdate
from handrail.view.render import Look, render, render_call, templates
from handrail.view.run_page import read_details

_ASSETS: Final = {"view.css": "text/css", "view.js": "text/javascript", "icon.svg": "image/svg+xml"}
_PAGES: Final = (("/", "Sessions"), ("/effects", "Effects"), ("/questions", "Questions"), ("/compare", "Compare"))
_PAUSE: Final = 1.0  # seconds between two looks for a browser
_STEPS: Final = 5  # in which such a pause passes, so that the end of the server is not waited for
_BEATS: Final = 15  # pauses after which a browser is sent something, so that a proxy does not end the connection
_MOST_WHOLE: Final = 10_000_000  # characters of one text, where all of it is asked for
_TOGETHER: Final = 200  # parts of a template that are sent in one piece


class ViewServer:
    """Answers the requests of browsers.

    Attributes:
        app: the ASGI application, behind its `Guard`.
    """

    def __init__(self, store: Store, port: int, *, allow_actions: bool = False, trace_url: str = "") -> None:
        self._store = store
        self._runs = LiveRuns(store)
        self._actions = PageActions(store) if allow_actions else None
        self._look = Look(trace_url=trace_url, actions=self._actions)
        routes = [
            Route("/", self._sessions),
            Route("/effects", self._effects),
            Route("/questions", self._questions),
            Route("/compare", self._compare),
            Route("/run", self._run),
            Route("/events", self._events),
            Route("/call", self._call),
            Route("/static/{name}", _asset),
        ]
        if allow_actions:
            routes += [Route(path, self._act, methods=["POST"]) for path in FORMS]
        handlers: dict[Any, Any] = dict.fromkeys((HandrailError, HTTPException, InvalidListError), self._explain)
        self.app: Guard = Guard(Starlette(routes=routes, exception_handlers=handlers), port)
        self._port = port
        self._server = uvicorn.Server(
            uvicorn.Config(self.app, log_level="error", access_log=False, server_header=False)
        )

    def address(self, session_id: str | None = None) -> str:
        """The address that lets a browser in: that of the sessions, or of one of them."""
        page = "" if session_id is None else f"run?{urlencode({'session': session_id})}"
        return f"http://127.0.0.1:{self._port}/{page}{'&' if page else '?'}token={self.app.token}"

    def serve(self, listener: socket.socket) -> None:
        """Serves the pages until the process is to end."""
        self._server.run([listener])

    def page(self, request: Request, name: str, status: int = 200, **values: object) -> HTMLResponse:
        """A page, by the name of its template and its values."""
        return HTMLResponse(render(name, **self._values(request), **values), status)

    def _values(self, request: Request) -> dict[str, object]:
        source = f"Handrail {__version__}, {self._store.url}. Secrets are masked."
        own: dict[str, object] = {"style": "", "script": "", "policy": "", "source": source}
        return own | {"pages": _PAGES, "here": request.url.path, "look": self._look}

    def _sessions(self, request: Request) -> Response:
        query = _query(request, "state", "text", "after")
        return self._list(
            request, "sessions.html", read_session_page(self._store, **query), query, states=SESSION_STATES
        )

    def _effects(self, request: Request, *, fault: str = "", key: str = "") -> Response:
        query = _query(request, "state", "tool", "text", "after")
        query["text"] = key or query["text"]
        page = read_effect_page(self._store, **query)
        return self._list(request, "effects.html", page, query, states=EFFECT_STATES, fault=fault)

    def _questions(self, request: Request, *, fault: str = "", session: str = "") -> Response:
        query = _query(request, "session", "text", "after")
        query["session"] = session or query["session"]
        return self._list(request, "questions.html", read_question_page(self._store, **query), query, fault=fault)

    def _list(
        self, request: Request, name: str, page: ListPage[Any], query: Mapping[str, str], **values: object
    ) -> Response:
        more = f"?{urlencode({**query, 'after': page.after})}" if page.after else ""
        values = {"page": page, "query": query, "more": more, "now": self._store.now(), "fault": ""} | values
        return self.page(request, name, 409 if values["fault"] else 200, **values)

    def _compare(self, request: Request) -> Response:
        names = [request.query_params.get(name, "") for name in ("session", "with")]
        rows = [find_session(self._store, name) for name in names] if all(names) else []
        comparison = compare_sessions(self._store, *rows) if rows else None
        return self.page(request, "compare.html", names=names, comparison=comparison)

    async def _act(self, request: Request) -> Response:
        fields = await read_form(request, FORMS[request.url.path])
        return await run_in_threadpool(self._carry_out, request, fields)

    def _carry_out(self, request: Request, fields: FormFields) -> Response:
        actions = self._actions
        assert actions is not None  # noqa: S101 - else no route leads here
        try:
            address = actions.answer(fields) if request.url.path == "/answer" else actions.settle(fields)
        except SessionError as error:
            return self._questions(request, fault=str(error), session=fields["session"])
        except LedgerError as error:
            return self._effects(request, fault=str(error), key=fields["key"])
        return RedirectResponse(address, 303)

    def _run(self, request: Request) -> Response:
        run = self._runs.open(_parameter(request, "session"))
        template, values = templates().get_template("run.html"), self._values(request)
        tails: list[RunUpdate] = []
        page = template.stream(values, row=run.row, parts=run.stream(tails), tail=lambda: tails[0])
        page.enable_buffering(_TOGETHER)
        return StreamingResponse(page, media_type="text/html")

    def _events(self, request: Request) -> Response:
        session_id = _parameter(request, "session")
        try:
            run = self._runs.open(session_id)
        except SessionNotFoundError:
            raise
        except HandrailError as error:  # its store is away: a browser asks again only after such an answer
            return Response(_fault_event(error), media_type="text/event-stream")
        if request.query_params.get("begun") not in {None, run.created_at.isoformat()}:
            raise SessionNotFoundError("the session was deleted; another one has its id", session_id=session_id)
        after = request.headers.get("last-event-id") or request.query_params.get("after", "0")
        if not (after.isascii() and after.isdecimal()):
            raise HTTPException(400, "after is the place of a part")
        return StreamingResponse(self._follow(run, int(after)), media_type="text/event-stream")

    async def _follow(self, run: LiveRun, after: int) -> AsyncIterator[str]:
        # A browser that has gone cancels it; one that stays would keep the server from its end.
        last: RunUpdate | None = None
        yield f"retry: {1_000 * _PAUSE:.0f}\n\n"
        for beat in count(1):
            try:
                update = await run_in_threadpool(run.update, after)
            except HandrailError as error:  # it is asked for again, and then refused if there is no such session
                yield _fault_event(error)
                return
            if update.parts or last is None or update[2:] != last[2:]:
                data = {"parts": update.parts, "open": update.open_parts, "status": update.status}
                yield f"id: {update.place}\ndata: {json.dumps(data)}\n\n"
            elif beat % _BEATS == 0:
                yield ": nothing new\n\n"
            after, last = update.place, update
            for _ in range(_STEPS):
                await asyncio.sleep(_PAUSE / _STEPS)
                if self._server.should_exit:
                    return

    def _call(self, request: Request) -> Response:
        run, name = self._runs.open(_parameter(request, "session")), _parameter(request, "call")
        view = run.find_call(name)
        if view is None:
            raise HTTPException(404, f"session {run.row.session_id} has no call {name}")
        look = self._look._replace(most=_MOST_WHOLE) if "whole" in request.query_params else self._look
        details = read_details(self._store, view)
        if self._actions is not None and view.call.outcome == "waiting":
            mine, questions = view.call.call.storable, self._actions.find_questions(view.session_id)
            open_ones = [one for one in questions if one.is_recorded and one.answer is None]
            details = details._replace(questions=[one for one in open_ones if one.call.outermost.storable == mine])
        html = render_call(view, details, look)
        if "part" in request.query_params:
            return HTMLResponse(html)
        return self.page(request, "call.html", view=view, details=html)

    def _explain(self, request: Request, error: Exception) -> Response:
        status = 404 if isinstance(error, SessionNotFoundError) else 400 if isinstance(error, InvalidListError) else 503
        fault, status = (error.detail, error.status_code) if isinstance(error, HTTPException) else (str(error), status)
        return self.page(request, "fault.html", status, fault=fault)


def _fault_event(error: HandrailError) -> str:
    return f"retry: {1_000 * _PAUSE:.0f}\nevent: fault\ndata: {json.dumps(redacted(str(error)))}\n\n"


def _query(request: Request, *names: str) -> dict[str, str]:
    return {name: request.query_params.get(name, "").strip() for name in names}


def _parameter(request: Request, name: str) -> str:
    if not (text := request.query_params.get(name, "")):
        raise HTTPException(400, f"{name} is missing in the address")
    return text


def _asset(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in _ASSETS:
        raise HTTPException(404, f"there is no {name}")
    return Response(asset(name), media_type=_ASSETS[name])
