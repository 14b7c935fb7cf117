"""Payments at a desk, for tests of what happens to a store.

A payment is a line of the file `world`. `start("tests.store.payments")` is another process: for each line of JSON,
with the URL of a store, `world`, and the first and last payment, it opens the store and asks for these payments, in a
session of its own. It says on a line what each has come to.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import handrail.store
from handrail import tool
from handrail.adapters.tool_executor import ToolExecutor
from handrail.errors import HandrailError
from handrail.prompt import Tool
from handrail.runtime import IdempotencyConfig, ToolCall
from handrail.session import Session
from tests import kit
from tests.crash.forks import Fork

DONE = "done"


def pay_tool(world: Path) -> Tool[Any, Any]:
    """Pays an order at most once, whatever session asks."""

    @tool(effect="external", idempotency=IdempotencyConfig(scope="tool"))
    def pay(order: str) -> str:
        """Pay an order.

        Args:
            order: its number.
        """
        with world.open("a") as lines:
            lines.write(f"{order}\n")
        return "paid"

    return pay


def desk(session: Session, world: Path) -> ToolExecutor:
    """An executor that can pay."""
    return kit.executor(pay_tool(world), session=session)


def pay_all(executor: ToolExecutor, orders: Iterable[int]) -> list[str]:
    """Ask for payments one by one: `done`, what the model reads otherwise, or the error that is raised."""
    outcomes: list[str] = []
    for order in orders:
        call = ToolCall(f"c{order}", "pay", {"order": f"order {order}"})
        try:
            message = executor.execute(call, reply=f"r{order}")
        except HandrailError as error:
            outcomes.append(type(error).__name__)
        else:
            outcomes.append(DONE if message.success else message.content)
    return outcomes


def paid(world: Path) -> list[str]:
    """The orders that were paid, in order of payment."""
    return world.read_text().splitlines() if world.exists() else []


def pay_elsewhere(process: Fork, url: str, world: Path, orders: Sequence[int]) -> list[str]:
    """What asking for payments in another process has come to; one outcome if the session cannot be opened."""
    process.stdin.write(f"{json.dumps([url, str(world), orders[0], orders[-1]])}\n")
    process.stdin.flush()
    outcomes: list[str] = json.loads(process.stdout.readline())
    return outcomes


def main() -> None:
    """Pay for each line of the input."""
    for line in sys.stdin:
        url, world, first, last = json.loads(line)
        try:
            with handrail.store.open(url) as store, Session.open(store, "other") as session:
                outcomes = pay_all(desk(session, Path(world)), range(first, last + 1))
        except HandrailError as error:
            outcomes = [type(error).__name__]
        sys.stdout.write(f"{json.dumps(outcomes)}\n")
        sys.stdout.flush()
