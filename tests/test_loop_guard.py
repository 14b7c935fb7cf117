"""The loop guard raises where Handrail would block an event loop, and costs nothing where it is off."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from handrail import loop_guard

_PROGRAM = """
import asyncio, sys
from handrail.errors import LoopBlockedError
from handrail.loop_guard import asynchronous_entry, check_blocking, synchronous_entry

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
print(asynchronous_entry(in_task) is in_task)
"""


def test_the_guard_is_on_in_all_tests() -> None:
    """And in the processes that they start."""
    assert loop_guard.IS_ON
    assert os.environ[loop_guard.VARIABLE] == "1"


@pytest.mark.parametrize(
    "value, expected",
    [
        ("1", ["ran", "reading notes.md", "ran", "ran", "reading notes.md", "ran", "False"]),
        ("0", ["ran", "ran", "ran", "ran", "ran", "ran", "True"]),
    ],
)
def test_only_the_loop_of_an_asynchronous_entry_is_guarded(value: str, expected: list[str]) -> None:
    """Outside of it, behind the synchronous entry and on other threads an operation may block; off, all may."""
    environment = {**os.environ, "HANDRAIL_LOOP_GUARD": value}
    done = subprocess.run([sys.executable, "-c", _PROGRAM], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:-1] == expected


_HANDLER = """
import asyncio, sys
from handrail.adapters.tool_executor import ToolExecutor
from handrail.errors import LoopBlockedError
from handrail.filesystem import HostFilesystem
from handrail.prompt import Prompt, PromptTemplate, Section, tool
from handrail.runtime import Session, ToolCall
from handrail.store import open as open_store

files = HostFilesystem(sys.argv[1], journal=sys.argv[2])

@tool
def threaded() -> str:
    '''Reads on a thread.'''
    return files.read_text("a")

@tool
async def on_loop() -> str:
    '''Reads on the loop.'''
    return files.read_text("a")

prompt = Prompt(PromptTemplate(ns="t", key="k", sections=[Section(title="T", tools=[threaded, on_loop])]))

async def main():
    with open_store(f"sqlite:///{sys.argv[3]}") as store:
        async with await Session.open_async(store, "desk") as session:
            executor = ToolExecutor(prompt=prompt, session=session)
            print((await executor.execute_async(ToolCall("1", "threaded", {}), reply="r")).success)
            try:
                await executor.execute_async(ToolCall("2", "on_loop", {}), reply="r")
            except LoopBlockedError as error:
                print(error.operation)

asyncio.run(main())
"""


def test_a_handler_that_blocks_the_loop_is_the_developers_mistake(tmp_path: Path) -> None:
    """The exception reaches the program and names the operation; a `def` handler may read."""
    root, journal = tmp_path / "root", tmp_path / "journal"
    root.mkdir()
    (root / "a").write_text("x")
    done = subprocess.run(
        [sys.executable, "-c", _HANDLER, str(root), str(journal), str(tmp_path / "desk.db")],
        env={**os.environ, "HANDRAIL_LOOP_GUARD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split("\n")[:-1] == ["True", "reading a"], done.stderr
