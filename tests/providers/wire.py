"""A provider on 127.0.0.1: it checks each request as the real API does, and answers it by a script.

The same messages get the same reply, with the same ids, so that a request that is repeated after a kill is answered the
same. With `fresh_ids` each response has ids of its own, as with the real APIs. A request with `stream` is answered by
events; with `cut` the stream ends after so many of them, without an error.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal, Protocol, cast

Json = dict[str, Any]
Event = tuple[str, Json | str]
"""The name of an event of a stream, empty if it has none, and its data."""


@dataclass(frozen=True)
class Reply:
    """What the model answers.

    Attributes:
        text: what it says; may be empty beside calls.
        calls: the tools that it asks for, each with its arguments.
        end: a limit cut it off, the model refused, or it is to be continued; else it is complete.
    """

    text: str = ""
    calls: tuple[tuple[str, Json], ...] = ()
    end: Literal["complete", "limit", "refusal", "pause"] = "complete"


SCRIPT = (
    Reply("First A-17.", (("pay", {"number": "A-17"}), ("note", {"text": "A-17 is paid"}))),
    Reply(calls=(("pay", {"number": "A-18"}),)),
    Reply("A-17 and A-18 are paid."),
)
"""The replies to a conversation, in order."""


class Refusal(Exception):
    """A request that the real API refuses.

    Attributes:
        message: why.
        param: the part of the request, as OpenAI names it.
        status: of the response.
    """

    def __init__(self, message: str, param: str | None = None, status: int = 400) -> None:
        super().__init__(message)
        self.message, self.param, self.status = message, param, status


class Api(Protocol):
    """The rules of one API."""

    path: str
    """What is posted to."""

    def replies(self, body: Json, issued: dict[str, Json]) -> int:
        """How many replies of the model a request holds.

        Args:
            body: the request.
            issued: every message or item that was sent, by its id; the id of a message is that of its first call.

        Raises:
            Refusal: the request is not valid.
        """
        ...

    def response(self, reply: Reply, tag: str, body: Json) -> tuple[Json, dict[str, Json]]:
        """The response with a reply, and what of it may be sent again, by id; `tag` makes the ids."""
        ...

    def events(self, response: Json) -> Iterator[Event]:
        """The stream of a response."""
        ...

    def error(self, refusal: Refusal) -> Json:
        """The body of an error."""
        ...

    def key(self, headers: dict[str, str]) -> str | None:
        """The key of the program; headers are in lower case.

        Raises:
            Refusal: another header is not valid.
        """
        ...


@dataclass
class Provider:
    """A running server.

    Attributes:
        apis: the APIs that it serves.
        url: its address.
        fresh_ids: whether each response has ids of its own.
        script: the replies to a conversation, in order.
        response_id: the id of all responses; by default each has another one.
        cut: after how many events a stream ends; by default after the last one.
        requests: the bodies that it was sent, in order.
        refusals: why it has refused some of them.
        streamed: of how many events each stream would be that is not cut.
    """

    apis: tuple[Api, ...]
    url: str = ""
    fresh_ids: bool = False
    script: Sequence[Reply] = SCRIPT
    response_id: str | None = None
    cut: int | None = None
    requests: list[Json] = field(default_factory=list[Json])
    refusals: list[str] = field(default_factory=list[str])
    streamed: list[int] = field(default_factory=list[int])
    _issued: dict[str, Json] = field(default_factory=dict[str, Json])
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def environment(self) -> dict[str, str]:
        """The environment variables by which the SDKs find it."""
        keys = dict.fromkeys(("OPENAI_API_KEY", "ANTHROPIC_API_KEY"), "none")
        return {**keys, "OPENAI_BASE_URL": f"{self.url}/v1", "ANTHROPIC_BASE_URL": self.url}

    def respond(self, path: str, headers: dict[str, str], data: bytes) -> tuple[int, Json]:
        """The status and the body of a response."""
        api = next((item for item in self.apis if item.path == path), None)
        if api is None:
            return 404, {"error": {"message": f"Unknown request URL: POST {path}", "type": "invalid_request_error"}}
        with self._lock:
            try:
                return 200, self._answer(api, headers, data)
            except Refusal as refusal:
                self.refusals.append(refusal.message)
                return refusal.status, api.error(refusal)

    def _answer(self, api: Api, headers: dict[str, str], data: bytes) -> Json:
        if api.key(headers) != "none":
            raise Refusal("Incorrect API key provided.", status=401)
        try:
            parsed: Any = json.loads(data)
        except ValueError:
            raise Refusal("We could not parse the JSON body of your request.") from None
        if not isinstance(parsed, dict):
            raise Refusal("The body must be an object.")
        body = cast("Json", parsed)
        self.requests.append(body)
        number = api.replies(body, self._issued)
        if number >= len(self.script):
            raise Refusal("The script has ended.")
        tag = f"{number + 1}n{len(self.requests)}" if self.fresh_ids else f"{number + 1}"
        response, issued = api.response(self.script[number], tag, body)
        self._issued |= issued
        return response if self.response_id is None else {**response, "id": self.response_id}

    def stream(self, path: str, response: Json) -> bytes:
        """A response as the events of a stream."""
        api = next(item for item in self.apis if item.path == path)
        events = list(api.events(response))
        self.streamed.append(len(events))
        return b"".join(map(_event_bytes, events[: self.cut]))


def _event_bytes(event: Event) -> bytes:
    name, data = event
    text = data if isinstance(data, str) else json.dumps(data)
    return (f"event: {name}\n" if name else "").encode() + f"data: {text}\n\n".encode()


def pieces(text: str) -> list[str]:
    """A text as a stream brings it, a few characters at a time."""
    return [text[place : place + 8] for place in range(0, len(text), 8)]


@contextmanager
def serving(*apis: Api, fresh_ids: bool = False) -> Generator[Provider]:
    """A provider, while the block runs."""
    provider = Provider(apis, fresh_ids=fresh_ids)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            data = self.rfile.read(int(headers.get("content-length", 0)))
            status, body = provider.respond(self.path, headers, data)
            is_stream = status == 200 and json.loads(data).get("stream") is True
            answer = provider.stream(self.path, body) if is_stream else json.dumps(body).encode()
            self.send_response(status)
            kind = "text/event-stream" if is_stream else "application/json"
            said = {"content-type": kind, "connection": "close", "x-should-retry": "false"}
            for name, value in {**said, "content-length": str(len(answer))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: object) -> None:
            """Keep standard error for the tests."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: object, client_address: object) -> None:
            """A process that was killed does not read its answer."""

    with Server(("127.0.0.1", 0), Handler) as server:
        provider.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield provider
        finally:
            server.shutdown()
            thread.join()


def required(body: Json, name: str, kind: type[Any]) -> Any:
    """A field of a request.

    Raises:
        Refusal: it lacks the field, or has something else in it.
    """
    if name not in body:
        raise Refusal(f"Missing required parameter: '{name}'.", name)
    if not isinstance(body[name], kind):
        raise Refusal(f"Invalid type for '{name}': expected {kind.__name__}.", name)
    return body[name]


def only(body: Json, allowed: str, where: str = "") -> None:
    """Refuse a field that the API does not have."""
    unknown = [name for name in body if name not in allowed.split()]
    if unknown:
        raise Refusal(f"Unknown parameter: '{where}{unknown[0]}'.", f"{where}{unknown[0]}")


def check_schema(schema: Json | None, where: str) -> None:
    """Refuse a schema that is not one of an object, whose properties have schemas."""
    if schema is None or schema.get("type") != "object" or not isinstance(schema.get("properties"), dict):
        raise Refusal(f"Invalid schema for function: schema must be of 'type: \"object\"', at {where}", where)


def check_tools(tools: list[Json], names: list[object]) -> None:
    """Refuse names that are not valid, or that two tools have."""
    for name in names:
        if not isinstance(name, str) or not 0 < len(name) <= 64 or not name.replace("_", "").replace("-", "").isalnum():
            raise Refusal(f"Invalid name of a tool: {name!r}", "tools")
    if len({*names}) != len(tools):
        raise Refusal("Tool names must be unique.", "tools")


def same_item(sent: Json, issued: Json | None, where: str) -> None:
    """Refuse an item of the model that is sent again with other contents; fields may be missing or added."""
    if issued is None:
        raise Refusal(f"Item at {where} was not found.", where)
    changed = [name for name, value in sent.items() if name in issued and issued[name] != value]
    if changed:
        raise Refusal(f"{where}.{changed[0]} is not what the model has sent.", where)


def check_answered(asked: list[str], answered: list[str], where: str) -> None:
    """Refuse answers that are not one for each call."""
    missing = [item for item in asked if item not in answered]
    if missing:
        raise Refusal(f"These calls have no answer: {', '.join(missing)}", where)
    unasked = [item for item in answered if item not in asked]
    if unasked:
        raise Refusal(f"These answers belong to no call: {', '.join(unasked)}", where)
    if len({*answered}) != len(answered):
        raise Refusal("A call has two answers.", where)
