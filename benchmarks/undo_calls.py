"""What it costs to be able to undo a call: of each call, of a plan, and of the undo itself.

A tool without `undo=` registers nothing. One with it writes what its undo needs in the unit of work of the claim.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.timing import Bound, Limit, Stopwatch, Timing
from handrail import store, tool, undo
from handrail.adapters.tool_executor import ToolExecutor
from handrail.prompt import Prompt, PromptTemplate, Tool, ToolResult, ToolsSection
from handrail.runtime import Session, ToolCall
from handrail.store import Store

EXTERNAL, WITH_UNDO, WITH_CAPTURE = (
    "external call, SQLite (normal)",
    "external call, with undo=, SQLite (normal)",
    "external call, with undo= and capture=, SQLite (normal)",
)
MANY, FEW = 1_000, 100
PLAN = f"plan of {MANY:,} calls"
UNDO_WORLD = f"undo of {FEW} external calls"
UNDO_STATE = f"undo of {FEW} calls that change state"
BOUNDS = (Bound(WITH_UNDO, EXTERNAL, 1.2), Bound(WITH_CAPTURE, EXTERNAL, 1.4))
LIMITS = (
    Limit(PLAN, 1_000.0, "ms at the longest"),
    Limit(UNDO_WORLD, None, "ms at the longest"),
    Limit(UNDO_STATE, None, "ms at the longest"),
)


def _pay(order: str, cents: int) -> int:
    """Pay an order.

    Args:
        order: the number of the order.
        cents: the amount.
    """
    return cents


@dataclass(frozen=True, slots=True)
class Noted:
    """An order that is noted, in the slice of orders."""

    order: str
    cents: int


def _note(order: str, cents: int) -> Noted:
    """Note an order.

    Args:
        order: the number of the order.
        cents: the amount.
    """
    return Noted(order, cents)


def _refund(_: object, result: ToolResult[int], __: int | None) -> None:
    assert result.value is not None


def _balance(_: object) -> int:
    return 100


_TOOLS: list[Tool[Any, Any]] = [
    tool(name="pay", effect="external")(_pay),
    tool(name="pay_undoably", effect="external", undo=_refund)(_pay),
    tool(name="pay_capturing", effect="external", undo=_refund, capture=_balance)(_pay),
    tool(name="note")(_note),
]


class _Desk:
    """Calls of a session."""

    def __init__(self, opened: Store, session_id: str) -> None:
        self.session = Session.open(opened, session_id)
        prompt = Prompt(PromptTemplate(ns="bench", key="undo", sections=[ToolsSection(title="Tools", tools=_TOOLS)]))
        self.executor = ToolExecutor(prompt=prompt, session=self.session)
        self._numbers = count()

    def call(self, name: str) -> None:
        number = next(self._numbers)
        message = self.executor.execute(
            ToolCall(f"call-{number}", name, f'{{"order": "A-{number}", "cents": 100}}'), reply="reply"
        )
        assert message.success, message.content


def _time_plan(opened: Store) -> Timing:
    """A plan of calls of which half change state, and half the world."""
    desk = _Desk(opened, "plan")
    for _ in range(MANY // 2):
        desk.call("note")
        desk.call("pay_capturing")
    with Stopwatch() as stopwatch:
        plan = undo.plan(desk.session, executors=desk.executor)
    assert len(plan.steps) == MANY
    return stopwatch.timing()


def _time_undo(opened: Store, name: str) -> Timing:
    desk = _Desk(opened, f"undo {name}")
    for _ in range(FEW):
        desk.call(name)
    plan = undo.plan(desk.session, executors=desk.executor)
    assert len(plan.steps) == FEW
    with Stopwatch() as stopwatch:
        report = asyncio.run(undo.apply(plan))
    assert report.complete
    return stopwatch.timing()


@contextmanager
def cases() -> Generator[dict[str, Callable[[], object]]]:
    """What is measured, by name; the database is there for the time of the block."""
    with ExitStack() as held:
        folder = Path(held.enter_context(TemporaryDirectory(prefix="handrail-bench-")))
        opened = held.enter_context(store.open(f"sqlite:///{folder}/undo.db", durability="normal"))
        names = {EXTERNAL: "pay", WITH_UNDO: "pay_undoably", WITH_CAPTURE: "pay_capturing"}
        yield {
            **{case: partial(_Desk(opened, name).call, name) for case, name in names.items()},
            PLAN: partial(_time_plan, opened),
            UNDO_WORLD: partial(_time_undo, opened, "pay_capturing"),
            UNDO_STATE: partial(_time_undo, opened, "note"),
        }
