"""What the page on MCP has a reader configure and serve: by the SDK's client, over processes and HTTP."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shlex
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx2
import mcp_types as t
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from handrail.cli import main
from tests.adapters.mcp.kit import on_port, text
from tests.architecture.sources import ROOT
from tests.docs.kit import unwrapped
from tests.docs.typed_pages import DOCS, File, read_steps

pytestmark = pytest.mark.anyio

PAGE = DOCS / "how-to" / "mcp.md"
TEXT = PAGE.read_text(encoding="utf-8")
FORM, REFUSAL = (unwrapped(block).rstrip() for block in re.findall(r"(?ms)^```text\n(.*?)^```$", TEXT))
LINES = [str(line) for line in "".join(re.findall(r"(?ms)^```sh\n(.*?)^```$", TEXT)).splitlines()]
PAYMENT = {"order": "A-1", "cents": 5}
WITH_RULES = ["--rules", "approval.yaml"]
HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}},
}


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with all files of the page."""
    for step in read_steps(PAGE):
        if isinstance(step, File):
            (tmp_path / step.name).parent.mkdir(exist_ok=True)
            (tmp_path / step.name).write_text(step.text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@asynccontextmanager
async def client_of(words: Sequence[str], **options: Any) -> AsyncGenerator[Client]:
    """A client that starts `handrail` with these words, in the current folder."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    env = {"PATH": path, "PYTHONPATH": str(ROOT / "src")}
    command = StdioServerParameters(command=sys.executable, args=["-m", "handrail", *words], env=env)
    async with Client(stdio_client(command, sys.__stderr__ or sys.stderr), **options) as client:
        yield client


def proxy_words() -> list[str]:
    """The arguments of the proxy, as the line for Claude Code has them; all clients are given the same ones."""
    (line,) = (line for line in LINES if line.startswith("claude mcp add "))
    _, handrail, *words = shlex.split(line.partition(" shop ")[2])
    assert handrail == "handrail"
    return words


async def test_each_client_starts_the_same_proxy(files: Path) -> None:
    """The files of Cursor and VS Code are JSON with the words of the line."""
    words = proxy_words()
    for name, key in ((".cursor/mcp.json", "mcpServers"), (".vscode/mcp.json", "servers")):
        shop = json.loads((files / name).read_text(encoding="utf-8"))[key]["shop"]
        assert (shop["command"], shop["args"]) == ("handrail", words)
    async with client_of(words) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == ["find_payment", "pay"]


@pytest.mark.usefixtures("files")
async def test_client_with_elicitation_shows_the_question_of_the_page() -> None:
    """It has the fields that the page names."""
    asked: list[Any] = []

    async def answer(_: object, params: Any) -> t.ElicitResult:
        asked.append(params)
        return t.ElicitResult(action="accept", content={"approve": True})

    name, *rest = proxy_words()
    async with client_of([name, *WITH_RULES, *rest], elicitation_callback=answer) as client:
        assert "A-1 is paid" in text(await client.call_tool("pay", PAYMENT))
    assert [(params.message, [*params.requested_schema["properties"]]) for params in asked] == [
        (FORM, ["approve", "reason"])
    ]


@pytest.mark.usefixtures("files")
async def test_client_without_elicitation_reads_the_message_of_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    """The command in it answers, and the next equal call runs, in another process."""
    name, *rest = proxy_words()
    words = [name, *WITH_RULES, *rest]
    async with client_of(words) as client:
        refused = text(await client.call_tool("pay", PAYMENT))
    said = refused.replace(str(Path.cwd()), "/srv")
    assert re.sub(r"[0-9a-f]{12}", "0123456789ab", said) == REFUSAL
    command = refused.partition("answers by: handrail ")[2].partition(". Then")[0]
    assert main(shlex.split(command)) == 0
    assert "may run" in capsys.readouterr().out
    async with client_of(words) as client:
        assert "A-1 is paid" in text(await client.call_tool("pay", PAYMENT))


@pytest.mark.usefixtures("files")
async def test_served_tools_ask_and_report_progress() -> None:
    """As the program of the page has it."""
    reports: list[object] = []

    async def answer(_: object, params: Any) -> t.ElicitResult:
        assert params.message == "Where does A-1 go?"
        return t.ElicitResult(action="accept", content={"address": "Berlin"})

    async def report(progress: float, total: float | None, message: str | None) -> None:
        reports.append((progress, total, message))

    line = next(line for line in LINES if line.startswith("handrail serve"))
    async with client_of(shlex.split(line)[1:], elicitation_callback=answer) as client:
        result = await client.call_tool("ship", {"order": "A-1"}, progress_callback=report)
    assert (text(result), reports) == ("A-1 goes to Berlin", [(1, 2, "packed")])


@pytest.mark.usefixtures("files")
async def test_agent_with_a_server_is_served() -> None:
    """Its tools are those of the server that it names."""
    (line,) = re.findall(r"`handrail (serve desk\.agent .*?)`", TEXT)
    async with client_of(shlex.split(line)) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == ["shop_find_payment", "shop_pay"]


def module_of(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A module of the current folder."""
    spec = importlib.util.spec_from_file_location(name, f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    return module


@pytest.mark.usefixtures("files")
async def test_application_serves_its_host_to_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each principal has a session; another host, and a client without a token, are refused."""
    module_of("desk", monkeypatch)
    module = module_of("app", monkeypatch)
    accepts = {"Host": "desk.example", "Accept": "application/json, text/event-stream"}
    token = {"Authorization": "Bearer the-token-of-ann"}
    async with on_port(module.app) as url, httpx2.AsyncClient() as client:

        async def status(headers: dict[str, str], message: dict[str, Any]) -> int:
            return (await client.post(url, json=message, headers=headers)).status_code

        assert await status(accepts, HELLO) == 401
        assert await status(accepts | token | {"Host": "evil.example"}, HELLO) == 421
        opened = await client.post(url, json=HELLO, headers=accepts | token)
        assert opened.status_code == 200
        session = accepts | token | {"mcp-session-id": opened.headers["mcp-session-id"]}
        assert await status(session, {"jsonrpc": "2.0", "method": "notifications/initialized"}) == 202
        assert await status(session, {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}) == 200
    assert len(module.sources) == 1
    module.db.close()
