"""The connection to an MCP server: a real process, started, followed, killed and started again."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from collections.abc import AsyncGenerator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from handrail.adapters.mcp import McpConnection, McpServer, McpServerError, connection
from handrail.errors import EffectNotApplied, EffectUncertain
from tests.adapters.mcp.bank_server import Bank
from tests.adapters.mcp.kit import BANK, bank_process, on_port, until
from tests.wording import Wording

pytestmark = pytest.mark.anyio


@pytest.fixture
def payments(tmp_path: Path) -> Path:
    """The file of what the bank has paid."""
    return tmp_path / "payments"


@pytest.fixture
async def bank(payments: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[McpConnection]:
    """A connection to the bank, which is started again at once if it ends."""
    monkeypatch.setattr(connection, "_FIRST_PAUSE", 0.01)
    async with McpConnection(bank_process(payments)) as opened:
        yield opened


def said(answer: dict[str, Any]) -> str:
    """The text of an answer."""
    return str(answer["content"][0]["text"])


async def test_server_that_ends_in_a_call_leaves_it_without_an_answer(bank: McpConnection, wording: Wording) -> None:
    """The call may have acted, so it is not reported as failed."""
    with pytest.raises(EffectUncertain) as raised:
        await bank.call("die", {})
    assert str(raised.value) == wording


async def test_call_after_that_waits_for_the_next_server(bank: McpConnection) -> None:
    """The caller sees the restart as a call that takes longer."""
    with pytest.raises(EffectUncertain):
        await bank.call("die_reading", {})
    assert said(await bank.call("pay", {"order": "a"})) == "paid a"


async def test_call_of_a_server_that_cannot_be_started_again_was_not_sent(
    payments: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So the model may repeat it."""
    monkeypatch.setattr(connection, "_FIRST_PAUSE", 0.01)
    program = tmp_path / "bank.py"
    shutil.copy(BANK, program)
    server = McpServer(name="bank", command=(sys.executable, str(program)), env={"BANK": str(payments)})
    async with McpConnection(server) as bank:
        program.unlink()
        with pytest.raises(EffectUncertain):
            await bank.call("die", {})
        with pytest.raises(EffectNotApplied):
            await bank.call("pay", {"order": "a"})
    assert len(Bank(payments).paid()) == 1


async def test_error_that_proves_that_nothing_was_done_says_so(bank: McpConnection, wording: Wording) -> None:
    """The code of the error decides: the request was refused before anything ran."""
    with pytest.raises(EffectNotApplied) as raised:
        await bank.call("refuse", {})
    assert str(raised.value) == wording


async def test_server_gets_the_listed_variables_and_few_others(payments: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A secret of this process does not reach the server."""
    monkeypatch.setenv("BANK_TOKEN", "secret")
    async with McpConnection(bank_process(payments, env={"REGION": "eu"})) as bank:
        names = set(json.loads(said(await bank.call("environment", {}))))
    assert names & {"BANK", "REGION", "BANK_TOKEN"} == {"BANK", "REGION"}
    assert names <= {"BANK", "REGION", "HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER", "LC_CTYPE"}


async def test_line_that_is_not_utf8_does_not_end_the_connection(bank: McpConnection) -> None:
    """What follows it is read, so that no call is unknown that was answered."""
    await bank.call("garble", {})
    assert said(await bank.call("pay", {"order": "a"})) == "paid a"


async def test_call_waits_for_the_next_attempt_to_start_the_server(
    payments: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An attempt that failed before says nothing about the server now."""
    monkeypatch.setattr(connection, "_FIRST_PAUSE", 0.3)
    program, away = tmp_path / "bank.py", tmp_path / "away.py"
    shutil.copy(BANK, program)
    server = McpServer(name="bank", command=(sys.executable, str(program)), env={"BANK": str(payments)})
    async with McpConnection(server) as bank:
        program.rename(away)
        with pytest.raises(EffectUncertain):
            await bank.call("die_reading", {})
        with pytest.raises(EffectNotApplied):
            await bank.call("pay", {"order": "a"})
        away.rename(program)
        assert said(await bank.call("pay", {"order": "b"})) == "paid b"


async def test_roots_are_refused(bank: McpConnection) -> None:
    """The client has not declared that capability."""
    assert said(await bank.call("sample", {})).startswith("refused")


async def test_list_of_tools_is_followed(bank: McpConnection) -> None:
    """A follower is called, and the list is read again."""
    changed = asyncio.Event()

    class Follower:
        def hear(self) -> None:
            changed.set()

    follower = Follower()
    bank.follow(follower.hear)
    await bank.call("learn", {})
    await changed.wait()
    assert bank.tools[-1].name == "taught"


async def test_cancelled_call_is_cancelled_at_the_server(tmp_path: Path) -> None:
    """Over HTTP, where the server runs in this process and can be looked at."""
    bank = Bank(tmp_path / "payments")
    async with (
        on_port(bank.server.streamable_http_app()) as url,
        McpConnection(McpServer(name="bank", url=url)) as opened,
    ):
        call = asyncio.ensure_future(opened.call("wait", {}))
        await bank.waiting.wait()
        call.cancel()
        await asyncio.wait((call,))
        await until(lambda: bank.cancelled)


async def test_server_at_a_url_is_called_and_followed(tmp_path: Path) -> None:
    """The key and the instructions pass over HTTP too."""
    bank = Bank(tmp_path / "payments")
    async with (
        on_port(bank.server.streamable_http_app()) as url,
        McpConnection(McpServer(name="bank", url=url)) as opened,
    ):
        assert said(await opened.call("pay", {"order": "a"}, key="k")) == "paid a"
        assert bank.keys == ["k"]
        assert opened.instructions == "Pay with care."


@pytest.mark.parametrize("command", [["nonsense-program"], [sys.executable, "-c", "pass"]], ids=["missing", "ends"])
async def test_server_that_cannot_be_started_is_an_error_at_once(command: list[str], wording: Wording) -> None:
    """Opening does not wait for further attempts."""
    with pytest.raises(McpServerError) as raised:
        async with McpConnection(McpServer(name="none", command=command)):
            pass
    assert (raised.value.server, str(raised.value)) == ("none", wording)


async def test_server_that_is_silent_is_given_up(wording: Wording) -> None:
    """A program that never answers the handshake."""
    silent = McpServer(
        name="silent",
        command=[sys.executable, "-c", "import time; time.sleep(60)"],
        start_timeout=timedelta(milliseconds=300),
    )
    with pytest.raises(McpServerError) as raised:
        async with McpConnection(silent):
            pass
    assert str(raised.value) == wording


@pytest.mark.parametrize("options", [{}, {"command": ["a"], "url": "http://b"}], ids=["neither", "both"])
def test_server_has_a_command_or_a_url(options: dict[str, object], wording: Wording) -> None:
    """Exactly one of them."""
    with pytest.raises(McpServerError) as raised:
        McpServer(name="bank", **options)  # type: ignore[arg-type]
    assert str(raised.value) == wording


def test_on_a_loop_of_its_own_it_is_called_from_any_loop(payments: Path) -> None:
    """Each call comes from a loop that did not open the connection; after it is closed, calls fail."""
    with McpConnection(bank_process(payments)) as bank:
        for order in ("a", "b"):
            assert said(asyncio.run(bank.call("pay", {"order": order}))) == f"paid {order}"
    with pytest.raises(EffectNotApplied):
        asyncio.run(bank.call("pay", {"order": "c"}))


def test_process_of_the_server_ends_with_the_connection(payments: Path) -> None:
    """No child process is left."""
    server = bank_process(payments)
    before = _children()
    with McpConnection(server):
        children = _children() - before
        assert children
    assert not children & _children()


def _children() -> set[int]:
    return {int(pid) for task in Path("/proc/self/task").iterdir() for pid in (task / "children").read_text().split()}
