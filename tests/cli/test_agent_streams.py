"""The streams of `handrail run`, `check` and `new`, and the requests of a run to a server."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal

import pytest

from handrail.cli import main
from tests.cli.agent_folders import PRINTING, PRINTING_AGENT, call, events, noting, script, write
from tests.cli.desk import Run
from tests.wording import Wording

HELLO = {"text": "Hello."}


CHECK = ("check", "desk.agent")


MAKE = ("new", "other")


@pytest.mark.parametrize("shape", ["text", "json"])
def test_what_a_program_prints_is_no_part_of_the_output(run: Run, folder: Path, shape: str) -> None:
    """Module, factory and tool: all of it goes to standard error."""
    write(folder, desk__agent=PRINTING_AGENT, tools__py=PRINTING)
    model = script(folder, {"calls": [call("say")]}, HELLO)
    ran = run("speak", "--model", model, "--approve", "approve-all", "--format", shape)
    assert ran.code == 0
    if shape == "json":
        assert events(ran.out)[-1]["output"] == "Hello."
    else:
        assert ran.out == "Hello.\n"
    for speaker in ("module", "factory", "tool"):
        assert f"the {speaker} speaks" in ran.err


def test_without_standard_input_no_person_is_asked(
    folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch, wording: Wording
) -> None:
    """As with `<&-`: the call is denied."""
    monkeypatch.setattr(sys, "stdin", None)
    ran = run("note it", "--model", noting(folder, "milk"))
    assert (ran.code, ran.out, ran.err) == (0, "Done.\n", wording)


@pytest.mark.parametrize("words", [("run", "desk.agent", "hello", "--model", "test"), CHECK, MAKE])
def test_without_standard_output_nothing_is_done(
    folder: Path, words: Sequence[str], capsys: pytest.CaptureFixture[str], wording: Wording
) -> None:
    """As with `>&-`: an answer that cannot be read must not look like success."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", None)
        assert main(words) == 1
    assert capsys.readouterr().err == wording
    assert not (folder / "other").exists()


MODEL = ("--model", "openai-chat:m", "--approve", "approve-all")


COUNTING = """
from pathlib import Path
def look() -> str:
    "Looks, and leaves a trace."
    with Path("looked").open("a") as file:
        file.write("x")
    return "nothing"
def note() -> str:
    "Notes nothing."
    return ""
TOOLS = [look, note]
"""


@dataclass
class Server:
    """A provider that asks for `look` and then answers; it never streams to the end.

    Attributes:
        failing: how many requests fail with 500 before each one that is answered.
        streaming: whether a request for a stream is refused, answered as a whole, or broken off after a word.
        streams: of each request, whether it asked for a stream.
    """

    failing: int = 0
    streaming: Literal["refused", "whole", "broken off"] = "refused"
    streams: list[bool] = field(default_factory=list[bool])
    _failed: int = 0

    def answer(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """The status and the document of a response."""
        self.streams.append(bool(body.get("stream")))
        if self._failed < self.failing:
            self._failed += 1
            return 500, {"error": {"message": "overloaded"}}
        self._failed = 0
        if self.streams[-1] and self.streaming == "refused":
            return 400, {"error": {"message": "Streaming is not supported", "param": "stream"}}
        call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
        if body["messages"][-1]["role"] == "tool":
            message = {"role": "assistant", "content": "Done."}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return 200, {"id": "r", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}


@pytest.fixture
def server(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Server]:
    """The server, and an agent that asks it."""
    served = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            status, document = served.answer(body)
            data = json.dumps(document).encode()
            if breaks_off := status == 200 and served.streams[-1] and served.streaming == "broken off":
                document["choices"] = [{"index": 0, "delta": {"role": "assistant", "content": "Do"}}]
                data = b"data: %b\n\n" % json.dumps(document).encode()
            self.send_response(status)
            self.send_header("content-type", "text/event-stream" if breaks_off else "application/json")
            self.send_header("content-length", str(len(data) + breaks_off))
            self.send_header("retry-after-ms", "1")
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    write(folder, tools__py=COUNTING)
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        thread = threading.Thread(target=http.serve_forever)
        thread.start()
        monkeypatch.setenv("OPENAI_API_KEY", "key")
        monkeypatch.setenv("OPENAI_BASE_URL", f"http://127.0.0.1:{http.server_port}/v1")
        try:
            yield served
        finally:
            http.shutdown()
            thread.join()


@pytest.mark.parametrize("streaming", ["refused", "whole", "broken off"])
def test_server_that_does_not_stream_is_asked_without(
    run: Run, server: Server, wording: Wording, streaming: Literal["refused", "whole", "broken off"]
) -> None:
    """Without --no-stream the run fails."""
    server.streaming = streaming
    ran = run("hello", *MODEL)
    assert ran.code == 1
    assert ran.err.splitlines()[-1] == wording
    ran = run("hello", *MODEL, "--no-stream")
    assert (ran.code, ran.out) == (0, "Done.\n")
    assert server.streams == [True, False, False]


def test_retry_repeats_the_request_and_no_call(run: Run, server: Server, folder: Path) -> None:
    """As often as --retries says."""
    server.failing = 2
    assert run("hello", *MODEL, "--no-stream", "--retries", "1").code == 1
    assert len(server.streams) == 2
    ran = run("hello", *MODEL, "--no-stream", "--retries", "3")
    assert (ran.code, ran.out) == (0, "Done.\n")
    assert len(server.streams) == 2 + 1 + 3
    assert (folder / "looked").read_text() == "x"


def test_fallback_model_is_asked_where_model_fails(run: Run, server: Server, folder: Path, wording: Wording) -> None:
    """If both fail, what both have said is shown."""
    server.failing = 100
    other = script(folder, {"text": "From the other one."})
    for words in ((), ("--no-stream",)):
        ran = run("hello", *MODEL, "--retries", "0", "--fallback-model", other, *words)
        assert (ran.code, ran.out) == (0, "From the other one.\n")
    server.failing, server.streaming = 0, "whole"
    assert run("hello", *MODEL, "--fallback-model", other).out == "From the other one.\n"
    server.failing = 100
    ran = run("hello", *MODEL, "--retries", "0", "--fallback-model", "openai-chat:n")
    assert ran.code == 1
    assert ran.err.splitlines()[-1] == wording


def test_command_that_resumes_has_the_options_of_requests(run: Run, server: Server, folder: Path) -> None:
    """So that an unattended run is resumed as it was begun."""
    write(folder, rules__yaml="ask: [look]")
    words = ("--no-stream", "--retries", "3", "--fallback-model", "openai-chat:n")
    stored = ("--store", "sqlite:///x.db", "--approve", "later", "--rules", "rules.yaml")
    ran = run("hello", *MODEL[:2], *stored, *words)
    assert ran.code == 3
    for option in ("--no-stream", "--retries 3", "--fallback-model openai-chat:n"):
        assert option in ran.err


@pytest.mark.parametrize("model", ["openai:m", "openai-chat:m", "openai-responses:m", "anthropic:m"])
@pytest.mark.parametrize("by", ["option", "fallback", "file", "variable"])
def test_empty_key_counts_as_unset(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch, *, model: str, by: str
) -> None:
    """One line in both cases, wherever the model is named."""
    variable = f"{model.partition(':')[0].partition('-')[0].upper()}_API_KEY"
    words = {"option": ("--model", model), "fallback": ("--model", "test", "--fallback-model", model)}.get(by, ())
    if by == "file":
        write(folder, desk__agent=f"---\nname: desk\nmodel: {model}\n---\nHello.\n")
    if by == "variable":
        monkeypatch.setenv("HANDRAIL_MODEL", model)
    monkeypatch.delenv(variable, raising=False)
    unset = run("hello", *words)
    assert unset.code == 2
    assert variable in unset.err
    assert len(unset.err.splitlines()) == 1
    for key in ("", " "):
        monkeypatch.setenv(variable, key)
        empty = run("hello", *words)
        assert (empty.code, empty.err) == (unset.code, unset.err)
