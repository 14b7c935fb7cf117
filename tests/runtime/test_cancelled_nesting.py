"""A call with a nested effect over a database, cancelled wherever the process would have died."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from handrail import crash_points, store
from handrail.prompt import Tool, ToolContext, ToolResult
from handrail.runtime import Session, ToolCall, ToolInvoked
from tests.kit import executor
from tests.runtime.test_durable_tasks import Paid, Pay

PAY = ToolCall("1", "pay_all", {"cents": 5})


async def _cancelled(session: Session, left: int, times: int) -> bool:
    """Make the call, and cancel it at a point; returns whether it came to that."""

    async def pay(params: Pay, *, context: ToolContext) -> ToolResult[Paid]:
        context.session[Paid].append(Paid(params.cents))
        await asyncio.sleep(0)
        return ToolResult.ok(Paid(params.cents))

    async def pay_all(params: Pay, *, context: ToolContext) -> ToolResult[Paid]:
        context.session[Paid].append(Paid(params.cents))
        await door.execute_async(ToolCall(f"{context.call_id}.1", "pay", {"cents": params.cents}), reply="r")
        await asyncio.sleep(0)
        return ToolResult.ok(Paid(params.cents))

    door = executor(
        Tool[Pay, Paid](name="pay", description="Pays.", handler=pay, effect="external"),
        Tool[Pay, Paid](name="pay_all", description="Pays all.", handler=pay_all),
        session=session,
    )
    loop = asyncio.get_running_loop()
    task = asyncio.create_task(door.execute_async(PAY, reply="r"))

    def reached(point: str) -> None:
        nonlocal left
        left -= 1
        if left == -1:
            for _ in range(times):
                loop.call_soon_threadsafe(task.cancel)

    crash_points.arm(reached)
    try:
        await asyncio.gather(task, return_exceptions=True)
    finally:
        crash_points.arm(None)
    return left < 0


@pytest.mark.parametrize("times", [1, 2])
def test_a_call_with_a_nested_effect_is_undone_as_a_whole_wherever_it_is_cancelled(tmp_path: Path, times: int) -> None:
    """Its record, what it wrote, and the effect nested in it agree, also after the session is opened again."""
    outcomes = set[bool]()
    point, came_to_it = 0, True
    with store.open(f"sqlite:///{tmp_path / 'desk.db'}") as kept:
        while came_to_it:
            name = f"{times} {point}"
            with Session.open(kept, name) as session:
                came_to_it = asyncio.run(_cancelled(session, point, times))
            with Session.open(kept, name) as session:
                made = [event.result.success for event in session[ToolInvoked].all() if "." not in event.call_id]
                assert len(made) == 1, point
                assert len(session[Paid].all()) == (4 if made[0] else 0), point
                assert "running" not in [row.status for row in kept.rows() if row.partition == name], point
            outcomes.update(made)
            point += 1
    assert outcomes == {True, False}
    assert point > 10
