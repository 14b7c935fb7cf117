"""Malformed messages and large ones leave a server of tools serving, pay nothing, and learn nothing of it."""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest

from handrail import ToolExecutor
from handrail.adapters.mcp import server
from handrail.session import Session
from tests.adapters.mcp import malformed
from tests.adapters.mcp.kit import on_port
from tests.adapters.mcp.malformed import HELLO, META, MODERN, PROMPT, YES, paying, request
from tests.architecture.sources import ROOT
from tests.extent import FULL

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("measured_programs")]

_MESSAGES = 4_000 if FULL else 1_000
_SEEDS = range(2) if FULL else range(1)
_LARGE = 10_000_000
_AT_ONCE = 8
_TELLING = ("Traceback", 'File "', str(ROOT), sys.prefix, "handrail/adapters", "site-packages")


@pytest.fixture
def payments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of what was paid."""
    monkeypatch.setenv("BANK", str(tmp_path / "payments"))
    return tmp_path / "payments"


def paid_in(payments: Path) -> str:
    """What was paid, a line each."""
    return payments.read_text(encoding="utf-8")


def looking(word: str, number: object = 1) -> dict[str, Any]:
    """A call that only reads, by a client of the newest version."""
    return request("tools/call", {"name": "look", "arguments": {"word": word}, "_meta": META}, number)


def text_of(answer: Mapping[str, Any]) -> str:
    """The text of the result of a call."""
    return str(answer["result"]["content"][0]["text"])


def answered(order: str, question: Mapping[str, Any], number: object = 1) -> dict[str, Any]:
    """The call again, with the approval that it asked for."""
    (name,) = question["result"]["inputRequests"]
    return paying(order, number, requestState=question["result"]["requestState"], inputResponses={name: YES})


def assert_tells_nothing(answers: Sequence[str]) -> None:
    """No answer has a traceback or a path in its text."""
    assert [answer for answer in answers if any(word in answer for word in _TELLING)] == []


# ---------------------------------------------------------------------------------------------------------------- HTTP


def _headers(message: Any) -> dict[str, str]:
    """The headers of a message."""
    headers: dict[str, Any] = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
    with suppress(ValueError, LookupError, TypeError, RecursionError):
        message = json.loads(message) if isinstance(message, bytes) else message
        params = message["params"]
        headers |= {"MCP-Protocol-Version": MODERN, "Mcp-Method": message["method"]}
        headers |= {"Mcp-Name": params["name"]} if "name" in params else {}
    return {name: value for name, value in headers.items() if _is_value(value)}


def _is_value(value: object) -> bool:
    return isinstance(value, str) and value.isascii() and value.isprintable()


def _wrong(headers: dict[str, str], dice: random.Random) -> dict[str, str]:
    names = [
        *headers,
        "MCP-Protocol-Version",
        "Mcp-Method",
        "Mcp-Name",
        "Mcp-Session-Id",
        "Last-Event-ID",
        "Authorization",
    ]
    values = ("", "text/plain", "1999-01-01", "2025-11-25", "x" * 5_000, "tools/list", "*/*", "application/json")
    return {**headers, dice.choice(names): dice.choice(values)}


async def _open_older_session(client: httpx2.AsyncClient, url: str) -> dict[str, str]:
    """Opens a session of a client of an older version, which shows no questions; returns its headers."""
    headers = _headers(b"")
    answer = await client.post(url, json=request("initialize", HELLO), headers=headers)
    return {**headers, "Mcp-Session-Id": answer.headers["Mcp-Session-Id"], "MCP-Protocol-Version": "2025-11-25"}


async def _post(client: httpx2.AsyncClient, url: str, message: Mapping[str, Any]) -> dict[str, Any]:
    answer = await client.post(url, json=message, headers=_headers(message))
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


@pytest.mark.parametrize("seed", _SEEDS)
async def test_http_server_goes_on_after_malformed_messages(seed: int, payments: Path) -> None:
    """With wrong headers too, and over the session of a client of an older version."""
    dice, answers = random.Random(seed), list[str]()  # noqa: S311
    app = server(ToolExecutor(prompt=PROMPT, session=Session()))
    async with on_port(app) as url, httpx2.AsyncClient(timeout=30) as client:
        asked = await _post(client, url, paying("proper"))
        assert text_of(await _post(client, url, answered("proper", asked))) == "paid proper"
        state = asked["result"]["requestState"]
        older = await _open_older_session(client, url)
        messages, turn = malformed.malformed(dice, _MESSAGES, state), asyncio.Lock()

        async def send() -> None:
            for message in messages:
                if dice.random() < 1 / 4:
                    async with turn:  # requests of one session with one id would take the answers of each other
                        answer = await client.post(url, content=message, headers=older)
                else:
                    headers, method = _headers(message), dice.choice(("POST",) * 20 + ("GET", "DELETE", "PUT"))
                    headers = _wrong(headers, dice) if dice.random() < 1 / 4 else headers
                    answer = await client.request(method, url, content=message, headers=headers)
                answers.append(answer.text)
                assert answer.status_code < 500, (answer.text, message[:500])

        await asyncio.gather(*(send() for _ in range(_AT_ONCE)))
        assert text_of(await _post(client, url, looking("all is well"))) == "seen all is well"
    assert len(answers) == _MESSAGES
    assert sum('"result"' in answer for answer in answers) > _MESSAGES // 20  # some have come as far as the tools
    assert_tells_nothing(answers)
    assert paid_in(payments) == "proper\n"


async def _pieces(message: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(message), 100_000):
        yield message[start : start + 100_000]


async def test_http_server_refuses_bodies_of_ten_megabytes() -> None:
    """Also one whose length is not stated, and several at once."""
    large = json.dumps(paying("x" * _LARGE)).encode()
    app = server(ToolExecutor(prompt=PROMPT, session=Session()))
    async with on_port(app) as url, httpx2.AsyncClient(timeout=30) as client:
        headers = _headers(paying("a"))
        bodies: list[Any] = [large, _pieces(large), b"[" * _LARGE, _pieces(b" " * _LARGE)]
        sent = await asyncio.gather(*(client.post(url, content=body, headers=headers) for body in bodies))
        assert [answer.status_code for answer in sent] == [413] * len(bodies)
        assert text_of(await _post(client, url, looking("all is well"))) == "seen all is well"


# --------------------------------------------------------------------------------------------------------------- stdio


class Process:
    """`handrail serve` over standard input and output; lines are bytes."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.lines: list[str] = []

    async def send(self, line: bytes) -> None:
        """Sends a line; what is in it of others counts as well."""
        assert self._process.stdin is not None
        self._process.stdin.write(line + b"\n")
        await self._process.stdin.drain()

    async def ask(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Sends a request, and reads up to its answer."""
        assert self._process.stdout is not None
        await self.send(json.dumps(message).encode())
        while line := await self._process.stdout.readline():
            self.lines.append(line.decode())
            answer: dict[str, Any] = json.loads(line)
            if answer.get("id") == message["id"]:
                return answer
        raise AssertionError("the server has ended")

    async def end(self) -> int:
        """Ends it by the end of its input; returns its exit code."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        return await self._process.wait()


_COMMAND = (sys.executable, "-m", "handrail", "serve", "tests.adapters.mcp.malformed:PROMPT")


async def _serving(log: Path) -> Process:
    with log.open("wb") as errors:
        process = await asyncio.create_subprocess_exec(
            *_COMMAND,
            cwd=ROOT,
            env=os.environ,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
            limit=4 * _LARGE,
        )
    return Process(process)


@pytest.mark.parametrize("seed", _SEEDS)
async def test_stdio_server_goes_on_after_malformed_and_large_messages(
    seed: int, payments: Path, tmp_path: Path
) -> None:
    """In a process, which ends as it should when its input ends."""
    dice, served = random.Random(seed), await _serving(tmp_path / "log")  # noqa: S311
    asked = await served.ask(paying("proper", "ask"))
    assert text_of(await served.ask(answered("proper", asked, "answer"))) == "paid proper"
    messages = list(malformed.malformed(dice, _MESSAGES, asked["result"]["requestState"]))
    for start in range(0, len(messages), 50):
        for message in messages[start : start + 50]:
            await served.send(message)
        assert text_of(await served.ask(looking("a word", f"after {start}"))) == "seen a word"
    for at, large in enumerate((b"[" * _LARGE, b"x" * _LARGE, json.dumps(paying("x" * _LARGE)).encode())):
        await served.send(large)
        assert text_of(await served.ask(looking("a word", f"after a large one, {at}"))) == "seen a word"
    assert text_of(await served.ask(looking("all is well", "last"))) == "seen all is well"
    assert await served.end() == 0
    assert_tells_nothing(served.lines)
    assert paid_in(payments) == "proper\n"


def test_stdio_server_ends_quietly_when_nobody_reads_its_answers() -> None:
    """The client was killed in the middle of calls."""
    pipe = subprocess.PIPE
    with subprocess.Popen(_COMMAND, cwd=ROOT, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        process.stdin.write(b"".join(json.dumps(looking("a word", at)).encode() + b"\n" for at in range(50)))
        process.stdin.close()
        assert b"Traceback" not in process.stderr.read()
        assert process.wait() == 0
