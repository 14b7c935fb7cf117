"""The loop guard raises where Handrail would block an event loop, and costs nothing where it is off."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from handrail import tool, waiting
from handrail.errors import LoopBlockedError
from handrail.filesystem import HostFilesystem
from handrail.runtime import ToolCall
from tests.kit import executor

_PROGRAM = """
import asyncio, sys
from handrail.errors import LoopBlockedError
from handrail.waiting import asynchronous_entry, check_blocking, synchronous_entry

def block():
    check_blocking("reading", "notes.md")
    return "ran"

def outcome(act):
    try:
        return act()
    except LoopBlockedError as error:
        return error.operation

@asynchronous_entry
async def entered(act):
    return outcome(act)

async def in_thread():
    return await asyncio.to_thread(outcome, block)

async def in_task():
    return await entered(block)

print(outcome(block))
print(asyncio.run(entered(block)))
print(asyncio.run(entered(synchronous_entry(block))))

@asynchronous_entry
async def hands_over():
    return await in_thread()

@asynchronous_entry
async def starts():
    return await asyncio.create_task(in_task())

print(asyncio.run(hands_over()))
print(asyncio.run(starts()))

async def alone():
    first = await entered(block)
    return first, outcome(block)

print(asyncio.run(alone())[1])
"""


def test_the_guard_is_on_in_all_tests() -> None:
    """And in the processes that they start."""
    assert waiting.IS_ON
    assert os.environ[waiting.VARIABLE] == "1"


def test_an_entry_is_the_function_itself_while_the_guard_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """It costs nothing there."""
    monkeypatch.setattr(waiting, "IS_ON", False)
    assert waiting.synchronous_entry(print) is print
    assert waiting.asynchronous_entry(asyncio.to_thread) is asyncio.to_thread


@pytest.mark.parametrize(
    "value, expected",
    [
        ("1", ["ran", "reading notes.md", "ran", "ran", "reading notes.md", "ran"]),
        ("0", ["ran", "ran", "ran", "ran", "ran", "ran"]),
    ],
)
def test_only_the_loop_of_an_asynchronous_entry_is_guarded(value: str, expected: list[str]) -> None:
    """Outside of it, behind the synchronous entry and on other threads an operation may block; off, all may."""
    environment = {**os.environ, "HANDRAIL_LOOP_GUARD": value}
    done = subprocess.run([sys.executable, "-c", _PROGRAM], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:-1] == expected


@pytest.mark.anyio
async def test_a_handler_that_blocks_the_loop_is_the_developers_mistake(tmp_path: Path) -> None:
    """The exception reaches the program and names the operation; a `def` handler may read."""
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "a").write_text("x")
    files = await asyncio.to_thread(HostFilesystem, tmp_path / "root", journal=tmp_path / "journal")

    @tool
    def threaded() -> str:
        return files.read_text("a")

    @tool
    async def on_loop() -> str:
        return files.read_text("a")

    door = executor(threaded, on_loop)
    assert (await door.execute_async(ToolCall("1", "threaded", {}))).success
    with pytest.raises(LoopBlockedError) as blocked:
        await door.execute_async(ToolCall("2", "on_loop", {}))
    assert blocked.value.operation == "reading a"
