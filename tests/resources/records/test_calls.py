"""Records as a resource of calls, one after another, on threads and in tasks."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from handrail.adapters.tool_executor import ToolExecutor
from handrail.errors import TransactionClosedError
from handrail.prompt import Prompt, PromptTemplate, Tool, ToolContext, ToolResult, ToolsSection
from handrail.resources import Records
from handrail.runtime import Session, ToolCall
from tests.handler_threads import HandlerThreads

CALLS = 40


@dataclass(frozen=True)
class Transfer:
    """Cents from one account to another; `fails` after the first is changed."""

    source: str
    target: str
    cents: int
    fails: bool = False


@dataclass(frozen=True)
class Total:
    """All cents."""

    cents: int


def transfer(params: Transfer, *, context: ToolContext) -> ToolResult[Total]:
    """Change two nested values, one after the other."""
    accounts = context.resources.get(Records)["accounts"]
    accounts[params.source]["entries"][0]["cents"] -= params.cents
    if params.fails:
        raise ConnectionError("lost")
    accounts[params.target]["entries"][0]["cents"] += params.cents
    return ToolResult.ok(Total(total(accounts)))


async def transfer_in_a_task(params: Transfer, *, context: ToolContext) -> ToolResult[Total]:
    """The same, with a moment for other tasks in between."""
    accounts = context.resources.get(Records)["accounts"]
    accounts[params.source]["entries"][0]["cents"] -= params.cents
    await asyncio.sleep(0)
    if params.fails:
        raise ConnectionError("lost")
    accounts[params.target]["entries"][0]["cents"] += params.cents
    return ToolResult.ok(Total(total(accounts)))


def look(params: Total, *, context: ToolContext) -> ToolResult[Total]:
    """Read all."""
    return ToolResult.ok(Total(total(context.resources.get(Records)["accounts"])))


def total(accounts: dict[str, Any]) -> int:
    """All cents of all accounts."""
    return sum(entry["cents"] for account in accounts.values() for entry in account["entries"])


def bank() -> Records:
    """Ten accounts."""
    return Records({"accounts": {str(number): {"entries": [{"cents": 100}]} for number in range(10)}})


def executor(records: Records) -> ToolExecutor:
    """The tools over the records, in a session of their own."""
    tools: list[Tool[Any, Any]] = [
        Tool[Transfer, Total](name="transfer", description="Moves cents.", handler=transfer),
        Tool[Transfer, Total](name="transfer_in_a_task", description="Moves cents.", handler=transfer_in_a_task),
        Tool[Total, Total](name="look", description="Looks.", handler=look, effect="read"),
    ]
    section = ToolsSection(title="Bank", tools=tools)
    prompt = Prompt(PromptTemplate(ns="tests", key="bank", sections=[section])).bind(resources={Records: records})
    return ToolExecutor(prompt=prompt, session=Session())


def calls(tool: str) -> list[ToolCall]:
    """Transfers, each third of which fails, and looks between them."""
    made: list[ToolCall] = []
    for number in range(CALLS):
        arguments = {"source": str(number % 10), "target": str(number * 3 % 10), "cents": 1, "fails": number % 3 == 0}
        made += [ToolCall(f"t{number}", tool, arguments), ToolCall(f"l{number}", "look", {"cents": 0})]
    return made


def expected() -> dict[str, Any]:
    """What the transfers that do not fail come to."""
    accounts = bank().plain()["accounts"]
    for number in range(CALLS):
        if number % 3:
            accounts[str(number % 10)]["entries"][0]["cents"] -= 1
            accounts[str(number * 3 % 10)]["entries"][0]["cents"] += 1
    return {"accounts": accounts}


@contextmanager
def watched(records: Records) -> Generator[None]:
    """A block during which another thread reads all the time, and never sees half a transfer."""
    stop, seen = threading.Event(), set[int]()

    def watch() -> None:
        while not stop.is_set():
            seen.add(total(records.plain()["accounts"]))

    with ThreadPoolExecutor(1) as threads:
        watching = threads.submit(watch)
        try:
            yield
        finally:
            stop.set()
        watching.result()
    assert seen <= {1000}


def test_calls_of_threads_take_turns() -> None:
    """Executors of several sessions share the records; no call sees what another one has not committed."""
    records = bank()
    executors = [executor(records) for _ in range(4)]
    asked = calls("transfer")
    with watched(records), ThreadPoolExecutor(4) as threads:
        running = [threads.submit(executors[number % 4].execute, each) for number, each in enumerate(asked)]
        messages = [each.result() for each in running]
    assert records == expected()
    assert {message.result.value for message in messages if message.success} == {Total(1000)}


@pytest.mark.anyio
async def test_calls_of_tasks_take_turns() -> None:
    """The same for tasks that run beside each other."""
    records = bank()
    executors = [executor(records) for _ in range(4)]
    asked = calls("transfer_in_a_task")
    with watched(records):
        messages = await asyncio.gather(
            *(executors[number % 4].execute_async(each) for number, each in enumerate(asked))
        )
    assert records == expected()
    assert {message.result.value for message in messages if message.success} == {Total(1000)}


def test_a_handler_that_overran_its_time_cannot_write() -> None:
    """What it changed is rolled back, and its next change is refused."""
    release, refused = threading.Event(), list[Exception]()

    def slow(params: Transfer, *, context: ToolContext) -> ToolResult[Total]:
        entry = context.resources.get(Records)["accounts"]["1"]["entries"][0]
        entry["cents"] = 0
        release.wait()
        try:
            entry["cents"] = 1
        except TransactionClosedError as error:
            refused.append(error)
        return ToolResult.ok(Total(0))

    left = HandlerThreads()
    records = bank()
    tool = Tool[Transfer, Total](name="slow", description="Is slow.", handler=slow, timeout=timedelta(milliseconds=20))
    prompt = Prompt(PromptTemplate(ns="tests", key="slow", sections=[ToolsSection(title="Slow", tools=[tool])])).bind(
        resources={Records: records}
    )
    with ToolExecutor(prompt=prompt, session=Session()) as executing:
        message = executing.execute(ToolCall("1", "slow", {"source": "1", "target": "2", "cents": 1}))
        assert not message.success
        assert records == bank()
        release.set()
        left.join()
    assert len(refused) == 1
    assert records == bank()


def test_what_a_record_holds_is_a_result() -> None:
    """A dict of the records is a value like any other, and the message has its JSON."""

    def find(params: Total, *, context: ToolContext) -> ToolResult[dict[str, Any]]:
        return ToolResult.ok(context.resources.get(Records)["accounts"]["1"])

    tool = Tool[Total, dict[str, Any]](name="find", description="Finds.", handler=partial(find), effect="read")
    prompt = Prompt(PromptTemplate(ns="tests", key="find", sections=[ToolsSection(title="Find", tools=[tool])])).bind(
        resources={Records: bank()}
    )
    with ToolExecutor(prompt=prompt, session=Session()) as executing:
        message = executing.execute(ToolCall("1", "find", {"cents": 1}))
    assert message.success
    assert '"cents":100' in message.content.replace(" ", "")
