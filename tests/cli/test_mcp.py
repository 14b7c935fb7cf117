"""`handrail proxy` and `handrail serve`: what they print, refuse and record, and how they end."""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from handrail import store as stores
from handrail.cli.agents import write_agent_folder
from tests.adapters.mcp.kit import bank_command, free_port, text
from tests.cli.agent_folders import write
from tests.cli.desk import ENTRY, Command
from tests.wording import Wording

# Servers are processes that start.
pytestmark = [pytest.mark.timeout(180), pytest.mark.usefixtures("measured_programs")]

A_BANK = ("--", "a bank")
"""Stands for what starts a bank."""
RULES = "defaults: {read: allow, external: ask}\ndeny: [north_wrong]\n"
MODULE = """
from handrail import tool
from handrail.prompt import Prompt, PromptTemplate, ToolsSection

@tool(effect="read")
def price(order: str) -> int:
    "The price of an order."
    return len(order)

TOOLS = [price]
SECTION = ToolsSection(title="Prices", tools=TOOLS)
TEMPLATE = PromptTemplate[str](ns="tests", key="prices", name="prices", sections=[SECTION])
PROMPT = Prompt(TEMPLATE)
NUMBER = 3
"""


@pytest.fixture
def mcp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """The command in a folder with a module, a description of two servers, and rules; nothing is stored."""
    command = [*bank_command()]
    servers = {
        "north": {"command": command, "only": ["balance", "pay", "wrong", "ask"], "read": ["pay"], "external": ["pey"]},
        "south": {"command": command, "only": ["find"], "reconcile": {}, "keys": {"find": ["order"]}, "prefix": ""},
    }
    files = {"rules__yaml": RULES, "other__yaml": "deny: [pya, 'pay(ordr: a)']\n"}
    write(tmp_path, mcp_desk__py=MODULE, servers__yaml=json.dumps({"servers": servers}), **files)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])  # the command adds the folder of the module
    return Command("", capsys)


@pytest.fixture
def bank() -> Sequence[str]:
    """The words by which a proxy starts a bank."""
    return ("--", *bank_command())


@asynccontextmanager
async def client_of(*words: str) -> AsyncGenerator[Client]:
    """A client of the command as a process."""
    parameters = StdioServerParameters(command=ENTRY[0], args=[*ENTRY[1:], *words], env=dict(os.environ))
    async with Client(stdio_client(parameters, sys.__stderr__ or sys.stderr)) as client:
        yield client


# ------------------------------------------------------------------------------------------------------------- explain


@pytest.mark.parametrize("rules", [[], ["--rules", "rules.yaml"]], ids=["without rules", "with rules"])
def test_tools_are_explained_as_a_table(mcp: Command, rules: Sequence[str], wording: Wording) -> None:
    """Of several servers, with their prefixes; a name in the file that no tool has is noted."""
    ran = mcp("proxy", "--config", "servers.yaml", "--explain", *rules)
    assert ran.code == 0
    assert [line.rstrip() for line in ran.out.splitlines()] == wording
    assert ran.err == wording


def test_tools_are_explained_as_json(mcp: Command, bank: Sequence[str], wording: Wording) -> None:
    """One object, whose rows are those of the table."""
    ran = mcp("proxy", "--explain", "--format", "json", *bank)
    rows = {row["tool"]: row for row in json.loads(ran.out)["tools"]}
    assert ran.code == 0
    assert rows["pay"] == {
        "tool": "pay",
        "server": "bank_server",
        "effect": "external",
        "from": "default",
        "calls": wording,
    }
    assert rows["balance"]["from"] == "hints"


# -------------------------------------------------------------------------------------------------- wrong command lines

PROXY = ("proxy", "--explain")
WRONG: dict[str, Sequence[str]] = {
    "no server": PROXY,
    "two ways at once": (*PROXY, "--url", "http://127.0.0.1:9/mcp", *A_BANK),
    "a variable that is not set": (*PROXY, "--env", "BANK_TOKEN", *A_BANK),
    "no such file": (*PROXY, "--config", "nowhere.yaml"),
    "a server that ends": (*PROXY, "--", sys.executable, "-c", "pass"),
    "no such program": (*PROXY, "--", "nonsense-program"),
    "wrong rules": (*PROXY, "--rules", "mcp_desk.py", *A_BANK),
    "rules on what is not there": (*PROXY, "--rules", "other.yaml", *A_BANK),
    "rules of tools that are not served": ("serve", "mcp_desk.py:TOOLS", "--rules", "rules.yaml"),
    "no port": ("serve", "mcp_desk.py:TOOLS", "--http", "0"),
    "no name": ("serve", "mcp_desk.py"),
    "no such module file": ("serve", "nowhere.py:TOOLS"),
    "no such module": ("serve", "nowhere:TOOLS"),
    "no such object": ("serve", "mcp_desk.py:NOTHING"),
    "no tools": ("serve", "mcp_desk.py:NUMBER"),
    "no such agent": ("serve", "nowhere.agent"),
}


@pytest.mark.short(len(WRONG))
@pytest.mark.parametrize("name", WRONG)
def test_wrong_command_line_says_what_is_wrong(mcp: Command, bank: Sequence[str], name: str, wording: Wording) -> None:
    """Nothing is served, and nothing is printed for programs."""
    words = WRONG[name]
    ran = mcp(*(words if words[-2:] != A_BANK else (*words[:-2], *bank)))
    assert ran.out == ""
    assert f"{ran.code}\n{ran.err}" == wording


# --------------------------------------------------------------------------------------------------------------- serve


@pytest.mark.anyio
@pytest.mark.short(1)
@pytest.mark.parametrize("name", ["TOOLS", "SECTION", "TEMPLATE", "PROMPT"])
async def test_list_section_and_prompt_of_a_module_are_served(mcp: Command, name: str) -> None:
    """By the file and the name."""
    async with client_of("serve", f"mcp_desk.py:{name}") as client:
        assert [one.name for one in (await client.list_tools()).tools] == ["price"]
        assert (await client.call_tool("price", {"order": "abc"})).structured_content == {"result": 3}


@pytest.mark.anyio
async def test_tools_of_an_agent_are_served_by_the_rules_of_its_project(mcp: Command, tmp_path: Path) -> None:
    """The files that `handrail new` writes; a client without questions calls again after an answer given elsewhere."""
    write_agent_folder("notes", tmp_path)
    store = ("--store", f"sqlite:///{tmp_path}/notes.db")
    async with client_of("serve", "notes/notes.agent", *store) as client:
        assert [one.name for one in (await client.list_tools()).tools] == ["list_notes", "add_note"]
        waits = text(await client.call_tool("add_note", {"text": "milk"}))
        command = waits[waits.index("approvals answer") :].partition(". ")[0].split()
        assert (await asyncio.to_thread(mcp, *command)).code == 0
        assert text(await client.call_tool("add_note", {"text": "milk"})) == "noted: milk"
        assert text(await client.call_tool("list_notes", {})) == "milk"


# -------------------------------------------------------------------------------------------------- sessions, and ends


def started(*words: str) -> subprocess.Popen[str]:
    """The command as a process, with pipes."""
    pipe = subprocess.PIPE
    return subprocess.Popen((*ENTRY, *words), stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def ask(process: subprocess.Popen[str], method: str, **params: Any) -> dict[str, Any]:
    """The first message that a server sends after a request."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps({"jsonrpc": "2.0", "id": method, "method": method, "params": params}) + "\n")
    process.stdin.flush()
    message: dict[str, Any] = json.loads(process.stdout.readline())
    return message


HELLO: dict[str, Any] = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "test", "version": "1"},
}


def test_each_proxy_that_runs_has_a_session_of_its_own(mcp: Command, bank: Sequence[str], tmp_path: Path) -> None:
    """That of its server, or one that no other process opens, in which no key would hold; or that of `--session`."""
    store = ("--store", f"sqlite:///{tmp_path}/calls.db")
    with started("proxy", *store, *bank) as process:
        ask(process, "initialize", **HELLO)
        for session in ([], ["--session", "mine"]):
            with started("proxy", *session, *store, *bank) as other:
                ask(other, "initialize", **HELLO)
                meta = {"dev.handrail/key": "k"}
                answer = ask(other, "tools/call", name="balance", arguments={}, _meta=meta)
                assert ("error" in answer) == (not session)
                other.communicate(timeout=60)
        process.communicate(timeout=60)
    assert process.returncode == 0  # its input has ended
    sessions = {row["session_id"].partition("/own-")[0] for row in mcp.rows("sessions", "list", *store)}
    assert sessions == {"proxy-bank_server", "mine"}


def test_payment_that_a_killed_proxy_left_unknown_is_not_repeated_by_the_next(
    mcp: Command, bank: Sequence[str], tmp_path: Path
) -> None:
    """Also if the first proxy of that server, whose session they do not share, runs on."""
    store = ("--store", f"sqlite:///{tmp_path}/calls.db", "--env", f"BANK={tmp_path}/payments")
    with started("proxy", *store, *bank) as first:
        ask(first, "initialize", **HELLO)
        with started("proxy", *store, *bank) as second:
            ask(second, "initialize", **HELLO)
            assert second.stdin is not None
            params = {"name": "pay_late", "arguments": {"order": "a"}}
            second.stdin.write(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}) + "\n")
            second.stdin.flush()
            with stores.open(store[1]) as looks:
                while not list(looks.rows()):
                    select.select([], [], [], 0.01)
            second.kill()
        with started("proxy", *store, *bank) as third:
            ask(third, "initialize", **HELLO)
            answer = ask(third, "tools/call", name="pay_late", arguments={"order": "a"})
            third.communicate(timeout=60)
        first.communicate(timeout=60)
    assert answer["result"]["isError"]
    assert [row["state"] for row in mcp.rows("ledger", "list", "--status", "unknown", *store[:2])] == ["lapsed"]


def test_word_with_a_hyphen_is_not_the_command_of_a_server(mcp: Command, bank: Sequence[str], wording: Wording) -> None:
    """It is an option that does not exist."""
    ran = mcp("proxy", "--rule", "rules.yaml", *bank)
    assert (ran.code, ran.err) == (2, wording)


def test_sigterm_ends_a_proxy_in_order(mcp: Command, bank: Sequence[str], tmp_path: Path, wording: Wording) -> None:
    """A call that runs is cancelled, and its end is recorded; nothing but messages is printed."""
    store = ("--store", f"sqlite:///{tmp_path}/calls.db")
    with started("proxy", *store, *bank) as process:
        ask(process, "initialize", **HELLO)
        message = ask(process, "tools/call", name="wait", arguments={}, _meta={"progressToken": "p"})
        assert message["method"] == "notifications/progress"
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (0, "")
    (row,) = mcp.rows("sessions", "list", *store)
    assert (row["session_id"], row["state"]) == ("proxy-bank_server", ["ended"])
    assert mcp("sessions", "show", "proxy-bank_server", *store).out == wording


def test_server_without_a_client_ends_in_order(mcp: Command) -> None:
    """Its input is not a pipe, and empty."""
    words = (*ENTRY, "serve", "mcp_desk.py:TOOLS")
    ran = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=60)
    assert (ran.returncode, "Traceback" in ran.stderr) == (0, False)


def test_session_that_is_in_use_is_an_error(mcp: Command, tmp_path: Path, wording: Wording) -> None:
    """In the words of the command line."""
    url = f"sqlite:///{tmp_path}/calls.db"
    with stores.open(url) as store, store.session("desk"):
        words = (*ENTRY, "serve", "mcp_desk.py:TOOLS", "--store", url, "--session", "desk")
        ran = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=60)
    assert (ran.returncode, ran.stderr) == (2, wording)


def test_port_that_is_taken_is_an_error(mcp: Command, wording: Wording) -> None:
    """It does not say that it serves."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with started("serve", "mcp_desk.py:TOOLS", "--http", str(port)) as process:
            out, said = process.communicate(timeout=60)
    assert (process.returncode, out) == (1, "")
    assert said.replace(str(port), "PORT") == wording


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_ends_a_server_over_http_in_order(mcp: Command, number: signal.Signals, wording: Wording) -> None:
    """As soon as it says where it serves; a person who presses Ctrl-C reads nothing more."""
    port = free_port()
    with started("serve", "mcp_desk.py:TOOLS", "--http", str(port)) as process:
        assert process.stderr is not None
        lines = [process.stderr.readline() for _ in range(2)]
        process.send_signal(number)
        _, rest = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "".join((*lines, rest)).replace(str(port), "PORT") == wording
